"""Users, ACLs and quotas, read-only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.console.asking import Asking
from ottla.console.brokers import ensure_none
from ottla.console.views.paging import Paging, paged
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.security.acls import AclFilter, Operation, PatternType, ResourceType

_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
DEFAULT: Final = "(default)"
"""In place of a name: all that have no quota of their own."""


@dataclass(frozen=True)
class UserRow:
    name: str
    mechanisms: list[str]


@dataclass(frozen=True)
class AclRow:
    principal: str
    permission: str
    """Allow or Deny."""
    operation: str
    resource: str
    name: str
    pattern: str
    """literal, or prefixed: every name that begins so."""
    host: str


@dataclass(frozen=True)
class QuotaRow:
    entity: str
    """`user alice, client-id app`; the default is named so."""
    values: dict[str, str]
    names: dict[str, str]
    """The entity by kind: user, client_id, ip; `(default)` for one that means all others. Kinds that this
    program does not know are left out."""


@dataclass(frozen=True)
class SecurityPage:
    users: list[UserRow] | None
    acls: list[AclRow] | None
    acl_paging: Paging
    quotas: list[QuotaRow] | None
    has_authorizer: bool


def security(asking: Asking) -> SecurityPage:
    wanted = asking.text("q").lower()
    has_authorizer = True
    acls: list[AclRow] | None
    try:
        acls = asking.attempt("acls", lambda: _acls(asking), None)
    except NoAuthorizer:
        has_authorizer, acls = False, []
    found = [each for each in acls or () if wanted in f"{each.principal} {each.name} {each.resource}".lower()]
    page, paging = paged(found, asking.number("page"), len(acls or ()))
    return SecurityPage(
        asking.attempt("users", lambda: _users(asking), None),
        None if acls is None else list(page),
        paging,
        asking.attempt("quotas", lambda: _quotas(asking), None),
        has_authorizer,
    )


class NoAuthorizer(Exception):
    """The cluster has none, so that there are no ACLs."""


def _users(asking: Asking) -> list[UserRow]:
    answer = asking.brokers.ask_any(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None})
    ensure_none(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, answer)
    rows = [
        UserRow(
            each["user"],
            sorted({_MECHANISMS.get(one["mechanism"], str(one["mechanism"])) for one in each["credential_infos"]}),
        )
        for each in answer["results"]
        if not each["error_code"]
    ]
    return sorted(rows, key=lambda each: each.name)


def asked_acls(asking: Asking, wanted: AclFilter) -> dict[str, Any]:
    """The answer to DescribeAcls. Raises NoAuthorizer, KafkaError, OSError."""
    answer = asking.brokers.ask_any(ApiKey.DESCRIBE_ACLS, wanted.asked())
    if answer["error_code"] == ErrorCode.security_disabled:
        raise NoAuthorizer
    ensure_none(ApiKey.DESCRIBE_ACLS, answer)
    return answer


def _acls(asking: Asking) -> list[AclRow]:
    answer = asked_acls(asking, AclFilter())
    rows = [acl_of(resource, each) for resource in answer["resources"] for each in resource["acls"]]
    return sorted(rows, key=lambda each: (each.principal, each.resource, each.name, each.operation, each.permission))


def acl_of(resource: Mapping[str, Any], row: Mapping[str, Any]) -> AclRow:
    return AclRow(
        row["principal"],
        "Allow" if row["permission_type"] == 3 else "Deny",
        _word(Operation, row["operation"]),
        _word(ResourceType, resource["resource_type"]),
        resource["resource_name"],
        _word(PatternType, resource["pattern_type"]).lower(),
        row["host"],
    )


def _word(kind: Any, code: int) -> str:
    """`DescribeConfigs` for DESCRIBE_CONFIGS; a number that is not known stays one."""
    try:
        return "".join(part.capitalize() for part in str(kind(code).name).split("_"))
    except ValueError:
        return str(code)


def _quotas(asking: Asking) -> list[QuotaRow]:
    answer = asking.brokers.ask_any(ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": [], "strict": False})
    ensure_none(ApiKey.DESCRIBE_CLIENT_QUOTAS, answer)
    rows = []
    for entry in answer["entries"] or ():
        parts = [
            f"{each['entity_type']} {DEFAULT if each['entity_name'] is None else each['entity_name']}"
            for each in entry["entity"]
        ]
        values = {
            each["key"]: f"{each['value']:g}" if each["value"] < 1e6 else f"{each['value']:.0f}"
            for each in entry["values"]
        }
        names = {
            each["entity_type"].replace("-", "_"): DEFAULT if each["entity_name"] is None else each["entity_name"]
            for each in entry["entity"]
            if each["entity_type"] in ("user", "client-id", "ip")
        }
        rows.append(QuotaRow(", ".join(parts), dict(sorted(values.items())), names))
    return sorted(rows, key=lambda each: each.entity)
