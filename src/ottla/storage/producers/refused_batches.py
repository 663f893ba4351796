"""Batches of idempotent producers that were refused with an error after which a client sends them again.

A producer has several batches in flight. When R1 is refused because the in-sync set is too small, and the set grows
before R2 arrives, R2 is behind a hole: as Kafka answers, OUT_OF_ORDER_SEQUENCE_NUMBER, which tells a client that
records are lost. librdkafka then gives *all* partitions a new epoch, and a batch in doubt of another partition is
written twice (librdkafka#4953). Where the log knows nothing of the producer, R2 would even be taken, and R1 refused
for good. So R2 gets the error of R1 while exactly the sequences of R1 are missing: R1 comes again, and R2 behind it.

Each batch is answered so once. One that comes again without those before it has lost them, and hears so.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.model import Millis, ProducerEpoch, ProducerId, Sequence
from ottla.protocol.records.record_batch import (
    HEADER_SIZE,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    increment_sequence,
    unpack_header,
)
from ottla.storage.producers.producer_entry import SEQUENCE_MAX

RETRIED: Final = frozenset({
    ErrorCode.broker_not_available, ErrorCode.concurrent_transactions, ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available, ErrorCode.corrupt_message, ErrorCode.fenced_leader_epoch,
    ErrorCode.kafka_storage_error, ErrorCode.leader_not_available, ErrorCode.network_exception,
    ErrorCode.not_coordinator, ErrorCode.not_enough_replicas, ErrorCode.not_leader_or_follower,
    ErrorCode.replica_not_available, ErrorCode.request_timed_out, ErrorCode.throttling_quota_exceeded,
    ErrorCode.unknown_leader_epoch, ErrorCode.unknown_topic_id, ErrorCode.unknown_topic_or_partition,
})  # fmt: skip
"""After these producers send a batch again (RetriableException of the Java client, `rd_kafka_err_action`)."""

REFUSED_MAX: Final = 10_000
"""Producers of partitions, on a node: 4 MB. The oldest is dropped, and answered as Kafka does."""

REFUSED_MS_MAX: Final = 10 * 60 * 1000
"""Five times the default of delivery.timeout.ms: nothing is behind an older refusal any more."""

NAME_LENGTH_MAX: Final = 249
"""No topic has a longer name; a request may."""

Place = tuple[str | UUID, int]
"""Topic (its id where this node does not know a name for it) and partition."""


class Refused(NamedTuple):
    """Batches of one producer that follow one another, from the first that was refused to the last."""

    epoch: ProducerEpoch
    first: Sequence
    last_batch: Sequence
    """The first sequence of the last batch."""
    last: Sequence
    error: ErrorCode
    at_ms: Millis


def _distance(first: Sequence, other: Sequence) -> int:
    """How far `other` is behind `first`; sequences begin again at 0."""
    return (other - first) & SEQUENCE_MAX


def idempotent_batch(records: Any) -> BatchHeader | None:
    """The header of the records, if they are one batch of a producer with an id. Nothing of it was checked."""
    if records is None or len(records) < HEADER_SIZE or records[MAGIC_POSITION] != MAGIC:
        return None
    header = unpack_header(records)
    if (
        header.producer_id < 0
        or header.producer_epoch < 0
        or header.base_sequence < 0
        or header.last_offset_delta < 0
        or header.size != len(records)
        or header.is_control
    ):
        return None
    return header


class RefusedBatches:
    """Refused batches of all partitions of a node, also of partitions that it does not have yet."""

    __slots__ = ("batches", "now_ms")

    def __init__(self) -> None:
        self.batches: dict[tuple[str | UUID, int, ProducerId], Refused] = {}
        """The oldest first."""
        self.now_ms: Millis = 0
        """The latest time that a caller told."""

    def note(self, place: Place, records: Any, error: ErrorCode, now_ms: Millis) -> BatchHeader | None:
        """A producer was told `error`. Returns the header of its batch, if it is one that can leave a hole."""
        if error not in RETRIED or (type(place[0]) is str and len(place[0]) > NAME_LENGTH_MAX):
            return None
        header = idempotent_batch(records)
        if header is not None:
            self.now_ms = now_ms
            first, last = header.base_sequence, header.last_sequence
            self.note_range(place, header.producer_id, header.producer_epoch, first, last, error)
        return header

    def note_range(
        self,
        place: Place,
        producer_id: ProducerId,
        epoch: ProducerEpoch,
        first: Sequence,
        last: Sequence,
        error: ErrorCode,
    ) -> None:
        key = (*place, producer_id)
        known = self.batches.get(key)
        if known is not None and known.epoch > epoch:
            return  # of a producer that is fenced
        self.batches.pop(key, None)
        start = first
        if known is not None and known.epoch == epoch:
            if first == increment_sequence(known.last, 1):
                start, error = known.first, known.error
            elif first == known.last_batch and last == known.last:
                start, error = known.first, known.error  # its handler tells what the partition told
        self.batches[key] = Refused(epoch, start, first, last, error, self.now_ms)
        if len(self.batches) > REFUSED_MAX:
            del self.batches[next(iter(self.batches))]

    def error_behind(self, place: Place, header: BatchHeader, expected: Sequence | None) -> ErrorCode | None:
        """The error for a batch before which nothing is missing but what was refused. `expected` is the sequence that
        the log would take, None where it knows nothing of the producer."""
        known = self.batches.get((*place, header.producer_id))
        if known is None or known.epoch != header.producer_epoch:
            return None
        if expected is not None and _distance(known.first, expected) > _distance(known.first, known.last):
            return None  # what is missing is not all refused; of the refused, the log may have the first ones since
        return known.error if header.base_sequence == increment_sequence(known.last, 1) else None

    def discard(self, place: Place, producer_id: ProducerId) -> None:
        """A batch of the producer was appended."""
        self.batches.pop((*place, producer_id), None)

    def named(self, topic_id: UUID, topic: str, partition: int) -> None:
        """This node now has the partition of a topic whose name it may not have known."""
        for key in [key for key in self.batches if key[0] == topic_id and key[1] == partition]:
            self.batches[topic, partition, key[2]] = self.batches.pop(key)

    def remove_expired(self, now_ms: Millis) -> None:
        self.now_ms = max(self.now_ms, now_ms)
        while self.batches:
            key = next(iter(self.batches))
            if self.now_ms - self.batches[key].at_ms < REFUSED_MS_MAX:
                return
            del self.batches[key]
