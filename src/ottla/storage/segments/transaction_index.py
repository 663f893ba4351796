"""The `.txnindex` file: the aborted transactions whose marker lies in a segment (Kafka's `TransactionIndex`).

Entries of 34 bytes, big endian: version 0, producer id, first offset, last offset (the abort marker's), and the last
stable offset at that time, in the order of the last offsets. The file exists from the first aborted transaction on.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from contextlib import closing
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from ottla.filesystem import FileSystem
from ottla.model import Offset, ProducerId
from ottla.storage.log.log_health import is_passing

ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset
    """All aborted transactions that begin below it have an entry in this or an earlier segment."""


class TransactionIndex:
    """The entries of one segment in memory; every append goes to the file at once, as aborts are rare, and on a full
    disk with the other indexes as soon as there is room."""

    __slots__ = ("_fs", "_written", "entries", "is_whole", "path")

    def __init__(self, fs: FileSystem, path: str) -> None:
        """Load the file; nothing is there without it. Entries from the first bad one on are left out."""
        self._fs = fs
        self.path = path
        self.entries: list[AbortedTransaction] = []
        self.is_whole = True
        """Whether the file had nothing but good entries."""
        self._written = 0
        """How many entries are in the file."""
        try:
            data = fs.read_bytes(path)
        except FileNotFoundError:
            return
        last = -1
        for version, *numbers in ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY.size]):
            entry = AbortedTransaction(*numbers)
            if version != _VERSION or not last < entry.last_offset or not 0 <= entry.first_offset < entry.last_offset:
                break
            last = entry.last_offset
            self.entries.append(entry)
        self._written = len(self.entries)
        self.is_whole = len(data) == len(self.entries) * ENTRY.size

    def replace(self, entries: list[AbortedTransaction]) -> None:
        """Replace the file, durably. Raises `OSError`."""
        self._fs.write_atomic(self.path, b"".join(ENTRY.pack(_VERSION, *entry) for entry in entries))
        self.entries = entries
        self._written = len(entries)
        self.is_whole = True

    def append(self, entry: AbortedTransaction) -> None:
        """Add a transaction, unless recovery finds it here already. Raises `OSError`, but for an error that passes: the
        record that ends the transaction is in the log by now."""
        if self.entries and entry.last_offset <= self.entries[-1].last_offset:
            return
        self.entries.append(entry)
        try:
            self.write()
        except OSError as error:
            if not is_passing(error):
                raise

    def write(self) -> None:
        """Put the pending entries into the file. Raises `OSError`; they stay pending then."""
        if self._written == len(self.entries):
            return
        with closing(self._fs.open(self.path, create=True)) as file:
            data = b"".join(ENTRY.pack(_VERSION, *entry) for entry in self.entries[self._written :])
            file.pwrite((data,), self._written * ENTRY.size)
        self._written = len(self.entries)

    def truncate_to(self, offset: Offset) -> None:
        """Forget the transactions whose marker is at or after `offset`, and whatever follows the last good entry."""
        while self.entries and self.entries[-1].last_offset >= offset:
            self.entries.pop()
        self._written = min(self._written, len(self.entries))
        if not self._fs.exists(self.path):
            return
        with closing(self._fs.open(self.path)) as file:
            file.truncate(self._written * ENTRY.size)

    def overlapping(self, start: Offset, end: Offset) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that overlap [start, end), and whether later segments cannot have more of them."""
        found = []
        entries = self.entries
        for entry in islice(entries, bisect_left(entries, start, key=attrgetter("last_offset")), None):
            if entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                return found, True
        return found, False
