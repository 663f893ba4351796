"""The same administrative questions put to Ottla and to Apache Kafka, the answers compared field by field."""

from __future__ import annotations

import os
import time
from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from tests.conformance.exemptions import INTERNAL_IN_KAFKA
from tests.conformance.pair import Pair, comparable
from tests.node import NodeProcess

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE = 0, 1


@pytest.fixture(scope="module")
def pair(node: NodeProcess, oracle: str) -> Pair:
    return Pair(node.bootstrap, oracle)


@pytest.fixture(scope="module")
def topics(pair: Pair) -> list[str]:
    """Two topics on both brokers: of five partitions, and of one with settings of its own."""
    names = [f"admin-{os.getpid()}-{time.time_ns()}-{each}" for each in ("five", "own")]
    configs = [{"name": "retention.ms", "value": "1000000"}, {"name": "cleanup.policy", "value": " compact , delete"}]
    values = {
        "topics": [
            {"name": names[0], "num_partitions": 5, "replication_factor": 1, "assignments": [], "configs": []},
            {"name": names[1], "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": configs},
        ],
        "timeout": 10_000,
        "validate_only": False,
    }
    for answer in pair.both(ApiKey.CREATE_TOPICS, 7, values):
        assert {each["error_code"] for each in answer["topics"]} == {ErrorCode.none}
    pair.settle()
    return names


def names_of(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "topic_id": None} for name in names]


@pytest.mark.parametrize("version", range(14))
def test_metadata(pair: Pair, topics: list[str], version: int) -> None:
    asked = names_of(*topics, "a b", "", *(["missing"] if version >= 4 else []))
    flags = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    for values in ({}, flags):
        values = {"topics": asked, "allow_auto_topic_creation": False, **values}
        assert len(pair.same(ApiKey.METADATA, version, values)["topics"]) == len(asked)
    assert pair.same(ApiKey.METADATA, version, {"topics": names_of(topics[0], topics[0])})
    if version >= 10:
        unknown = [{"name": None if version >= 12 else "x", "topic_id": UUID(int=99)}]
        pair.same(ApiKey.METADATA, version, {"topics": unknown, "allow_auto_topic_creation": False})
    if 10 <= version < 12:
        pair.same(ApiKey.METADATA, version, {"topics": names_of(None)})  # type: ignore[arg-type]


@pytest.mark.parametrize("version", range(3))
def test_cluster(pair: Pair, version: int) -> None:
    pair.same(ApiKey.DESCRIBE_CLUSTER, version, {})
    pair.same(ApiKey.DESCRIBE_CLUSTER, version, {"include_cluster_authorized_operations": True})
    if version:
        for endpoint_type in (0, 1, 2, 3):
            pair.same(ApiKey.DESCRIBE_CLUSTER, version, {"endpoint_type": endpoint_type})


PAGES = [(2000, None), (1, None), (3, None), (5, None), (6, None), (0, None), (-1, None), (3, (0, 3)), (3, (0, 9)),
         (3, (1, 0)), (3, (0, -1)), (3, ("zzz", 0)), (3, ("aaa", 0))]  # fmt: skip


@pytest.mark.parametrize(("limit", "cursor"), PAGES)
def test_pages_of_partitions(pair: Pair, topics: list[str], limit: int, cursor: tuple[Any, int] | None) -> None:
    place = None
    if cursor is not None:
        name = topics[cursor[0]] if isinstance(cursor[0], int) else cursor[0]
        place = {"topic_name": name, "partition_index": cursor[1]}
    values = {"topics": [{"name": each} for each in (*topics, "missing", "a b")], "response_partition_limit": limit}
    pair.same(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {**values, "cursor": place})


def describe(resource_type: int, name: str, *keys: str, synonyms: bool = True) -> dict[str, Any]:
    resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": list(keys) or None}
    return {"resources": [resource], "include_synonyms": synonyms, "include_documentation": True}


@pytest.mark.parametrize("version", range(1, 5))
def test_settings_of_topics(pair: Pair, topics: list[str], version: int) -> None:
    for name in topics:
        answer = pair.same(ApiKey.DESCRIBE_CONFIGS, version, describe(TOPIC, name))
        assert len(answer["results"][0]["configs"]) == 37
        pair.same(ApiKey.DESCRIBE_CONFIGS, version, describe(TOPIC, name, "retention.ms", "x", synonyms=False))


def same_settings_of_group(pair: Pair, name: str) -> list[dict[str, Any]]:
    """Ottla has more, and shows what is internal in Kafka and has an effect here."""
    found = pair.both(ApiKey.DESCRIBE_CONFIGS, 4, describe(GROUP, name))
    mine, theirs = ([comparable(each) for each in answer["results"][0]["configs"]] for answer in found)
    more = [each["name"] for each in mine if each["name"] not in {each["name"] for each in theirs}]
    assert {each for each in more if not each.startswith("ottla.")} == INTERNAL_IN_KAFKA
    kept = sorted((each for each in mine if each["name"] not in more), key=str)
    assert kept == sorted(theirs, key=str)
    return kept


def test_settings_of_groups_and_subscriptions(pair: Pair) -> None:
    name = f"group-{time.time_ns()}"
    assert same_settings_of_group(pair, name)
    assert pair.same(ApiKey.DESCRIBE_CONFIGS, 4, describe(METRICS, name))["results"][0]["configs"]


