"""Leadership, the high watermark and its waiters, on a log that is only numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import PartitionRegistration
from ottla.model import TopicPartition
from ottla.replication.partition import Partition
from ottla.replication.purgatory import DelayedFetch


class NumbersLog:
    def __init__(self) -> None:
        self.high_watermark = 0
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.last_stable_offset = 0
        self.needs_flush = False
        self.epochs: list[int] = []

    def append_as_leader(self, records: bytes, leader_epoch: int, **options: Any) -> Any:
        self.log_end_offset += 1
        return SimpleNamespace(
            first_offset=self.log_end_offset - 1,
            last_offset=self.log_end_offset - 1,
            size_bytes=len(records),
            needs_flush=self.needs_flush,
        )

    def read(self, *args: Any, **options: Any) -> None:
        return None

    def assign_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return (epoch, 17) if epoch >= 0 else (-1, -1)


def registration(leader: int = 1, epoch: int = 0, partition_epoch: int = 0, isr: tuple[int, ...] = (1,)) -> Any:
    return PartitionRegistration((1, 2), isr, leader, epoch, partition_epoch, (UUID(int=9),) * 2)


def leading(isr: tuple[int, ...] = (1,)) -> tuple[Partition, NumbersLog]:
    log = NumbersLog()
    partition = Partition(1, TopicPartition("t", 0), UUID(int=5), log)
    partition.update(registration(isr=isr))
    return partition, log


def code_of(call: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call()
    return caught.value.code


def test_an_append_of_the_only_replica_is_committed_at_once() -> None:
    partition, log = leading()
    partition.append_as_leader(b"abc", -1, now_ms=0)
    assert log.high_watermark == 1


def test_an_append_that_needs_an_fsync_is_committed_after_it() -> None:
    partition, log = leading()
    log.needs_flush = True
    info = partition.append_as_leader(b"abc", -1, now_ms=0)
    assert log.high_watermark == 0
    partition.advance_high_watermark(info.last_offset + 1)
    partition.advance_high_watermark(0)
    assert log.high_watermark == 1


def test_an_append_waits_for_other_replicas_in_sync() -> None:
    partition, log = leading(isr=(1, 2))
    partition.append_as_leader(b"abc", -1, now_ms=0)
    assert log.high_watermark == 0


def test_too_few_in_sync_replicas_concern_acks_all_only() -> None:
    partition, _ = leading()
    partition.min_isr = 2
    assert code_of(lambda: partition.append_as_leader(b"", -1, now_ms=0)) == ErrorCode.not_enough_replicas
    partition.append_as_leader(b"", 1, now_ms=0)


def test_claimed_epochs() -> None:
    partition, _ = leading()
    partition.update(registration(epoch=4, partition_epoch=1))
    partition.check_leader()
    partition.check_leader(4)
    assert code_of(lambda: partition.check_leader(3)) == ErrorCode.fenced_leader_epoch
    assert code_of(lambda: partition.check_leader(5)) == ErrorCode.unknown_leader_epoch
    partition.update(registration(leader=2, epoch=5, partition_epoch=2, isr=(2,)))
    assert code_of(partition.check_leader) == ErrorCode.not_leader_or_follower
    assert code_of(lambda: partition.append_as_leader(b"", 1, now_ms=0)) == ErrorCode.not_leader_or_follower


def test_an_older_registration_changes_nothing() -> None:
    partition, log = leading()
    assert partition.update(registration(epoch=3, partition_epoch=3))
    assert not partition.update(registration(leader=2, epoch=2, partition_epoch=2))
    assert partition.is_leader
    assert log.epochs == [0, 3]


def test_the_current_epoch_ends_at_the_log_end() -> None:
    partition, log = leading()
    log.log_end_offset = 30
    assert partition.end_of_epoch(0) == (0, 30)
    assert partition.end_of_epoch(2) == (2, 17)


def test_a_fetch_waits_until_it_has_enough_from_all_its_partitions() -> None:
    (one, _), (two, _) = leading(), leading()
    woken: list[int] = []
    waiting = DelayedFetch((one, two), 10, lambda: woken.append(1))
    one.append_as_leader(b"12345", 1, now_ms=0)
    two.append_as_leader(b"1234", 1, now_ms=0)
    assert not woken
    two.append_as_leader(b"1", 1, now_ms=0)
    one.append_as_leader(b"12345", 1, now_ms=0)
    assert woken == [1]
    waiting.leave()
    waiting.leave()
    assert not one.waiters and not two.waiters


def test_a_change_of_leadership_wakes_the_waiters() -> None:
    partition, _ = leading()
    woken: list[int] = []
    DelayedFetch((partition,), 1 << 40, lambda: woken.append(1))
    partition.wake()
    assert woken
