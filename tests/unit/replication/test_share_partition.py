"""One share-partition, call by call; whole walks go as with Kafka's class in
tests/conformance/walks/test_share_walk.py."""

from __future__ import annotations

import random

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.share_records import DeliveryState
from ottla.protocol.schemas.records import StateBatch
from ottla.replication.share.aborted import OffsetRange, ReadBatch, aborted_ranges
from ottla.replication.share.acknowledgement import StateWrite
from ottla.replication.share.acquisition import Acquired, Wanted, without
from ottla.replication.share.config import ShareConfig
from ottla.replication.share.share_partition import LoadedState, SharePartition

ACCEPT, RELEASE, REJECT, RENEW, GAP = 1, 2, 3, 4, 0
TEN = [ReadBatch(0, 9)]


def partition(*batches: StateBatch, start: int = 0, config: ShareConfig | None = None) -> SharePartition:
    return SharePartition(LoadedState(3, start, batches), 5, config or ShareConfig(record_lock_duration_ms=1_000))


def fetch(
    it: SharePartition,
    member: str = "a",
    batches: list[ReadBatch] | None = None,
    records: int = 500,
    now_ms: int = 0,
    *,
    strict: bool = False,
    size: int = 500,
) -> list[Acquired]:
    wanted = Wanted(member, records, size, strict)
    return it.acquire(wanted, it.next_fetch_offset(), TEN if batches is None else batches, now_ms)


def acknowledge(
    it: SharePartition, first: int, last: int, *types: int, member: str = "a", now_ms: int = 0
) -> StateWrite:
    write = it.acknowledge(member, [(first, last, types)], now_ms)
    assert write is not None
    return write


def done(it: SharePartition, first: int, last: int, *types: int, member: str = "a") -> None:
    it.written(acknowledge(it, first, last, *types, member=member), 0, committed=True)


def refused(it: SharePartition, first: int, last: int, *types: int, member: str = "a") -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        it.acknowledge(member, [(first, last, types)], 0)
    return raised.value.code


def test_what_is_accepted_is_written_and_the_window_closes_over_it() -> None:
    it = partition()
    assert fetch(it) == [(0, 9, 1)]
    assert it.next_fetch_offset() == 10
    write = acknowledge(it, 0, 4, ACCEPT)
    assert (write.state_epoch, write.leader_epoch, write.start_offset, write.delivery_complete_count) == (3, 5, 0, 5)
    assert write.batches == [StateBatch(0, 4, DeliveryState.ACKNOWLEDGED, 1)]
    assert it.window.start_offset == 0, "until it is committed"
    assert it.written(write, 0, committed=True)
    assert it.window.start_offset == 5
    done(it, 5, 9, ACCEPT)
    assert (it.window.start_offset, it.window.batches, it.next_fetch_offset()) == (10, [], 10)


def test_what_is_released_is_delivered_again_until_its_last_delivery() -> None:
    it = partition(config=ShareConfig(1_000, delivery_count_limit=2))
    for count in (1, 2):
        assert fetch(it, batches=[ReadBatch(0, 0)]) == [(0, 0, count)]
        write = acknowledge(it, 0, 0, RELEASE)
        state = DeliveryState.AVAILABLE if count == 1 else DeliveryState.ARCHIVED
        assert write.batches == [StateBatch(0, 0, state, count)]
        assert fetch(it, "b", [ReadBatch(0, 0)]) == [], "not before the release is committed"
        it.written(write, 0, committed=True)
    assert it.window.start_offset == 1


def test_a_type_for_each_offset() -> None:
    it = partition()
    fetch(it, batches=[ReadBatch(0, 4)])
    write = acknowledge(it, 0, 4, ACCEPT, RELEASE, REJECT, GAP, ACCEPT)
    states = [(each.first_offset, each.last_offset, each.delivery_state) for each in write.batches]
    assert states == [(0, 0, 2), (1, 1, 0), (2, 3, 4), (4, 4, 2)]
    it.written(write, 0, committed=True)
    assert it.window.start_offset == 1
    assert fetch(it, batches=[ReadBatch(0, 4)]) == [(1, 1, 2)]


@pytest.mark.parametrize(
    ("first", "last", "types", "member", "code"),
    [
        (0, 9, (ACCEPT,), "b", ErrorCode.invalid_record_state),
        (0, 9, (9,), "a", ErrorCode.invalid_request),
        (0, 9, (ACCEPT, ACCEPT), "a", ErrorCode.invalid_request),
        (0, 9, (), "a", ErrorCode.invalid_request),
        (9, 0, (ACCEPT,), "a", ErrorCode.invalid_request),
        (5, 10, (ACCEPT,), "a", ErrorCode.invalid_request),
        (30, 31, (ACCEPT,), "a", ErrorCode.invalid_request),
    ],
)
def test_what_cannot_be_acknowledged(
    first: int, last: int, types: tuple[int, ...], member: str, code: ErrorCode
) -> None:
    it = partition()
    fetch(it)
    assert refused(it, first, last, *types, member=member) is code
    done(it, 0, 9, ACCEPT)
    assert it.window.start_offset == 10
    assert refused(partition(), 0, 0, ACCEPT) is ErrorCode.invalid_record_state


