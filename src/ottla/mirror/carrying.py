"""What a mirror carries beside records: ACLs, client quotas, settings of all brokers, SCRAM users. Decides, pure;
`Change` is also a row of `ottla mirror plan`."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from ottla.mirror.credentials import Carried, Fingerprint, User
from ottla.security.acls import WILDCARD, Binding, Operation, PatternType, Permission, ResourceType
from ottla.security.sasl.scram import Credential

ACLS, READ_ACLS, QUOTAS, BROKER_CONFIGS, USERS = "acls", "read-acls", "quotas", "broker-configs", "users"
KINDS: Final = (ACLS, READ_ACLS, QUOTAS, BROKER_CONFIGS, USERS)
INTERNAL: Final = ("__", "mirror-offsets.")
"""Beginnings of names of topics that are each cluster's own."""
OWN_BROKER_CONFIGS: Final = (
    r"listener.*", r"advertised\..*", r"ssl\..*", r"sasl\..*", r"log\.dirs?", r"metadata\.log\.dir",
    r"controller\..*", r"principal\.builder\.class", r".*\.throttled\.(rate|replicas)", r".*io\.max\.bytes.*",
    r"num\..*threads.*", r"background\.threads", r"metric\.reporters", r"max\.connections.*", r"ottla\..*",
    r"min\.insync\.replicas", r"unclean\.leader\.election\.enable", r"cordoned\.log\.dirs",
)  # fmt: skip
"""Settings of all brokers that say something of a cluster's machines: they stay its own."""

Action = Literal["create", "alter", "delete", "leave", "refuse"]
Entity = tuple[tuple[str, str | None], ...]
"""The owner of a quota: types (user, client-id, ip) with names, None for the default, in the order of types."""


class Change(NamedTuple):
    """One thing that a mirror does at the destination, or does not."""

    kind: str
    name: str
    action: Action
    what: Mapping[str, Any] = {}
    """What is set, as far as it differs; None where it is removed."""
    why: str = ""
    subject: Any = None
    """The ACL, whom a quota is for, or what is `Carried` of a user. Not shown."""

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "action": self.action, "what": dict(self.what), "why": self.why}


@dataclass(frozen=True)
class Carry:
    """The rules of a mirror."""

    what: frozenset[str] = frozenset()
    """Some of KINDS."""
    deletions: bool = False
    """Whether what the mirror made is removed when it is gone at the source."""
    exclude: tuple[str, ...] = ()
    """Settings that stay the destination's own: regular expressions for whole names, of topics and brokers."""
    exclude_users: tuple[str, ...] = ()
    """Users that are not carried: regular expressions for whole names."""

    def excludes(self, name: str) -> bool:
        return any(re.fullmatch(each, name) for each in self.exclude)

    def excludes_user(self, name: str) -> bool:
        return any(re.fullmatch(each, name) for each in self.exclude_users)

    def without_users(self) -> Carry:
        return replace(self, what=self.what - {USERS})


def carry_of(what: str, deletions: bool, exclude: str, exclude_users: str = "") -> Carry:
    """The rules, from texts with commas."""
    texts = (what, exclude, exclude_users)
    words, *patterns = ([each for part in text.split(",") if (each := part.strip())] for text in texts)
    settings, users = map(tuple, patterns)
    return Carry(frozenset(words), deletions, settings, users)


@dataclass(frozen=True)
class Belongings:
    """What a cluster has."""

    acls: frozenset[Binding] = frozenset()
    quotas: Mapping[Entity, Mapping[str, float]] = field(default_factory=dict)
    users: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """SCRAM users: mechanism to iterations."""
    broker_configs: Mapping[str, str] = field(default_factory=dict)
    """Dynamic settings of all brokers, without secrets."""
    has_authorizer: bool = True
    credentials: Mapping[User, Credential] = field(default_factory=dict, repr=False)
    """Users with their keys, of a source whose users are carried."""
    keys_refused: str = ""
    """Why a destination does not take keys; empty: it does."""


@dataclass(frozen=True)
class Names:
    """Which topics and groups are mirrored, and what they are called at the destination."""

    topics: Collection[str]
    groups: str
    prefix: str = ""


