"""Topics and partitions: what a request leads to. Codes and sentences are those that Apache Kafka 4.3 gave."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from ottla.config.server import ServerConfig
from ottla.controller.topics import create_partitions, create_topics, delete_topics
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import DIRECTORY_UNASSIGNED, MetadataImage
from ottla.protocol.schemas import records as r
from ottla.steps import at_once
from tests.unit.metadata.images import DIRECTORY, apply, broker_records, feature_records, one_broker, topic_records

CONFIG = ServerConfig.load()


def topic(name: str, count: int = 1, factor: int = 1, **fields: Any) -> dict[str, Any]:
    values = {"name": name, "num_partitions": count, "replication_factor": factor, "assignments": [], "configs": []}
    return {**values, **fields}


def create(image: MetadataImage, *topics: dict[str, Any], **fields: Any) -> tuple[list[dict[str, Any]], list[Any]]:
    request = {"topics": list(topics), "validate_only": False, **fields}
    decision = at_once(create_topics(image, request, CONFIG, random.Random(1)))
    return decision.response["topics"], list(decision.records)


def test_a_topic_is_its_record_then_settings_then_partitions() -> None:
    configs = [{"name": "retention.ms", "value": "5"}]
    (row,), records = create(one_broker(), topic("t", 2, configs=configs))
    assert (row["error_code"], row["num_partitions"], row["replication_factor"]) == (0, 2, 1)
    assert [type(record) for record in records] == [r.TopicRecord, r.ConfigRecord, r.PartitionRecord, r.PartitionRecord]
    assert records[0].topic_id == row["topic_id"]
    assert records[3] == r.PartitionRecord(
        partition_id=1,
        topic_id=row["topic_id"],
        replicas=(1,),
        isr=(1,),
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=(DIRECTORY,),
    )
    names = [entry["name"] for entry in row["configs"]]
    assert names == sorted(names)
    assert next(e for e in row["configs"] if e["name"] == "retention.ms")["value"] == "5"


def test_defaults_are_the_nodes() -> None:
    (row,), _ = create(one_broker(), topic("t", -1, -1))
    assert (row["num_partitions"], row["replication_factor"]) == (1, 1)


def test_validate_only_answers_without_records() -> None:
    (row,), records = create(one_broker(), topic("t", 3), validate_only=True)
    assert row["num_partitions"] == 3
    assert not records


INVALID_ASSIGNMENT = ErrorCode.invalid_replica_assignment
REFUSED = [
    (topic("have"), ErrorCode.topic_already_exists, "Topic 'have' already exists."),
    (topic(""), ErrorCode.invalid_topic_exception, "Topic name is invalid: the empty string is not allowed"),
    (topic(".."), ErrorCode.invalid_topic_exception, "Topic name is invalid: '..' is not allowed"),
    (topic("a.b"), ErrorCode.invalid_topic_exception, "Topic 'a.b' collides with existing topic: a_b"),
    (
        topic("__cluster_metadata"),
        ErrorCode.invalid_request,
        "Creation of internal topic __cluster_metadata is prohibited.",
    ),
    (
        topic("t", 1, 2),
        ErrorCode.invalid_replication_factor,
        "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because "
        "only 1 broker(s) are registered or some brokers have all their log directories cordoned.",
    ),
    (
        topic("t", 1, 0),
        ErrorCode.invalid_replication_factor,
        "Replication factor must be larger than 0, or -1 to use the default value.",
    ),
    (topic("t", 0), ErrorCode.invalid_partitions, "Number of partitions was set to an invalid non-positive value."),
    (topic("t", configs=[{"name": "no", "value": "1"}]), ErrorCode.invalid_config, "Unknown topic config name: no"),
    (
        topic("t", configs=[{"name": "retention.ms", "value": "x"}]),
        ErrorCode.invalid_config,
        "Invalid value x for configuration retention.ms: Not a number of type LONG",
    ),
    (
        topic("t", configs=[{"name": "segment.bytes", "value": None}, {"name": "retention.ms", "value": None}]),
        ErrorCode.invalid_config,
        "Null value not supported for topic configs: segment.bytes,retention.ms",
    ),
    (
        topic("t", 1, -1, assignments=[{"partition_index": 0, "broker_ids": (1,)}]),
        ErrorCode.invalid_request,
        "A manual partition assignment was specified, but numPartitions was not set to -1.",
    ),
    (
        topic("t", -1, 1, assignments=[{"partition_index": 0, "broker_ids": (1,)}]),
        ErrorCode.invalid_request,
        "A manual partition assignment was specified, but replication factor was not set to -1.",
    ),
]
MANUAL = [
    ([(1, (1,))], "partitions should be a consecutive 0-based integer sequence"),
    ([(0, (7,))], "The manual partition assignment includes broker 7, but no such broker is registered."),
    ([(0, (1, 1))], "The manual partition assignment includes the broker 1 more than once."),
    ([(0, (1,)), (0, (1,))], "Found multiple manual partition assignments for partition 0"),
    ([(0, ())], "The manual partition assignment includes an empty replica list."),
]
REFUSED += [
    (
        topic("t", -1, -1, assignments=[{"partition_index": p, "broker_ids": b} for p, b in assignments]),
        INVALID_ASSIGNMENT,
        message,
    )
    for assignments, message in MANUAL
]


@pytest.mark.parametrize(("asked", "code", "message"), REFUSED)
def test_what_cannot_be_created_says_why(asked: dict[str, Any], code: ErrorCode, message: str) -> None:
    image = one_broker(*topic_records("have", 7), *topic_records("a_b", 8))
    (row,), records = create(image, asked)
    assert (row["error_code"], row["error_message"]) == (code, message)
    assert not records


def test_a_bad_topic_does_not_keep_others_from_being_created() -> None:
    rows, records = create(one_broker(), topic("a"), topic("b", 0), topic("c"), topic("c"))
    assert {row["name"]: row["error_code"] for row in rows} == {
        "a": ErrorCode.none,
        "b": ErrorCode.invalid_partitions,
        "c": ErrorCode.invalid_request,
    }
    assert [record.name for record in records if isinstance(record, r.TopicRecord)] == ["a"]


@pytest.mark.parametrize(
    ("topics", "message"),
    [
        ([topic("a", 10_001)], "Excessively large number of partitions per request."),
        ([topic("a", 10_001, 0), topic("b", -5)], "Excessively large number of partitions per request."),
        ([topic("a", 6000), topic("b", 6000)], "Excessively large number of partitions per request."),
        ([topic("a", 10_000)], "Unable to perform excessively large batch operation."),
        ([topic("a", 5000), topic("b", 5000)], "Unable to perform excessively large batch operation."),
    ],
)
def test_a_request_that_is_too_large_is_refused_as_a_whole(topics: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(KafkaError) as caught:
        create(one_broker(), *topics)
    assert (caught.value.code, caught.value.message) == (ErrorCode.policy_violation, message)


def test_the_largest_request_is_one_decision() -> None:
    _, records = create(one_broker(), topic("a", 9999))
    assert len(records) == 10_000


def test_given_settings_are_shown_as_they_were_given() -> None:
    (row,), _ = create(one_broker(), topic("t", configs=[{"name": "cleanup.policy", "value": " compact "}]))
    assert next(e for e in row["configs"] if e["name"] == "cleanup.policy")["value"] == " compact "


def test_a_manual_assignment_is_kept() -> None:
    assignments = [{"partition_index": p, "broker_ids": (1,)} for p in (1, 0)]
    (row,), records = create(one_broker(), topic("t", -1, -1, assignments=assignments))
    assert row["num_partitions"] == 2
    assert [record.partition_id for record in records[1:]] == [0, 1]


def test_no_active_broker_no_topic() -> None:
    (row,), _ = create(apply([*feature_records(), *broker_records(1, fenced=True)]), topic("t"))
    assert row["error_code"] == ErrorCode.invalid_replication_factor


def test_a_broker_with_several_directories_chooses_itself() -> None:
    image = apply([*feature_records(), *broker_records(1, log_dirs=(UUID(int=200), UUID(int=300)))])
    _, records = create(image, topic("t"))
    assert records[-1].directories == (DIRECTORY_UNASSIGNED,)


def test_replicas_lie_in_different_racks_and_leaders_are_spread() -> None:
    brokers = [record for n in range(1, 7) for record in broker_records(n, rack="ab"[n % 2])]
    image = apply([*feature_records(), *brokers])
    (row,), records = create(image, topic("t", 60, 2))
    assert row["error_code"] == 0
    leaders = [record.leader for record in records[1:]]
    assert {leaders.count(broker) for broker in range(1, 7)} == {10}
    for record in records[1:]:
        assert len({image.brokers[each].rack for each in record.replicas}) == 2
        assert record.isr == record.replicas


def test_a_fenced_broker_follows_but_does_not_lead() -> None:
    image = apply([*feature_records(), *broker_records(1), *broker_records(2, fenced=True)])
    _, records = create(image, topic("t", 9, 2))
    for record in records[1:]:
        assert (record.replicas, record.isr, record.leader) == ((1, 2), (1,), 1)


# CreatePartitions


def grow(image: MetadataImage, *topics: tuple[str, int, Any], **fields: Any) -> tuple[list[dict[str, Any]], list[Any]]:
    asked = [{"name": name, "count": count, "assignments": assignments} for name, count, assignments in topics]
    decision = at_once(create_partitions(image, {"topics": asked, **fields}, random.Random(1)))
    return decision.response["results"], list(decision.records)


def test_partitions_are_added_after_those_there_are() -> None:
    (row,), records = grow(one_broker(*topic_records("t", 7, 2)), ("t", 4, None))
    assert row == {"name": "t", "error_message": None}
    assert [record.partition_id for record in records] == [2, 3]
    assert records[0].topic_id == UUID(int=7)


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        (("t", 2, None), ErrorCode.invalid_partitions, "Topic already has 2 partition(s)."),
        (
            ("t", 1, None),
            ErrorCode.invalid_partitions,
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        ),
        (("u", 3, None), ErrorCode.unknown_topic_or_partition, None),
        (
            ("t", 4, [{"broker_ids": (1,)}]),
            INVALID_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            ("t", 3, [{"broker_ids": (9,)}]),
            INVALID_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (("t", 20_000, None), ErrorCode.policy_violation, "Excessively large number of partitions per request."),
    ],
)
def test_what_cannot_grow_says_why(asked: tuple[str, int, Any], code: ErrorCode, message: str | None) -> None:
    (row,), records = grow(one_broker(*topic_records("t", 7, 2)), asked)
    assert (row["error_code"], row["error_message"]) == (code, message)
    assert not records


def test_a_topic_named_twice_does_not_grow() -> None:
    rows, records = grow(one_broker(*topic_records("t", 7)), ("t", 2, None), ("t", 3, None))
    assert [(row["error_code"], row["error_message"]) for row in rows] == [
        (ErrorCode.invalid_request, "Duplicate topic name.")
    ]
    assert not records


# DeleteTopics


def delete(image: MetadataImage, *topics: tuple[str | None, int], names: tuple[str, ...] = ()) -> tuple[Any, list[Any]]:
    asked = [{"name": name, "topic_id": UUID(int=number) if number else None} for name, number in topics]
    decision = delete_topics(image, {"topics": asked, "topic_names": names}, CONFIG)
    rows = {(row["name"], row["topic_id"].int): row["error_code"] for row in decision.response["responses"]}
    return rows, [record.topic_id.int for record in decision.records]


def test_topics_are_deleted_by_name_and_by_id() -> None:
    image = one_broker(*topic_records("a", 7), *topic_records("b", 8), *topic_records("c", 9))
    rows, deleted = delete(image, ("a", 0), (None, 8), names=("c",))
    assert rows == {("a", 7): 0, ("b", 8): 0, ("c", 9): 0}
    assert sorted(deleted) == [7, 8, 9]


def test_what_cannot_be_deleted_says_why() -> None:
    image = one_broker(*topic_records("a", 7), *topic_records("b", 8))
    rows, deleted = delete(image, ("z", 0), (None, 77), (None, 0), ("a", 7), ("b", 0), ("b", 0))
    assert rows == {
        ("z", 0): ErrorCode.unknown_topic_or_partition,
        (None, 77): ErrorCode.unknown_topic_id,
        (None, 0): ErrorCode.invalid_request,
        ("a", 7): ErrorCode.invalid_request,
        ("b", 0): ErrorCode.invalid_request,
    }
    assert not deleted


def test_a_topic_named_by_name_and_id_at_once_stays() -> None:
    rows, deleted = delete(one_broker(*topic_records("a", 7)), ("a", 0), (None, 7))
    assert rows == {("a", 7): ErrorCode.invalid_request}
    assert not deleted


def test_deletion_can_be_switched_off() -> None:
    config = ServerConfig.load(overrides={"delete.topic.enable": "false"})
    with pytest.raises(KafkaError) as caught:
        delete_topics(one_broker(), {"topics": []}, config)
    assert caught.value.code == ErrorCode.topic_deletion_disabled
