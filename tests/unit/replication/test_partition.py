"""Leadership, epochs and waiting fetches, on a log that is only numbers."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.replication.purgatory import DelayedFetch
from tests.unit.replication.numbers_log import leading, registration


def code_of(call: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call()
    return caught.value.code


def test_an_append_of_the_only_replica_is_committed_at_once() -> None:
    partition, log = leading()
    partition.append_as_leader(b"abc", -1, now_ms=0)
    assert log.high_watermark == 1


def test_too_few_in_sync_replicas_concern_acks_all_only() -> None:
    partition, _ = leading()
    partition.set_min_isr(2)
    assert code_of(lambda: partition.append_as_leader(b"", -1, now_ms=0)) == ErrorCode.not_enough_replicas
    partition.append_as_leader(b"", 1, now_ms=0)


def test_no_more_replicas_are_required_than_there_are() -> None:
    partition, log = leading()
    partition.set_min_isr(2)
    partition.update(registration(partition_epoch=1, replicas=(1,)))
    partition.append_as_leader(b"", -1, now_ms=0)
    assert log.high_watermark == 1


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


def test_a_leader_elected_during_a_cut_that_ends_lower_starts_its_epoch_there() -> None:
    """A cut inside a batch ends where the batch began, which shows when the files are cut."""
    partition, log = leading(isr=(1, 2))
    log.log_end_offset = 17
    partition.update(registration(epoch=3, partition_epoch=1, isr=(1, 2)))
    assert partition.epoch_start == 17
    log.truncate(10)
    assert partition.epoch_start == 10
    assert log.epochs == [0, 3, 3], "the cut dropped the epoch that began at 17"
    partition.on_follower_fetch(3, 10, 3, 0)
    assert partition.grown_isr(3) == (1, 2, 3)


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


def test_a_new_leader_gives_those_in_sync_the_whole_time_to_fetch() -> None:
    """However late it is by the clock: a leader that was made just now has heard nobody yet."""
    late_ms = 10**9
    partition, _ = leading((1, 2, 3))
    partition.append_as_leader(b"abc", 1, now_ms=0)
    assert partition.shrunk_isr(late_ms) is None
    assert partition.shrunk_isr(late_ms + partition.lag_ms_max) is None
    assert partition.shrunk_isr(late_ms + partition.lag_ms_max + 1) == (1,)
    partition.update(registration(epoch=1, partition_epoch=1, replicas=(1, 2, 3), isr=(1, 2, 3)))
    assert partition.shrunk_isr(3 * late_ms) is None