def key_of(kind: str, name: Any) -> str:
    """How the control topic names something that the mirror made."""
    return json.dumps([kind, name])


def changes(
    source: Belongings,
    there: Belongings,
    carry: Carry,
    names: Names,
    made: Collection[str],
    known: Mapping[User, Fingerprint] = MappingProxyType({}),
) -> Iterator[Change]:
    """Everything in order of kinds; `made` has the `key_of` of what the mirror has made before, `known` the
    fingerprints of the credentials that it has carried."""
    if ACLS in carry.what or READ_ACLS in carry.what:
        yield from _acls(source, there, carry, names, made)
    if QUOTAS in carry.what:
        yield from _quotas(source, there, carry, made)
    if BROKER_CONFIGS in carry.what:
        yield from _broker_configs(source, there, carry, made)
    if USERS in carry.what:
        yield from _users(source, there, carry, made, known)
    else:
        yield from _missing_users(source, there)


def _acls(source: Belongings, there: Belongings, carry: Carry, names: Names, made: Collection[str]) -> Iterator[Change]:
    if not there.has_authorizer:
        yield Change("acl", "*", "leave", why="the destination has no authorizer: set authorizer.class.name there")
        return
    wanted: set[Binding] = set()
    for acl in sorted(source.acls):
        carried, why = _translated(acl, names, read_only=ACLS not in carry.what)
        if carried is None:
            yield Change("acl", _shown(acl), "leave", why=why)
        else:
            wanted.add(carried)
    for acl in sorted(wanted - there.acls):
        yield Change("acl", _shown(acl), "create", acl._asdict(), subject=acl)
    for acl in sorted(there.acls - wanted):
        if key_of("acl", acl) in made:
            yield _gone("acl", _shown(acl), acl._asdict(), carry, acl)


def _translated(acl: Binding, names: Names, *, read_only: bool) -> tuple[Binding | None, str]:
    """The ACL for the destination; or None, and why it is left."""
    kind, name = acl.resource_type, acl.resource_name
    if kind == ResourceType.CLUSTER and acl.operation == Operation.CLUSTER_ACTION:
        return None, "it is for the source's own nodes"
    if kind == ResourceType.TOPIC:
        why = _topic_left(acl, names)
        if why:
            return None, why
        if name != WILDCARD or acl.pattern_type != PatternType.LITERAL:
            acl = acl._replace(resource_name=names.prefix + name)
    is_one_group = kind == ResourceType.GROUP and acl.pattern_type == PatternType.LITERAL and name != WILDCARD
    if is_one_group and not re.fullmatch(names.groups, name):
        return None, "the group is not mirrored"
    if not read_only or acl.permission_type == Permission.DENY:
        return acl, ""
    if kind == ResourceType.TOPIC and acl.operation == Operation.ALL:
        return acl._replace(operation=Operation.READ), ""
    if kind in (ResourceType.TOPIC, ResourceType.GROUP) and acl.operation in _READING:
        return acl, ""
    return None, "read-acls carries what lets clients read (acls carries all)"


_READING: Final = frozenset({Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALL})


def _topic_left(acl: Binding, names: Names) -> str:
    name = acl.resource_name
    if name.startswith(INTERNAL):
        return "the topic is each cluster's own"
    if acl.pattern_type == PatternType.PREFIXED:
        return "" if any(each.startswith(name) for each in names.topics) else "no mirrored topic begins so"
    return "" if name == WILDCARD or name in names.topics else "the topic is not mirrored"


def _shown(acl: Binding) -> str:
    words = [ResourceType(acl.resource_type).name, Operation(acl.operation).name, Permission(acl.permission_type).name]
    resource, operation, permission = (each.lower().replace("_", "-") for each in words)
    star = "*" if acl.pattern_type == PatternType.PREFIXED else ""
    host = "" if acl.host == WILDCARD else f" from {acl.host}"
    return f"{permission} {acl.principal} {operation} {resource}:{acl.resource_name}{star}{host}"


