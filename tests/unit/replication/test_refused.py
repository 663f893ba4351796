"""A producer's batches around a refusal: the leader steps down, or its in-sync set is too small, for a moment."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import PartitionRegistration
from ottla.model import TopicPartition
from ottla.replication.partition import ACKS_ALL, Partition
from ottla.replication.replica_log import Appended
from ottla.server.produce.produce_answers import unless_deposed
from ottla.storage.log.validation import Origin
from tests.unit.storage.logs import NOW, batch, load, new_disk

ME, OTHER = 3, 1
DIRECTORIES = (uuid4(), uuid4(), uuid4())


class Leader:
    def __init__(self) -> None:
        self.partition = Partition(ME, TopicPartition("t", 0), uuid4(), load(new_disk()))
        self.partition.set_min_isr(2)
        self.changes = 0
        self.epoch = 1
        self.change((ME, OTHER))

    def change(self, isr: tuple[int, ...], leader: int = ME, *, epochs: int = 0) -> None:
        self.changes += 1
        self.epoch += epochs
        self.partition.update(PartitionRegistration((1, 2, 3), isr, leader, self.epoch, self.changes, DIRECTORIES))

    def append(self, sequence: int, *, origin: Origin | None = None) -> Appended:
        records = batch(1, producer_id=1, producer_epoch=0, base_sequence=sequence)
        return self.partition.append_as_leader(memoryview(records), ACKS_ALL, now_ms=NOW, origin=origin)

    def put(self, *sequences: int) -> list[str]:
        found = []
        for each in sequences:
            try:
                found.append("appended" if self.append(each).size_bytes else "duplicate")
            except KafkaError as error:
                found.append(error.code.name)
        return found


@pytest.fixture
def leader() -> Leader:
    leader = Leader()
    assert leader.put(0) == ["appended"]
    return leader


def test_the_in_sync_set_grows_between_two_batches(leader: Leader) -> None:
    leader.change((ME,))
    assert leader.put(1, 2) == ["not_enough_replicas"] * 2
    leader.change((ME, OTHER))
    assert leader.put(3) == ["not_enough_replicas"]
    assert leader.put(1, 2, 3) == ["appended"] * 3


def test_the_leader_comes_back_between_two_batches(leader: Leader) -> None:
    leader.change((ME, OTHER), OTHER, epochs=1)
    assert leader.put(1) == ["not_leader_or_follower"]
    leader.change((ME, OTHER), epochs=1)
    assert leader.put(2) == ["not_leader_or_follower"]
    assert leader.put(1, 2) == ["appended"] * 2


def test_what_another_leader_took_meanwhile_is_missing_no_more(leader: Leader) -> None:
    leader.change((ME, OTHER), OTHER, epochs=1)
    assert leader.put(1, 2) == ["not_leader_or_follower"] * 2
    copied = batch(1, producer_id=1, producer_epoch=0, base_sequence=1)
    copied[:8] = (1).to_bytes(8, "big")
    leader.partition.append_as_follower(memoryview(copied), leader.epoch, now_ms=NOW)
    leader.change((ME, OTHER), epochs=1)
    assert leader.put(1, 3, 2, 3) == ["duplicate", "out_of_order_sequence_number", "appended", "appended"]


def test_a_batch_that_is_in_the_log_waits_for_the_high_watermark(leader: Leader) -> None:
    """With too few in sync nothing moves it: whoever repeats the batch hears success when it is committed."""
    partition = leader.partition
    leader.change((ME,))
    assert partition.log.high_watermark == 0
    info = leader.append(0)
    assert (info.size_bytes, info.first_offset, info.leader_epoch) == (0, 0, leader.epoch)
    answers: list[ErrorCode] = []
    assert partition.wait(info.last_offset + 1, info.leader_epoch, ACKS_ALL, answers.append) is not None
    assert partition.log.high_watermark == 0 and not answers
    leader.change((ME, OTHER))
    partition.on_follower_fetch(OTHER, 1, leader.epoch, NOW)
    assert (partition.log.high_watermark, answers) == (1, [ErrorCode.none])


def test_a_damaged_copy_of_what_is_in_the_log_is_no_duplicate(leader: Leader) -> None:
    leader.change((ME,))
    records = batch(1, producer_id=1, producer_epoch=0, base_sequence=0)
    records[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        leader.partition.append_as_leader(memoryview(records), ACKS_ALL, now_ms=NOW)
    assert caught.value.code is ErrorCode.not_enough_replicas
    assert leader.partition.log.log_end_offset == 1


def test_what_the_node_writes_itself_is_refused_as_ever(leader: Leader) -> None:
    leader.change((ME,))
    with pytest.raises(KafkaError) as caught:
        leader.append(0, origin=Origin.COORDINATOR)
    assert caught.value.code is ErrorCode.not_enough_replicas


def test_a_leader_that_is_not_followed_does_not_say_that_records_are_missing(leader: Leader) -> None:
    """It may have been deposed without a word of it, and the producer has sent them to the next leader."""

    async def told(in_ms: int) -> ErrorCode:
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        leader.partition.on_follower_fetch(OTHER, 0, leader.epoch, now_ms - in_ms)
        with pytest.raises(KafkaError) as refused:
            leader.append(5)
        return unless_deposed(leader.partition, refused.value).code

    assert asyncio.run(told(5_000)) == ErrorCode.not_leader_or_follower
    assert asyncio.run(told(500)) == ErrorCode.out_of_order_sequence_number
    leader.change((ME,))
    leader.partition.set_min_isr(1)
    assert asyncio.run(told(5_000)) == ErrorCode.out_of_order_sequence_number, "nobody else could lead"
    other = KafkaError(ErrorCode.invalid_producer_epoch)
    assert unless_deposed(leader.partition, other) is other
