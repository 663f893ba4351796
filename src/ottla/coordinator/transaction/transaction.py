"""What the log says of a transactional id, and which state may follow which."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from functools import partial
from itertools import chain, repeat
from typing import Final, NamedTuple

from ottla.model import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Millis,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.schemas.records import PartitionsSchema, TransactionLogValue

EPOCH_MAX: Final = 32_767
EPOCH_EXHAUSTED: Final = EPOCH_MAX - 1
"""The last epoch that a producer is given: the one behind it is kept for whoever has to fence that producer."""

NO_TIMEOUT: Final = 2_147_483_647
"""The timeout of a transaction whose outcome is decided elsewhere (two-phase commit, KIP-939): it never expires."""

VERSION_2: Final = 2
"""The level of `transaction.version` from which each transaction has an epoch of its own (KIP-890)."""


class State(Enum):
    """Kafka's names; the value is what the log has."""

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"

    __hash__ = object.__hash__  # members are looked up with every record; an Enum's hash is a call of Python's

    @property
    def id(self) -> int:
        return self.value[0]

    @property
    def title(self) -> str:
        return self.value[1]


AT_REST: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
"""No transaction is open: one may begin, and the id may expire."""

PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""The outcome is decided, and the markers are being written."""

VALID_BEFORE: Final[Mapping[State, Collection[State]]] = {
    State.EMPTY: AT_REST,
    State.ONGOING: AT_REST | {State.ONGOING},
    State.PREPARE_COMMIT: {State.ONGOING},
    State.PREPARE_ABORT: AT_REST | {State.ONGOING},
    State.COMPLETE_COMMIT: {State.PREPARE_COMMIT},
    State.COMPLETE_ABORT: {State.PREPARE_ABORT},
    State.DEAD: AT_REST,
}
"""The states from which one is reached. DEAD is a tombstone in the log, PREPARE_EPOCH_FENCE is never written."""

_BY_ID: Final = {state.id: state for state in VALID_BEFORE if state is not State.DEAD}
STATES_BY_TITLE: Final = {state.title: state for state in State}

Partitions = dict[TopicPartition, None]
"""A set that keeps its order."""


class Transaction(NamedTuple):
    """One value of the log. Whoever changes a transaction makes another one of these, which counts when it is
    replayed."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: Millis
    state: State
    last_update_ms: Millis
    start_ms: Millis = NO_TIMESTAMP
    partitions: Mapping[TopicPartition, None] = {}
    """**Invariant**: empty in a state AT_REST. While PREPARED: all that were in the transaction."""
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """The id before the last change, by which a client is known that did not hear of the new one."""
    next_producer_id: ProducerId = NO_PRODUCER_ID
    last_producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    """The epoch before a change that the producer itself asked for: a request that still names it is a retry. In the
    log, so that the next coordinator recognises the retry too (KAFKA-20357); values of version 0 have no room for
    it."""
    client_version: int = 0
    """2 if the transaction is one of KIP-890, whose producer gets a new epoch at its end."""

    @property
    def is_exhausted(self) -> bool:
        """The producer id has no epoch left to give."""
        return self.producer_epoch >= EPOCH_EXHAUSTED

    @property
    def bumps_epoch(self) -> bool:
        return self.client_version >= VERSION_2

    def to_record(self) -> TransactionLogValue:
        topics: dict[str, list[int]] = {}
        last, numbers = None, []
        for topic, number in self.partitions:  # mostly one topic after the other
            if topic is not last:
                last, numbers = topic, topics.setdefault(topic, [])
            numbers.append(number)
        partitions = tuple([PartitionsSchema(topic, tuple(numbers)) for topic, numbers in topics.items()])
        return TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            last_producer_epoch=self.last_producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state.id,
            transaction_partitions=None if self.state is State.EMPTY else partitions,
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.client_version,
        )

    @classmethod
    def from_record(cls, value: TransactionLogValue) -> Transaction:
        """Raises MalformedRecord."""
        state = _BY_ID.get(value.transaction_status)
        if state is None:
            raise MalformedRecord(f"invalid transaction state {value.transaction_status} in the log")
        topics = value.transaction_partitions or ()
        return cls(
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            timeout_ms=value.transaction_timeout_ms,
            state=state,
            last_update_ms=value.transaction_last_update_timestamp_ms,
            start_ms=value.transaction_start_timestamp_ms,
            partitions=partition_set(chain.from_iterable(map(_named, topics))),
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            last_producer_epoch=value.last_producer_epoch,
            client_version=value.client_transaction_version,
        )


_new_topic_partition = partial(tuple.__new__, TopicPartition)
"""Without a call of a Python function for each: a transaction may have thousands."""


def _named(topic: PartitionsSchema) -> Iterable[TopicPartition]:
    return map(_new_topic_partition, zip(repeat(topic.topic), topic.partition_ids, strict=False))


def partition_set(partitions: Iterable[TopicPartition] = ()) -> Partitions:
    return dict.fromkeys(partitions)


class Entry:
    """A transactional id: what the log says of it, and what this coordinator is about."""

    __slots__ = ("ongoing_since_ms", "pending", "transaction", "unwritten")

    def __init__(self, transaction: Transaction) -> None:
        self.ongoing_since_ms: Millis = 0
        """Since when this coordinator knows its transaction to be ONGOING, on the timer clock."""
        self.transaction = transaction
        """Its epoch is NO_PRODUCER_EPOCH while its first record is not committed."""
        self.pending: State | None = None
        """The state that it is about to reach: its record is not committed yet, or its markers are not written yet.
        **Invariant**: set in PREPARED, and while a write is under way; nobody else may begin a change meanwhile."""
        self.unwritten: Partitions = {}
        """Partitions of a PREPARED transaction whose marker is not known to be written."""

    @property
    def is_logged(self) -> bool:
        return self.transaction.producer_epoch != NO_PRODUCER_EPOCH
