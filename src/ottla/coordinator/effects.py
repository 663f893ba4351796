"""What a coordinator asks of its driver, in the order in which it must happen: persist before answer.

The driver works through a list of effects from the front. After a `Write` it waits until the records are committed,
then replays them, then calls `committed`, and only then goes on to the effects behind it. If the write fails, it calls
`failed` with the error that clients get (WRITE_ERRORS), and every `Reply` behind it in the same list becomes that
error.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.metadata.image import MetadataImage
from ottla.model import NO_GUARD, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Millis, ProducerEpoch, ProducerId, TopicPartition

Token = Any
"""The waiter that an answer is for: the core passes it back and never looks inside."""


WRITE_ERRORS = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas_after_append: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
    ErrorCode.invalid_fetch_size: ErrorCode.unknown_server_error,
}
"""The error that a coordinator's client gets when an append to its topic failed so; others as they are."""


class Now:
    """One instant on two clocks, never changed. Compiled, since every decision makes one."""

    __slots__ = ("timer_ms", "wall_ms")

    def __init__(self, timer_ms: Millis, wall_ms: Millis) -> None:
        self.timer_ms = timer_ms
        """For deadlines: never jumps, starts anywhere."""
        self.wall_ms = wall_ms
        """For timestamps in records: since the Unix epoch, may jump."""


class Marker(NamedTuple):
    """The end of a transaction, as its coordinator has it written to the partitions."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    committed: bool
    coordinator_epoch: int
    transaction_version: int
    """From 2 on the epoch is one that no batch of the transaction has."""
    partitions: Sequence[TopicPartition]


class InTransaction(NamedTuple):
    """The transaction that a write belongs to."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    guard: int
    """Guard of its verification (`storage/producers/producer_entry.py`)."""


OUTSIDE = InTransaction(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_GUARD)
"""Stands for records outside a transaction."""


Reversal = tuple[str, tuple[Any, ...], Callable[[], None]]
"""A group's id, the groups that a decision has changed (none where another took its place, or it was removed), and a
function that undoes what a new coordinator would not know (`group/committed.py`). It may be called at any time after
the decision, once those after it are undone, and changes neither timers nor classic groups."""


Encoded: TypeAlias = list[tuple[bytes, bytes | None]]
"""Keys and values of records."""


class Write:
    """Append `records` as one batch; none at all: wait for what was appended before. At most one of `committed` and
    `failed` is called, once."""

    __slots__ = ("committed", "encoded", "failed", "marker", "records", "reversals", "transaction", "undo")

    def __init__(
        self,
        records: list[Any],
        committed: Callable[[], None] | None = None,
        failed: Callable[[ErrorCode], None] | None = None,
        transaction: InTransaction | None = None,
        marker: Marker | None = None,
        undo: Callable[[], None] | None = None,
        reversals: Sequence[Reversal] = (),
        encoded: Encoded | None = None,
    ) -> None:
        self.records = records
        """Records of the coordinator's kind."""
        self.committed = committed
        self.failed = failed
        self.transaction = transaction
        self.marker = marker
        """Instead of records."""
        self.undo = undo
        """Called, before `failed`, if the records are not in the log. Its records count already, so that later requests
        see them; a list of effects has one of these at most, and nothing before it."""
        self.reversals = reversals
        """For readers of the state as it is committed, which the records are not while they count already."""
        self.encoded = encoded
        """Keys and values of the records, where they are known."""


class Reply:
    """The answer to a request."""

    __slots__ = ("response", "token")

    def __init__(self, token: Token, response: dict[str, Any]) -> None:
        self.token = token
        self.response = response
        """Field names of the newest version of the response."""


@dataclass(slots=True)
class Resolve:
    """Find the topics of `image` that regular expressions match, in pieces, and bring them to the core."""

    group_id: str
    patterns: Sequence[str]
    image: MetadataImage
    visible: Container[str] | None = None
    """The topics that the member that caused it may know of; None: all."""


class InitializeShares(NamedTuple):
    """Have the share coordinator begin to keep the state of partitions, for a share group of this epoch, and bring to
    the core what becomes of it."""

    group_id: str
    epoch: int
    partitions: Mapping[UUID, frozenset[int]]
    """By topic."""


Effect = Write | Reply | Resolve | InitializeShares
