"""A log as its bytes on a simulated disk say, whether its node lives or not; reading disturbs neither node nor disk."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.errors import OttlaError
from ottla.protocol.record_batch import CorruptBatch, iterate_batches
from ottla.testing.disk import SimulatedFileSystem
from ottla.testing.disk_nodes import Directory, Inode


class Batch(NamedTuple):
    base: int
    last: int
    epoch: int
    crc: int


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
        self._segments: dict[int, _Segment] = {}

    def _files(self) -> list[tuple[int, Inode]]:
        for directory in self._directories:
            node = self._disk.look(directory)
            if isinstance(node, Directory):
                entries = node.durable if self._durable else node.entries
                found = [
                    (int(name[:-4]), inode)
                    for name, inode in entries.items()
                    if name.endswith(".log") and isinstance(inode, Inode)
                ]
                return sorted(found, key=lambda each: each[0])
        return []

    def _batches(self, inode: Inode) -> list[Batch]:
        segment = self._segments.get(id(inode))
        if segment is None:
            segment = self._segments[id(inode)] = _Segment()
        return segment.read(inode.durable if self._durable else inode.content)

    def read(self, start: int, end: int) -> Iterator[Batch]:
        """Every batch that begins at `start` or later, and ends below `end`."""
        files = self._files()
        first = max(0, bisect_right([base for base, _ in files], start) - 1)
        for base, inode in files[first:]:
            if base >= end:
                return
            for batch in self._batches(inode):
                if batch.base >= start:
                    if batch.last >= end:
                        return
                    yield batch

    @property
    def end(self) -> int:
        """The offset behind the last record."""
        files = self._files()
        if not files:
            return 0
        base, inode = files[-1]
        batches = self._batches(inode)
        return batches[-1].last + 1 if batches else base

    @property
    def start(self) -> int:
        files = self._files()
        return files[0][0] if files else 0
