"""Replicas that move, and leaders that are elected by request or by the controller itself."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.controller import leader_elections, reassignments
from ottla.controller.directories import assign_replicas_to_dirs, assignment_request
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import DIRECTORY_LOST, MetadataImage
from ottla.protocol.schemas import records as r
from ottla.steps import at_once
from tests.unit.metadata.images import apply, broker_records, feature_records, settings, topic_records

UNCLEAN = r.ConfigRecord(2, "t", "unclean.leader.election.enable", "true")


def cluster(*more: Any, **partition: Any) -> MetadataImage:
    brokers = [each for node in range(1, 6) for each in broker_records(node, log_dirs=(UUID(int=0xD0 + node),))]
    values = {"replicas": (1, 2, 3), "isr": (1, 2, 3), **partition}
    values["directories"] = tuple(UUID(int=0xD0 + node) for node in values["replicas"])
    return apply([*feature_records(), *brokers, *topic_records("t", 5, 2, **values), *more])


def reassign(image: MetadataImage, replicas: Any, *, name: str = "t", number: int = 0, **asked: Any) -> tuple[Any, Any]:
    """(row of the answer, image after)."""
    row = {"partition_index": number, "replicas": replicas}
    request = {"topics": [{"name": name, "partitions": [row]}], **asked}
    decision = at_once(reassignments.alter_reassignments(image, request, settings(image)))
    (topic,) = decision.response["responses"]
    return topic["partitions"][0], apply(decision.records, image)


def ongoing(image: MetadataImage, topics: Any = None) -> list[tuple[str, int, Any, Any, Any]]:
    answer = at_once(reassignments.list_reassignments(image, {"topics": topics})).response
    return [
        (topic["name"], row["partition_index"], row["replicas"], row["adding_replicas"], row["removing_replicas"])
        for topic in answer["topics"]
        for row in topic["partitions"]
    ]


def test_a_reassignment_is_listed_while_it_lasts_and_can_be_cancelled() -> None:
    image = cluster()
    row, moving = reassign(image, [4, 2, 5])
    assert (row["error_code"], row["error_message"]) == (0, None)
    expected = [("t", 0, (4, 2, 5, 1, 3), (4, 5), (1, 3))]
    assert ongoing(moving) == expected
    assert ongoing(moving, [{"name": "t", "partition_indexes": [0, 1, 7]}]) == expected
    assert ongoing(moving, [{"name": "u", "partition_indexes": [0]}, {"name": "t", "partition_indexes": [1]}]) == []
    row, back = reassign(moving, None)
    assert row["error_code"] == 0
    assert ongoing(back) == []
    partition = back.partition("t", 0)
    assert partition is not None
    assert (partition.replicas, partition.isr, partition.leader) == ((2, 1, 3), (1, 2, 3), 1)


def test_fewer_replicas_are_there_at_once_and_more_when_they_are_in_sync() -> None:
    _, after = reassign(cluster(), [2])
    partition = after.partition("t", 0)
    assert partition is not None
    assert (partition.replicas, partition.isr, partition.leader, partition.leader_epoch) == ((2,), (2,), 2, 1)
    _, after = reassign(after, [2, 4, 5])
    assert ongoing(after) == [("t", 0, (2, 4, 5), (4, 5), ())]


REFUSED: list[tuple[Any, dict[str, Any], ErrorCode]] = [
    ([1], {"name": "u"}, ErrorCode.unknown_topic_or_partition),
    ([1], {"number": 2}, ErrorCode.unknown_topic_or_partition),
    (None, {}, ErrorCode.no_reassignment_in_progress),
    ([], {}, ErrorCode.invalid_replica_assignment),
    ([1, 1], {}, ErrorCode.invalid_replica_assignment),
    ([1, 9], {}, ErrorCode.invalid_replica_assignment),
    ([1, 2], {"allow_replication_factor_change": False}, ErrorCode.invalid_replication_factor),
]


@pytest.mark.parametrize(("replicas", "where", "error"), REFUSED, ids=str)
def test_refused(replicas: Any, where: dict[str, Any], error: ErrorCode) -> None:
    image = cluster()
    row, after = reassign(image, replicas, **where)
    assert row["error_code"] == error
    assert row["error_message"] or error == ErrorCode.no_reassignment_in_progress
    assert after.partition("t", 0) == image.partition("t", 0)


def test_the_replication_factor_counts_without_what_is_on_its_way_out() -> None:
    _, moving = reassign(cluster(), [4, 2, 5])
    row, _ = reassign(moving, [1, 2, 3], allow_replication_factor_change=False)
    assert row["error_code"] == 0
    row, _ = reassign(moving, [1, 2, 3, 4, 5], allow_replication_factor_change=False)
    assert row["error_code"] == ErrorCode.invalid_replication_factor


def test_a_cancel_that_would_lose_records_needs_the_setting() -> None:
    """All that is in sync was added by the reassignment."""
    moving = {"replicas": (4, 5, 1), "isr": (4,), "leader": 4, "adding_replicas": (4, 5), "removing_replicas": (1,)}
    row, _ = reassign(cluster(**moving), None)
    assert row["error_code"] == ErrorCode.invalid_replica_assignment
    row, after = reassign(cluster(UNCLEAN, **moving), None)
    assert row["error_code"] == 0
    partition = after.partition("t", 0)
    assert partition is not None
    assert (partition.replicas, partition.isr, partition.leader) == ((1,), (1,), 1)


def elect(image: MetadataImage, kind: int, partitions: Any) -> tuple[dict[tuple[str, int], int], MetadataImage]:
    """((topic, partition) to error, image after)."""
    request = {"election_type": kind, "topic_partitions": partitions}
    decision = at_once(leader_elections.elect_leaders(image, request, settings(image)))
    rows = {
        (topic["topic"], row["partition_id"]): int(row["error_code"])
        for topic in decision.response["replica_election_results"]
        for row in topic["partition_result"]
    }
    return rows, apply(decision.records, image)


def test_preferred_leaders_are_elected_by_request() -> None:
    image = cluster(leader=2)
    asked = [{"topic": "t", "partitions": [0, 7]}, {"topic": "u", "partitions": [0]}]
    rows, after = elect(image, 0, asked)
    assert rows == {("t", 0): 0, ("t", 7): ErrorCode.unknown_topic_or_partition, ("u", 0): rows["t", 7]}
    assert [each.leader for each in after.topics_by_name["t"].partitions.values()] == [1, 2]
    rows, after = elect(after, 0, None)
    assert rows == {("t", 1): 0}
    assert elect(after, 0, None)[0] == {}
    assert elect(after, 0, asked[:1])[0]["t", 0] == ErrorCode.election_not_needed
    rows, _ = elect(cluster(leader=2, isr=(2, 3)), 0, None)
    assert set(rows.values()) == {ErrorCode.preferred_leader_not_available}
    with pytest.raises(KafkaError) as caught:
        elect(image, 7, None)
    assert caught.value.code == ErrorCode.invalid_request


def test_an_unclean_leader_is_elected_by_request_whatever_the_settings_say() -> None:
    image = cluster(leader=-1, isr=(), eligible_leader_replicas=())
    rows, after = elect(image, 1, None)
    assert set(rows.values()) == {0}
    partition = after.partition("t", 0)
    assert partition is not None
    assert (partition.leader, partition.isr, partition.recovery_state) == (1, (1,), 1)
    image = apply([r.FenceBrokerRecord(node, node) for node in (1, 2, 3)], image)
    rows, _ = elect(image, 1, None)
    assert set(rows.values()) == {ErrorCode.eligible_leaders_not_available}


def test_a_replica_that_was_given_up_is_elected_by_request_where_nobody_else_lives() -> None:
    """Its log was damaged and is called lost; those that it was given up for never come back."""
    image = cluster(leader=-1, isr=(2,), eligible_leader_replicas=())
    place = _, number = image.topics_by_name["t"].id, 0
    request = assignment_request(1, image.brokers[1].epoch, {place: DIRECTORY_LOST})
    image = apply([r.FenceBrokerRecord(node, node) for node in (2, 3)], image)
    image = apply(at_once(assign_replicas_to_dirs(image, request, settings(image))).records, image)
    partition = image.partition("t", number)
    assert partition is not None and partition.directory(1) == DIRECTORY_LOST and partition.leader == -1
    by_settings = at_once(leader_elections.elect_unclean_leaders(apply([UNCLEAN], image), settings(image))).records
    assert number not in {each.partition_id for each in by_settings}
    rows, after = elect(image, 1, [{"topic": "t", "partitions": [number]}])
    partition = after.partition("t", number)
    assert rows == {("t", number): 0} and partition is not None
    assert (partition.leader, partition.isr, partition.directory(1)) == (1, (1,), UUID(int=0xD1))
    gone = apply([r.FenceBrokerRecord(1, 1)], image)
    assert (
        elect(gone, 1, [{"topic": "t", "partitions": [number]}])[0]["t", number]
        == ErrorCode.eligible_leaders_not_available
    )


def test_the_controller_balances_leaders_by_itself_in_decisions_that_are_not_too_large() -> None:
    image = cluster(leader=2)
    decision = at_once(leader_elections.balance_leaders(image, settings(image)))
    assert (decision.response, len(decision.records)) == (False, 2)
    after = apply(decision.records, image)
    assert {each.leader for each in after.topics_by_name["t"].partitions.values()} == {1}
    assert not at_once(leader_elections.balance_leaders(after, settings(after))).records
    directories = tuple(UUID(int=0xD0 + node) for node in (1, 2))
    many = topic_records("u", 6, 1500, replicas=(1, 2), isr=(1, 2), leader=2, directories=directories)
    decision = at_once(leader_elections.balance_leaders(apply(many, after), settings(after)))
    assert (decision.response, len(decision.records)) == (True, leader_elections.ELECTIONS_MAX)


def test_the_controller_elects_unclean_leaders_where_the_settings_allow_it() -> None:
    """Such as one that was changed while nobody led."""
    for more, leader in (((), -1), ((UNCLEAN,), 1)):
        image = cluster(*more, leader=-1, isr=())
        after = apply(at_once(leader_elections.elect_unclean_leaders(image, settings(image))).records, image)
        assert {each.leader for each in after.topics_by_name["t"].partitions.values()} == {leader}
