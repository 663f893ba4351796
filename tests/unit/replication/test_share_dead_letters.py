"""Records of a share-partition that die, call by call: when their letters are to be written, and what is kept."""

from __future__ import annotations

import pytest

from ottla.protocol.internal.share_records import DeliveryState
from ottla.protocol.records.record_batch import Record
from ottla.protocol.schemas.records import StateBatch
from ottla.replication.share.aborted import OffsetRange, ReadBatch
from ottla.replication.share.acknowledgement import StateWrite
from ottla.replication.share.acquisition import Wanted
from ottla.replication.share.config import ShareConfig
from ottla.replication.share.dead_letters import DeadRecords, Reason, Source, context_headers, problem
from ottla.replication.share.share_partition import LoadedState, SharePartition

GAP, ACCEPT, RELEASE, REJECT = 0, 1, 2, 3
ARCHIVING, ARCHIVED = DeliveryState.ARCHIVING, DeliveryState.ARCHIVED


def partition(*batches: StateBatch, dead: bool = True) -> SharePartition:
    config = ShareConfig(record_lock_duration_ms=1_000, delivery_count_limit=2, dead_letters=dead)
    return SharePartition(LoadedState(3, 0, batches), 5, config)


def fetch(it: SharePartition, now_ms: int = 0, aborted: tuple[OffsetRange, ...] = ()) -> None:
    assert it.acquire(Wanted("a", 500, 500), it.next_fetch_offset(), [ReadBatch(0, 9)], now_ms, aborted)


def acknowledge(it: SharePartition, first: int, last: int, *types: int) -> StateWrite:
    write = it.acknowledge("a", [(first, last, types)], 0)
    assert write is not None
    return write


def test_a_rejected_record_is_archived_behind_its_letter() -> None:
    it = partition()
    fetch(it)
    write = acknowledge(it, 0, 2, ACCEPT, REJECT, REJECT)
    assert write.batches[1] == StateBatch(1, 2, ARCHIVING, 1)
    assert write.delivery_complete_count == 1, "what is being archived is not done with"
    assert it.take_dead() == [], "the state is kept first: else a failover could deliver what has a letter"
    it.written(write, 0, committed=True)
    (dead,) = it.take_dead()
    assert dead == DeadRecords(1, 2, 1, Reason.REJECTED) and it.take_dead() == []
    assert it.window.start_offset == 1, "the window does not close over it before"
    last = it.archived(dead)
    assert last is not None and last.batches == [StateBatch(1, 2, ARCHIVED, 1)] and last.delivery_complete_count == 2
    it.written(last, 0, committed=True)
    assert it.window.start_offset == 3 and it.take_dead() == []


def test_a_record_that_was_delivered_as_often_as_may_be_dies_of_that() -> None:
    it = partition()
    fetch(it)
    it.written(acknowledge(it, 0, 9, RELEASE), 0, committed=True)
    assert it.take_dead() == []
    fetch(it)
    it.written(acknowledge(it, 0, 0, RELEASE), 0, committed=True)
    assert it.take_dead() == [DeadRecords(0, 0, 2, Reason.DELIVERIES)]


def test_a_lock_that_ends_and_a_session_that_ends_let_it_die_too() -> None:
    for ends in ("lock", "session"):
        it = partition()
        fetch(it)
        it.written(acknowledge(it, 0, 9, RELEASE), 0, committed=True)
        fetch(it)
        write = it.advance(10_000) if ends == "lock" else it.release("a")
        assert write is not None and {each.delivery_state for each in write.batches} == {ARCHIVING}, ends
        it.written(write, 0, committed=True)
        assert [each.reason for each in it.take_dead()] == [Reason.DELIVERIES] * len(write.dead), ends


def test_no_letter_for_gaps_aborted_transactions_and_what_the_log_has_lost() -> None:
    it = partition()
    fetch(it, aborted=(OffsetRange(5, 9),))
    it.written(acknowledge(it, 0, 1, GAP), 0, committed=True)
    it.move_start(5)
    write = it.release("a")
    assert write is not None and all(each.delivery_state == ARCHIVED for each in write.batches)
    it.written(write, 0, committed=True)
    assert it.take_dead() == []


