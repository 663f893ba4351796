"""DescribeCluster, DescribeTopicPartitions, ListConfigResources, DescribeLogDirs, as Apache Kafka 4.3.0 answers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.model import TopicPartition
from ottla.protocol.messages import ApiKey
from tests.unit.server.admin import (
    CLUSTER_ID,
    DIRECTORY,
    asking,
    broker,
    image_of,
    node_of,
    partition,
    topic,
    topic_id,
)

describe_cluster = asking(ApiKey.DESCRIBE_CLUSTER)
describe_partitions = asking(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
list_resources = asking(ApiKey.LIST_CONFIG_RESOURCES)
describe_log_dirs = asking(ApiKey.DESCRIBE_LOG_DIRS)
ASK_OPERATIONS = {"include_cluster_authorized_operations": True}


@pytest.mark.parametrize("version", range(3))
def test_cluster(version: int) -> None:
    node = node_of(image_of(brokers=(broker(1, rack="r"), broker(2, fenced=True), broker(3, listener="OTHER"))))
    response = describe_cluster(node, ASK_OPERATIONS, version)
    assert (response["error_code"], response["error_message"]) == (ErrorCode.none, None)
    assert (response["cluster_id"], response["controller_id"]) == (CLUSTER_ID, 1)
    assert response["cluster_authorized_operations"] == 8096
    assert [(each["broker_id"], each["host"], each["port"], each["rack"]) for each in response["brokers"]] == [
        (1, "host1", 9091, "r")
    ]
    assert describe_cluster(node, {}, version)["cluster_authorized_operations"] == -(2**31)


def test_fenced_brokers() -> None:
    node = node_of(image_of(brokers=(broker(1), broker(2, fenced=True))))
    response = describe_cluster(node, {"include_fenced_brokers": True})
    assert [(each["broker_id"], each["is_fenced"]) for each in response["brokers"]] == [(1, False), (2, True)]


ENDPOINTS = [
    (
        2,
        ErrorCode.mismatched_endpoint_type,
        "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
    ),
    (3, ErrorCode.unsupported_endpoint_type, "Unsupported endpoint type 3"),
]


@pytest.mark.parametrize(("endpoint_type", "code", "message"), ENDPOINTS)
def test_other_endpoints(endpoint_type: int, code: ErrorCode, message: str) -> None:
    assert describe_cluster(node_of(image_of()), {"endpoint_type": endpoint_type}, 1) == {
        "throttle_time": 0,
        "error_code": code,
        "error_message": message,
        "endpoint_type": 1,
        "cluster_id": "",
        "controller_id": -1,
        "brokers": [],
        "cluster_authorized_operations": -(2**31),
    }


def five_and_two() -> Any:
    five = topic("five", *[partition(1, elr=(2,), last_known_elr=(3,))] * 5)
    return node_of(image_of(five, topic("two", partition(1), partition(1)), topic("__consumer_offsets", partition(1))))


def page(limit: int, *names: str, cursor: tuple[str, int] | None = None, node: Any = None) -> Any:
    """((topic, partitions), ...) of a response, and its cursor."""
    values = {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": limit,
        "cursor": cursor and {"topic_name": cursor[0], "partition_index": cursor[1]},
    }
    response = describe_partitions(node or five_and_two(), values)
    after = response["next_cursor"]
    topics = [
        (each["name"], [one["partition_index"] for one in each["partitions"]], each["error_code"])
        for each in response["topics"]
    ]
    plain = [(name, found) if code is ErrorCode.none else (name, code) for name, found, code in topics]
    return plain, after and (after["topic_name"], after["partition_index"])


FIVE, TWO = [0, 1, 2, 3, 4], [0, 1]
UNKNOWN = ErrorCode.unknown_topic_or_partition

PAGES = [
    (2000, ("two", "five"), None, [("five", FIVE), ("two", TWO)], None),
    (2000, ("five", "five"), None, [("five", FIVE)], None),
    (2000, (), None, [("__consumer_offsets", [0]), ("five", FIVE), ("two", TWO)], None),
    (2000, ("nope", "b a d"), None, [("b a d", ErrorCode.invalid_topic_exception), ("nope", UNKNOWN)], None),
    (3, ("five", "two"), None, [("five", [0, 1, 2])], ("five", 3)),
    (5, ("five", "two"), None, [("five", FIVE)], ("two", 0)),
    (5, ("five", "nope"), None, [("five", FIVE)], ("nope", 0)),
    (6, ("five", "two"), None, [("five", FIVE), ("two", [0])], ("two", 1)),
    (3, ("five", "two"), ("five", 3), [("five", [3, 4]), ("two", [0])], ("two", 1)),
    (3, ("five",), ("five", 9), [("five", [])], None),
    (2, (), ("f", 7), [("five", [0, 1])], ("five", 2)),
    (0, ("five",), None, [("five", [0])], ("five", 1)),
    (-5, ("five",), None, [("five", [0])], ("five", 1)),
    (3, ("five",), ("two", 0), [("five", ErrorCode.invalid_request)], None),
    (3, ("five",), ("five", -1), [("five", ErrorCode.invalid_request)], None),
]


@pytest.mark.parametrize(("limit", "names", "cursor", "topics", "after"), PAGES)
def test_pages_of_partitions(limit: int, names: Any, cursor: Any, topics: Any, after: Any) -> None:
    assert page(limit, *names, cursor=cursor) == (topics, after)


def test_the_nodes_own_limit() -> None:
    node = node_of(five_and_two().image, max_request_partition_size_limit="2")
    assert page(2000, "five", node=node) == ([("five", [0, 1])], ("five", 2))


def test_following_the_cursor_gives_everything_once() -> None:
    seen, cursor = [], None
    while True:
        topics, cursor = page(2, cursor=cursor)
        seen += [(name, number) for name, numbers in topics for number in numbers]
        if cursor is None:
            break
    expected = [("__consumer_offsets", 0), *(("five", n) for n in FIVE), ("two", 0), ("two", 1)]
    assert seen == expected


def test_fields_of_a_described_topic() -> None:
    values = {"topics": [{"name": "five"}], "response_partition_limit": 1}
    (found,) = describe_partitions(five_and_two(), values)["topics"]
    assert found == {
        "error_code": ErrorCode.none,
        "name": "five",
        "topic_id": topic_id("five"),
        "is_internal": False,
        "topic_authorized_operations": 3576,
        "partitions": [
            {
                "error_code": ErrorCode.none,
                "partition_index": 0,
                "leader_id": 1,
                "leader_epoch": 3,
                "replica_nodes": [1],
                "isr_nodes": [1],
                "eligible_leader_replicas": [2],
                "last_known_elr": [3],
                "offline_replicas": [],
            }
        ],
    }


def configured() -> Any:
    configs = {(32, "group-b"): {"a": "b"}, (32, "group-a"): {"a": "b"}, (16, "sub"): {"a": "b"}, (2, "t"): {"a": "b"}}
    return node_of(image_of(topic("t", partition(1)), topic("u", partition(1)), configs=configs))


RESOURCES = {2: {"t", "u"}, 4: {"1"}, 8: {"1"}, 16: {"sub"}, 32: {"group-a", "group-b"}}


def resources(response: dict[str, Any]) -> dict[int, set[str]]:
    assert response["error_code"] == ErrorCode.none
    found: dict[int, set[str]] = {}
    for each in response["config_resources"]:
        found.setdefault(each["resource_type"], set()).add(each["resource_name"])
    return found


def test_resources() -> None:
    node = configured()
    assert resources(list_resources(node, {"resource_types": []})) == RESOURCES
    for kind, names in RESOURCES.items():
        assert resources(list_resources(node, {"resource_types": [kind]})) == {kind: names}
    response = list_resources(node, {}, 0)
    assert [each["resource_name"] for each in response["config_resources"]] == ["sub"]


@pytest.mark.parametrize("kind", [0, 1, 64])
def test_unsupported_resources(kind: int) -> None:
    response = list_resources(configured(), {"resource_types": [2, kind]})
    assert (response["error_code"], response["config_resources"]) == (ErrorCode.unsupported_version, [])


class Logs(dict[TopicPartition, Any]):
    """The logs of two directories, of which the second is offline."""

    online_dirs = ("/data",)
    futures: Mapping[TopicPartition, Any] = MappingProxyType({})

    def __init__(self, *names: tuple[str, int, int]) -> None:
        super().__init__()
        for name, number, size in names:
            key = TopicPartition(name, number)
            self[key] = SimpleNamespace(
                topic_partition=key, directory=f"/data/{key}", size_bytes=size, high_watermark=5, log_end_offset=5
            )

    def __iter__(self) -> Any:
        return iter(self.values())


def with_logs() -> Any:
    node = node_of(image_of(), log_dirs="/data,/lost")
    node.logs = Logs(("a", 0, 10), ("a", 1, 20), ("b", 0, 30))
    node.fs = SimpleNamespace(free_bytes=lambda path: (1000, 400))
    return node


@pytest.mark.parametrize("version", range(1, 6))
def test_log_dirs(version: int) -> None:
    response = describe_log_dirs(with_logs(), {"topics": None}, version)
    first, second = response["results"]
    assert (first["log_dir"], first["error_code"]) == ("/data", ErrorCode.none)
    sizes = {each["name"]: [one["partition_size"] for one in each["partitions"]] for each in first["topics"]}
    assert sizes == {"a": [10, 20], "b": [30]}
    one = first["topics"][0]["partitions"][1]
    assert one == {"partition_index": 1, "partition_size": 20, "offset_lag": 0, "is_future_key": False}
    if version >= 4:
        assert (first["total_bytes"], first["usable_bytes"]) == (1000, 400)
        assert (second["total_bytes"], second["usable_bytes"]) == (-1, -1)
    assert first.get("is_cordoned", False) is False
    assert (second["log_dir"], second["error_code"], second["topics"]) == ("/lost", ErrorCode.kafka_storage_error, [])


def test_log_dirs_of_some_partitions() -> None:
    asked = [{"topic": "a", "partitions": [1, 7]}, {"topic": "nope", "partitions": [0]}]
    first = describe_log_dirs(with_logs(), {"topics": asked})["results"][0]
    assert [(each["name"], len(each["partitions"])) for each in first["topics"]] == [("a", 1)]
    assert describe_log_dirs(with_logs(), {"topics": []})["results"][0]["topics"] == []


def test_a_cordoned_directory() -> None:
    registration = broker(1)
    cordoned = type(registration)(1, 7, registration.incarnation_id, {}, cordoned_log_dirs=(DIRECTORY,))
    node = with_logs()
    node.image = image_of(brokers=(cordoned,))
    assert describe_log_dirs(node, {"topics": []})["results"][0]["is_cordoned"]


def test_a_disk_that_cannot_be_asked() -> None:
    def fail(path: str) -> tuple[int, int]:
        raise OSError

    node = with_logs()
    node.fs.free_bytes = fail
    assert describe_log_dirs(node, {"topics": None})["results"][0]["error_code"] == ErrorCode.kafka_storage_error
