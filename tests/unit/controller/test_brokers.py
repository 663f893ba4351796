"""Registration, and who leads after a restart."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.controller import brokers, producer_ids
from ottla.controller.bootstrap import bootstrap
from ottla.errors import KafkaError
from ottla.metadata import features
from ottla.metadata.image import EMPTY_IMAGE, Endpoint, PartitionRegistration
from ottla.protocol.internal import metadata_records as r
from tests.unit.metadata.images import DIRECTORY, apply, feature_records, one_broker, topic_records

ME = brokers.Registration(1, UUID(int=9), {"PLAINTEXT": Endpoint("h", 1)}, log_dirs=(DIRECTORY,))


def test_the_broker_epoch_is_the_offset_of_its_registration() -> None:
    image = apply(feature_records())
    decision = brokers.register_broker(image, ME)
    assert decision.response == image.offset + 1
    registration, unfence = decision.records
    assert registration.broker_epoch == unfence.broker_epoch == decision.response
    assert registration.fenced
    after = apply(decision.records, image)
    assert after.brokers[1].active
    assert after.brokers[1].incarnation_id == UUID(int=9)


def test_a_restarted_broker_leads_again_in_a_new_epoch() -> None:
    image = one_broker(*topic_records("t", 7, 2, leader_epoch=4))
    decision = brokers.register_broker(image, ME)
    assert not decision.atomic
    after = apply(decision.records, image)
    assert [(each.leader, each.leader_epoch) for each in after.topic("t").partitions.values()] == [(1, 5)] * 2  # type: ignore[union-attr]


def partition(**fields: Any) -> PartitionRegistration:
    values: dict[str, Any] = {"replicas": (1, 2), "isr": (), "leader": -1, "leader_epoch": 1, "partition_epoch": 1}
    return PartitionRegistration(**{**values, "directories": (), **fields})


@pytest.mark.parametrize(
    ("before", "change"),
    [
        (partition(isr=(1,), leader=1), r.PartitionChangeRecord(leader=1)),
        (partition(isr=(2,), leader=2), None),
        (partition(isr=(1, 2)), r.PartitionChangeRecord(leader=1)),
        (partition(isr=(2,)), None),
        (
            partition(elr=(1, 2)),
            r.PartitionChangeRecord(leader=1, isr=(1,), eligible_leader_replicas=(2,)),
        ),
        (
            partition(elr=(1,), last_known_elr=(1,)),
            r.PartitionChangeRecord(leader=1, isr=(1,), eligible_leader_replicas=(), last_known_elr=()),
        ),
        (partition(elr=(2,), last_known_elr=(1,)), None),
        (
            partition(last_known_elr=(1,)),
            r.PartitionChangeRecord(leader=1, isr=(1,), last_known_elr=(), leader_recovery_state=1),
        ),
        (partition(last_known_elr=(2,)), None),
        (partition(), None),
    ],
)
def test_who_may_lead_after_coming_back(before: PartitionRegistration, change: r.PartitionChangeRecord | None) -> None:
    assert brokers.returning_leader(before, 1) == change


def test_a_stopping_broker_is_fenced_once() -> None:
    image = one_broker()
    (record,) = brokers.fence(image, 1).records
    after = apply([record], image)
    assert after.brokers[1].fenced
    assert not brokers.fence(after, 1).records
    assert not brokers.fence(image, 2).records


def test_replicas_are_assigned_to_directories() -> None:
    image = one_broker(*topic_records("t", 7, 2))
    key, gone = (UUID(int=7), 1), (UUID(int=70), 0)
    (record,) = brokers.assign_directories(image, 1, {key: UUID(int=500), gone: UUID(int=500)}).records
    after = apply([record], image)
    assert after.partition("t", 1).directory(1) == UUID(int=500)  # type: ignore[union-attr]
    assert not brokers.assign_directories(after, 1, {key: UUID(int=500)}).records


def test_producer_ids_come_in_blocks_of_a_thousand() -> None:
    image = one_broker(r.ProducerIdsRecord(1, 1, 5000))
    decision = producer_ids.allocate(image, 1, 3)
    assert decision.response == range(5000, 6000)
    assert list(decision.records) == [r.ProducerIdsRecord(1, 3, 6000)]
    with pytest.raises(KafkaError):
        producer_ids.allocate(one_broker(r.ProducerIdsRecord(1, 1, (1 << 63) - 5)), 1, 3)


def test_a_new_cluster_finalizes_its_features_in_one_transaction() -> None:
    records = list(bootstrap(EMPTY_IMAGE, features.BOOTSTRAP, "1").records)
    assert isinstance(records[0], r.BeginTransactionRecord)
    assert records[1] == r.FeatureLevelRecord("metadata.version", 30)
    assert records[-2] == r.ConfigRecord(4, "", "min.insync.replicas", "1")
    assert isinstance(records[-1], r.EndTransactionRecord)
    assert not bootstrap(EMPTY_IMAGE, {}, "1").records


def test_an_old_metadata_version_has_no_transactions_and_no_eligible_replicas() -> None:
    records = list(bootstrap(EMPTY_IMAGE, {"metadata.version": 8}, "1").records)
    assert records == [r.FeatureLevelRecord("metadata.version", 8)]
    assert not brokers.register_controller(apply(records), ME).records


def test_what_is_in_a_lost_directory_has_no_leader_until_it_is_back() -> None:
    """KIP-858: the broker registers the directories that it can use."""
    other, lost = UUID(int=77), UUID(int=78)
    image = one_broker(*topic_records("t", 7, 2))
    topic = image.topic("t")
    assert topic is not None
    image = apply(brokers.assign_directories(image, 1, {(topic.id, 1): lost}).records, image)
    without = brokers.Registration(1, UUID(int=9), ME.endpoints, log_dirs=(DIRECTORY, other))
    image = apply(brokers.register_broker(image, without).records, image)
    assert [each.leader for each in image.topic("t").partitions.values()] == [1, -1]  # type: ignore[union-attr]
    assert brokers.register_broker(image, without).records[-1].partition_id == 0, "nothing to change a second time"
    whole = brokers.Registration(1, UUID(int=9), ME.endpoints, log_dirs=(DIRECTORY, lost))
    image = apply(brokers.register_broker(image, whole).records, image)
    assert [each.leader for each in image.topic("t").partitions.values()] == [1, 1]  # type: ignore[union-attr]
