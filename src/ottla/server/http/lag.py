"""How old the oldest record is that a group has not committed: the lag in seconds.

The timestamp of the record at a committed offset never changes, so each is looked up once, in the header of its batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import KafkaError
from ottla.model import NO_TIMESTAMP, Millis, Offset
from ottla.protocol.records.record_batch import HEADER_SIZE, BatchHeader, unpack_header
from ottla.storage.log.log import ColdRead

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.filesystem import FileSystem
    from ottla.replication.partition import Partition
    from ottla.replication.replica_log import ReplicaLog

COLD_LOOKS_MAX = 64
"""Looks in one scrape that wait for the disk; what is left is looked at in the next."""

MARKERS_MAX = 16
"""Batches of transaction markers in a row that are passed over to find a record."""

NOTHING_LEFT: Millis = 1 << 62
"""For the timestamp where no record follows, only markers."""


class _Known(NamedTuple):
    topic_id: UUID
    offset: Offset
    timestamp_ms: Millis


class LagTimes:
    """Timestamps of the first uncommitted records, by group and partition."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._known: dict[tuple[str, str, int], _Known] = {}
        self._next: dict[tuple[str, str, int], _Known] = {}
        self._cold = 0

    def begin(self) -> None:
        """A scrape begins: what it does not ask for again is dropped at its end."""
        self._next = {}
        self._cold = 0

    def end(self) -> None:
        self._known = self._next

    async def seconds(self, group: str, partition: Partition, committed: Offset, now_ms: Millis) -> float | None:
        """Seconds of lag of a partition that has records left; None where it is not known."""
        log = partition.log
        key = (group, *partition.topic_partition)
        offset = max(committed, log.log_start_offset)
        known = self._known.get(key)
        if known is None or known.offset != offset or known.topic_id != partition.topic_id:
            timestamp_ms = await self._look(log, offset)
            if timestamp_ms is None:
                return None
            known = _Known(partition.topic_id, offset, timestamp_ms)
        if known.timestamp_ms == NOTHING_LEFT:  # a record may follow the markers at any time
            return 0.0
        self._next[key] = known
        return None if known.timestamp_ms < 0 else max(0.0, (now_ms - known.timestamp_ms) / 1000)

    async def _look(self, log: ReplicaLog, offset: Offset) -> Millis | None:
        """The timestamp of the record at an offset, or of the next one there is; None where that is unknown for now.
        A record inside a batch is as old as the first in it: what lies between is the producer's linger."""
        try:
            for _ in range(MARKERS_MAX):
                end = log.high_watermark
                if offset >= end:
                    return NOTHING_LEFT
                found = await self._header(log, offset, end)
                if found is None:
                    return None
                if not found.is_control:
                    stamp = found.max_timestamp if found.timestamp_type else found.base_timestamp
                    return stamp if stamp >= 0 else NO_TIMESTAMP
                offset = found.next_offset
        except (KafkaError, OSError):  # deleted, truncated or offline meanwhile
            pass
        return None

    async def _header(self, log: ReplicaLog, offset: Offset, end: Offset) -> BatchHeader | None:
        for _ in range(4):  # finding the batch may touch more than one cold place
            try:
                part = log.read(offset, 1, up_to=end, nowait=True)
                if part is None:
                    return None
                data = part.file.pread_nowait(HEADER_SIZE, part.position)
                if data is not None and len(data) == HEADER_SIZE:
                    return unpack_header(data)
                warm: Callable[[], object] = partial(part.file.pread, HEADER_SIZE, part.position)
            except ColdRead as cold:
                warm = cold.warm
            if self._cold >= COLD_LOOKS_MAX:
                return None
            self._cold += 1
            await self._fs.run(warm)
        return None
