"""Decisions about who may do what: Kafka's StandardAuthorizer over the ACLs of the metadata image.

Super users may do everything. Otherwise the ACLs that cover the resource decide: those of its name, of each prefix of
it, and of the literal name `*`, for this principal or `User:*`, from this host or `*`. One DENY is enough to refuse;
else one ALLOW is enough to allow. Where none fits, the request is refused, unless no ACL of anybody covers the resource
and `allow.everyone.if.no.acl.found` is set. An ALLOW of READ, WRITE, DELETE or ALTER implies DESCRIBE, one of
ALTER_CONFIGS implies DESCRIBE_CONFIGS; a DENY implies nothing.

`AclIndex` finds the ACLs: by principal and type of resource, then by name. A look-up costs a few dictionary accesses
and one for each length that the prefixed ACLs of the principal have. `Authorizer` adds the settings, and remembers
decisions until the next change.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from immutables import Map

from ottla.errors import ErrorCode, KafkaError
from ottla.security.acls import (
    SUPPORTED_OPERATIONS,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    HostPattern,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    host_text,
    shown,
)
from ottla.steps import at_once

_Rules = dict[str, tuple[Acl, ...]]
_Key = tuple[str, int]
"""Principal and type of resource."""
_Pattern = tuple[int, int, str]
"""Type of resource, type of pattern and name."""

DECISIONS_MAX: Final = 20_000
"""Remembered decisions, some 5 MB. A client that asks for ever new names makes them all be forgotten."""

CHANGES_PER_STEP: Final = 100
"""ACLs that are taken over between two yields: each costs some microseconds."""

ANY_NAME: Final = "hardcode"
"""The resource that Kafka asks for first when it asks for any: a super user, or everyone, may use it."""

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED

_IMPLIED_BY: Final[Mapping[int, tuple[Operation, ...]]] = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}

_DENIES: Final = tuple(1 << operation | 1 << Operation.ALL for operation in Operation)
"""Operations of a DENY that refuse each operation, as bits."""

_ALLOWS: Final = tuple(
    _DENIES[operation] | sum(1 << each for each in _IMPLIED_BY.get(operation, ())) for operation in Operation
)
"""Operations of an ALLOW that allow each operation, as bits."""


class Verdict:
    """A decision: whether it is allowed, and the rule that decided."""

    __slots__ = ("acl", "allowed", "is_super_user")

    def __init__(self, allowed: bool, acl: Acl | None = None, *, is_super_user: bool = False) -> None:
        self.allowed = allowed
        self.acl = acl
        """The ACL that decided; None where none did."""
        self.is_super_user = is_super_user

    @property
    def rule(self) -> str:
        """The rule in Kafka's words."""
        if self.acl is not None:
            return f"MatchingAcl(acl={shown(self.acl)})"
        if self.is_super_user:
            return "SuperUser"
        return "DefaultAllow" if self.allowed else "DefaultDeny"


_SUPER_USER: Final = Verdict(True, is_super_user=True)
_DEFAULT_ALLOW: Final = Verdict(True)
_DEFAULT_DENY: Final = Verdict(False)


class AuthorizerNotReady(KafkaError):
    """The ACLs are not known yet, and the principal is no super user."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.unknown_server_error, "the ACLs of the cluster are not loaded yet")


class Question(NamedTuple):
    """What is to be decided."""

    principal: str
    host: str
    operation: Operation
    kind: ResourceType
    name: str


OnDecision = Callable[[Question, Verdict, bool], None]
"""Hears of decisions: the last argument says whether a request depends on it, rather than a list that is filtered."""


class _Names:
    """The ACLs of one principal on one type of resource. Invariant: no tuple is empty, and each is in Kafka's order."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self, literal: _Rules, prefixed: _Rules, lengths: dict[int, int]) -> None:
        self.literal = literal
        self.prefixed = prefixed
        self.lengths = lengths
        """Number of prefixes by their length."""

    def copy(self) -> _Names:
        return _Names({**self.literal}, {**self.prefixed}, {**self.lengths})

    def add(self, acl: Acl) -> None:
        if acl.pattern_type == PREFIXED:
            if acl.resource_name not in self.prefixed:
                _count(self.lengths, len(acl.resource_name), 1)
            _put(self.prefixed, acl)
        else:
            _put(self.literal, acl)

    def remove(self, acl: Acl) -> None:
        if acl.pattern_type == PREFIXED:
            _drop(self.prefixed, acl)
            if acl.resource_name not in self.prefixed:
                _count(self.lengths, len(acl.resource_name), -1)
        else:
            _drop(self.literal, acl)

    def covering(self, name: str) -> Iterator[Acl]:
        """The ACLs of the name, of its prefixes and of the literal `*`, in no order."""
        found = self.literal.get(name)
        if found is not None:
            yield from found
        if name[:1] != WILDCARD and (found := self.literal.get(WILDCARD)) is not None:  # see `AclIndex.covers`
            yield from found
        most = len(name)
        for length in self.lengths:
            if length <= most and (found := self.prefixed.get(name[:length])) is not None:
                yield from found

    def __iter__(self) -> Iterator[Acl]:
        for rules in (self.literal, self.prefixed):
            for acls in rules.values():
                yield from acls

    def __bool__(self) -> bool:
        return bool(self.literal or self.prefixed)