def test_an_acknowledgement_that_is_refused_in_the_middle_changes_nothing() -> None:
    it = partition()
    fetch(it, batches=[ReadBatch(0, 4)])
    fetch(it, "b", batches=[ReadBatch(5, 9)])
    assert refused(it, 0, 9, ACCEPT) is ErrorCode.invalid_record_state
    assert it.window.complete_count() == 0
    done(it, 0, 4, ACCEPT)
    assert it.window.start_offset == 5


def test_a_write_that_fails_leaves_the_records_with_their_member() -> None:
    it = partition()
    fetch(it)
    assert not it.written(acknowledge(it, 0, 9, ACCEPT), 999, committed=False)
    assert (it.window.start_offset, it.window.complete_count()) == (0, 0)
    done(it, 0, 9, ACCEPT)
    assert it.window.start_offset == 10


def test_a_lock_that_ended_before_the_write_failed_has_ended() -> None:
    it = partition()
    fetch(it)
    write = acknowledge(it, 0, 9, ACCEPT)
    assert it.advance(1_000) is None, "it is not decided yet whether it was accepted"
    assert it.written(write, 1_001, committed=False)
    assert fetch(it, "b", now_ms=1_002) == [(0, 9, 2)]


def test_locks_end() -> None:
    it = partition()
    fetch(it)
    assert it.next_deadline() == 1_000
    assert it.advance(999) is None
    write = it.advance(1_000)
    assert write is not None and write.batches == [StateBatch(0, 9, DeliveryState.AVAILABLE, 1)]
    assert it.next_fetch_offset() == 0
    assert fetch(it, "b", now_ms=1_000) == [(0, 9, 2)], "whatever becomes of the write"
    assert refused(it, 0, 9, ACCEPT) is ErrorCode.invalid_record_state
    it.written(write, 1_500, committed=False)
    assert refused(it, 0, 9, ACCEPT) is ErrorCode.invalid_record_state


def test_locks_are_renewed() -> None:
    it = partition()
    fetch(it)
    assert it.acknowledge("a", [(5, 9, [RENEW])], 900) is None, "nothing to write"
    write = it.advance(1_000)
    assert write is not None and write.batches == [StateBatch(0, 4, DeliveryState.AVAILABLE, 1)]
    assert it.next_deadline() == 1_900
    write = it.advance(1_900)
    assert write is not None and write.batches == [StateBatch(5, 9, DeliveryState.AVAILABLE, 1)]


def test_a_group_may_forbid_renewals() -> None:
    it = partition(config=ShareConfig(renew_acknowledge=False))
    fetch(it)
    assert refused(it, 0, 9, RENEW) is ErrorCode.invalid_record_state


def test_a_member_that_leaves_releases_what_it_has_and_no_more() -> None:
    it = partition()
    fetch(it, batches=[ReadBatch(0, 4)])
    fetch(it, "b", batches=[ReadBatch(5, 9)])
    assert it.release("c") is None
    write = it.release("a")
    assert write is not None and write.batches == [StateBatch(0, 4, DeliveryState.AVAILABLE, 1)]
    it.written(write, 0, committed=True)
    assert fetch(it, "c") == [(0, 4, 2)]


def test_there_is_room_for_so_many() -> None:
    it = partition(config=ShareConfig(1_000, partition_max_record_locks=12))
    assert fetch(it, batches=[ReadBatch(0, 9)]) == [(0, 9, 1)]
    assert it.can_acquire()
    assert fetch(it, batches=[ReadBatch(10, 14)]) == [(10, 14, 1)], "whole batches"
    assert not it.can_acquire()
    assert fetch(it, batches=[ReadBatch(15, 15)]) == []
    done(it, 12, 12, RELEASE)
    assert it.can_acquire()
    assert fetch(it, batches=[ReadBatch(10, 14), ReadBatch(15, 15)]) == [(12, 12, 2)]


def test_a_fetch_may_be_strict_about_its_number_of_records() -> None:
    it = partition()
    assert fetch(it, records=3, strict=True) == [(0, 2, 1)]
    assert fetch(it, "b", records=3, strict=True) == [(3, 5, 1)]
    assert fetch(it, "c", records=100, strict=True) == [(6, 9, 1)]
    assert partition().acquire(Wanted("a", 0, 1), 0, TEN, 0) == []


def test_new_records_come_in_batches_of_about_the_wanted_size() -> None:
    log = [ReadBatch(base, base + 2) for base in range(0, 30, 3)]
    assert fetch(partition(), batches=log, records=20, size=5) == [(0, 5, 1), (6, 11, 1), (12, 17, 1), (18, 20, 1)]


