"""A batch behind a refused one gets its error while nothing else is missing, and every batch is answered so once."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.records.record_batch import increment_sequence
from ottla.storage.producers.producer_entry import SEQUENCE_MAX
from ottla.storage.producers.producer_state import ProducerSettings
from ottla.storage.producers.refused_batches import (
    NAME_LENGTH_MAX,
    REFUSED_MAX,
    REFUSED_MS_MAX,
    RETRIED,
    RefusedBatches,
    idempotent_batch,
)
from tests.unit.storage.logs import NOW, Log, batch, load, new_disk

PLACE = ("t", 0)
REFUSED = ErrorCode.not_enough_replicas


def of(sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 1) -> bytes:
    return bytes(batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


class Asked:
    """A log, and what its leader refused."""

    def __init__(self) -> None:
        self.log: Log = load(new_disk())
        self.settings: ProducerSettings = self.log.producer_state._settings

    def refuse(self, *batches: bytes, error: ErrorCode = REFUSED) -> None:
        for each in batches:
            self.settings.refused.note(self.log.topic_partition, each, error, NOW)

    def put(self, records: bytes) -> ErrorCode:
        """What a handler answers, and notes."""
        try:
            self.log.append_as_leader(memoryview(bytearray(records)), 1, now_ms=NOW)
        except KafkaError as error:
            self.refuse(records, error=error.code)
            return error.code
        return ErrorCode.none


OK, HOLE = ErrorCode.none, ErrorCode.out_of_order_sequence_number


def test_a_batch_behind_refused_ones_gets_the_error_of_the_first() -> None:
    asked = Asked()
    assert asked.put(of(0)) == OK
    asked.refuse(of(1))
    asked.refuse(of(2, 3), error=ErrorCode.kafka_storage_error)
    assert [asked.put(of(5)), asked.put(of(6))] == [REFUSED, REFUSED]
    assert [asked.put(each) for each in (of(1), of(2, 3), of(5), of(6))] == [OK] * 4
    assert not asked.settings.refused.batches


def test_each_batch_is_answered_so_once() -> None:
    """A client that has lost R1 would try R2 for ever."""
    asked = Asked()
    assert asked.put(of(0)) == OK
    asked.refuse(of(1))
    assert [asked.put(of(2)), asked.put(of(2))] == [REFUSED, HOLE]
    asked.refuse(of(1))  # it comes again, and is refused again
    assert [asked.put(of(2)), asked.put(of(1)), asked.put(of(2))] == [REFUSED, OK, OK]


def test_more_is_missing_than_what_was_refused() -> None:
    asked = Asked()
    assert asked.put(of(0)) == OK
    asked.refuse(of(2))  # nobody refused 1
    assert asked.put(of(3)) == HOLE
    asked.refuse(of(1))
    assert asked.put(of(3)) == HOLE


@pytest.mark.parametrize("first", [0, SEQUENCE_MAX - 3])
def test_some_of_the_refused_are_in_the_log_already(first: int) -> None:
    """Seed 127 in ZooKeeper: their answers were lost, a node refused them that did not lead yet, and it leads now: it
    knows them as duplicates, and what comes next is refused while the in-sync set is too small."""

    def after(count: int, of_them: int = 1) -> bytes:
        return of(increment_sequence(first, count), of_them)

    asked = Asked()
    assert [asked.put(after(0)), asked.put(after(1))] == [OK, OK]
    asked.refuse(after(0), after(1), after(2, 5), error=ErrorCode.not_leader_or_follower)
    assert [asked.put(after(0)), asked.put(after(1))] == [OK, OK]
    asked.refuse(after(2, 5), after(7, 5))
    assert asked.put(after(12)) == ErrorCode.not_leader_or_follower
    assert asked.put(after(14)) == HOLE, "13 was refused by nobody"
    assert [asked.put(each) for each in (after(2, 5), after(7, 5), after(12), after(13))] == [OK] * 4


def test_the_first_batches_of_a_producer_of_which_the_log_knows_nothing() -> None:
    """Kafka takes any sequence then: R2 would be the first, and R1 refused for good."""
    asked = Asked()
    asked.refuse(of(0, 2))
    assert [asked.put(of(2)), asked.put(of(3))] == [REFUSED, REFUSED]
    assert [asked.put(of(0, 2)), asked.put(of(2)), asked.put(of(3))] == [OK] * 3
    assert asked.put(of(9, producer_id=2)) == OK  # as Kafka: retention may have taken what was before


def test_another_epoch_is_another_sequence() -> None:
    asked = Asked()
    assert asked.put(of(0)) == OK
    asked.refuse(of(0, epoch=1))
    asked.refuse(of(1, epoch=0))  # fenced by now: it says nothing of the new epoch
    assert asked.put(of(1, epoch=1)) == REFUSED
    assert [asked.put(of(0, epoch=1)), asked.put(of(1, epoch=1))] == [OK, OK]
    asked.refuse(of(2, epoch=1))
    assert asked.put(of(1, epoch=2)) == HOLE
    assert asked.put(of(0, epoch=2)) == OK


def test_sequences_start_over() -> None:
    asked = Asked()
    assert asked.put(of(SEQUENCE_MAX - 1)) == OK
    asked.refuse(of(SEQUENCE_MAX, 2))
    assert [asked.put(of(1)), asked.put(of(SEQUENCE_MAX, 2)), asked.put(of(1))] == [REFUSED, OK, OK]


def test_what_was_cut_off_the_log_is_refused() -> None:
    """Its leader lost the leadership, its log was cut, and it leads again while more is under way."""
    asked = Asked()
    assert [asked.put(of(each)) for each in range(3)] == [OK] * 3
    asked.log.truncate_to(1)
    assert asked.put(of(3)) == ErrorCode.not_leader_or_follower
    assert [asked.put(of(each)) for each in (1, 2, 3)] == [OK] * 3


def test_partitions_and_producers_are_apart() -> None:
    refused = RefusedBatches()
    refused.note(PLACE, of(0), REFUSED, NOW)
    for place, sent in ((("t", 1), of(1)), (("u", 0), of(1)), (PLACE, of(1, producer_id=2))):
        header = idempotent_batch(sent)
        assert header is not None and refused.error_behind(place, header, 0) is None
    refused.discard(("t", 1), 1)
    refused.discard(PLACE, 2)
    assert len(refused.batches) == 1


def test_a_partition_that_this_node_did_not_know() -> None:
    """Its topic had only an id then."""
    asked = Asked()
    topic_id, where = UUID(int=5), asked.log.topic_partition
    refused = asked.settings.refused
    refused.note((topic_id, where.partition), of(0), ErrorCode.unknown_topic_id, NOW)
    refused.note((topic_id, where.partition + 1), of(0), ErrorCode.unknown_topic_id, NOW)
    refused.named(topic_id, *where)
    assert asked.put(of(1)) == ErrorCode.unknown_topic_id
    assert len(refused.batches) == 2


def test_memory_is_bounded() -> None:
    refused = RefusedBatches()
    for producer_id in range(REFUSED_MAX + 100):
        refused.note_range(PLACE, producer_id, 0, 0, 0, REFUSED)
    assert len(refused.batches) == REFUSED_MAX
    assert (*PLACE, 99) not in refused.batches and (*PLACE, REFUSED_MAX) in refused.batches
    refused.remove_expired(REFUSED_MS_MAX - 1)
    assert len(refused.batches) == REFUSED_MAX
    refused.remove_expired(REFUSED_MS_MAX)
    assert not refused.batches
    refused.note(("n" * (NAME_LENGTH_MAX + 1), 0), of(0), ErrorCode.unknown_topic_or_partition, NOW)
    assert not refused.batches


@pytest.mark.parametrize("error", [each for each in ErrorCode if each not in RETRIED])
def test_after_other_errors_nothing_is_expected_to_come_again(error: ErrorCode) -> None:
    asked = Asked()
    assert asked.put(of(0)) == OK
    asked.refuse(of(1), error=error)
    assert asked.put(of(2)) == HOLE


def test_only_batches_with_sequences_are_noted() -> None:
    refused = RefusedBatches()
    whole = of(0)
    for records in (None, b"", whole[:-1], whole + b"x", whole * 2, bytes(batch(1)), bytes(len(whole))):
        assert refused.note(PLACE, records, REFUSED, NOW) is None
    assert not refused.batches
