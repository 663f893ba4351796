"""Which rule decides whether a user may do something: the cluster's ACLs, and the settings of one of its brokers, put
through the authorizer that nodes have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ottla.cli import wire
from ottla.cli.security.acl_words import Resource, as_json, sentence
from ottla.config.authorizer import super_users
from ottla.protocol.messages import ApiKey
from ottla.security.acls import WILDCARD_PRINCIPAL, Binding, Operation
from ottla.security.authorizer import Authorizer, Verdict

ANY_HOST = "an address that no ACL names"
OTHERS_MAX = 10
BROKER = 4
"""The type of the resource whose settings are asked for."""
_SETTINGS = ("authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found")


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
        lines = [f"{self.principal} {may} {word} {self.resource}{where}", f"  because {self._because()}"]
        if self.others:
            lines.append("  other ACLs of this user or everyone here:")
            lines += [f"    {sentence(each)}" for each in self.others[:OTHERS_MAX]]
            if len(self.others) > OTHERS_MAX:
                lines.append(f"    and {len(self.others) - OTHERS_MAX} more: ottla acl list --resource {self.resource}")
        if not self.is_complete:
            lines.append("  the cluster does not show its super.users: whoever is one may do everything")
        return "\n".join(lines)

    def _because(self) -> str:
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
    bootstrap: str,
    principal: str,
    operation: Operation,
    resource: Resource,
    host: str | None,
    covering: Sequence[Binding],
) -> Explained:
    """The verdict on one operation. `covering` are the ACLs that match the resource. Raises CommandFailed."""
    kind, name = resource
    settings = _settings(bootstrap)
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


def _settings(bootstrap: str) -> dict[str, str | None]:
    """The settings of the authorizer of a broker, those that it has; without a value those that it hides."""
    nodes = wire.ask(bootstrap, ApiKey.DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": False})
    wire.ensure_none(nodes, "the cluster")
    for broker in nodes["brokers"]:
        resource = {
            "resource_type": BROKER, "resource_name": str(broker["broker_id"]), "configuration_keys": list(_SETTINGS),
        }  # fmt: skip
        values = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
        cluster_id = nodes.get("cluster_id")
        address = wire.node_address(broker["host"], broker["port"], broker["broker_id"], cluster_id)
        (found,) = wire.ask(address, ApiKey.DESCRIBE_CONFIGS, values)["results"]
        wire.ensure_none(found, f"the settings of broker {broker['broker_id']}")
        return {each["name"]: each["value"] for each in found["configs"]}
    return {}
