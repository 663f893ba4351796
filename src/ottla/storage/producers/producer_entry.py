"""What is kept of one producer: its epoch, its last five batches, its open transaction (KIP-98), and the question
whether a transaction is open (KIP-890).

Between that question, to the transaction's coordinator, and the first append the transaction may end, and a batch that
came late would then open one that nobody ends. So the question leaves a guard here, the append has to show it, and
whatever is written to the transaction meanwhile, a marker above all, takes it away. Behaviour follows Kafka's
ProducerStateEntry, BatchMetadata, VerificationStateEntry and VerificationGuard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.model import (
    NO_GUARD,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    NOT_TRANSACTIONAL,
    Millis,
    Offset,
    ProducerEpoch,
    ProducerId,
    Sequence,
)

if TYPE_CHECKING:
    from ottla.protocol.records.record_batch import BatchHeader

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

    def has_open_transaction(self, epoch: ProducerEpoch) -> bool:
        return self.current_txn_first_offset is not None and self.producer_epoch == epoch

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


def check_has_id(guard: int) -> None:
    """Raises TRANSACTIONAL_ID_AUTHORIZATION_FAILED for a transactional batch of a request without a transactional
    id."""
    if guard == NOT_TRANSACTIONAL:
        raise KafkaError(
            ErrorCode.transactional_id_authorization_failed, "transactional records without a transactional id"
        )


class NotVerified(KafkaError):
    """A batch was refused before a look at the log. Where there is a message, the answer has it."""


class Verification:
    """The question about one producer."""

    __slots__ = ("begins_transaction", "epoch", "guards", "lowest_sequence", "started_ms")

    def __init__(self, sequence: Sequence, epoch: ProducerEpoch, begins_transaction: bool, now_ms: Millis) -> None:
        self.guards: dict[ProducerEpoch, int] = {}
        """By the epoch that asks: what ends the transaction of one leaves those of newer ones."""
        self.lowest_sequence = sequence
        """A batch with a higher one is not written before it: its own verification may have failed, and it comes
        again."""
        self.epoch = epoch
        self.begins_transaction = begins_transaction
        """The client counts on the coordinator to add the partition (transaction.version 2): each of its transactions
        has an epoch of its own, whose first sequence is 0."""
        self.started_ms = now_ms

    def note(self, sequence: Sequence, epoch: ProducerEpoch) -> None:
        """One more batch asks before any was written."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


class Verifications:
    """Verifications of one partition, by producer. They are local to this node and in no snapshot."""

    __slots__ = ("_last_guard", "entries")

    def __init__(self) -> None:
        self.entries: dict[ProducerId, Verification] = {}
        self._last_guard = NO_GUARD

    def start(self, header: BatchHeader, begins_transaction: bool, now_ms: Millis) -> int:
        """The guard to show when the batch is appended: the same for all batches of an epoch that ask at the same
        time."""
        sequence, epoch = header.base_sequence, header.producer_epoch
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = Verification(sequence, epoch, begins_transaction, now_ms)
            self.entries[header.producer_id] = entry
        else:
            entry.note(sequence, epoch)
        guard = entry.guards.get(epoch)
        if guard is None:
            guard = entry.guards[epoch] = self._last_guard = self._last_guard + 1
        return guard

    def of(self, producer_id: ProducerId) -> Verification | None:
        return self.entries.get(producer_id)

    def holds(self, producer_id: ProducerId, guard: int) -> bool:
        """Whether nothing was written to the transaction, or to a newer one, since this guard was given."""
        entry = self.entries.get(producer_id)
        return entry is not None and guard in entry.guards.values()

    def on_batch(self, header: BatchHeader) -> None:
        """A transactional batch was written. It ends the questions of its epoch and of older ones: a node that followed
        meanwhile, and leads again, may have fetched the end of an older transaction. The marker that ends a transaction
        has the epoch of the next one (transaction.version 2), which may be asked about already."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return
        epoch = header.producer_epoch
        is_of_next = entry.begins_transaction and header.is_control and epoch == entry.epoch
        until = epoch - 1 if is_of_next else epoch
        entry.guards = {each: guard for each, guard in entry.guards.items() if each > until}
        if not entry.guards:
            del self.entries[header.producer_id]

    def remove_expired(self, now_ms: Millis, expiration_ms: Millis) -> None:
        """Forget questions after which no batch came."""
        expired = [key for key, entry in self.entries.items() if now_ms - entry.started_ms >= expiration_ms]
        for producer_id in expired:
            del self.entries[producer_id]
