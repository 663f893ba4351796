"""What each record of the metadata log does to an image."""

from __future__ import annotations

import re
from uuid import UUID

import pytest

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import DIRECTORY_MIGRATING, ConfigResource
from ottla.metadata.replay import ReplayError, UnsupportedLevel, replay
from ottla.protocol.schemas import records as r
from tests.unit.metadata.images import DIRECTORY, apply, broker_records, one_broker, topic_records


def test_a_topic_is_found_by_name_and_by_id() -> None:
    image = one_broker(*topic_records("t", 7, partitions=3))
    topic = image.topic("t")
    assert topic is not None
    assert topic is image.topic_by_id(UUID(int=7))
    assert list(topic.partitions) == [0, 1, 2]
    assert image.partition("t", 2) == topic.partitions[2]
    assert image.partition("t", 3) is None
    assert image.partition("u", 0) is None
    assert image.partition_count == 3


def test_partitions_come_in_order_whatever_the_order_of_records() -> None:
    topic, *partitions = topic_records("t", 7, partitions=3)
    image = one_broker(topic, *reversed(partitions))
    found = image.topic("t")
    assert found is not None
    assert list(found.partitions) == [0, 1, 2]


def test_an_image_does_not_change_when_its_successor_does() -> None:
    before = one_broker(*topic_records("t", 7))
    after = apply([r.PartitionChangeRecord(0, UUID(int=7), leader=-1)], before)
    assert before.partition("t", 0).leader == 1  # type: ignore[union-attr]
    assert after.partition("t", 0).leader == -1  # type: ignore[union-attr]
    assert after.offset == before.offset + 1


@pytest.mark.parametrize(("leader", "epoch"), [(-2, 5), (1, 6), (-1, 6)])
def test_naming_a_leader_begins_an_epoch_even_if_it_is_the_same(leader: int, epoch: int) -> None:
    image = one_broker(*topic_records("t", 7, leader_epoch=5, partition_epoch=9))
    image = apply([r.PartitionChangeRecord(0, UUID(int=7), leader=leader, isr=(1,))], image)
    partition = image.partition("t", 0)
    assert partition is not None
    assert (partition.leader_epoch, partition.partition_epoch) == (epoch, 10)


def test_directories_follow_their_replicas() -> None:
    image = one_broker(*topic_records("t", 7, replicas=(1, 2), directories=(DIRECTORY, UUID(int=99))))
    image = apply([r.PartitionChangeRecord(0, UUID(int=7), replicas=(2, 3))], image)
    partition = image.partition("t", 0)
    assert partition is not None
    assert partition.directories == (UUID(int=99), DIRECTORY_MIGRATING)
    assert partition.directory(3) == DIRECTORY_MIGRATING
    assert partition.directory(9) == DIRECTORY_MIGRATING


def test_settings_go_with_their_topic() -> None:
    image = one_broker(*topic_records("t", 7), r.ConfigRecord(2, "t", "retention.ms", "5"))
    assert image.topic_config("t") == {"retention.ms": "5"}
    image = apply([r.RemoveTopicRecord(UUID(int=7))], image)
    assert image.topic("t") is None
    assert image.topic_config("t") == {}
    assert ConfigResource(2, "t") not in image.configs


def test_a_recreated_topic_has_nothing_of_the_old_one() -> None:
    image = one_broker(*topic_records("t", 7, partitions=2), r.ConfigRecord(2, "t", "retention.ms", "5"))
    delta = MetadataDelta(image)
    for record in [r.RemoveTopicRecord(UUID(int=7)), *topic_records("t", 8), r.ConfigRecord(2, "t", "segment.ms", "9")]:
        replay(record, delta)
    assert list(delta.deleted_topics) == [UUID(int=7)]
    assert [topic.id for topic in delta.created_topics()] == [UUID(int=8)]
    image = delta.apply(99, 1, 1)
    assert image.topic("t").id == UUID(int=8)  # type: ignore[union-attr]
    assert image.topic_by_id(UUID(int=7)) is None
    assert image.topic_config("t") == {"segment.ms": "9"}


def test_a_topic_created_and_deleted_in_one_delta_leaves_nothing() -> None:
    image = one_broker()
    records = [*topic_records("t", 7), r.ConfigRecord(2, "t", "segment.ms", "9"), r.RemoveTopicRecord(UUID(int=7))]
    delta = MetadataDelta(image)
    for record in records:
        replay(record, delta)
    assert not delta.topics
    assert not delta.deleted_topics
    assert delta.apply(99, 1, 1).configs == image.configs


def test_a_setting_set_to_null_is_removed_and_a_resource_without_settings_with_it() -> None:
    image = one_broker(
        r.ConfigRecord(4, "", "a", "1"), r.ConfigRecord(4, "", "b", "2"), r.ConfigRecord(4, "1", "b", "3")
    )
    image = apply([r.ConfigRecord(4, "1", "b", None)], image)
    assert ConfigResource(4, "1") not in image.configs


