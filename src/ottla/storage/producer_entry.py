"""What is kept of one producer: its epoch, its last five batches, its open transaction.

Behaviour follows Kafka's ProducerStateEntry and BatchMetadata (KIP-98).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.model import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, Millis, Offset, ProducerEpoch, Sequence

if TYPE_CHECKING:
    from ottla.protocol.record_batch import BatchHeader

BATCHES_RETAINED = 5
"""Kafka's producers have at most five requests in flight per connection, so a retry is one of the last five batches."""

SEQUENCE_MAX = 2**31 - 1


class BatchMetadata(NamedTuple):
    """One batch of a producer, as much of it as recognises a retry."""

    last_sequence: Sequence
    last_offset: Offset
    offset_delta: int
    timestamp: Millis

    @property
    def first_offset(self) -> Offset:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> Sequence:
        """Sequences wrap from 2^31-1 to 0."""
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 else first + SEQUENCE_MAX + 1


class Duplicate(NamedTuple):
    """The batch that a retry repeats: it is answered with these, and not appended."""

    base_offset: Offset
    last_offset: Offset
    timestamp: Millis


class EndMarker(NamedTuple):
    """The content of a transaction's control batch."""

    is_abort: bool
    coordinator_epoch: int
    timestamp: Millis


class ProducerEntry:
    """The state of one producer id in one partition."""

    __slots__ = ("batches", "coordinator_epoch", "current_txn_first_offset", "last_timestamp", "producer_epoch")

    def __init__(self) -> None:
        self.producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = -1
        self.last_timestamp: Millis = NO_TIMESTAMP
        self.current_txn_first_offset: Offset | None = None
        self.batches: list[BatchMetadata] = []
        """The last batches of `producer_epoch`, oldest first; at most BATCHES_RETAINED."""

    @property
    def last_sequence(self) -> Sequence:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate_of(self, header: BatchHeader) -> Duplicate | None:
        """The retained batch with the same epoch and exactly the same sequences, if there is one."""
        if header.producer_epoch != self.producer_epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return Duplicate(batch.first_offset, batch.last_offset, batch.timestamp)
        return None

    def move_to_epoch(self, epoch: ProducerEpoch) -> None:
        if epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = epoch

    def add_batch(self, header: BatchHeader) -> None:
        self.move_to_epoch(header.producer_epoch)
        if len(self.batches) == BATCHES_RETAINED:
            del self.batches[0]
        last_offset = header.base_offset + header.last_offset_delta
        self.batches.append(
            BatchMetadata(header.last_sequence, last_offset, header.last_offset_delta, header.max_timestamp)
        )
        self.last_timestamp = header.max_timestamp