def test_the_closer_to_the_last_delivery_the_fewer_at_once() -> None:
    it = partition(StateBatch(0, 99, DeliveryState.AVAILABLE, 5), config=ShareConfig(1_000, delivery_count_limit=10))
    log = [ReadBatch(0, 99)]
    sizes = []
    while it.next_fetch_offset() == 0:
        (acquired,) = fetch(it, batches=log)
        sizes.append((acquired[1] + 1, acquired[2]))
        done(it, 0, acquired[1], RELEASE)
    assert sizes == [(50, 6), (25, 7), (12, 8), (6, 9), (1, 10)]
    assert it.window.start_offset == 1


def test_what_was_not_written_is_fetched_again_by_a_new_leader() -> None:
    it = partition(StateBatch(5, 9, DeliveryState.ACKNOWLEDGED, 1), StateBatch(15, 19, DeliveryState.AVAILABLE, 2))
    log = [ReadBatch(0, 19)]
    assert it.next_fetch_offset() == 0
    assert fetch(it, batches=log) == [(0, 4, 1), (10, 14, 1), (15, 19, 3)]
    assert it.next_fetch_offset() == 20
    done(it, 0, 4, ACCEPT)
    assert it.window.start_offset == 10


@pytest.mark.parametrize(
    "batches", [[StateBatch(4, 6, 0, 1)], [StateBatch(5, 7, 0, 1), StateBatch(7, 9, 0, 1)], [StateBatch(9, 8, 0, 1)]]
)
def test_state_that_no_leader_writes(batches: list[StateBatch]) -> None:
    with pytest.raises(ValueError):
        partition(*batches, start=5)


def test_a_log_that_is_cut_at_its_start() -> None:
    it = partition()
    fetch(it, batches=[ReadBatch(0, 4)])
    done(it, 0, 4, RELEASE)
    it.move_start(3)
    assert (it.window.start_offset, it.next_fetch_offset()) == (3, 3)
    assert fetch(it, "b", batches=[ReadBatch(0, 4)]) == [(3, 4, 2)]
    it.move_start(4)
    write = it.release("b")
    assert write is not None
    states = [(each.first_offset, each.delivery_state) for each in write.batches]
    assert states == [(3, DeliveryState.ARCHIVED), (4, DeliveryState.AVAILABLE)]
    it.move_start(50)
    it.written(write, 0, committed=True)
    assert (it.window.start_offset, it.next_fetch_offset(), it.window.count) == (50, 50, 0)
    it.move_start(20)
    assert it.window.start_offset == 50, "never back"


def test_what_was_compacted_away_is_not_waited_for() -> None:
    it = partition()
    fetch(it)
    done(it, 0, 9, RELEASE)
    assert fetch(it, batches=[ReadBatch(6, 9)]) == [(6, 9, 2)]
    done(it, 6, 9, ACCEPT)
    assert it.window.start_offset == 10


def test_aborted_transactions_are_left_out() -> None:
    log = [
        ReadBatch(0, 4, 7, True),
        ReadBatch(5, 6),
        ReadBatch(7, 7, 7, True, True),
        ReadBatch(8, 9, 7, True),
        ReadBatch(10, 10, 8, True),
    ]
    ranges = aborted_ranges(log, [(7, 0)])
    assert ranges == [OffsetRange(0, 4)], "what the producer writes after the marker is another transaction"
    it = partition()
    assert it.acquire(Wanted("a", 500, 500), 0, log, 0, ranges) == [(5, 10, 1)]
    done(it, 5, 10, ACCEPT)
    assert it.window.start_offset == 11


def test_offsets_without_ranges() -> None:
    rng = random.Random(4)
    for _ in range(200):
        acquired, offset = [], 0
        for _ in range(rng.randint(0, 4)):
            first = offset + rng.randint(0, 3)
            offset = first + rng.randint(1, 5)
            acquired.append((first, offset - 1, rng.randint(1, 2)))
        ranges, at = [], 0
        for _ in range(rng.randint(0, 4)):
            first = at + rng.randint(0, 3)
            at = first + rng.randint(1, 5)
            ranges.append(OffsetRange(first, at - 1))
        gone = {offset for first, last in ranges for offset in range(first, last + 1)}
        left = without(acquired, ranges)
        assert [(o, c) for first, last, c in left for o in range(first, last + 1)] == [
            (o, c) for first, last, c in acquired for o in range(first, last + 1) if o not in gone
        ]


def test_what_members_hold_and_what_was_delivered_more_than_once() -> None:
    it = partition()
    assert it.window.held() == (0, 0)
    fetch(it)
    assert it.window.held() == (10, 0)
    done(it, 0, 3, ACCEPT)
    done(it, 6, 7, RELEASE)
    done(it, 9, 9, REJECT)
    assert it.window.held() == (3, 0)
    fetch(it, "b")
    assert it.window.held() == (5, 2)
    done(it, 6, 7, RELEASE, member="b")
    assert it.window.held() == (3, 2), "also those that nobody has now"
