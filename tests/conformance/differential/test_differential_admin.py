"""Topics that are made, changed, filled and deleted, step by step on Ottla and on Apache Kafka."""

from __future__ import annotations

import itertools
import os
import time
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from tests.conformance.differential.differential import Comparison, Of, Side, batch
from tests.conformance.pair import settle

TOPIC = 2
SET, DELETE, APPEND, SUBTRACT = range(4)
_numbers = itertools.count()


@pytest.fixture
def pair(bootstrap: str, oracle: str) -> Comparison:
    return Comparison(Side(bootstrap), Side(oracle), f"a{os.getpid()}-{time.time_ns() % 10**9}-{next(_numbers)}-")


def look(pair: Comparison, *names: str, is_gone: bool = False) -> None:
    """Everything that can be asked about topics, once Kafka's broker has heard of the change, and of those that were
    deleted once both have deleted their logs."""
    settle(pair.theirs.wire, pair.mine.wire)
    for name in names:
        _await_logs(pair, pair.prefix + name, is_gone=is_gone)
    rows = [{"name": pair.prefix + name, "topic_id": None} for name in names]
    pair.ask(ApiKey.METADATA, 12, {"topics": rows, "allow_auto_topic_creation": False})
    for row in rows:
        values = {"topics": [{"name": row["name"]}], "response_partition_limit": 100, "cursor": None}
        pair.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, values)
        one = {"resource_type": TOPIC, "resource_name": row["name"], "configuration_keys": None}
        pair.ask(ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [one], "include_synonyms": True})
        asked = [{"topic": row["name"], "partitions": list(range(5))}]
        pair.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": asked})


def _await_logs(pair: Comparison, topic: str, *, is_gone: bool) -> None:
    """Until Kafka has as many logs of the topic as Ottla. Where it never has, the comparison says what differs."""
    asked = {"topics": [{"topic": topic, "partitions": list(range(5))}]}

    def logs(side: Side) -> int:
        found = side.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, asked)["results"]
        return sum(len(each["partitions"]) for directory in found for each in directory["topics"])

    end = time.monotonic() + 60
    while (logs(pair.theirs) != (found := logs(pair.mine)) or (is_gone and found)) and time.monotonic() < end:
        time.sleep(0.02)


def change(pair: Comparison, *changes: tuple[str, int, str | None], name: str = "t") -> None:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": TOPIC, "resource_name": pair.prefix + name, "configs": configs}
    pair.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})


def test_life_of_a_topic(pair: Comparison) -> None:
    pair.set_up("t", 2, retention_ms="1234567")
    pair.produce("t", batch())
    look(pair, "t")
    for version, count in ((0, 3), (3, 5), (3, 5), (3, 4)):
        topics = [{"name": pair.prefix + "t", "count": count, "assignments": None}]
        pair.ask(ApiKey.CREATE_PARTITIONS, version, {"topics": topics, "timeout": 9000, "validate_only": False})
    pair.wait_for(pair.prefix + "t", 5)
    look(pair, "t")
    gone = [{"name": pair.prefix + "t", "topic_id": None}]
    pair.ask(ApiKey.DELETE_TOPICS, 6, {"topics": gone, "timeout": 9000})
    pair.ask(ApiKey.DELETE_TOPICS, 6, {"topics": gone, "timeout": 9000})
    look(pair, "t", is_gone=True)
    # Of the topic that is no more, by name and by id.
    for version in (9, 13):
        pair.produce("t", batch(), version=version)
        pair.fetch("t", 0, version=version)
    pair.ask(ApiKey.METADATA, 12, {"topics": [{"name": None, "topic_id": Of("t")}]})
    old = [side.known["t"] for side in pair.sides]
    pair.set_up("t", 1)
    for side, topic_id in zip(pair.sides, old, strict=True):
        side.known["new"], side.known["t"] = side.known["t"], topic_id
    pair.produce("t", batch(), version=13)
    pair.fetch("t", 0, version=13)
    pair.produce("t", batch(), version=12)
    pair.fetch("t", 0, version=12)
    pair.check()


def test_settings_that_change_a_topic(pair: Comparison) -> None:
    pair.set_up("t", 1, retention_ms="1234567")
    for step in (
        [("retention.ms", SET, "99999"), ("segment.bytes", SET, "2097152")],
        [("cleanup.policy", APPEND, "compact")],
        [("cleanup.policy", APPEND, "compact"), ("segment.bytes", DELETE, None)],
        [("cleanup.policy", SUBTRACT, "delete")],
        [("cleanup.policy", SUBTRACT, "nothing")],
        [("retention.ms", DELETE, "ignored"), ("retention.bytes", DELETE, None)],
        [("max.message.bytes", SET, "200"), ("nonsense", SET, "1")],
        [("max.message.bytes", SET, "200"), ("cleanup.policy", DELETE, None)],
    ):
        change(pair, *step)
        look(pair, "t")
    pair.produce("t", batch(1))
    pair.produce("t", batch(20))
    for version in range(3):
        rows: list[dict[str, Any]] = [{"name": "compression.type", "value": "uncompressed"}]
        resource = {"resource_type": TOPIC, "resource_name": pair.prefix + "t", "configs": rows[version % 2 :]}
        pair.ask(ApiKey.ALTER_CONFIGS, version, {"resources": [resource], "validate_only": False})
        look(pair, "t")
        pair.produce("t", batch(20))
    pair.fetch("t", 0)
    pair.check()


@pytest.mark.parametrize("version", [2, 4, 5, 7])
def test_topics_that_are_really_made(pair: Comparison, version: int) -> None:
    def topic(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> dict[str, Any]:
        return {"name": pair.prefix + name, "num_partitions": partitions, "replication_factor": factor, **more}

    default = -1 if version >= 4 else 1
    placed = [{"partition_index": number, "broker_ids": [1]} for number in (1, 0)]
    topics = [
        topic("a"),
        topic("b", 3, configs=[{"name": "cleanup.policy", "value": "compact"}]),
        topic("c", default, default),
        topic("d", -1, -1, assignments=placed),
        topic("e", 0),
        topic("f", 1, 2),
        topic("g.x"),
        topic("h"),
        topic("h"),
    ]
    for _ in range(2):
        pair.ask(ApiKey.CREATE_TOPICS, version, {"topics": topics, "timeout": 9000, "validate_only": False})
    pair.ask(ApiKey.CREATE_TOPICS, version, {"topics": [topic("g_x")], "timeout": 9000, "validate_only": False})
    look(pair, *"abcdefh", "g.x", "g_x")
    pair.check()


def test_topics_made_for_the_first_to_ask(pair: Comparison) -> None:
    """Both may answer that there is no leader yet; in the end both have the topic, with the same settings."""
    for version, name in ((1, "a"), (4, "b"), (13, "c")):
        rows = [{"name": pair.prefix + name, "topic_id": None}]
        for side in pair.sides:
            for _ in range(100):
                values = {"topics": rows, "allow_auto_topic_creation": True}
                (row,) = side.ask(ApiKey.METADATA, version, values)["topics"]
                assert row["error_code"] in (
                    ErrorCode.none,
                    ErrorCode.unknown_topic_or_partition,
                    ErrorCode.leader_not_available,
                )
                if not row["error_code"]:
                    break
                time.sleep(0.05)
    look(pair, "a", "b", "c")
    pair.check()
