"""The one rule of commit: what moves a high watermark, and what those who wait for it are told."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import DIRECTORY_LOST
from ottla.replication.partition import ACKS_ALL, ACKS_LEADER
from ottla.replication.purgatory import DelayedFetch, DelayedProduce
from ottla.replication.record_deletion import delete_records, wait_for_deletion
from tests.unit.replication.numbers_log import NumbersLog, Told, append, leading, registration

NONE = ErrorCode.none
LOST = ErrorCode.not_leader_or_follower


def fetch(partition: Any, replica_id: int, end: int, *, epoch: int = 0, now_ms: int = 0, **options: Any) -> None:
    partition.on_follower_fetch(replica_id, end, epoch, now_ms, **options)


def refused(call: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call()
    return caught.value.code


# Success, and only when it is true.


def test_with_an_in_sync_set_of_one_the_wait_is_over_before_it_begins() -> None:
    partition, log = leading()
    assert append(partition).errors == [NONE]
    assert (log.high_watermark, log.flushes) == (1, 0)


def test_nobody_hears_success_before_every_in_sync_replica_has_the_record() -> None:
    partition, log = leading((1, 2, 3))
    told = append(partition)
    assert (log.high_watermark, told.errors) == (0, [])
    fetch(partition, 2, 1)
    assert (log.high_watermark, told.errors) == (0, [])
    fetch(partition, 3, 1)
    assert (log.high_watermark, told.errors) == (1, [NONE])


def test_acks_of_the_leader_wait_for_nobody_else() -> None:
    partition, log = leading((1, 2))
    assert append(partition, ACKS_LEADER).errors == [NONE]
    assert log.high_watermark == 0


def test_an_fsync_alone_commits_nothing_that_a_silent_follower_lacks() -> None:
    partition, log = leading((1, 2), flush_messages=1)
    told, leader_only = append(partition), append(partition, ACKS_LEADER)
    log.end_flush()
    log.end_flush()
    assert (log.high_watermark, told.errors, leader_only.errors) == (0, [], [NONE])
    fetch(partition, 2, 2)
    assert (log.high_watermark, told.errors) == (2, [NONE])


def test_followers_alone_commit_nothing_that_is_not_fsynced_here() -> None:
    partition, log = leading((1, 2), flush_messages=1)
    told = append(partition)
    fetch(partition, 2, 1)
    assert (log.high_watermark, told.errors) == (0, [])
    log.end_flush()
    assert (log.high_watermark, told.errors) == (1, [NONE])


def test_what_was_appended_while_an_fsync_ran_waits_for_the_next() -> None:
    partition, log = leading(flush_messages=1)
    first, second = append(partition), append(partition)
    log.flushing = 1  # it began before the second append
    log.end_flush()
    assert (first.errors, second.errors, log.high_watermark) == ([NONE], [], 1)
    log.end_flush()
    assert (second.errors, log.flushes) == ([NONE], 2)


def test_at_most_so_many_committed_records_are_not_on_disk_as_flush_messages_allows() -> None:
    partition, log = leading(flush_messages=3)
    told = [append(partition) for _ in range(5)]
    assert [each.errors for each in told] == [[NONE], [NONE], [], [], []]
    assert log.flushes == 1
    log.flushing = 4
    log.end_flush()
    assert [each.errors for each in told] == [[NONE]] * 5, "one of them is not on disk, and two need not be"
    assert log.flushes == 1


def test_only_fetches_of_the_current_epoch_count() -> None:
    partition, log = leading((1, 2))
    partition.update(registration(epoch=3, partition_epoch=1, isr=(1, 2)))
    told = append(partition)
    assert refused(lambda: fetch(partition, 2, 1, epoch=0)) is ErrorCode.fenced_leader_epoch
    assert refused(lambda: fetch(partition, 2, 1, epoch=4)) is ErrorCode.unknown_leader_epoch
    assert (log.high_watermark, told.errors) == (0, [])
    fetch(partition, 2, 1, epoch=3)
    assert told.errors == [NONE]


def test_what_a_follower_had_in_an_earlier_epoch_is_forgotten() -> None:
    partition, log = leading((1, 2))
    append(partition)
    fetch(partition, 2, 1)
    partition.update(registration(epoch=1, partition_epoch=1, isr=(1, 2)))
    append(partition)
    assert log.high_watermark == 1
    fetch(partition, 2, 2, epoch=1)
    assert log.high_watermark == 2


def test_who_is_no_replica_or_ahead_of_the_leader_or_of_an_older_incarnation_does_not_count() -> None:
    partition, log = leading((1, 2), live={2: 40, 3: 41})
    append(partition)
    assert refused(lambda: fetch(partition, 9, 1)) is ErrorCode.unknown_leader_epoch
    assert refused(lambda: fetch(partition, 9, 1, epoch=-1)) is LOST
    assert refused(lambda: fetch(partition, 2, 2)) is ErrorCode.offset_out_of_range
    assert refused(lambda: fetch(partition, 2, 1, broker_epoch=39)) is LOST
    assert log.high_watermark == 0
    fetch(partition, 2, 1, broker_epoch=40)
    assert log.high_watermark == 1


def test_a_replica_that_is_about_to_join_is_waited_for() -> None:
    live = {2: 40, 3: 41}
    partition, log = leading((1,), live=live)
    assert append(partition).errors == [NONE]
    fetch(partition, 2, 1, now_ms=1000, broker_epoch=40)
    assert not partition.sole_in_sync
    told = append(partition)
    assert (log.high_watermark, told.errors) == (1, [])
    partition.propose_isr((1, 2))
    fetch(partition, 2, 2, now_ms=2000, broker_epoch=40)
    assert told.errors == [NONE]
    live[2] = 99  # it has restarted since: what it had says nothing
    partition.withdraw_isr()
    assert append(partition).errors == [NONE]


def test_a_replica_that_lagged_for_too_long_is_not_waited_for_unless_it_is_in_sync() -> None:
    partition, log = leading((1,))
    partition.append_as_leader(b"x", ACKS_ALL, now_ms=0)
    fetch(partition, 2, 1, now_ms=1000)
    partition.reconsider(1000 + partition.lag_ms_max)
    info = partition.append_as_leader(b"x", ACKS_ALL, now_ms=0)
    assert log.high_watermark == info.last_offset
    partition.reconsider(1001 + partition.lag_ms_max)
    partition.append_as_leader(b"x", ACKS_ALL, now_ms=0)
    assert (log.high_watermark, partition.sole_in_sync) == (3, True)


def test_waiters_do_not_wait_for_a_replica_that_stopped_coming() -> None:
    live = {2: 40, 3: 41}
    partition, _ = leading((1,), live=live)
    partition.append_as_leader(b"x", ACKS_ALL, now_ms=0)
    for replica in live:
        fetch(partition, replica, 1, now_ms=1000, broker_epoch=live[replica])
    told = append(partition)
    del live[3]
    partition.reconsider(2000)
    assert told.errors == []
    partition.reconsider(1001 + partition.lag_ms_max)
    assert told.errors == [NONE]


def test_a_change_of_the_in_sync_set_counts_once_the_controller_decided() -> None:
    partition, log = leading((1, 2, 3))
    told = append(partition)
    fetch(partition, 2, 1, now_ms=60_000)
    partition.propose_isr((1, 2))
    assert (log.high_watermark, told.errors) == (0, [])
    partition.update(registration(partition_epoch=1, isr=(1, 2)))
    assert (log.high_watermark, told.errors) == (1, [NONE])


def test_under_min_isr_nothing_is_committed() -> None:
    partition, log = leading((1, 2))
    partition.set_min_isr(2)
    told = append(partition)
    partition.update(registration(partition_epoch=1, isr=(1,)))
    assert (log.high_watermark, told.errors) == (0, [])
    assert refused(lambda: partition.append_as_leader(b"", ACKS_ALL, now_ms=0)) is ErrorCode.not_enough_replicas
    partition.append_as_leader(b"", ACKS_LEADER, now_ms=0)
    assert log.high_watermark == 0
    partition.reconsider(60_000)
    partition.set_min_isr(1)
    assert (log.high_watermark, told.errors) == (2, [NONE])


def test_who_asks_after_the_in_sync_set_shrank_hears_that_it_is_too_small() -> None:
    partition, _ = leading((1, 2))
    partition.set_min_isr(2)
    info = partition.append_as_leader(b"x", ACKS_ALL, now_ms=0)
    fetch(partition, 2, 1)
    partition.update(registration(partition_epoch=1, isr=(1,)))
    told = Told()
    partition.wait(info.last_offset + 1, info.leader_epoch, ACKS_ALL, told)
    assert told.errors == [ErrorCode.not_enough_replicas_after_append]


def test_a_duplicate_waits_for_the_original() -> None:
    partition, _ = leading((1, 2))
    first, second = append(partition), append(partition)
    again = Told()
    partition.wait(1, 0, ACKS_ALL, again)
    fetch(partition, 2, 1)
    assert (first.errors, again.errors, second.errors) == ([NONE], [NONE], [])


# An error, never success and never silence.


@pytest.mark.parametrize("flush_messages", [1, 1 << 62])
@pytest.mark.parametrize(
    ("event", "error"),
    [
        ("resign", LOST),
        ("same leader, new epoch", LOST),
        ("truncate", LOST),
        ("delete", ErrorCode.unknown_topic_or_partition),
        ("fail", ErrorCode.kafka_storage_error),
        ("stop", LOST),
    ],
)
def test_waiters_hear_what_happened(event: str, error: ErrorCode, flush_messages: int) -> None:
    partition, log = leading((1, 2), flush_messages=flush_messages)
    told = append(partition)
    kept: list[Told] = []
    if event == "truncate":
        kept.append(append(partition))
        log.truncate(1)
        assert (told.errors, kept[0].errors) == ([], [LOST])
    happen(partition, log, event)
    assert told.errors == [error]
    log.end_flush()
    if event in ("truncate", "stop"):
        if event == "truncate":
            partition.append_as_leader(b"another", ACKS_ALL, now_ms=0)
        fetch(partition, 2, 1)
    assert told.errors == [error], "told once"


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ("resign", LOST),
        ("truncate", LOST),
        ("delete", ErrorCode.unknown_topic_or_partition),
        ("fail", ErrorCode.kafka_storage_error),
    ],
)
def test_a_wait_for_the_own_disk_alone_ends_with_it_too(event: str, error: ErrorCode) -> None:
    partition, log = leading((1, 2), flush_messages=1)
    told = append(partition, ACKS_LEADER)
    happen(partition, log, event)
    assert told.errors == [error]
    if event == "truncate":
        append(partition, ACKS_LEADER)  # another record where the first one was
    log.end_flush()
    assert told.errors == [error], "told once"


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ("resign", LOST),
        ("delete", ErrorCode.unknown_topic_or_partition),
        ("fail", ErrorCode.kafka_storage_error),
        ("stop", LOST),
    ],
)
def test_a_wait_for_a_deletion_ends_with_it_too(event: str, error: ErrorCode) -> None:
    partition, log = leading((1, 2))
    append(partition)
    fetch(partition, 2, 1, log_start_offset=0)
    told = Told()
    assert wait_for_deletion(partition, delete_records(partition, 1), told) is not None
    assert told.errors == []
    happen(partition, log, event)
    assert told.errors == [error]


@pytest.mark.parametrize("acks", [ACKS_ALL, ACKS_LEADER])
@pytest.mark.parametrize(
    ("event", "error"),
    [
        ("resign", LOST),
        ("same leader, new epoch", LOST),
        ("truncate", LOST),
        ("delete", LOST),
        ("fail", ErrorCode.kafka_storage_error),
    ],
)
def test_who_begins_to_wait_after_it_happened_hears_it_at_once(event: str, error: ErrorCode, acks: int) -> None:
    """What was appended before: the offsets are there again, or were never committed."""
    partition, log = leading((1, 2), flush_messages=1)
    end, epoch = partition.append_as_leader(b"one", ACKS_ALL, now_ms=0).last_offset + 1, partition.leader_epoch
    happen(partition, log, event)
    told = Told()
    assert partition.wait(end, epoch, acks, told) is None
    assert told.errors == [error]


def happen(partition: Any, log: NumbersLog, event: str) -> None:
    if event == "resign":
        partition.update(registration(leader=2, epoch=1, partition_epoch=1, isr=(1, 2)))
    elif event == "same leader, new epoch":
        partition.update(registration(epoch=1, partition_epoch=1, isr=(1, 2)))
    elif event == "truncate":
        log.truncate(0)
    elif event == "delete":
        partition.remove()
    elif event == "fail":
        log.fail()
    else:
        partition.stop()


def test_a_stopping_node_still_waits_for_its_own_disk() -> None:
    partition, log = leading(flush_messages=1)
    told = append(partition)
    partition.stop()
    assert told.errors == []
    log.end_flush()
    assert told.errors == [NONE]


def test_the_old_leader_never_tells_success_for_what_the_new_one_cut() -> None:
    """Bug 17: a delayed commit is answered by the old leader."""
    partition, log = leading((1, 2))
    told = append(partition)
    partition.update(registration(leader=2, epoch=1, partition_epoch=1, isr=(1, 2)))
    log.truncate(0)
    partition.update(registration(leader=1, epoch=2, partition_epoch=2, isr=(1,)))
    assert append(partition).errors == [NONE]
    assert (log.high_watermark, told.errors) == (1, [LOST])
    late = Told()
    partition.wait(1, 0, ACKS_ALL, late)
    assert late.errors == [LOST], "of the first epoch, though an offset like that is committed now"


def test_the_time_of_a_request_ends_the_wait_for_others_but_not_for_the_own_disk() -> None:
    (behind, _), (slow, slow_log) = leading((1, 2)), leading(flush_messages=1)
    ready: list[int] = []
    errors: dict[str, ErrorCode] = {}
    request = DelayedProduce(ACKS_ALL, lambda: ready.append(1))
    for name, partition in (("behind", behind), ("slow", slow)):
        info = partition.append_as_leader(b"x", ACKS_ALL, now_ms=0)
        request.add(partition, info.last_offset + 1, info.leader_epoch, partial(errors.__setitem__, name))
    assert request.seal()
    assert request.expire()
    assert (errors, ready) == ({"behind": ErrorCode.request_timed_out}, [])
    slow_log.end_flush()
    assert (errors, ready) == ({"behind": ErrorCode.request_timed_out}, [1])
    fetch(behind, 2, 1)
    assert ready == [1]


def test_a_request_is_ready_when_its_last_partition_is() -> None:
    (one, _), (two, _) = leading((1, 2)), leading((1, 2))
    ready: list[int] = []
    request = DelayedProduce(ACKS_ALL, partial(ready.append, 1))
    for partition in (one, two):
        info = partition.append_as_leader(b"x", ACKS_ALL, now_ms=0)
        request.add(partition, info.last_offset + 1, info.leader_epoch, lambda error: None)
    fetch(one, 2, 1)
    assert request.seal()
    assert not ready
    fetch(two, 2, 1)
    assert ready == [1]


def test_a_request_that_nobody_waits_for_leaves_nothing_behind() -> None:
    partition, _ = leading((1, 2))
    request = DelayedProduce(ACKS_ALL, lambda: None)
    for _ in range(3):
        info = partition.append_as_leader(b"x", ACKS_ALL, now_ms=0)
        request.add(partition, info.last_offset + 1, info.leader_epoch, lambda error: None)
    request.leave()
    assert not partition._commits.waits


# Who is woken.


class Reader:
    """A waiting fetch; counts how often it is woken."""

    def __init__(self, partition: Any, lacking: int) -> None:
        self.woken = 0
        self.delayed = DelayedFetch((partition,), lacking, self._ready)

    def _ready(self) -> None:
        self.woken += 1


def test_an_append_wakes_no_fetch_before_the_high_watermark_moves() -> None:
    """Bug 20: long polls woken before the high watermark moved."""
    partition, _ = leading((1, 2))
    reader = Reader(partition, 1)
    append(partition)
    append(partition)
    assert reader.woken == 0
    fetch(partition, 2, 1)
    assert reader.woken == 1


def test_only_those_fetches_are_woken_that_have_enough_now() -> None:
    partition, log = leading((1, 2), flush_messages=1)
    small, large, larger = Reader(partition, 10), Reader(partition, 25), Reader(partition, 1000)
    for _ in range(4):
        append(partition, size=10)
    log.flushing = 4
    log.end_flush()
    assert (small.woken, large.woken, larger.woken) == (0, 0, 0)
    fetch(partition, 2, 1)
    assert (small.woken, large.woken, larger.woken) == (1, 0, 0)
    fetch(partition, 2, 2)
    assert (small.woken, large.woken, larger.woken) == (1, 0, 0)
    fetch(partition, 2, 4)
    assert (small.woken, large.woken, larger.woken) == (1, 1, 0)
    assert larger.delayed.lacking == 1000 - 40


def test_the_only_replica_too_wakes_none_that_have_too_little() -> None:
    partition, _ = leading()
    small, large = Reader(partition, 10), Reader(partition, 25)
    followers = DelayedFetch((partition,), 25, large._ready, at_end=True)
    append(partition, size=10)
    append(partition, size=10)
    assert (small.woken, large.woken) == (1, 0)
    assert (large.delayed.lacking, followers.lacking) == (5, 5)


def test_a_new_leader_wakes_for_what_it_found_in_its_log() -> None:
    partition, log = leading((1, 2))
    log.log_end_offset = 7
    partition.update(registration(epoch=1, partition_epoch=1, isr=(1, 2)))
    reader = Reader(partition, 1000)
    fetch(partition, 2, 7, epoch=1)
    assert (log.high_watermark, reader.woken) == (7, 1), "the number of bytes is unknown"


def test_what_is_in_the_log_of_a_new_leader_is_fsynced_where_the_topic_asks_for_it() -> None:
    log = NumbersLog(flush_messages=1)
    partition, log = leading(flush_messages=1)
    log.log_end_offset = 3
    partition.update(registration(epoch=1, partition_epoch=1))
    assert (log.high_watermark, log.flushes) == (0, 1)
    log.end_flush()
    assert log.high_watermark == 3


# Deleting records.


def test_what_the_leader_before_may_have_committed_is_deleted_later() -> None:
    partition, _ = leading((1, 2, 3))
    for _ in range(5):
        append(partition)
    partition.update(registration(epoch=1, partition_epoch=1, isr=(1, 2, 3)))
    append(partition)
    assert [refused(lambda end=end: delete_records(partition, end)) for end in (1, 5, 6)] == [
        ErrorCode.not_leader_or_follower,
        ErrorCode.not_leader_or_follower,
        ErrorCode.offset_out_of_range,
    ]
    for replica in (2, 3):
        fetch(partition, replica, 5, epoch=1)
    assert delete_records(partition, 5) == 5
    assert refused(lambda: delete_records(partition, 6)) is ErrorCode.offset_out_of_range


def test_a_deletion_waits_until_every_living_replica_has_done_it() -> None:
    live = {2: 40, 3: 41}
    partition, _ = leading((1, 2, 3), live=live)
    for _ in range(5):
        append(partition)
    assert refused(lambda: delete_records(partition, 3)) is ErrorCode.offset_out_of_range
    for replica in (2, 3):
        fetch(partition, replica, 5, broker_epoch=live[replica], log_start_offset=0)
    told = Told()
    assert delete_records(partition, 3) == 3
    wait_for_deletion(partition, 3, told)
    fetch(partition, 2, 5, broker_epoch=40, log_start_offset=3)
    assert told.errors == []
    del live[3]
    fetch(partition, 2, 5, broker_epoch=40, log_start_offset=3)
    assert told.errors == [NONE]


def test_who_was_taken_out_of_the_set_is_not_about_to_join_it() -> None:
    """Its directory failed (KIP-858): it was caught up a moment ago, its broker lives, and it does not fetch again."""
    partition, log = leading((1, 2, 3))
    for replica in (2, 3):
        fetch(partition, replica, 0, now_ms=1000)
    partition.update(registration(partition_epoch=9, replicas=(1, 2, 3), isr=(1, 2)))
    partition.append_as_leader(b"x", ACKS_ALL, now_ms=0)
    fetch(partition, 2, 1, now_ms=1001)
    assert log.high_watermark == 1
    fetch(partition, 3, 1, now_ms=1002)
    assert partition.grown_isr(3) is None, "that fetch may have been on its way when its log was given up"
    fetch(partition, 3, 1, now_ms=1002)
    assert partition.grown_isr(3) == (1, 2, 3)
    partition.append_as_leader(b"x", ACKS_ALL, now_ms=0)
    fetch(partition, 2, 2, now_ms=1003)
    assert log.high_watermark == 1, "one that fetches again and has everything is waited for"


def test_a_fetch_from_before_a_log_was_given_up_does_not_join_the_set() -> None:
    """Nor where the replica was out of it before: the metadata says that its log is lost."""
    for isr in ((1, 2, 3), (1, 2)):
        partition, log = leading((1, 2, 3))
        partition.update(registration(partition_epoch=9, replicas=(1, 2, 3), isr=isr))
        partition.append_as_leader(b"x", ACKS_ALL, now_ms=0)
        fetch(partition, 2, 1, now_ms=1000)
        fetch(partition, 3, 1, now_ms=1000, broker_epoch=7)
        assert log.high_watermark == 1
        lost = (UUID(int=100), UUID(int=100), DIRECTORY_LOST)
        partition.update(registration(partition_epoch=10, replicas=(1, 2, 3), isr=(1, 2), directories=lost))
        fetch(partition, 3, 1, now_ms=1001, broker_epoch=7)
        assert partition.grown_isr(3) is None
        fetch(partition, 3, 0, now_ms=1002, broker_epoch=7)
        assert partition.grown_isr(3) is None
        fetch(partition, 3, 1, now_ms=1004, broker_epoch=7)
        assert partition.grown_isr(3) == (1, 2, 3)


def test_a_new_incarnation_joins_the_set_with_its_first_fetch() -> None:
    partition, _ = leading((1, 2, 3))
    fetch(partition, 3, 0, broker_epoch=7)
    partition.update(registration(partition_epoch=9, replicas=(1, 2, 3), isr=(1, 2)))
    fetch(partition, 3, 0, broker_epoch=8)
    assert partition.grown_isr(3) == (1, 2, 3)
