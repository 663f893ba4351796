"""Roles: what a user of the console may see and do there, beyond what the cluster's ACLs let that user do.

    [[role]]
    name = "support"
    users = ["ann"]                 # names of users; "*" is everyone
    groups = ["support"]            # values of the identity provider's claim of groups
    claims = {department = "care"}  # another claim, and the value that it has or lists
    data = ["orders-*"]             # topics whose records are shown; none if left out
    download = true
    acts = ["reset-offsets"]        # "*" is every act
    audit = true                    # the audit log of all users
    [[role.mask]]
    topics = ["*"]
    fields = ["card.number"]
    how = "last4"

Where there is such a file, a user without a role sees nothing. The rights of several roles add up, and so do their
masks: what any of them hides is hidden, unless a role lifts masks by `unmasked`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ottla.console.masks import (
    NOTHING_HIDDEN,
    Masks,
    Rule,
    TopicMask,
    flag_of,
    is_among,
    joined,
    parse_rules,
    read_toml,
    refuse_unknown,
    texts_of,
)
from ottla.errors import OttlaError

EVERYONE: Final = "*"
ROLES_MAX: Final = 1_000
KEPT_MAX: Final = 1_000
"""Masks of a user's topics that are kept."""
_LISTS: Final = ("users", "groups", "data", "acts", "unmasked")
_FLAGS: Final = ("download", "audit")
_KNOWN: Final = ("name", *_LISTS, *_FLAGS, "claims", "provider", "mask")


class Forbidden(OttlaError):
    """A role does not give it; the text says what."""


@dataclass(frozen=True)
class Identity:
    """A user, and how the user is known."""

    name: str | None
    """The principal's name at the brokers; None where nobody logs in."""
    provider: str = ""
    """Id of the identity provider; empty for a password."""
    subject: str = ""
    """The provider's issuer and the subject that it gave, for the audit log."""
    groups: tuple[str, ...] = ()
    claims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The claims that roles name, as lists of texts."""


@dataclass(frozen=True)
class Role:
    name: str
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    claims: Mapping[str, str] = field(default_factory=dict)
    provider: str = ""
    """Only for users of this identity provider; empty for all."""
    data: tuple[str, ...] = ()
    download: bool = False
    acts: tuple[str, ...] = ()
    audit: bool = False
    unmasked: tuple[str, ...] = ()
    masks: tuple[Rule, ...] = ()

    def is_of(self, one: Identity) -> bool:
        if self.provider and self.provider != one.provider:
            return False
        return (
            EVERYONE in self.users
            or (one.name is not None and one.name in self.users)
            or any(each in self.groups for each in one.groups)
            or any(wanted in one.claims.get(name, ()) for name, wanted in self.claims.items())
        )


class Rights:
    """What one user may; for any thread."""

    def __init__(self, roles: tuple[Role, ...], masks: Masks, user: str | None, *, is_free: bool) -> None:
        """`is_free`: there is no file of roles, so that the cluster's ACLs alone decide."""
        self.roles = roles
        self.is_free = is_free
        self._masks, self._user = masks, user
        self._lock = threading.Lock()
        self._kept: dict[str, TopicMask] = {}

    @property
    def names(self) -> str:
        return ", ".join(each.name for each in self.roles)

    @property
    def is_nobody(self) -> bool:
        return not self.is_free and not self.roles

    @property
    def may_download(self) -> bool:
        return self.is_free or any(each.download for each in self.roles)

    @property
    def sees_audit(self) -> bool:
        """The lines of all users; each sees those of that user anyway."""
        return any(each.audit for each in self.roles) or (self.is_free and self._user is None)

    def may_read(self, topic: str) -> bool:
        return self.is_free or any(is_among(topic, each.data) for each in self.roles)

    def may_act(self, act: str) -> bool:
        return self.is_free or any(EVERYONE in each.acts or act in each.acts for each in self.roles)

    def mask(self, topic: str) -> TopicMask:
        """What is hidden of a topic that may be read; of others all is hidden by `ensure_read`."""
        with self._lock:
            found = self._kept.get(topic)
            if found is None:
                found = self._made(topic)
                if len(self._kept) >= KEPT_MAX:
                    self._kept.clear()
                self._kept[topic] = found
            return found

    def _made(self, topic: str) -> TopicMask:
        if any(is_among(topic, each.unmasked) for each in self.roles):
            return NOTHING_HIDDEN
        mine = [rule for role in self.roles for rule in role.masks if rule.is_for(topic, self._user)]
        return joined([*self._masks.rules_for(topic, self._user), *mine])

    def ensure_any(self) -> None:
        if self.is_nobody:
            raise Forbidden("you have no role in this console; whoever runs it gives roles (--roles)")

    def ensure_read(self, topic: str) -> None:
        if not self.may_read(topic):
            raise Forbidden(f"your roles ({self.names or 'none'}) do not let you read records of {topic}")

    def ensure_whole(self, topic: str, what: str) -> None:
        """`what` needs records as they are: `sent again or copied`."""
        self.ensure_read(topic)
        if not self.mask(topic).is_empty:
            raise Forbidden(f"a mask hides parts of the records of {topic}, so none can be {what}")

    def ensure_download(self) -> None:
        if not self.may_download:
            raise Forbidden(f"your roles ({self.names or 'none'}) do not let you download")

    def ensure_act(self, act: str) -> None:
        if not self.may_act(act):
            raise Forbidden(f"your roles ({self.names or 'none'}) do not let you do this ({act})")


