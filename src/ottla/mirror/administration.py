"""Asks a cluster for its ACLs, quotas, users and settings of all brokers, and changes them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from ottla.client.cluster import Cluster
from ottla.client.config import ClientConfig, parse_addresses
from ottla.client.security import PLAINTEXT, Security
from ottla.errors import ErrorCode, KafkaError
from ottla.mirror.carrying import ACLS, BROKER_CONFIGS, QUOTAS, READ_ACLS, Belongings, Change, Entity
from ottla.protocol.messages import ApiKey
from ottla.security.acls import Binding

BROKER: Final = 4
DYNAMIC_DEFAULT: Final = 3
"""The source of a setting of all brokers, to DescribeConfigs."""
SET, DELETE = 0, 1
TYPES: Final = ("user", "client-id", "ip")
MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
ANY: Final = 1
_ANY_ACL: Final = {
    "resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY, "principal_filter": None,
    "host_filter": None, "operation": ANY, "permission_type": ANY,
}  # fmt: skip
AT_ONCE: Final = 500
"""ACLs of one request."""


class Administration:
    """Methods raise KafkaError, OSError."""

    def __init__(self, bootstrap: str, security: Security = PLAINTEXT) -> None:
        """Connects when first asked."""
        self._client = Cluster(ClientConfig(parse_addresses(bootstrap), "ottla-mirror", security=security))

    def close(self) -> None:
        self._client.close()

    def belongings(self, what: Collection[str]) -> Belongings:
        """What of `carrying.KINDS` is asked for; users always."""
        acls = self._acls() if ACLS in what or READ_ACLS in what else frozenset()
        return Belongings(
            acls or frozenset(), self._quotas() if QUOTAS in what else {}, self._users(),
            self._broker_configs() if BROKER_CONFIGS in what else {}, has_authorizer=acls is not None,
        )  # fmt: skip

    def _acls(self) -> frozenset[Binding] | None:
        """None where there is no authorizer."""
        answer = self._client.ask_any(ApiKey.DESCRIBE_ACLS, _ANY_ACL)
        if answer["error_code"] == ErrorCode.security_disabled:
            return None
        _ensure_none(answer, "ACLs")
        return frozenset(
            Binding(
                resource["resource_type"], resource["resource_name"], resource["pattern_type"], acl["principal"],
                acl["host"], acl["operation"], acl["permission_type"],
            )
            for resource in answer["resources"]
            for acl in resource["acls"]
        )  # fmt: skip

    def _quotas(self) -> dict[Entity, dict[str, float]]:
        answer = self._client.ask_any(ApiKey.DESCRIBE_CLIENT_QUOTAS, {"components": [], "strict": False})
        _ensure_none(answer, "quotas")
        found = {}
        for entry in answer["entries"] or ():
            names = {each["entity_type"]: each["entity_name"] for each in entry["entity"]}
            entity = tuple((kind, names[kind]) for kind in TYPES if kind in names)
            found[entity] = {each["key"]: float(each["value"]) for each in entry["values"]}
        return found

    def _users(self) -> dict[str, dict[str, int]]:
        answer = self._client.ask_any(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None})
        _ensure_none(answer, "users")
        return {
            row["user"]: {
                MECHANISMS.get(each["mechanism"], str(each["mechanism"])): each["iterations"]
                for each in row["credential_infos"]
            }
            for row in answer["results"]
            if not row["error_code"]
        }

    def _broker_configs(self) -> dict[str, str]:
        resource = {"resource_type": BROKER, "resource_name": "", "configuration_keys": None}
        values = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
        (row,) = self._client.ask_any(ApiKey.DESCRIBE_CONFIGS, values)["results"]
        _ensure_none(row, "settings of all brokers")
        return {
            each["name"]: each["value"]
            for each in row["configs"]
            if each["value"] is not None and not each["is_sensitive"] and each["config_source"] == DYNAMIC_DEFAULT
        }

    def apply(self, changes: Iterable[Change]) -> list[str]:
        """Changes of ACLs, quotas and settings of brokers, each kind in one request or a few. What the cluster refuses
        does not hold up the rest; returns a sentence for each refusal."""
        todo = list(changes)
        failures: list[str] = []
        new = [each for each in todo if each.kind == "acl" and each.action == "create"]
        old = [each for each in todo if each.kind == "acl" and each.action == "delete"]
        for begin in range(0, len(new), AT_ONCE):
            part = new[begin : begin + AT_ONCE]
            answer = self._client.ask_any(ApiKey.CREATE_ACLS, {"creations": [_creation(each.subject) for each in part]})
            failures += _refused(part, answer["results"])
        for begin in range(0, len(old), AT_ONCE):
            part = old[begin : begin + AT_ONCE]
            answer = self._client.ask_any(ApiKey.DELETE_ACLS, {"filters": [_filter(each.subject) for each in part]})
            failures += _refused(part, answer["filter_results"])
        if quotas := [each for each in todo if each.kind == "quota"]:
            entries = [_quota(each) for each in quotas]
            answer = self._client.ask_any(ApiKey.ALTER_CLIENT_QUOTAS, {"entries": entries, "validate_only": False})
            failures += _refused(quotas, answer["entries"])
        for each in todo:  # one by one: a request with a wrong value changes nothing
            if each.kind == "broker-config":
                failures += _refused([each], self._set_broker_configs(each.what))
        return failures

    def _set_broker_configs(self, values: Mapping[str, str | None]) -> list[Mapping[str, Any]]:
        rows = [
            {"name": name, "config_operation": DELETE if value is None else SET, "value": value}
            for name, value in values.items()
        ]
        resource = {"resource_type": BROKER, "resource_name": "", "configs": rows}
        asked = {"resources": [resource], "validate_only": False}
        return list(self._client.ask_any(ApiKey.INCREMENTAL_ALTER_CONFIGS, asked)["responses"])


def _refused(asked: Iterable[Change], answered: Iterable[Mapping[str, Any]]) -> list[str]:
    return [
        f"{change.kind} {change.name}: {row.get('error_message') or ErrorCode(row['error_code']).name}"
        for change, row in zip(asked, answered, strict=True)
        if row["error_code"]
    ]


def _creation(acl: Binding) -> dict[str, Any]:
    return {
        "resource_type": acl.resource_type, "resource_name": acl.resource_name,
        "resource_pattern_type": acl.pattern_type, "principal": acl.principal, "host": acl.host,
        "operation": acl.operation, "permission_type": acl.permission_type,
    }  # fmt: skip


def _filter(acl: Binding) -> dict[str, Any]:
    """A filter that matches this ACL only."""
    return {
        "resource_type_filter": acl.resource_type, "resource_name_filter": acl.resource_name,
        "pattern_type_filter": acl.pattern_type, "principal_filter": acl.principal, "host_filter": acl.host,
        "operation": acl.operation, "permission_type": acl.permission_type,
    }  # fmt: skip


def _quota(change: Change) -> dict[str, Any]:
    ops = [
        {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
        for key, value in change.what.items()
    ]
    return {"entity": [{"entity_type": kind, "entity_name": name} for kind, name in change.subject], "ops": ops}


def _ensure_none(row: Mapping[str, Any], what: str) -> None:
    if row["error_code"]:
        raise KafkaError(ErrorCode(row["error_code"]), f"{what}: {row.get('error_message') or ''}")