REFUSED = [(TOPIC, "missing"), (TOPIC, "a b"), (TOPIC, ""), (TOPIC, "x" * 250), (BROKER, "2"), (BROKER, "x"),
           (LOGGER, ""), (LOGGER, "2"), (METRICS, ""), (GROUP, ""), (0, "x"), (3, "x"), (64, "x")]  # fmt: skip


@pytest.mark.parametrize(("resource_type", "name"), REFUSED)
def test_settings_refused(pair: Pair, resource_type: int, name: str) -> None:
    pair.same(ApiKey.DESCRIBE_CONFIGS, 4, describe(resource_type, name))


OWN_DEFAULTS = {"socket.send.buffer.bytes": ("-1", "102400")}
"""What differs by decision: Ottla's and Kafka's (`test_kafka_release.py` says why)."""


def test_settings_of_a_broker(pair: Pair) -> None:
    """All of them, except for the values that the two were started with."""
    mine, theirs = (
        {each["name"]: comparable(each) for each in answer["results"][0]["configs"]}
        for answer in pair.both(ApiKey.DESCRIBE_CONFIGS, 4, describe(BROKER, "1"))
    )
    mine = {name: each for name, each in mine.items() if not name.startswith("ottla.")}
    warm_up = {f"group.{each}" for each in INTERNAL_IN_KAFKA} | {
        "group.streams.max.warmup.replicas",
        "group.streams.min.task.offset.interval.ms",
    }
    assert mine.keys() - theirs.keys() == warm_up, "internal in Kafka, where they have no effect"
    mine = {name: each for name, each in mine.items() if name not in warm_up}
    static = {name for found in (mine, theirs) for name, each in found.items() if each["config_source"] == 4}
    assert mine.keys() == theirs.keys()
    defaults = {name: (mine[name]["value"], theirs[name]["value"]) for name in OWN_DEFAULTS}
    assert defaults == OWN_DEFAULTS
    static |= defaults.keys()
    assert {name: each for name, each in mine.items() if name not in static} == {
        name: each for name, each in theirs.items() if name not in static
    }
    for name in static:
        fields = ("read_only", "is_sensitive", "config_type")
        assert [mine[name][field] for field in fields] == [theirs[name][field] for field in fields]
    pair.same(ApiKey.DESCRIBE_CONFIGS, 4, describe(BROKER, ""))


CHANGES = [
    (BROKER, "1", "log.roll.ms", "777777"),  # of retention it would cost the records of other tests
    (BROKER, "", "log.roll.ms", "888888"),
    (BROKER, "", "bogus.setting", "1"),
    (GROUP, "group-of-a-test", "consumer.session.timeout.ms", "46000"),
    (METRICS, "subscription-of-a-test", "interval.ms", "1000"),
]


def test_settings_that_change(pair: Pair, topics: list[str]) -> None:
    names = ("log.roll.ms", "log.roll.hours", "log.retention.ms", "bogus.setting")
    try:
        for resource_type, name, setting, value in CHANGES:
            alter(pair, resource_type, name, setting, SET, value)
        pair.settle()
        pair.same(ApiKey.DESCRIBE_CONFIGS, 4, describe(BROKER, "1", *names))
        pair.same(ApiKey.DESCRIBE_CONFIGS, 4, describe(BROKER, "", *names))
        for topic in topics:
            pair.same(ApiKey.DESCRIBE_CONFIGS, 4, describe(TOPIC, topic))
        same_settings_of_group(pair, "group-of-a-test")
        pair.same(ApiKey.DESCRIBE_CONFIGS, 4, describe(METRICS, "subscription-of-a-test"))
        for kind in (METRICS, BROKER, LOGGER):
            pair.same(ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": [kind]})
        # Tests of other processes set those of their groups on the same Kafka.
        for answer in pair.both(ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": [GROUP]}):
            listed = [(each["resource_name"], each["resource_type"]) for each in answer["config_resources"]]
            assert not answer["error_code"] and listed.count(("group-of-a-test", GROUP)) == 1
            assert {kind for _, kind in listed} == {GROUP}
        pair.same(ApiKey.LIST_CONFIG_RESOURCES, 0, {})
    finally:
        for resource_type, name, setting, _ in CHANGES:
            alter(pair, resource_type, name, setting, DELETE, None)


def alter(pair: Pair, resource_type: int, name: str, setting: str, operation: int, value: str | None) -> None:
    configs = [{"name": setting, "config_operation": operation, "value": value}]
    resource = {"resource_type": resource_type, "resource_name": name, "configs": configs}
    values = {"resources": [resource], "validate_only": False}
    answer = pair.same(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, values)
    assert answer["responses"][0]["error_code"] == ErrorCode.none, answer


@pytest.mark.parametrize("kind", [0, 1, 3, 64])
def test_resources_that_are_not_listed(pair: Pair, kind: int) -> None:
    pair.same(ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": [kind]})


@pytest.mark.parametrize("version", range(1, 6))
def test_log_dirs(pair: Pair, topics: list[str], version: int) -> None:
    asked = [{"topic": topics[0], "partitions": [0, 4, 9]}, {"topic": "missing", "partitions": [0]}]
    pair.same(ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": asked})
    pair.same(ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": []})
    mine, theirs = pair.both(ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": None})
    for answer in (mine, theirs):
        assert {each["name"] for each in answer["results"][0]["topics"]} >= set(topics)