def test_a_broker_is_fenced_unfenced_and_shut_down() -> None:
    image = apply(broker_records(1, fenced=True))
    assert not image.brokers[1].active
    image = apply([r.BrokerRegistrationChangeRecord(1, 1, fenced=-1)], image)
    assert image.brokers[1].active
    image = apply([r.BrokerRegistrationChangeRecord(1, 1, in_controlled_shutdown=1)], image)
    assert not image.brokers[1].active
    assert not image.brokers[1].fenced
    image = apply([r.FenceBrokerRecord(1, 1)], image)
    assert image.brokers[1].fenced
    image = apply([r.UnfenceBrokerRecord(1, 1), r.UnregisterBrokerRecord(1, 1)], image)
    assert image.brokers == {}


@pytest.mark.parametrize(
    "record",
    [
        r.RemoveTopicRecord(UUID(int=5)),
        r.PartitionRecord(topic_id=UUID(int=5)),
        r.PartitionChangeRecord(0, UUID(int=5)),
        r.PartitionChangeRecord(9, UUID(int=7)),
        r.UnfenceBrokerRecord(9, 9),
        r.UnfenceBrokerRecord(1, 77),
        r.ClearElrRecord("u"),
        object(),
    ],
)
def test_a_record_that_cannot_follow_is_refused(record: object) -> None:
    image = one_broker(*topic_records("t", 7))
    with pytest.raises(ReplayError):
        replay(record, MetadataDelta(image))


def test_eligible_leader_replicas_are_cleared_by_topic_or_everywhere() -> None:
    records = [*topic_records("t", 7, eligible_leader_replicas=(2,)), *topic_records("u", 8, last_known_elr=(3,))]
    image = one_broker(*records)
    cleared = apply([r.ClearElrRecord("t")], image)
    assert cleared.partition("t", 0).elr == ()  # type: ignore[union-attr]
    assert cleared.partition("u", 0).last_known_elr == (3,)  # type: ignore[union-attr]
    assert apply([r.ClearElrRecord("")], image).partition("u", 0).last_known_elr == ()  # type: ignore[union-attr]


def test_the_full_delta_leads_from_nothing_to_the_image() -> None:
    image = one_broker(
        *topic_records("t", 7, partitions=2),
        r.ConfigRecord(2, "t", "a", "1"),
        r.ProducerIdsRecord(1, 1, 3000),
        r.ClientQuotaRecord((r.QuotaEntityData("user", None),), "k", 2.0),
    )
    delta = MetadataDelta.full(image)
    assert len(list(delta.changed_partitions())) == 2
    assert list(delta.changed_configs(2)) == ["t"]
    again = delta.apply(image.offset, image.epoch, image.timestamp_ms)
    assert again.topics_by_name == image.topics_by_name
    assert again.configs == image.configs
    assert (again.brokers, again.features, again.next_producer_id) == (image.brokers, image.features, 3000)
    assert again.client_quotas == image.client_quotas == {(("user", None),): {"k": 2.0}}


def test_an_empty_delta_is_false_and_keeps_the_maps() -> None:
    image = one_broker(*topic_records("t", 7))
    delta = MetadataDelta(image)
    assert not delta
    replay(r.NoOpRecord(), delta)
    assert not delta
    assert delta.apply(5, 1, 1).topics_by_name is image.topics_by_name


def test_quotas_of_an_image_stay_while_its_delta_goes_on() -> None:
    entity = (("user", "a"),)
    image = one_broker(r.ClientQuotaRecord((r.QuotaEntityData("user", "a"),), "k", 1.0))
    delta = MetadataDelta(image)
    delta.set_client_quota(entity, "l", 2.0)
    first = delta.apply(5, 1, 1)
    delta.set_client_quota(entity, "k", None)
    second = delta.apply(6, 1, 1)
    delta.set_client_quota(entity, "l", None)
    assert [dict(each.client_quotas) for each in (image, first, second, delta.apply(7, 1, 1))] == [
        {entity: {"k": 1.0}},
        {entity: {"k": 1.0, "l": 2.0}},
        {entity: {"l": 2.0}},
        {},
    ]


def test_a_controllers_registration_is_removed() -> None:
    image = apply([r.RegisterControllerRecord(controller_id=4)])
    assert list(image.controllers) == [4]
    assert not apply([r.UnregisterControllerRecord(4)], image).controllers
    assert not apply([r.RegisterControllerRecord(controller_id=5), r.UnregisterControllerRecord(5)]).controllers
    with pytest.raises(ReplayError, match="controller 4, which is not registered"):
        apply([r.UnregisterControllerRecord(4)])


@pytest.mark.parametrize(
    ("name", "level", "why"),
    [
        ("metadata.version", 34, "metadata.version is 34, and this software supports 3.3-IV3 to 4.4-IV2 (33)"),
        ("metadata.version", 6, "metadata.version is 6, and"),
        ("share.version", 3, "share.version is 3, and this software supports 0 to 2"),
        ("new.version", 1, "new.version is 1, and this software does not know that feature"),
    ],
)
def test_a_level_that_is_not_supported_is_not_replayed(name: str, level: int, why: str) -> None:
    with pytest.raises(UnsupportedLevel, match=re.escape(why)):
        apply([r.FeatureLevelRecord(name, level)])
    apply([r.FeatureLevelRecord("new.version", 0)])