def _count(counts: Any, key: Any, by: int) -> None:
    """Counts that are 0 are left out."""
    now = counts.get(key, 0) + by
    if now:
        counts[key] = now
    else:
        del counts[key]


def _order(acl: Acl) -> tuple[int, str, int]:
    """Kafka's order of the ACLs of one principal on one pattern (`StandardAcl.compareTo`)."""
    return acl.operation, acl.host, acl.permission_type


def _put(rules: _Rules, acl: Acl) -> None:
    before = rules.get(acl.resource_name)
    if before is None:
        rules[acl.resource_name] = (acl,)
        return
    at = bisect_left(before, _order(acl), key=_order)
    rules[acl.resource_name] = (*before[:at], acl, *before[at:])


def _drop(rules: _Rules, acl: Acl) -> None:
    before = rules[acl.resource_name]
    at = bisect_left(before, _order(acl), key=_order)
    left = (*before[:at], *before[at + 1 :])
    if left:
        rules[acl.resource_name] = left
    else:
        del rules[acl.resource_name]


class AclIndex:
    """All ACLs by what a decision asks for. Never changes: a change makes another one, which shares the rest."""

    __slots__ = ("_lengths", "_names", "_patterns", "count")

    def __init__(
        self,
        names: Map[_Key, _Names] | None = None,
        patterns: Map[_Pattern, int] | None = None,
        lengths: Mapping[tuple[int, int], int] | None = None,
        count: int = 0,
    ) -> None:
        self._names: Map[_Key, _Names] = Map() if names is None else names
        """Invariant: none is empty."""
        self._patterns = patterns
        """Number of ACLs by pattern, for `covers`; None where nobody asks for it."""
        self._lengths = {} if lengths is None else lengths
        """Number of prefixed ACLs by type of resource and length, likewise."""
        self.count = count

    def changing(
        self, changes: Mapping[UUID, Acl | None], before: Mapping[UUID, Acl]
    ) -> Generator[None, None, AclIndex]:
        """The index with the changes, in steps; see `Authorizer.apply`."""
        gone = [old for acl_id in changes if (old := before.get(acl_id)) is not None]
        come = [acl for acl in changes.values() if acl is not None]
        touched: dict[_Key, _Names] = {}
        for number, acl in enumerate((*gone, *come)):
            key = (acl.principal, acl.resource_type)
            names = touched.get(key)
            if names is None:
                known = self._names.get(key)
                names = touched[key] = _Names({}, {}, {}) if known is None else known.copy()
            if number < len(gone):
                names.remove(acl)
            else:
                names.add(acl)
            if number % CHANGES_PER_STEP == 0:
                yield
        mutable = self._names.mutate()
        for number, (key, names) in enumerate(touched.items()):
            if names:
                mutable[key] = names
            else:
                mutable.pop(key, None)
            if number % CHANGES_PER_STEP == 0:
                yield
        now = mutable.finish()
        count = self.count + len(come) - len(gone)
        if self._patterns is None:
            return AclIndex(now, count=count)
        patterns, lengths = yield from self._counting(self._patterns, gone, come)
        return AclIndex(now, patterns, lengths, count)

    def _counting(
        self, patterns: Map[_Pattern, int], gone: list[Acl], come: list[Acl]
    ) -> Generator[None, None, tuple[Map[_Pattern, int], Mapping[tuple[int, int], int]]]:
        lengths = {**self._lengths}
        mutable = patterns.mutate()
        for number, acl in enumerate((*gone, *come)):
            by = -1 if number < len(gone) else 1
            pattern = (acl.resource_type, acl.pattern_type, acl.resource_name)
            _count(mutable, pattern, by)
            if acl.pattern_type == PREFIXED:
                _count(lengths, (acl.resource_type, len(acl.resource_name)), by)
            if number % CHANGES_PER_STEP == 0:
                yield
        return mutable.finish(), lengths

    def of(self, principal: str, kind: int) -> list[_Names]:
        """The ACLs of the principal and of everyone on a type of resource."""
        found = (self._names.get((principal, kind)), self._names.get((WILDCARD_PRINCIPAL, kind)))
        return [each for each in (found[: 1 if principal == WILDCARD_PRINCIPAL else 2]) if each is not None]

    def covers(self, kind: int, name: str) -> bool:
        """Whether any ACL of anybody covers the resource. In Kafka the literal `*` does not cover names that begin with
        an asterisk themselves: there it is a prefix of them, and no prefixed ACL."""
        patterns = self._patterns
        assert patterns is not None
        if (kind, LITERAL, name) in patterns or (name[:1] != WILDCARD and (kind, LITERAL, WILDCARD) in patterns):
            return True
        most = len(name)
        return any(
            (kind, PREFIXED, name[:length]) in patterns
            for of_kind, length in self._lengths
            if of_kind == kind and length <= most
        )


