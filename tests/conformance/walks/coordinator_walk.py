"""Common parts of the walks of the group coordinator beside Kafka's: brokers, and topics that grow."""

from __future__ import annotations

from uuid import UUID

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.replay import replay
from ottla.protocol.schemas import records as r
from tests.unit.coordinator.harness import SimulatedDriver


def register_brokers(driver: SimulatedDriver) -> None:
    """Three, as `GroupCoordinatorLines.java` has them; the last has no rack."""
    delta = MetadataDelta(driver.image)
    for broker in (1, 2, 3):
        rack = None if broker == 3 else f"rack{broker}"
        record = r.RegisterBrokerRecord(
            broker_id=broker,
            is_migrating_zk_broker=False,
            incarnation_id=UUID(int=broker),
            broker_epoch=broker,
            end_points=(),
            features=(),
            rack=rack,
            fenced=False,
            in_controlled_shutdown=False,
            log_dirs=(),
            cordoned_log_dirs=None,
        )
        replay(record, delta)
    driver.image = delta.apply(0, 0, 0)
    driver.shard.on_metadata(None, driver.image)


def grown(driver: SimulatedDriver, name: str, number: int, before: int, count: int) -> MetadataDelta:
    """A topic, whose id is a number, has `count` partitions after it; none `before` makes it."""
    delta = MetadataDelta(driver.image)
    if not before:
        replay(r.TopicRecord(name, UUID(int=number)), delta)
    for partition in range(before, count):
        leader, other = 1 + partition % 3, 1 + (partition + 1) % 3
        record = r.PartitionRecord(
            partition_id=partition,
            topic_id=UUID(int=number),
            replicas=(leader, other),
            isr=(leader,),
            removing_replicas=(),
            adding_replicas=(),
            leader=leader,
            leader_recovery_state=0,
            leader_epoch=0,
            partition_epoch=0,
            directories=(UUID(int=1), UUID(int=1)),
        )
        replay(record, delta)
    return delta


def removed(driver: SimulatedDriver, number: int) -> MetadataDelta:
    delta = MetadataDelta(driver.image)
    replay(r.RemoveTopicRecord(UUID(int=number)), delta)
    return delta
