"""The indexes of a segment: their entries, and whether they lead to the right place in the log.

The checks are what a look-up relies on, not how Ottla happens to write: any broker's index passes that never makes a
reader miss a record. Kafka preallocates index files, so zeros after the last entry are no entries.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from typing import NamedTuple

from ottla.filesystem import FileSystem
from ottla.storage.recovery.scan import Batch

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_TRANSACTION_ENTRY = struct.Struct(">hqqqq")
_LAYOUTS = {".index": _OFFSET_ENTRY, ".timeindex": _TIME_ENTRY, ".txnindex": _TRANSACTION_ENTRY}
_CHUNK_BYTES = 1 << 16


class OffsetEntry(NamedTuple):
    offset: int
    position: int


class TimeEntry(NamedTuple):
    timestamp: int
    offset: int


class TransactionEntry(NamedTuple):
    """An aborted transaction."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class IndexFile(NamedTuple):
    """The bytes of an index up to its last entry, and the size of the whole file."""

    data: bytes
    size: int


def read_index(fs: FileSystem, path: str) -> IndexFile:
    """Read up to the first stretch of zeros: a broker keeps 10 MB files for a handful of entries."""
    with closing(fs.open(path, read_only=True)) as file:
        size = file.size()
        parts: list[bytes] = []
        while chunk := file.pread(_CHUNK_BYTES, len(parts) * _CHUNK_BYTES):
            if chunk.count(0) == len(chunk):
                break
            parts.append(chunk)
    return IndexFile(b"".join(parts), size)


def offset_entries(data: bytes, base_offset: int) -> list[OffsetEntry]:
    return [OffsetEntry(base_offset + relative, position) for relative, position in _entries(_OFFSET_ENTRY, data)]


def time_entries(data: bytes, base_offset: int) -> list[TimeEntry]:
    return [TimeEntry(timestamp, base_offset + relative) for timestamp, relative in _entries(_TIME_ENTRY, data)]


def transaction_entries(data: bytes) -> list[TransactionEntry]:
    return [TransactionEntry(*values) for values in _entries(_TRANSACTION_ENTRY, data)]


def _entries(layout: struct.Struct, data: bytes) -> Iterator[tuple[int, ...]]:
    """Whole entries up to the last that has a bit set; those of nothing but zeros after it were never written."""
    written = len(data.rstrip(b"\0"))
    count = min(-(-written // layout.size), len(data) // layout.size)
    return layout.iter_unpack(data[: count * layout.size])


def odd_size(size: int, kind: str) -> str | None:
    """The problem of the file's length, if any."""
    entry = _LAYOUTS[kind].size
    return f"{size} bytes are not a multiple of its {entry}-byte entries" if size % entry else None


class OffsetIndexCheck:
    """Feed it every batch in order, then `finish`."""

    def __init__(self, entries: list[OffsetEntry]) -> None:
        self.problems = [
            f"entry {number} (offset {after.offset}, byte {after.position}) does not come after entry {number - 1}"
            for number, (before, after) in enumerate(pairwise(entries), 1)
            if after.offset <= before.offset or after.position <= before.position
        ]
        self._entries = entries
        self._next = 0

    def feed(self, batch: Batch) -> None:
        entries = self._entries
        while self._next < len(entries) and entries[self._next].position <= batch.position:
            entry = entries[self._next]
            if entry.position < batch.position:
                self._complain(f"points into the middle of a batch, at byte {entry.position}")
            elif batch.header.base_offset > entry.offset:
                # A reader of this offset would start past the record it wants.
                self._complain(f"points at byte {entry.position}, whose batch starts at {batch.header.base_offset}")
            self._next += 1

    def finish(self) -> list[str]:
        while self._next < len(self._entries):
            self._complain(f"points at byte {self._entries[self._next].position}, past the last batch")
            self._next += 1
        return self.problems

    def _complain(self, what: str) -> None:
        self.problems.append(f"entry {self._next} (offset {self._entries[self._next].offset}) {what}")


class TimeIndexCheck:
    """Feed it every batch in order, then `finish`."""

    def __init__(self, entries: list[TimeEntry]) -> None:
        self.problems = [
            f"entry {number} (time {after.timestamp}, offset {after.offset}) goes back behind entry {number - 1}"
            for number, (before, after) in enumerate(pairwise(entries), 1)
            if after.timestamp < before.timestamp or after.offset < before.offset
        ]
        self._entries = entries
        self._next = 0
        self._latest = -1
        """The greatest timestamp of the batches before this one."""

    def feed(self, batch: Batch) -> None:
        entries = self._entries
        while self._next < len(entries) and entries[self._next].offset <= batch.header.last_offset:
            timestamp = entries[self._next].timestamp
            if self._latest > timestamp:
                # A look-up of a time in between starts here and misses the earlier batch.
                self._complain(f"misses a record with the later timestamp {self._latest} before it")
            elif timestamp > max(self._latest, batch.header.max_timestamp):
                self._complain("has a timestamp that no record up to its offset has")
            self._next += 1
        self._latest = max(self._latest, batch.header.max_timestamp)

    def finish(self) -> list[str]:
        while self._next < len(self._entries):
            self._complain("points past the last record")
            self._next += 1
        return self.problems

    def _complain(self, what: str) -> None:
        entry = self._entries[self._next]
        self.problems.append(f"entry {self._next} (time {entry.timestamp}, offset {entry.offset}) {what}")


def transaction_problems(entries: list[TransactionEntry]) -> list[str]:
    """Aborted transactions lie in the order in which they ended."""
    problems = [
        f"entry {number} ends at {after.last_offset}, before entry {number - 1}"
        for number, (before, after) in enumerate(pairwise(entries), 1)
        if after.last_offset < before.last_offset
    ]
    problems += [
        f"entry {number} spans {entry.first_offset} to {entry.last_offset}"
        for number, entry in enumerate(entries)
        if entry.first_offset > entry.last_offset
    ]
    return problems