def _quotas(source: Belongings, there: Belongings, carry: Carry, made: Collection[str]) -> Iterator[Change]:
    for entity, values in sorted(source.quotas.items(), key=lambda each: _entity(each[0])):
        has = there.quotas.get(entity, {})
        differs = {key: value for key, value in sorted(values.items()) if has.get(key) != value}
        if differs:
            yield Change("quota", _entity(entity), "alter" if has else "create", differs, subject=entity)
    for entity, values in sorted(there.quotas.items(), key=lambda each: _entity(each[0])):
        gone = values.keys() - source.quotas.get(entity, {}).keys()
        for key in sorted(gone):
            if key_of("quota", [entity, key]) in made:
                yield _gone("quota", _entity(entity), {key: None}, carry, entity)


def _entity(entity: Entity) -> str:
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in entity)


def _broker_configs(source: Belongings, there: Belongings, carry: Carry, made: Collection[str]) -> Iterator[Change]:
    for name, value in sorted(source.broker_configs.items()):
        if any(re.fullmatch(each, name) for each in OWN_BROKER_CONFIGS):
            yield Change("broker-config", name, "leave", why="it is of the source's machines")
        elif carry.excludes(name):
            yield Change("broker-config", name, "leave", why="it is excluded")
        elif there.broker_configs.get(name) != value:
            action: Action = "alter" if name in there.broker_configs else "create"
            yield Change("broker-config", name, action, {name: value})
    for name in sorted(there.broker_configs.keys() - source.broker_configs.keys()):
        if key_of("broker-config", name) in made:
            yield _gone("broker-config", name, {name: None}, carry)


def _gone(kind: str, name: str, what: Mapping[str, Any], carry: Carry, subject: Any = None) -> Change:
    if carry.deletions:
        return Change(kind, name, "delete", what, subject=subject)
    return Change(kind, name, "leave", why="it is gone at the source; deletions are not followed")


def _missing_users(source: Belongings, there: Belongings) -> Iterator[Change]:
    """Users are carried only when that is asked for by name: their keys are read and written."""
    for name, mechanisms in sorted(source.users.items()):
        for mechanism, iterations in sorted(mechanisms.items()):
            if mechanism not in there.users.get(name, {}):
                why = f"users are carried if `carry` names them; or {_by_hand(User(name, mechanism), iterations)}"
                yield Change("user", name, "leave", {"mechanism": mechanism, "iterations": iterations}, why)


def _by_hand(user: User, iterations: int) -> str:
    return (
        f"create it with its password: ottla user create {user.name} --mechanism {user.mechanism} "
        f"--iterations {iterations}"
    )


def _users(
    source: Belongings, there: Belongings, carry: Carry, made: Collection[str], known: Mapping[User, Fingerprint]
) -> Iterator[Change]:
    """A user of the destination's own keeps its password, and gets no other way to log in either."""
    own = {
        name
        for name, mechanisms in there.users.items()
        if any(key_of("user", User(name, mechanism)) not in made for mechanism in mechanisms)
    }
    for user, credential in sorted(source.credentials.items()):
        iterations = credential.iterations
        what = {"mechanism": user.mechanism, "iterations": iterations}
        has = there.users.get(user.name, {}).get(user.mechanism)
        if carry.excludes_user(user.name):
            yield Change("user", user.name, "leave", what, "it is excluded")
        elif user.name in own:
            yield Change("user", user.name, "leave", what, "the destination has a user of this name of its own")
        elif has != iterations or user not in known or not known[user].fits(user, credential):
            if there.keys_refused:
                why = f"{there.keys_refused}: {_by_hand(user, iterations)}"
                yield Change("user", user.name, "refuse", what, why)
                continue
            action: Action = "create" if has is None else "alter"
            yield Change("user", user.name, action, what, subject=Carried(user, credential))
    for name, mechanisms in sorted(there.users.items()):
        for mechanism in sorted(mechanisms):
            user = User(name, mechanism)
            is_gone = key_of("user", user) in made and user not in source.credentials
            if is_gone and not carry.excludes_user(name):
                yield _gone("user", name, {"mechanism": mechanism}, carry, Carried(user))


def made_keys(change: Change) -> Iterable[str]:
    """The names in the control topic of what a change makes, or removes."""
    if change.kind == "acl":
        return [key_of("acl", change.subject)]
    if change.kind == "quota":
        return [key_of("quota", [change.subject, key]) for key in change.what]
    if change.kind == "user":
        return [key_of("user", change.subject.user)]
    return [key_of(change.kind, change.name)]