def test_a_rejection_that_is_not_kept_is_undone_without_a_letter() -> None:
    it = partition()
    fetch(it)
    it.written(acknowledge(it, 0, 0, REJECT), 0, committed=False)
    assert it.take_dead() == []
    it.written(acknowledge(it, 0, 0, ACCEPT), 0, committed=True)


def test_one_that_is_not_kept_and_whose_last_lock_ended_meanwhile_dies() -> None:
    it = partition(StateBatch(0, 9, DeliveryState.AVAILABLE, 1))
    fetch(it)
    it.written(acknowledge(it, 0, 0, RELEASE), 2_000, committed=False)
    assert it.take_dead() == [DeadRecords(0, 0, 2, Reason.DELIVERIES)], "Kafka archives it without a letter"


def test_a_lock_that_ended_is_not_undone_and_has_its_letter_though_the_state_is_not_kept() -> None:
    it = partition(StateBatch(0, 9, DeliveryState.AVAILABLE, 1))
    fetch(it)
    write = it.advance(10_000)
    assert write is not None
    it.written(write, 0, committed=False)
    assert sum(each.last_offset - each.first_offset + 1 for each in it.take_dead()) == len(
        [offset for each in write.batches for offset in range(each.first_offset, each.last_offset + 1)]
    )


def test_a_new_leader_writes_the_letters_that_the_last_one_may_not_have() -> None:
    it = partition(StateBatch(0, 0, ARCHIVING, 1), StateBatch(1, 3, ARCHIVING, 2), StateBatch(4, 9, ARCHIVED, 1))
    assert it.next_fetch_offset() == 10, "they are not delivered again"
    assert it.take_dead() == [DeadRecords(0, 0, 1, Reason.REJECTED), DeadRecords(1, 3, 2, Reason.DELIVERIES)]
    write = it.archived(DeadRecords(0, 0, 1, Reason.REJECTED))
    assert write is not None
    it.written(write, 0, committed=True)
    assert it.window.start_offset == 1


def test_part_of_what_is_being_archived() -> None:
    it = partition()
    fetch(it)
    it.written(acknowledge(it, 0, 9, REJECT), 0, committed=True)
    (dead,) = it.take_dead()
    write = it.archived(dead._replace(last_offset=4))
    assert write is not None and write.batches == [StateBatch(0, 4, ARCHIVED, 1)]
    it.written(write, 0, committed=False)
    assert it.window.start_offset == 5, "it stands; a new leader would write the letters again"


def test_without_a_topic_for_them_records_are_archived_at_once() -> None:
    it = partition(dead=False)
    fetch(it)
    write = acknowledge(it, 0, 0, REJECT)
    assert write.batches == [StateBatch(0, 0, ARCHIVED, 1)]
    it.written(write, 0, committed=True)
    assert it.take_dead() == []


@pytest.mark.parametrize(
    ("name", "enabled", "prefix", "may_create", "says"),
    [
        ("dlq.a", True, "dlq.", False, None),
        ("dlq.a", None, "dlq.", True, None),
        ("any", True, "", False, None),
        ("", None, "dlq.", True, "the group has no"),
        ("__a", True, "", False, "internal"),
        ("dlq.a", False, "dlq.", True, "has not errors.deadletterqueue.group.enable"),
        ("a", True, "dlq.", True, "does not start with 'dlq.'"),
        ("dlq.a", None, "dlq.", False, "does not exist"),
    ],
)
def test_topics_for_dead_letters(
    name: str, enabled: bool | None, prefix: str, may_create: bool, says: str | None
) -> None:
    found = problem(name, prefix=prefix, enabled=enabled, may_create=may_create)
    assert (found is None) if says is None else (found is not None and says in found)


def test_headers() -> None:
    source, record = Source("t", 1, "g"), Record(7, 123, b"k", b"v", (("h", b"x"),), 0)
    plain = context_headers(source, 7, 2, Reason.REJECTED, record, told=False)
    assert plain == (
        ("__dlq.errors.topic", b"t"),
        ("__dlq.errors.partition", b"1"),
        ("__dlq.errors.offset", b"7"),
        ("__dlq.errors.group", b"g"),
        ("__dlq.errors.delivery.count", b"2"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    )
    own = (("__ottla.dlq.reason", b"rejected"), ("__ottla.dlq.timestamp", b"123"))
    assert context_headers(source, 7, 2, Reason.REJECTED, record, told=True) == (("h", b"x"), *plain, *own)
