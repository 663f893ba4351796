"""Metadata in all versions; what is expected was seen from Apache Kafka 4.3.0."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.model import OFFSETS_TOPIC, ZERO_UUID
from ottla.protocol.layout import STEP_COST
from ottla.protocol.messages import ApiKey, encode_response_in_steps
from ottla.server.connections.long_answers import RowsOf
from ottla.server.handlers.topics.metadata import Partition, Topic
from tests.unit.server.admin import CLUSTER_ID, asking, broker, image_of, node_of, partition, topic, topic_id

ask = asking(ApiKey.METADATA)
OLD = range(10)
ALL = range(14)


def named(*names: str | None) -> list[dict[str, Any]]:
    return [{"name": name, "topic_id": None} for name in names]


def errors(response: dict[str, Any]) -> dict[str, ErrorCode]:
    return {each["name"]: each["error_code"] for each in response["topics"]}


@pytest.mark.parametrize("version", ALL)
def test_one_topic_of_one_node(version: int) -> None:
    response = ask(node_of(image_of(topic("a", partition(1), partition(1)))), {"topics": named("a")}, version)
    first = {
        "error_code": ErrorCode.none,
        "partition_index": 0,
        "leader_id": 1,
        "replica_nodes": [1],
        "isr_nodes": [1],
        "offline_replicas": [],
        "leader_epoch": 3 if version >= 7 else -1,
    }
    (found,) = response["topics"]
    assert found["partitions"] == [first, {**first, "partition_index": 1}]
    assert found["name"] == "a"
    assert found.get("is_internal", False) is False
    assert found["topic_id"] == (topic_id("a") if version >= 10 else ZERO_UUID)
    assert found.get("topic_authorized_operations", -(2**31)) == -(2**31)
    (node,) = response["brokers"]
    assert (node["node_id"], node["host"], node["port"]) == (1, "host1", 9091)
    assert response["controller_id"] == (1 if version else -1)
    assert response["cluster_id"] == (CLUSTER_ID if version >= 2 else None)
    assert response.get("error_code", ErrorCode.none) == ErrorCode.none


def test_all_topics() -> None:
    node = node_of(image_of(topic("a", partition(1)), topic("b", partition(1))))
    for version in ALL:
        everything = ask(node, {"topics": None if version else []}, version)
        assert errors(everything) == {"a": ErrorCode.none, "b": ErrorCode.none}
        if version:
            assert ask(node, {"topics": []}, version)["topics"] == []


def test_topics_that_are_not_there() -> None:
    node = node_of(image_of(topic("a", partition(1))))
    response = ask(node, {"topics": named("a", "b", "", "b a d", "a", "x" * 250), "allow_auto_topic_creation": False})
    assert errors(response) == {
        "a": ErrorCode.none,
        "b": ErrorCode.unknown_topic_or_partition,
        "": ErrorCode.invalid_topic_exception,
        "b a d": ErrorCode.invalid_topic_exception,
        "x" * 250: ErrorCode.invalid_topic_exception,
    }
    assert len(response["topics"]) == 5
    assert node.channel.requests == []


def test_topics_by_id() -> None:
    node = node_of(image_of(topic("a", partition(1)), topic("b", partition(1))))
    unknown = UUID(int=99)
    ids = [
        {"name": None, "topic_id": topic_id("a")},
        {"name": "b", "topic_id": None},
        {"name": None, "topic_id": unknown},
    ]
    response = ask(node, {"topics": ids})
    found = [(each["name"], each["topic_id"], each["error_code"]) for each in response["topics"]]
    assert found == [(None, unknown, ErrorCode.unknown_topic_id), ("a", topic_id("a"), ErrorCode.none)]


@pytest.mark.parametrize("version", [10, 11])
def test_ids_and_null_names_before_they_were_allowed(version: int) -> None:
    node = node_of(image_of(topic("a", partition(1))))
    for asked, name in (({"name": None, "topic_id": None}, ""), ({"name": "a", "topic_id": topic_id("a")}, "a")):
        response = ask(node, {"topics": [asked]}, version)
        assert errors(response) == {name: ErrorCode.invalid_request}
        assert (response["brokers"], response["controller_id"], response["cluster_id"]) == ([], -1, None)


def test_neither_name_nor_id() -> None:
    response = ask(node_of(image_of()), {"topics": named(None)})
    assert response["error_code"] == ErrorCode.invalid_request
    assert errors(response) == {"": ErrorCode.invalid_request}


@pytest.mark.parametrize("version", ALL)
def test_a_missing_topic_is_created(version: int) -> None:
    node = node_of(image_of())
    assert errors(ask(node, {"topics": named("a", "b a d")}, version)) == {
        "a": ErrorCode.none,
        "b a d": ErrorCode.invalid_topic_exception,
    }
    (request,) = node.channel.requests
    assert request["topics"] == [
        {"name": "a", "num_partitions": -1, "replication_factor": -1, "assignments": [], "configs": []}
    ]


def test_creation_switched_off() -> None:
    node = node_of(image_of(), auto_create_topics_enable="false")
    assert errors(ask(node, {"topics": named("a")})) == {"a": ErrorCode.unknown_topic_or_partition}
    assert node.channel.requests == []


def test_creation_refused() -> None:
    node = node_of(image_of())
    node.channel.refuse = KafkaError(ErrorCode.not_controller)
    assert errors(ask(node, {"topics": named("a")})) == {"a": ErrorCode.unknown_topic_or_partition}


def test_an_internal_topic_is_created_as_its_coordinator_wants_it() -> None:
    node = node_of(image_of())
    (found,) = ask(node, {"topics": named(OFFSETS_TOPIC)})["topics"]
    assert found["is_internal"]
    (asked,) = node.channel.requests[0]["topics"]
    assert (asked["num_partitions"], asked["replication_factor"]) == (50, 1)
    assert {each["name"]: each["value"] for each in asked["configs"]} == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


def test_authorized_operations() -> None:
    node = node_of(image_of(topic("a", partition(1))))
    asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    values = {"topics": named("a"), **asked}
    for version in range(8, 14):
        response = ask(node, values, version)
        assert response["topics"][0]["topic_authorized_operations"] == 3576
        assert response["cluster_authorized_operations"] == (8096 if version <= 10 else -(2**31))


def cluster() -> Any:
    """Broker 2 is fenced, 3 listens elsewhere, 4 is not registered."""
    brokers = (broker(1, rack="r"), broker(2, fenced=True), broker(3, listener="INTERNAL"))
    partitions = (
        partition(1, 2, isr=(1, 2)),
        partition(3, 1),
        partition(1, 4, leader=-1),
        partition(1, directories=(UUID(int=5000),)),
        partition(1, directories=(UUID(int=1),)),
    )
    return node_of(image_of(topic("a", *partitions), brokers=brokers))


def test_brokers_that_cannot_be_reached() -> None:
    response = ask(cluster(), {"topics": named("a")})
    assert [(each["node_id"], each["rack"]) for each in response["brokers"]] == [(1, "r")]
    rows = [
        (each["error_code"], each["leader_id"], each["replica_nodes"], each["offline_replicas"])
        for each in response["topics"][0]["partitions"]
    ]
    assert rows == [
        (ErrorCode.none, 1, [1, 2], [2]),
        (ErrorCode.listener_not_found, -1, [3, 1], [3]),
        (ErrorCode.leader_not_available, -1, [1, 4], [4]),
        (ErrorCode.none, 1, [1], [1]),
        (ErrorCode.none, 1, [1], []),
    ]


def test_brokers_that_cannot_be_reached_in_the_first_versions() -> None:
    codes = [each["error_code"] for each in ask(cluster(), {"topics": named("a")}, 5)["topics"][0]["partitions"]]
    assert codes[1] == ErrorCode.leader_not_available
    partitions = ask(cluster(), {"topics": named("a")}, 0)["topics"][0]["partitions"]
    assert [(each["error_code"], each["replica_nodes"], each["isr_nodes"]) for each in partitions[:3]] == [
        (ErrorCode.replica_not_available, [1], [1]),
        (ErrorCode.leader_not_available, [1], [1]),
        (ErrorCode.leader_not_available, [1], [1]),
    ]


def test_another_listener() -> None:
    response = ask(cluster(), {"topics": named("a")}, listener="INTERNAL")
    assert [each["node_id"] for each in response["brokers"]] == [3]
    assert response["controller_id"] == 3
    assert ask(cluster(), {"topics": []}, listener="NONE")["controller_id"] == -1


@pytest.mark.parametrize("version", [0, 4, 8, 13])
def test_the_partitions_of_one_topic_are_encoded_in_steps(version: int) -> None:
    """The partitions of a topic that grew beyond what one request creates."""
    count, made = 5 * STEP_COST, 0

    def described(number: int) -> Partition:
        nonlocal made
        made += 1
        return Partition(ErrorCode.none, number, 1, 3, (1,), (1,), ())

    topics = [Topic(ErrorCode.none, "a", topic_id("a"), False, RowsOf(range(count), described), 0)]
    values = {"brokers": (), "cluster_id": None, "controller_id": 1, "topics": topics}
    steps = encode_response_in_steps(ApiKey.METADATA, version, 1, values)
    before = pauses = 0
    for _ in steps:
        assert made - before <= STEP_COST
        before, pauses = made, pauses + 1
    assert made == count and pauses >= 5