class Roles:
    """The roles of a console; without a file the cluster's ACLs alone decide. From any thread."""

    def __init__(self, roles: Iterable[Role] | None = None) -> None:
        self.is_free = roles is None
        self.roles = tuple(roles or ())

    @property
    def claims(self) -> frozenset[str]:
        """Claims that matter."""
        return frozenset(name for each in self.roles for name in each.claims)

    def replace(self, other: Roles) -> None:
        """From now on the roles are those of `other`, for the next page of everyone."""
        assert not (self.is_free or other.is_free)
        self.roles = other.roles

    def of(self, one: Identity, masks: Masks) -> Rights:
        return Rights(tuple(each for each in self.roles if each.is_of(one)), masks, one.name, is_free=self.is_free)


def read_roles(path: Path, acts: Iterable[str], providers: Iterable[str] = ()) -> Roles:
    """`acts` and `providers` are the known ones. Raises OttlaError with what is wrong."""
    return parse_roles(read_toml(path, "roles"), str(path), tuple(acts), tuple(providers))


def parse_roles(found: Mapping[str, Any], where: str, acts: tuple[str, ...], providers: tuple[str, ...] = ()) -> Roles:
    """Raises OttlaError."""
    refuse_unknown(found, ("role",), where)
    rows = found.get("role", [])
    if not isinstance(rows, list) or not rows or not all(isinstance(each, dict) for each in rows):
        raise OttlaError(f"{where}: it has no roles, which are [[role]] with two brackets: nobody could log in")
    if len(rows) > ROLES_MAX:
        raise OttlaError(f"{where}: it has more than {ROLES_MAX} roles")
    roles = [_role(each, where, acts, providers) for each in rows]
    names = [each.name for each in roles]
    for name in names:
        if names.count(name) > 1:
            raise OttlaError(f"{where}: role {name!r} is there twice")
    return Roles(roles)


def _role(row: Mapping[str, Any], where: str, acts: tuple[str, ...], providers: tuple[str, ...]) -> Role:
    name = row.get("name")
    if not isinstance(name, str) or not name or len(name) > 100 or not name.isprintable():
        raise OttlaError(f"{where}: a role needs a name, a text of at most 100 characters")
    where = f"{where}: role {name!r}"
    refuse_unknown(row, _KNOWN, where)
    lists = {each: texts_of(row, each, where) for each in _LISTS}
    for act in lists["acts"]:
        if act not in (EVERYONE, *acts):
            raise OttlaError(f"{where}: there is no act {act!r}; known: {', '.join(acts)}, and {EVERYONE!r} for all")
    claims = row.get("claims", {})
    if not isinstance(claims, dict) or not all(isinstance(each, str) and each for each in claims.values()):
        raise OttlaError(f'{where}: claims is a table of texts, such as {{department = "care"}}')
    provider = row.get("provider", "")
    if not isinstance(provider, str) or (provider and provider not in providers):
        raise OttlaError(f"{where}: there is no provider {provider!r}; known: {', '.join(providers) or 'none'}")
    if not (lists["users"] or lists["groups"] or claims):
        raise OttlaError(f"{where}: nobody has it: name users, groups or claims")
    masks = parse_rules(row.get("mask", []), where, "[[role.mask]]")
    if any(each.exempt for each in masks):
        raise OttlaError(f"{where}: a mask of a role has no except: give another role `unmasked` instead")
    return Role(
        name,
        lists["users"],
        lists["groups"],
        claims,
        provider,
        lists["data"],
        flag_of(row, "download", where),
        lists["acts"],
        flag_of(row, "audit", where),
        lists["unmasked"],
        masks,
    )
