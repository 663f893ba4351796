"""Asks a cluster for its ACLs, quotas, users and settings of all brokers, and changes them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.config import ClientConfig, parse_addresses
from ottla.client.requests import asked_settings, changed_settings
from ottla.client.security import PLAINTEXT, Security
from ottla.errors import ErrorCode, KafkaError
from ottla.mirror.carrying import ACLS, BROKER_CONFIGS, QUOTAS, READ_ACLS, USERS, Belongings, Change, Entity
from ottla.mirror.credentials import number_of
from ottla.protocol.messages import ApiKey
from ottla.security.acls import AclFilter, Binding, described

BROKER: Final = 4
DYNAMIC_DEFAULT: Final = 3
"""The source of a setting of all brokers, to DescribeConfigs."""
TYPES: Final = ("user", "client-id", "ip")
MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
AT_ONCE: Final = 500
"""ACLs, or users, of one request."""
SOFTWARE: Final = "ottla-mirror"
"""By which an Ottla knows who may hear of its own APIs."""
NO_KEYS: Final = "the destination cannot take keys, which only an Ottla does"
NOT_SECURED: Final = "the destination takes keys only over TLS or SASL"


class Refused(NamedTuple):
    """A change that the cluster has refused."""

    change: Change
    why: str

    def __str__(self) -> str:
        return f"{self.change.kind} {self.change.name}: {self.why}"


class Administration:
    """Methods raise KafkaError, OSError."""

    def __init__(self, bootstrap: str, security: Security = PLAINTEXT) -> None:
        """Connects when first asked."""
        config = ClientConfig(parse_addresses(bootstrap), "ottla-mirror", security=security, software=SOFTWARE)
        self._client = Cluster(config)

    def close(self) -> None:
        self._client.close()

    def belongings(self, what: Collection[str]) -> Belongings:
        """What of `carrying.KINDS` is asked for; users always."""
        acls = self._acls() if ACLS in what or READ_ACLS in what else frozenset()
        users = self._users()
        keys_refused = self._keys_refused() if USERS in what else ""
        return Belongings(
            acls or frozenset(),
            self._quotas() if QUOTAS in what else {},
            users,
            self._broker_configs() if BROKER_CONFIGS in what else {},
            has_authorizer=acls is not None,
            keys_refused=keys_refused,
        )

    def cluster_id(self) -> str | None:
        """What the cluster calls itself."""
        values = {"topics": [], "allow_auto_topic_creation": False}
        found: str | None = self._client.ask_any(ApiKey.METADATA, values).get("cluster_id")
        return found

    def _keys_refused(self) -> str:
        """Why no keys of users can be stored here; empty: they can. To be called after another question."""
        if not self._client.last_has(ApiKey.STORE_USER_SCRAM_CREDENTIALS):
            return NO_KEYS
        return NOT_SECURED if self._client.config.security.protocol == "PLAINTEXT" else ""

    def _acls(self) -> frozenset[Binding] | None:
        """None where there is no authorizer."""
        answer = self._client.ask_any(ApiKey.DESCRIBE_ACLS, AclFilter().asked())
        if answer["error_code"] == ErrorCode.security_disabled:
            return None
        _ensure_none(answer, "ACLs")
        return frozenset(described(answer))

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
        try:
            answer = self._client.ask_any(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None})
        except KafkaError as error:
            if error.code is ErrorCode.unsupported_version:  # before Kafka 2.7 (KIP-554)
                return {}
            raise
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
        (row,) = self._client.ask_any(ApiKey.DESCRIBE_CONFIGS, asked_settings(BROKER, [""]))["results"]
        _ensure_none(row, "settings of all brokers")
        return {
            each["name"]: each["value"]
            for each in row["configs"]
            if each["value"] is not None and not each["is_sensitive"] and each["config_source"] == DYNAMIC_DEFAULT
        }

    def apply(self, changes: Iterable[Change]) -> list[Refused]:
        """Changes of ACLs, quotas, settings of brokers and users, each kind in one request or a few. What the cluster
        refuses does not hold up the rest."""
        todo = list(changes)
        failures: list[Refused] = []
        new = [each for each in todo if each.kind == "acl" and each.action == "create"]
        old = [each for each in todo if each.kind == "acl" and each.action == "delete"]
        for begin in range(0, len(new), AT_ONCE):
            part = new[begin : begin + AT_ONCE]
            answer = self._client.ask_any(ApiKey.CREATE_ACLS, {"creations": [each.subject.creation() for each in part]})
            failures += _refused(part, answer["results"])
        for begin in range(0, len(old), AT_ONCE):
            part = old[begin : begin + AT_ONCE]
            filters = [AclFilter(*each.subject).asked() for each in part]  # each matches this ACL only
            answer = self._client.ask_any(ApiKey.DELETE_ACLS, {"filters": filters})
            failures += _refused(part, answer["filter_results"])
        if quotas := [each for each in todo if each.kind == "quota"]:
            entries = [_quota(each) for each in quotas]
            answer = self._client.ask_any(ApiKey.ALTER_CLIENT_QUOTAS, {"entries": entries, "validate_only": False})
            failures += _refused(quotas, answer["entries"])
        for each in todo:  # one by one: a request with a wrong value changes nothing
            if each.kind == "broker-config":
                failures += _refused([each], self._set_broker_configs(each.what))
        return failures + self._apply_users([each for each in todo if each.kind == "user"])

    def _apply_users(self, todo: list[Change]) -> list[Refused]:
        failures: list[Refused] = []
        new = [each for each in todo if each.action != "delete"]
        for begin in range(0, len(new), AT_ONCE):
            part = new[begin : begin + AT_ONCE]
            rows = [_credential(each) for each in part]
            answer = self._client.ask_any(ApiKey.STORE_USER_SCRAM_CREDENTIALS, {"credentials": rows})
            failures += _refused(part, answer["results"])
        for each in todo:  # one by one: Kafka refuses a request that names a user twice
            if each.action == "delete":
                user = each.subject.user
                asked = {"deletions": [{"name": user.name, "mechanism": number_of(user)}], "upsertions": []}
                answer = self._client.ask_any(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, asked)
                rows = [row for row in answer["results"] if row["error_code"] != ErrorCode.resource_not_found]
                failures += _refused([each] if rows else [], rows)
        return failures

    def _set_broker_configs(self, values: Mapping[str, str | None]) -> list[Mapping[str, Any]]:
        asked = changed_settings(BROKER, "", values)
        return list(self._client.ask_any(ApiKey.INCREMENTAL_ALTER_CONFIGS, asked)["responses"])


def _credential(change: Change) -> dict[str, Any]:
    user, found = change.subject
    return {
        "name": user.name,
        "mechanism": number_of(user),
        "iterations": found.iterations,
        "salt": found.salt,
        "stored_key": found.stored_key,
        "server_key": found.server_key,
    }


def _refused(asked: Iterable[Change], answered: Iterable[Mapping[str, Any]]) -> list[Refused]:
    return [
        Refused(change, row.get("error_message") or ErrorCode(row["error_code"]).name)
        for change, row in zip(asked, answered, strict=True)
        if row["error_code"]
    ]


def _quota(change: Change) -> dict[str, Any]:
    ops = [
        {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
        for key, value in change.what.items()
    ]
    return {"entity": [{"entity_type": kind, "entity_name": name} for kind, name in change.subject], "ops": ops}


def _ensure_none(row: Mapping[str, Any], what: str) -> None:
    if row["error_code"]:
        raise KafkaError(ErrorCode(row["error_code"]), f"{what}: {row.get('error_message') or ''}")
