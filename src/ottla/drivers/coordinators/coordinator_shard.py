"""One shard of a coordinator: a state machine, the partition of the coordinator's topic that it writes to, and what is
under way between the two.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ottla.coordinator.effects import Encoded, Write
from ottla.drivers.coordinators.coordinator_load import Decode
from ottla.errors import ErrorCode
from ottla.model import Millis, Offset
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.drivers.ports import Core

BATCH_RECORDS_MAX, BATCH_BYTES_MAX = 500, 65_536
"""Limits of the writes that are collected for one batch, far below max.message.bytes; one write alone may have more."""
RECORD_BYTES = 32
"""Bytes of a record beside its key and its value, at most."""


class Pending:
    """A write that is in the log and not committed yet, and what is to be done then."""

    __slots__ = ("error", "first_offset", "rest", "timer", "write")

    def __init__(self, write: Write, first_offset: Offset, rest: Sequence[Any]) -> None:
        self.write = write
        self.first_offset = first_offset
        self.rest = rest
        self.error: ErrorCode | None = None
        """The error that ended it, once known."""
        self.timer: asyncio.Handle | None = None


class Batch:
    """Writes whose records count already and are not in the log yet (Kafka's coordinator lingers, too)."""

    __slots__ = ("encoded", "rest", "size", "writes")

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.encoded: Encoded = []
        self.rest: list[Any] = []
        """The effects behind all of them."""
        self.size = 0
        """Bytes of the records at most."""

    def has_room(self, encoded: Encoded, size: int, bytes_max: int) -> bool:
        """Whether these records may go into it; into an empty one they may."""
        fits = len(self.encoded) + len(encoded) <= BATCH_RECORDS_MAX
        return (fits and self.size + size <= BATCH_BYTES_MAX and self.size + size <= bytes_max) or not self.writes

    def add(self, write: Write, encoded: Encoded, size: int, rest: Sequence[Any]) -> None:
        self.writes.append(write)
        self.encoded += encoded
        self.size += size
        self.rest += rest


def bytes_of(encoded: Encoded) -> int:
    """Bytes of records at most."""
    size = 0
    for key, value in encoded:
        size += len(key) + RECORD_BYTES
        if value is not None:
            size += len(value)
    return size


class Shard:
    """One partition of a coordinator's topic led by this node."""

    __slots__ = (
        "collected", "core", "damage", "error", "is_scheduled", "leader_epoch", "must_wait", "partition", "pending",
        "task", "timer", "timer_deadline_ms",
    )  # fmt: skip

    core: Core
    """Its state machine; the shards of each coordinator say which."""

    def __init__(self, partition: Partition, core: Core) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.core = core
        self.error: ErrorCode | None = ErrorCode.coordinator_load_in_progress
        """Why it does not serve; None once it is loaded."""
        self.damage: str | None = None
        """Why its log cannot be loaded."""
        self.task: asyncio.Task[None] | None = None
        """Set while it is loading."""
        self.collected: Batch | None = None
        """What will be appended together at the end of the turn."""
        self.pending: deque[Pending] = deque()
        """Pending writes in the order of their offsets."""
        self.is_scheduled = False
        """Whether the outcome of pending writes will be looked at in the next turn of the loop."""
        self.timer: asyncio.Handle | None = None
        self.timer_deadline_ms = 0
        self.must_wait = False
        """The last append was not committed at once."""

    def take(self) -> list[Any]:
        """Take the effects of the core since the last call."""
        return self.core.take()

    def next_deadline(self) -> Millis | None:
        """When the core is to be called next."""
        return self.core.next_deadline()


S = TypeVar("S", bound=Shard)


class ShardKind(NamedTuple, Generic[S]):
    """Parameters of the shards of one coordinator."""

    topic: str
    what: str
    """Name of the things they coordinate, for people."""
    new_shard: Callable[[Partition], S]
    encode: Callable[[Any], tuple[bytes, bytes | None]]
    """Key and value of a record of a `Write`."""
    decode: Decode
    codec: int
    buffer_bytes: int
    """Read at once while loading."""
    commit_timeout_ms: Millis
    """How long clients wait for a write."""
    count: Callable[[S], int]
    """How many of `what` a shard has."""
    collect: Callable[[S], bool] | None = None
    """Called with the first write of a shard that is collected: returns True and has `flush` called soon, or False
    where it is to be appended by itself. None: all are."""
    perform: Callable[[S, Any], None] | None = None
    """Performs an effect that is neither Write nor Reply."""
    before_timer: Callable[[S], None] = lambda shard: None
    """Called before the timers of a shard expire."""
    on_unload: Callable[[S], None] = lambda shard: None
    """Called first when a shard is given up."""
    loads_all_records: bool = False
    """Whether records add up, and not only the newest of each key counts."""
