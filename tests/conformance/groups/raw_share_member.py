"""A member of a share group by raw requests: every acknowledgement is the test's."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import iterate_batches, iterate_records
from tests.conformance.pair import Wire

GAP, ACCEPT, RELEASE, REJECT = 0, 1, 2, 3
LIMIT_S = 20.0
GROUP, TOPIC, BROKER = 32, 2, 4
"""Types of resources."""
_AGAIN = frozenset({14, 15, 16, 3, 6, 56, 100, 122, 123})
"""Errors of a group or topic that is just made."""

T = TypeVar("T")


class Taken(NamedTuple):
    offset: int
    deliveries: int
    value: bytes | None


class RawMember:
    def __init__(self, bootstrap: str, group: str, topic: str, topic_id: UUID) -> None:
        self.wire = Wire(bootstrap)
        self._coordinator = self.wire
        self.group, self.topic, self.topic_id = group, topic, topic_id
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self._session = itertools.count()
        self.is_open = False

    def join(self) -> None:
        """Until partitions are assigned. As the Java client does, it names its topics again after each error: the
        coordinator answers a heartbeat without topics with an assignment only where that has changed since."""
        names_topics = True

        def beat() -> bool:
            nonlocal names_topics
            answer = self._coordinator.ask(
                ApiKey.SHARE_GROUP_HEARTBEAT,
                1,
                {
                    "group_id": self.group,
                    "member_id": self.member_id,
                    "member_epoch": self.epoch,
                    "rack_id": None,
                    "subscribed_topic_names": [self.topic] if names_topics else None,
                },
            )
            names_topics = bool(answer["error_code"])
            if answer["error_code"]:
                assert answer["error_code"] in _AGAIN, answer
                self._find_coordinator()
                return False
            self.epoch = answer["member_epoch"]
            return bool(answer["assignment"] and answer["assignment"]["topic_partitions"])

        until(beat)

    def _find_coordinator(self) -> None:
        """Heartbeats go to the node that is the coordinator, wherever the records are."""
        asked = {"key_type": 0, "coordinator_keys": [self.group]}
        (found,) = self.wire.ask(ApiKey.FIND_COORDINATOR, 4, asked)["coordinators"]
        where = found["host"], found["port"]
        if not found["error_code"] and where != self._coordinator.address:
            self._coordinator = Wire(f"{found['host']}:{found['port']}")

    def take(self, count: int = 100, partition: int = 0) -> list[Taken]:
        """What is delivered within half a second."""
        epoch = next(self._session)
        self.is_open = True
        answer = self.wire.ask(
            ApiKey.SHARE_FETCH,
            1,
            {
                "group_id": self.group,
                "member_id": self.member_id,
                "share_session_epoch": epoch,
                "max_wait": 500,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "max_records": count,
                "batch_size": count,
                "topics": [self._topic(partition, [])] if epoch == 0 else [],
                "forgotten_topics_data": [],
            },
        )
        assert not answer["error_code"], answer
        found = []
        for row in [row for topic in answer["responses"] for row in topic["partitions"]]:
            assert row["error_code"] in _AGAIN or not row["error_code"], row
            data = row["records"] or b""
            values = {each.offset: each.value for at, _ in iterate_batches(data) for each in iterate_records(data, at)}
            for batch in row["acquired_records"]:
                offsets = range(batch["first_offset"], batch["last_offset"] + 1)
                found += [Taken(offset, batch["delivery_count"], values.get(offset)) for offset in offsets]
        return found

    def some(self, count: int = 100) -> list[Taken]:
        return until(lambda: self.take(count))

    def acknowledge(self, first: int, last: int, *types: int, partition: int = 0) -> int:
        """The error code."""
        batch = {"first_offset": first, "last_offset": last, "acknowledge_types": [*types]}
        answer = self.wire.ask(
            ApiKey.SHARE_ACKNOWLEDGE,
            1,
            {
                "group_id": self.group,
                "member_id": self.member_id,
                "share_session_epoch": next(self._session),
                "topics": [self._topic(partition, [batch])],
            },
        )
        assert not answer["error_code"], answer
        ((code,),) = [[row["error_code"] for row in topic["partitions"]] for topic in answer["responses"]]
        return int(code)

    def close_session(self) -> None:
        """What it has acquired is released."""
        answer = self.wire.ask(
            ApiKey.SHARE_ACKNOWLEDGE,
            1,
            {
                "group_id": self.group,
                "member_id": self.member_id,
                "share_session_epoch": -1,
                "topics": [],
            },
        )
        assert not answer["error_code"], answer
        self._session = itertools.count()

    def leave(self) -> None:
        self._coordinator.ask(
            ApiKey.SHARE_GROUP_HEARTBEAT,
            1,
            {
                "group_id": self.group,
                "member_id": self.member_id,
                "member_epoch": -1,
                "rack_id": None,
                "subscribed_topic_names": None,
            },
        )
        self.wire.socket.close()
        self._coordinator.socket.close()

    def _topic(self, partition: int, batches: list[Any]) -> dict[str, Any]:
        row = {"partition_index": partition, "acknowledgement_batches": batches}
        return {"topic_id": self.topic_id, "partitions": [row]}


def until(look: Callable[[], T]) -> T:
    """The first answer that is true."""
    end = time.monotonic() + LIMIT_S
    while not (found := look()):
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.05)
    return found


def create(bootstrap: str, name: str, partitions: int = 1, **settings: str) -> UUID:
    """Settings with underscores for dots."""
    wire = Wire(bootstrap)
    configs = [{"name": each.replace("_", "."), "value": value} for each, value in settings.items()]
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": configs}
    (row,) = wire.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout": 60_000})["topics"]
    assert not row["error_code"], row
    topic_id = row["topic_id"]
    assert isinstance(topic_id, UUID)
    return topic_id


def alter(bootstrap: str, kind: int, name: str, settings: dict[str, str | None]) -> tuple[int, str | None]:
    """The error and its sentence."""
    rows = [
        {"name": each, "config_operation": 0 if value is not None else 1, "value": value}
        for each, value in settings.items()
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": rows}
    (row,) = Wire(bootstrap).ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}
    )["responses"]
    return row["error_code"], row["error_message"]


def raise_share_version(bootstrap: str, level: int = 2) -> None:
    updates = [{"feature": "share.version", "max_version_level": level, "upgrade_type": 1}]
    answer = Wire(bootstrap).ask(
        ApiKey.UPDATE_FEATURES, 1, {"timeout": 60_000, "feature_updates": updates, "validate_only": False}
    )
    assert not answer["error_code"], answer
