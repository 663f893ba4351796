"""A log as its bytes on a simulated disk say, whether its node lives or not; reading disturbs neither node nor disk."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from ottla.errors import OttlaError
from ottla.protocol.records.record_batch import CorruptBatch, iterate_batches
from ottla.testing.disk import SimulatedFileSystem
from ottla.testing.disk_nodes import Directory, Inode


class Batch(NamedTuple):
    base: int
    last: int
    epoch: int
    crc: int


_BASE = attrgetter("base")


class _Segment:
    """What was found in a file so far; files mostly grow."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.end = 0
        self.last_at = -1
        self.last_head = b""

    def read(self, content: bytearray) -> list[Batch]:
        if len(content) < self.end or (
            self.last_at >= 0 and content[self.last_at : self.last_at + 61] != self.last_head
        ):
            self.__init__()  # type: ignore[misc]  # it was cut
        if len(content) > self.end:
            try:
                for at, header in iterate_batches(content, self.end):
                    epoch = header.leader_epoch
                    self.batches.append(Batch(header.base_offset, header.last_offset, epoch, header.crc))
                    self.end, self.last_at = at + header.size, at
            except (CorruptBatch, OttlaError):
                pass  # torn by a crash, or being written
            if self.last_at >= 0:
                self.last_head = bytes(content[self.last_at : self.last_at + 61])
        return self.batches


class LogView:
    """The batches of a log, in the one of `directories` that has it. `durable`: what a power loss would leave."""

    def __init__(self, disk: SimulatedFileSystem, directories: Sequence[str], *, durable: bool = False) -> None:
        self._disk = disk
        self._directories = directories
        self._durable = durable
        self._seen: tuple[Directory, int] | None = None
        """The directory, and how many changes it had when it was listed."""
        self._bases: list[int] = []
        self._segments: dict[Inode, _Segment] = {}
        """In the order of `_bases`."""

    def _files(self) -> list[Inode]:
        """The segments' files, oldest first. Names change seldom: they are listed again only then."""
        for path in self._directories:
            directory = self._disk.look(path)
            if isinstance(directory, Directory):
                if self._seen != (directory, directory.changes):
                    self._seen = directory, directory.changes
                    self._list(directory.durable if self._durable else directory.entries)
                return list(self._segments)
        return []

    def _list(self, entries: dict[str, Directory | Inode]) -> None:
        found = {
            int(name[:-4]): inode
            for name, inode in entries.items()
            if name.endswith(".log") and isinstance(inode, Inode)
        }
        self._bases = sorted(found)
        self._segments = {found[base]: self._segments.get(found[base]) or _Segment() for base in self._bases}

    def _batches(self, inode: Inode) -> list[Batch]:
        return self._segments[inode].read(inode.durable if self._durable else inode.content)

    def read(self, start: int, end: int) -> Iterator[Batch]:
        """Every batch that begins at `start` or later, and ends below `end`."""
        files = self._files()
        first = max(0, bisect_right(self._bases, start) - 1) if files else 0
        for base, inode in zip(self._bases[first:], files[first:], strict=True):
            if base >= end:
                return
            batches = self._batches(inode)
            for number in range(bisect_left(batches, start, key=_BASE), len(batches)):
                if batches[number].last >= end:
                    return
                yield batches[number]

    @property
    def end(self) -> int:
        """The offset behind the last record."""
        files = self._files()
        if not files:
            return 0
        batches = self._batches(files[-1])
        return batches[-1].last + 1 if batches else self._bases[-1]

    @property
    def start(self) -> int:
        return self._bases[0] if self._files() else 0