class Authorizer:
    """Answers whether a principal may do something. Belongs to one node; all methods are for its loop's thread."""

    def __init__(
        self,
        super_users: Iterable[str] = (),
        allow_everyone_if_no_acl: bool = False,
        on_decision: OnDecision | None = None,
    ) -> None:
        self.super_users = frozenset(super_users)
        self.allow_everyone_if_no_acl = allow_everyone_if_no_acl
        self.generation = 0
        """Changes with every change of the ACLs."""
        self.ready = False
        """Whether the ACLs are loaded. Until then all but super users are told that they are not."""
        self.on_decision = on_decision
        """Hears of each denial, and of permissions that were not remembered."""
        self.hears_of_all = False
        """Whether `on_decision` is to hear of remembered permissions too."""
        self.networks = False
        """Whether the host of an ACL may be a network in CIDR notation (KIP-1276)."""
        self._index = AclIndex(patterns=Map() if allow_everyone_if_no_acl else None)
        self.allowed = 0
        """Permissions that were looked up; one that is remembered until the ACLs change counts once."""
        self.denied = 0
        """All denials but those of look-ups that only filter a list."""
        self._staged: tuple[Mapping[UUID, Acl | None], AclIndex] | None = None
        self._decisions: dict[tuple[str, str, int, int, str], Verdict] = {}
        self._hosts: dict[str, HostPattern] = {}

    @property
    def acl_count(self) -> int:
        return self._index.count

    # The ACLs.

    def staging(self, changes: Mapping[UUID, Acl | None], before: Mapping[UUID, Acl]) -> Iterator[None]:
        """Do what `apply` of the same changes needs, in steps: decisions are as before until it is called."""
        self._staged = changes, (yield from self._index.changing(changes, before))

    def apply(self, changes: Mapping[UUID, Acl | None], before: Mapping[UUID, Acl]) -> None:
        """Take over changed ACLs by id, None for one that is gone; `before` has what they were."""
        staged, self._staged = self._staged, None
        if staged is not None and staged[0] is changes:
            self._index = staged[1]
        else:
            self._index = at_once(self._index.changing(changes, before))
        self.changed()

    def changed(self) -> None:
        """Drop all decisions: what they rest on has changed."""
        self.generation += 1
        self._decisions.clear()

    # Questions.

    def is_allowed(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str, *, log_denial: bool = True
    ) -> bool:
        """Whether the principal may do it. `log_denial=False` for a look-up that only filters a list. Raises
        AuthorizerNotReady."""
        verdict = self._decisions.get((principal, host, operation, kind, name))
        if verdict is None or not verdict.allowed or self.hears_of_all:
            verdict = self.decide(principal, host, operation, kind, name, log_denial=log_denial)
        return verdict.allowed

    def decide(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str, *, log_denial: bool = True
    ) -> Verdict:
        """The same with the rule that decided. Raises AuthorizerNotReady."""
        key = (principal, host, operation, kind, name)
        verdict = self._decisions.get(key)
        if verdict is None:
            verdict = self._decided(principal, host, operation, kind, name)
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions.clear()
            self._decisions[key] = verdict
        if verdict.allowed:
            self.allowed += log_denial
        else:
            self.denied += log_denial
        if self.on_decision is not None:
            self.on_decision(Question(principal, host, operation, kind, name), verdict, log_denial)
        return verdict

    def verdict(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> Verdict:
        """The same, neither counted nor heard of: for those who only want to know. Raises AuthorizerNotReady."""
        known = self._decisions.get((principal, host, operation, kind, name))
        return self._decided(principal, host, operation, kind, name) if known is None else known

    def is_allowed_for_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Whether the principal may do it to at least one resource of the type (`authorizeByResourceType`): an ALLOW
        that no DENY covers. Implied operations do not count, as in Kafka. Raises AuthorizerNotReady."""
        if self.is_allowed(principal, host, operation, kind, ANY_NAME, log_denial=False):
            return True
        allowed: list[Acl] = []
        denied: dict[int, set[str]] = {LITERAL: set(), PREFIXED: set()}
        operations = _DENIES[operation]
        host = host_text(host)
        for names in self._index.of(principal, kind):
            for acl in names:
                if not operations >> acl.operation & 1 or not self._is_from(acl, host):
                    continue
                if acl.permission_type == Permission.ALLOW:
                    allowed.append(acl)
                else:
                    denied[acl.pattern_type].add(acl.resource_name)
        if WILDCARD in denied[LITERAL]:
            return False
        return any(_stands(acl, denied) for acl in allowed)

    def authorized_operations(self, principal: str, host: str, kind: ResourceType, name: str) -> int:
        """A bit for each operation that is allowed, by its code (KIP-430). Raises AuthorizerNotReady."""
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[kind]
            if self.is_allowed(principal, host, operation, kind, name, log_denial=False)
        )

    # Decisions.

    def _decided(self, principal: str, host: str, operation: int, kind: int, name: str) -> Verdict:
        if principal in self.super_users:
            return _SUPER_USER
        if not self.ready:
            raise AuthorizerNotReady
        allows, denies = _ALLOWS[operation], _DENIES[operation]
        host = host_text(host)
        allowing: list[Acl] = []
        denying: list[Acl] = []
        for names in self._index.of(principal, kind):
            for acl in names.covering(name):
                if acl.permission_type == Permission.ALLOW:
                    if allows >> acl.operation & 1 and self._is_from(acl, host):
                        allowing.append(acl)
                elif denies >> acl.operation & 1 and self._is_from(acl, host):
                    denying.append(acl)
        if denying:
            return Verdict(False, min(denying, key=lambda acl: _place(acl, name)))
        if allowing:
            return Verdict(True, max(allowing, key=lambda acl: _place(acl, name)))
        if self.allow_everyone_if_no_acl and not self._index.covers(kind, name):
            return _DEFAULT_ALLOW
        return _DEFAULT_DENY

    def _is_from(self, acl: Acl, host: str) -> bool:
        given = acl.host
        if given in (WILDCARD, host):
            return True
        if not self.networks or "/" not in given:
            return False
        pattern = self._hosts.get(given)
        if pattern is None:
            if len(self._hosts) >= DECISIONS_MAX:
                self._hosts.clear()
            pattern = self._hosts[given] = HostPattern(given)
        return pattern.matches(host)


def _place(acl: Acl, name: str) -> tuple[bool, int, int, int, str, str]:
    """Where Kafka comes upon an ACL that covers the name: it takes the first DENY and the last ALLOW."""
    is_wildcard = acl.pattern_type == LITERAL and acl.resource_name != name
    return is_wildcard, -len(acl.resource_name), acl.pattern_type, acl.operation, acl.principal, acl.host


def _stands(acl: Acl, denied: Mapping[int, set[str]]) -> bool:
    """Whether no DENY covers all that an ALLOW allows."""
    name = acl.resource_name
    if acl.pattern_type == LITERAL:
        if name == WILDCARD:
            return True
        if name in denied[LITERAL]:
            return False
    prefixes = denied[PREFIXED]
    return not prefixes or not any(name[:length] in prefixes for length in range(1, len(name) + 1))
