"""AlterPartition: who may change the in-sync replicas, to what, and what becomes of eligible leaders."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.controller.isr import alter_partition
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import MetadataImage
from ottla.protocol.schemas import records as r
from ottla.steps import at_once
from tests.unit.metadata.images import apply, broker_records, feature_records, settings, topic_records

TOPIC = UUID(int=5)
REPLICAS = {"replicas": (1, 2, 3), "isr": (1, 2, 3), "leader": 1, "leader_epoch": 4, "partition_epoch": 6}


def cluster(**partition: Any) -> MetadataImage:
    brokers = [each for node in (1, 2, 3) for each in broker_records(node, log_dirs=(UUID(int=0xD0 + node),))]
    fenced = broker_records(4, fenced=True, log_dirs=(UUID(int=0xD4),))
    directories = tuple(UUID(int=0xD0 + node) for node in (1, 2, 3))
    topic = topic_records("t", 5, directories=directories, **{**REPLICAS, **partition})
    min_isr = [r.ConfigRecord(4, "", "min.insync.replicas", "2")]
    return apply([*feature_records(), *min_isr, *brokers, *fenced, *topic])


def ask(image: MetadataImage, isr: list[int], *, topic: UUID = TOPIC, **fields: Any) -> tuple[dict[str, Any], Any]:
    """(the row of the answer, the image after the change)."""
    row = {
        "partition_index": 0,
        "leader_epoch": 4,
        "partition_epoch": 6,
        "new_isr_with_epochs": [{"broker_id": each, "broker_epoch": each} for each in isr],
        "leader_recovery_state": 0,
        **{name: value for name, value in fields.items() if name not in ("broker_id", "broker_epoch")},
    }
    broker = {name: fields.get(name, 1) for name in ("broker_id", "broker_epoch")}
    request = {**broker, "topics": [{"topic_id": topic, "partitions": [row]}]}
    decision = at_once(alter_partition(image, request, settings(image)))
    return decision.response["topics"][0]["partitions"][0], apply(decision.records, image)


def test_the_isr_shrinks_and_grows() -> None:
    image = cluster()
    row, smaller = ask(image, [1, 3])
    assert (row["error_code"], row["isr"], row["leader_id"]) == (0, (1, 3), 1)
    assert (row["leader_epoch"], row["partition_epoch"]) == (4, 7)
    partition = smaller.partition("t", 0)
    assert partition is not None
    assert (partition.isr, partition.elr, partition.leader_epoch) == ((1, 3), (), 4)
    _, alone = ask(smaller, [1], partition_epoch=7)
    partition = alone.partition("t", 0)
    assert partition is not None
    assert (partition.isr, partition.elr) == ((1,), (3,))  # below min.insync.replicas: 3 has all that is committed
    row, whole = ask(alone, [1, 2, 3], partition_epoch=8)
    partition = whole.partition("t", 0)
    assert partition is not None
    assert (row["isr"], partition.isr, partition.elr, partition.partition_epoch) == ((1, 2, 3), (1, 2, 3), (), 9)


def test_nothing_changes_nothing() -> None:
    image = cluster()
    row, after = ask(image, [1, 2, 3])
    assert (row["error_code"], row["partition_epoch"]) == (0, 6)
    assert after.partition("t", 0) == image.partition("t", 0)


def test_the_brokers_alone_as_in_version_2() -> None:
    row, _ = ask(cluster(), [], new_isr=[1, 2])
    assert (row["error_code"], row["isr"]) == (0, (1, 2))


REFUSED: list[tuple[list[int], dict[str, Any], ErrorCode]] = [
    ([1], {"topic": UUID(int=9)}, ErrorCode.unknown_topic_id),
    ([1], {"partition_index": 1}, ErrorCode.unknown_topic_or_partition),
    ([1], {"leader_epoch": 3}, ErrorCode.fenced_leader_epoch),
    ([1], {"leader_epoch": 5}, ErrorCode.not_controller),
    ([1], {"partition_epoch": 7}, ErrorCode.not_controller),
    ([1], {"partition_epoch": 5}, ErrorCode.invalid_update_version),
    ([2], {"broker_id": 2, "broker_epoch": 2}, ErrorCode.invalid_request),  # does not lead
    ([1, 4], {}, ErrorCode.invalid_request),  # no replica
    ([2, 3], {}, ErrorCode.invalid_request),  # without the leader
    ([1, 2], {"leader_recovery_state": 1}, ErrorCode.invalid_request),
    ([1], {"new_isr_with_epochs": [{"broker_id": 1, "broker_epoch": 9}]}, ErrorCode.ineligible_replica),
]


@pytest.mark.parametrize(("isr", "fields", "error"), REFUSED)
def test_refused(isr: list[int], fields: dict[str, Any], error: ErrorCode) -> None:
    image = cluster()
    row, after = ask(image, isr, **fields)
    assert row["error_code"] == error
    assert after.partition("t", 0) == image.partition("t", 0)


def test_a_fenced_broker_is_not_in_sync() -> None:
    image = cluster(replicas=(1, 2, 4), isr=(1, 2))
    assert ask(image, [1, 2, 4])[0]["error_code"] == ErrorCode.ineligible_replica


@pytest.mark.parametrize(
    ("broker", "error"),
    [
        ({"broker_id": 1, "broker_epoch": 8}, ErrorCode.stale_broker_epoch),
        ({"broker_id": 8, "broker_epoch": 8}, ErrorCode.stale_broker_epoch),
    ],
)
def test_who_asks_must_be_registered(broker: dict[str, int], error: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        ask(cluster(), [1], **broker)
    assert refused.value.code == error
