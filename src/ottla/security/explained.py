"""Rights in words: operations, resources and ACLs as sentences, and the rule that decides whether a user may act."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.config.authorizer import super_users
from ottla.security.acls import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    Binding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.security.authorizer import Authorizer, Verdict

ANY_HOST = "an address that no ACL names"
OTHERS_MAX = 10
SETTINGS: Final = ("authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found")
"""Settings of a broker that `explained` looks at."""
KINDS: Mapping[str, ResourceType] = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "token": ResourceType.DELEGATION_TOKEN,
    "user": ResourceType.USER,
}
WORDS = {kind: word for word, kind in KINDS.items()}
_PLURALS = {
    ResourceType.TOPIC: "topics", ResourceType.GROUP: "groups", ResourceType.TRANSACTIONAL_ID: "transactional ids",
    ResourceType.DELEGATION_TOKEN: "tokens", ResourceType.USER: "users",
}  # fmt: skip


class Resource(NamedTuple):
    kind: ResourceType
    name: str

    def __str__(self) -> str:
        word = WORDS[self.kind]
        return word if self.kind == ResourceType.CLUSTER else f"{word}:{self.name}"


def word_of(operation: int) -> str:
    """An operation as it is typed; its code where this version does not know it."""
    try:
        return Operation(operation).name.lower().replace("_", "-")
    except ValueError:
        return f"operation-{operation}"


def pattern_words(acl: Acl) -> str:
    """The resources of an ACL: `topic orders`, `topics that begin with ord`, `all topics`."""
    try:
        kind = ResourceType(acl.resource_type)
    except ValueError:
        return f"resource type {acl.resource_type} {acl.resource_name}"
    if kind == ResourceType.CLUSTER:
        return "the cluster"
    plural = _PLURALS.get(kind, "resources")
    if acl.pattern_type == PatternType.PREFIXED:
        return f"{plural} that begin with {acl.resource_name}"
    if acl.resource_name == WILDCARD:
        return f"all {plural}"
    return f"{WORDS.get(kind, 'resource').replace('-', ' ')} {acl.resource_name}"


def sentence(acl: Acl) -> str:
    """`allow User:alice to read topic orders from any host`."""
    verb = "deny" if acl.permission_type == Permission.DENY else "allow"
    who = "everyone" if acl.principal == WILDCARD_PRINCIPAL else acl.principal
    what = "do everything with" if acl.operation == Operation.ALL else word_of(acl.operation)
    where = "any host" if acl.host == WILDCARD else acl.host or "no host"
    return f"{verb} {who} to {what} {pattern_words(acl)} from {where}"


def as_json(acl: Acl) -> dict[str, str]:
    return {
        "principal": acl.principal,
        "permission": "deny" if acl.permission_type == Permission.DENY else "allow",
        "operation": word_of(acl.operation),
        "resource_type": _name(ResourceType, acl.resource_type),
        "resource_name": acl.resource_name,
        "pattern_type": _name(PatternType, acl.pattern_type),
        "host": acl.host,
    }


def _name(codes: type[ResourceType] | type[PatternType], code: int) -> str:
    try:
        return codes(code).name.lower().replace("_", "-")
    except ValueError:
        return str(code)


@dataclass
class Explained:
    principal: str
    operation: Operation
    resource: Resource
    host: str | None
    verdict: Verdict
    others: list[Binding] = field(default_factory=list)
    """Other ACLs of the user or of everyone that cover the resource."""
    is_covered: bool = False
    """Whether any ACL of anybody covers the resource."""
    is_complete: bool = True
    """Whether the cluster shows its super users."""

    def as_json(self) -> dict[str, Any]:
        acl = self.verdict.acl
        return {
            "principal": self.principal,
            "operation": self.operation.name.lower().replace("_", "-"),
            "resource": str(self.resource),
            "host": self.host,
            "allowed": self.verdict.allowed,
            "rule": self.verdict.rule,
            "acl": None if acl is None else as_json(acl),
            "other_acls": [as_json(each) for each in self.others],
            "super_users_known": self.is_complete,
        }

    def text(self, word: str) -> str:
        may = "may" if self.verdict.allowed else "may not"
        where = "" if self.host is None else f" from {self.host}"
        lines = [f"{self.principal} {may} {word} {self.resource}{where}", f"  because {self.because}"]
        if self.others:
            lines.append("  other ACLs of this user or everyone here:")
            lines += [f"    {sentence(each)}" for each in self.others[:OTHERS_MAX]]
            if len(self.others) > OTHERS_MAX:
                lines.append(f"    and {len(self.others) - OTHERS_MAX} more: ottla acl list --resource {self.resource}")
        if not self.is_complete:
            lines.append("  the cluster does not show its super.users: whoever is one may do everything")
        return "\n".join(lines)

    @property
    def because(self) -> str:
        verdict = self.verdict
        if verdict.is_super_user:
            return "this user is in super.users"
        if verdict.acl is not None:
            return f"an ACL says: {sentence(verdict.acl)}"
        if verdict.allowed:
            return "no ACL covers the resource, and allow.everyone.if.no.acl.found is true"
        if self.others:
            return "none of the ACLs here is for this operation and host"
        if self.is_covered:
            return "ACLs cover the resource, but none is for this user"
        return "no ACL covers the resource"


def explained(
    principal: str,
    operation: Operation,
    resource: Resource,
    host: str | None,
    covering: Sequence[Binding],
    settings: Mapping[str, str | None],
) -> Explained:
    """The verdict on one operation. `covering` are the ACLs that match the resource; `settings` those of a broker,
    without a value those that it hides."""
    kind, name = resource
    allow_everyone = (settings.get("allow.everyone.if.no.acl.found") or "").strip().lower() == "true"
    supers = settings.get("super.users")
    authorizer = Authorizer(super_users({"super.users": supers or ""}), allow_everyone)
    authorizer.apply({UUID(int=number): acl for number, acl in enumerate(covering)}, {})
    authorizer.ready = True
    verdict = authorizer.decide(principal, ANY_HOST if host is None else host, operation, kind, name)
    own = (acl for acl in sorted(covering) if acl.principal in (principal, WILDCARD_PRINCIPAL))
    others = [acl for acl in own if acl != verdict.acl]
    is_complete = "super.users" not in settings or supers is not None
    return Explained(principal, operation, resource, host, verdict, others, bool(covering), is_complete)
