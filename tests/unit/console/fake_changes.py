"""A cluster in memory that notes the changes it is asked for. Each passes the codec, so that none has a wrong field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ottla.client.move_plan import RATES
from ottla.console.brokers import VERSIONS, Unanswered
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord
from tests.unit.console.fake_cluster import NOW_MS, FakeBrokers

TOPIC, OTHER = "orders", "copies"
GROUP, SHARE = "billing", "warehouse"
RECORDS: Final = [SimpleRecord(NOW_MS + number, b"k", f"v{number}".encode(), (("h", b"x"),)) for number in range(5)]

#: For each act parameters with which it does something.
GOOD: Final[Mapping[str, Mapping[str, str]]] = {
    "create-topic": {"topic": "new", "partitions": "3", "settings": "retention.ms=1\ncleanup.policy=compact"},
    "add-partitions": {"topic": TOPIC, "partitions": "4"},
    "delete-records": {"topic": TOPIC, "before": "3"},
    "delete-topic": {"topic": TOPIC},
    "produce": {
        "topic": TOPIC,
        "key": "a",
        "value": "b",
        "headers": "h=1",
        "compression": "gzip",
        "timestamp": "2026-01-31T12:30",
    },
    "copy-record": {"topic": TOPIC, "partition": "0", "offset": "1", "to": OTHER},
    "configure-topic": {"topic": TOPIC, "name": "retention.ms", "value": "5"},
    "configure-group": {"group": GROUP, "name": "consumer.heartbeat.interval.ms", "value": "5000"},
    "configure-broker": {"broker": "1", "name": "log.cleaner.threads", "value": "2"},
    "reset-offsets": {"group": GROUP, "to": "latest"},
    "delete-offsets": {"group": GROUP, "topic": TOPIC},
    "remove-member": {"group": GROUP, "member": "m"},
    "delete-group": {"group": GROUP},
    "abort-transaction": {"transactional_id": "x"},
    "abort-hanging": {"topic": TOPIC, "partition": "0", "start_offset": "0"},
    "set-password": {"user": "ann", "password": "cAnArY-password"},
    "delete-user": {"user": "ann"},
    "create-acl": {"principal": "ann", "operation": "read", "kind": "topic", "name": TOPIC},
    "delete-acl": {"principal": "ann", "operation": "read", "kind": "topic", "name": TOPIC},
    "set-quota": {"user": "ann", "quota": "producer_byte_rate", "value": "1024"},
    "remove-quota": {"user": "ann", "quota": "producer_byte_rate"},
    "elect-leaders": {"topic": TOPIC},
    "move-partition": {"topic": TOPIC, "partition": "0", "replicas": "1"},
    "cancel-move": {"topic": TOPIC, "partition": "0"},
    "move-partitions": {"how": "as typed", "moves": f"{OTHER}-0=1"},
    "throttle-moves": {"throttle": "20M"},
    "remove-throttle": {},
    "register-schema": {"subject": "s", "schema": '{"type": "string"}'},
    "set-compatibility": {"subject": "s", "level": "FULL"},
    "delete-subject": {"subject": "s"},
}
CHANGES: Final[Mapping[str, ApiKey]] = {
    "create-topic": ApiKey.CREATE_TOPICS, "add-partitions": ApiKey.CREATE_PARTITIONS,
    "delete-records": ApiKey.DELETE_RECORDS, "delete-topic": ApiKey.DELETE_TOPICS, "produce": ApiKey.PRODUCE,
    "copy-record": ApiKey.PRODUCE, "configure-topic": ApiKey.INCREMENTAL_ALTER_CONFIGS,
    "configure-group": ApiKey.INCREMENTAL_ALTER_CONFIGS, "configure-broker": ApiKey.INCREMENTAL_ALTER_CONFIGS,
    "reset-offsets": ApiKey.OFFSET_COMMIT, "delete-offsets": ApiKey.OFFSET_DELETE,
    "remove-member": ApiKey.LEAVE_GROUP, "delete-group": ApiKey.DELETE_GROUPS,
    "abort-transaction": ApiKey.INIT_PRODUCER_ID, "abort-hanging": ApiKey.WRITE_TXN_MARKERS,
    "set-password": ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "delete-user": ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    "create-acl": ApiKey.CREATE_ACLS, "delete-acl": ApiKey.DELETE_ACLS, "set-quota": ApiKey.ALTER_CLIENT_QUOTAS,
    "remove-quota": ApiKey.ALTER_CLIENT_QUOTAS, "elect-leaders": ApiKey.ELECT_LEADERS,
    "move-partition": ApiKey.ALTER_PARTITION_REASSIGNMENTS, "cancel-move": ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    "move-partitions": ApiKey.ALTER_PARTITION_REASSIGNMENTS, "throttle-moves": ApiKey.INCREMENTAL_ALTER_CONFIGS,
    "remove-throttle": ApiKey.INCREMENTAL_ALTER_CONFIGS,
}  # fmt: skip
"""The request that each act makes; those that are not here ask the registry."""


STEPS: Final[Mapping[str, int]] = {"throttle-moves": 2}
"""Requests of acts that make more than one: here the topic's, and the broker's."""


class ChangingBrokers(FakeBrokers):
    """Topics, groups, a member, an open transaction, a user and quotas that acts can be on."""

    def __init__(self) -> None:
        super().__init__([TOPIC, OTHER], [(GROUP, "classic"), (SHARE, "share")], "", RECORDS)
        self.changes: list[tuple[ApiKey, Mapping[str, Any]]] = []
        """What was asked for, without what was only to be checked."""
        self.checks: list[ApiKey] = []
        self.code = 0
        """The error that every change is answered with."""
        self.is_silent = False
        """Whether no change is answered."""
        self.members = 0

    def change(self, key: ApiKey, values: Mapping[str, Any], node_id: int | None = None) -> dict[str, Any]:
        _ensure_known(key, values)
        if values.get("validate_only"):
            self.checks.append(key)
        else:
            self.changes.append((key, values))
            if self.is_silent:
                raise Unanswered("the connection was closed")
        answer: dict[str, Any] = getattr(self, f"changed_{key.name.lower()}")(values)
        return answer

    def changed_produce(self, values: Mapping[str, Any]) -> dict[str, Any]:
        row = {"index": 0, "error_code": self.code, "error_message": None, "record_errors": []}
        return {"responses": [{"name": TOPIC, "partition_responses": [row]}]}

    # What is there

    def metadata(self, values: Mapping[str, Any]) -> dict[str, Any]:
        answer = super().metadata(values)
        for topic in answer["topics"]:
            for row in topic["partitions"]:
                row["replica_nodes"], row["isr_nodes"] = [2, 1], [1]
        wanted = values["topics"]
        if wanted is not None:
            names = {each["name"] for each in wanted}
            answer["topics"] = [each for each in answer["topics"] if each["name"] in names]
        return answer

    def _described(self, names: Any, more: Mapping[str, Any], of_member: Mapping[str, Any]) -> dict[str, Any]:
        found = super()._described(names, more, of_member)
        for row in found["groups"]:
            row["group_state"] = "Stable" if self.members else "Empty"
        return found

    def find_coordinator(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"coordinators": [{"key": each, "node_id": 1, "error_code": 0} for each in values["coordinator_keys"]]}

    def describe_transactions(self, values: Mapping[str, Any]) -> dict[str, Any]:
        answer = super().describe_transactions(values)
        is_ended = any(key == ApiKey.INIT_PRODUCER_ID for key, _ in self.changes)
        for row in answer["transaction_states"]:
            row["transaction_state"] = "CompleteAbort" if is_ended else "Ongoing"
        return answer

    def describe_producers(self, values: Mapping[str, Any]) -> dict[str, Any]:
        answer = super().describe_producers(values)
        for topic in answer["topics"]:
            for row in topic["partitions"]:
                row["active_producers"][0]["coordinator_epoch"] = 3
        return answer

    def describe_client_quotas(self, values: Mapping[str, Any]) -> dict[str, Any]:
        entry = {
            "entity": [{"entity_type": "user", "entity_name": "ann"}],
            "values": [{"key": "producer_byte_rate", "value": 5.0}],
        }
        return {"error_code": 0, "entries": [entry]}

    def list_partition_reassignments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        row = {"partition_index": 0, "replicas": [2, 1], "adding_replicas": [2], "removing_replicas": []}
        return {"error_code": 0, "topics": [{"name": TOPIC, "partitions": [row]}]}

    def describe_configs(self, values: Mapping[str, Any]) -> dict[str, Any]:
        if list(RATES) != values["resources"][0]["configuration_keys"]:
            return super().describe_configs(values)
        rows = [
            {
                "name": name,
                "value": "1024",
                "read_only": False,
                "config_source": 2,
                "is_sensitive": False,
                "synonyms": [],
            }
            for name in RATES
        ]
        return {"results": [{"error_code": 0, "resource_name": "1", "resource_type": 4, "configs": rows}]}

    # Answers to changes

    def _rows(self, values: Mapping[str, Any], rows: str, name: str, named: str | None = None) -> list[dict[str, Any]]:
        return [{named or name: each[name], "error_code": self.code, "error_message": None} for each in values[rows]]

    def _parts(self, values: Mapping[str, Any], name: str = "name") -> list[dict[str, Any]]:
        return [
            {
                name: each[name],
                "partitions": [
                    {"partition_index": row["partition_index"], "error_code": self.code, "error_message": None}
                    for row in each["partitions"]
                ],
            }
            for each in values["topics"]
        ]

    def changed_create_topics(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"topics": self._rows(values, "topics", "name")}

    def changed_delete_topics(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"responses": self._rows(values, "topics", "name")}

    def changed_create_partitions(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"results": self._rows(values, "topics", "name")}

    def changed_delete_records(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"topics": self._parts(values)}

    def changed_incremental_alter_configs(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"responses": self._rows(values, "resources", "resource_name")}

    def changed_offset_commit(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"topics": self._parts(values)}

    def changed_offset_delete(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"error_code": self.code, "topics": self._parts(values)}

    def changed_delete_groups(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"results": [{"group_id": each, "error_code": self.code} for each in values["groups_names"]]}

    def changed_leave_group(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"error_code": self.code, "members": self._rows(values, "members", "member_id")}

    def changed_alter_share_group_offsets(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"error_code": self.code, "responses": self._parts(values, "topic_name")}

    def changed_delete_share_group_offsets(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"error_code": self.code, "responses": self._rows(values, "topics", "topic_name")}

    def changed_init_producer_id(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"error_code": self.code, "producer_id": 7, "producer_epoch": 1}

    def changed_write_txn_markers(self, values: Mapping[str, Any]) -> dict[str, Any]:
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {"partition_index": number, "error_code": self.code} for number in topic["partition_indexes"]
                ],
            }
            for topic in values["markers"][0]["topics"]
        ]
        return {"markers": [{"producer_id": 7, "topics": topics}]}

    def changed_alter_user_scram_credentials(self, values: Mapping[str, Any]) -> dict[str, Any]:
        rows = [*values["deletions"], *values["upsertions"]]
        return {"results": [{"user": each["name"], "error_code": self.code, "error_message": None} for each in rows]}

    def changed_create_acls(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"results": [{"error_code": self.code, "error_message": None} for _ in values["creations"]]}

    def changed_delete_acls(self, values: Mapping[str, Any]) -> dict[str, Any]:
        row = {"error_code": self.code, "error_message": None, "matching_acls": [{"error_code": 0}]}
        return {"filter_results": [row for _ in values["filters"]]}

    def changed_alter_client_quotas(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"entries": self._rows(values, "entries", "entity")}

    def changed_elect_leaders(self, values: Mapping[str, Any]) -> dict[str, Any]:
        rows = [
            {"partition_id": number, "error_code": self.code, "error_message": None}
            for each in values["topic_partitions"]
            for number in each["partitions"]
        ]
        return {"error_code": 0, "replica_election_results": [{"topic": TOPIC, "partition_result": rows}]}

    def changed_alter_partition_reassignments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"error_code": 0, "responses": self._parts(values)}


def _ensure_known(key: ApiKey, values: Mapping[str, Any]) -> None:
    """Encodes it in the newest and the oldest version, and sees that no field has a name that the protocol lacks."""
    for version in VERSIONS[key]:
        frame = messages.encode_request(key, version, 1, "console", values)
        decoded = messages.decode_request(key, version, frame, len(messages.request_header(key, version, 1, "console")))
        if version == VERSIONS[key][1]:
            _ensure_same(values, messages.plain(decoded), key.name)


def _ensure_same(given: Any, decoded: Any, where: str) -> None:
    if isinstance(given, Mapping):
        unknown = given.keys() - decoded.keys()
        assert not unknown, f"{where}: {unknown}"
        for name, value in given.items():
            _ensure_same(value, decoded[name], f"{where}.{name}")
    elif isinstance(given, list | tuple):
        assert len(given) == len(decoded), where
        for one, other in zip(given, decoded, strict=True):
            _ensure_same(one, other, where)
    else:
        assert decoded == given or bytes(decoded) == given, f"{where}: {decoded!r} and not {given!r}"


def token_of(html: str) -> str:
    found = re.search(r'name="token" value="([^"]+)"', html)
    assert found is not None, html
    return found[1]
