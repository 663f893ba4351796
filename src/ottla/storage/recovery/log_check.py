"""Reads a segment of a log that is in use, and holds each batch against its checksum and its place.

A checksum does not cover a batch's base offset, length, leader epoch and magic byte: the offset has to follow the
batch before it, the epoch may not go down, and the others lead to where no batch is. `SegmentCheck` works in a thread
on an open file, a piece at a time; who runs it looks between two pieces whether the segment is still the log's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.model import LeaderEpoch, Offset
from ottla.protocol.records.record_batch import HEADER_SIZE, BatchHeader, CorruptBatch, compute_crc, read_batch_header
from ottla.storage.segments.index_file import RELATIVE_OFFSET_MAX
from ottla.storage.segments.segment_files import SegmentFile

Adjoins = Callable[[Offset, Offset], bool]
"""Whether a batch may begin at the second offset where the first one is next."""


class _Wrong(Exception):
    """What is wrong with the batch at `SegmentCheck.position`."""


class SegmentCheck:
    """The batches of one segment up to `end`, the position where its last whole batch ended when the check began."""

    def __init__(
        self,
        handle: SegmentFile,
        base_offset: Offset,
        end: int,
        *,
        adjoins: Adjoins,
        limit: Offset,
        epoch_max: int,
        begins: tuple[LeaderEpoch, Offset] | None = None,
    ) -> None:
        """All batches lie below `limit`, the base offset of the next segment or the log end; `epoch_max` is the newest
        leader epoch that there can be, -1 if unknown. `begins`: the first epoch of the leader-epoch-checkpoint.
        Logs that outlived the ZooKeeper of their cluster begin again with epoch 0 there, and Kafka forgets what was
        before."""
        self._handle = handle
        self._base_offset = base_offset
        self.end = end
        self._adjoins = adjoins
        self._limit = limit
        self._epoch_max = epoch_max
        self._begins = begins
        self.position = 0
        """Position of the batch that is next."""
        self.next_offset = base_offset
        self.epochs: list[tuple[LeaderEpoch, Offset]] = []
        """Each leader epoch with the first batch that has it."""
        self.newest: tuple[LeaderEpoch, Offset] | None = None
        """Leader epoch and base offset of the last batch that has one."""
        self.wrong: str | None = None
        """What is wrong at `position`; the check ends there."""

    @property
    def is_done(self) -> bool:
        return self.wrong is not None or self.position >= self.end

    def step(self, size: int) -> int:
        """Check the batches in the next `size` bytes, one at least; returns how many bytes were read. Blocks. Raises
        `OSError` where they cannot be read."""
        file = self._handle.file
        data = file.pread(min(size, self.end - self.position), self.position)
        read, start = len(data), self.position
        try:
            while self.position < self.end:
                at = self.position - start
                if len(data) - at < HEADER_SIZE and self.end - self.position > len(data) - at and at:
                    break  # the next step reads it whole
                header = read_batch_header(data, at)
                if header.size > self.end - self.position:
                    raise _Wrong(f"a batch of {header.size} bytes is cut short after {self.end - self.position}")
                if at + header.size > len(data):
                    if at:
                        break
                    data = file.pread(header.size, self.position)
                    read += len(data)
                self._check_place(header)
                if at + header.size > len(data) or compute_crc(data, at, header.size) != header.crc:
                    raise _Wrong("the batch's checksum does not match its bytes")
                self.next_offset = header.next_offset
                self.position += header.size
            if self.position >= self.end and self.next_offset < self._limit:
                self._check_end()
        except _Wrong as error:
            self.wrong = str(error)
        except CorruptBatch as error:
            self.wrong = error.message or "no batch begins here"
        return read

    def _check_place(self, header: BatchHeader) -> None:
        expected, epoch = self.next_offset, header.leader_epoch
        claims = f"a batch claims offsets {header.base_offset} to {header.last_offset}"
        if header.base_offset < expected or header.last_offset_delta < 0:
            raise _Wrong(f"{claims}, where {expected} is next")
        if header.last_offset >= self._limit or header.last_offset - self._base_offset > RELATIVE_OFFSET_MAX:
            raise _Wrong(f"{claims}, but {self._limit} comes behind this segment")
        if header.base_offset > expected and not self._adjoins(expected, header.base_offset):
            raise _Wrong(f"offsets {expected} to {header.base_offset - 1} are missing")
        if epoch < 0:
            return
        if 0 <= self._epoch_max < epoch:
            raise _Wrong(f"its leader epoch is {epoch}, and there was none above {self._epoch_max}")
        if (epoch, header.base_offset) == self._begins:
            self.epochs.clear()
        if self.epochs and epoch < self.epochs[-1][0]:
            raise _Wrong(f"its leader epoch {epoch} comes after epoch {self.epochs[-1][0]}")
        self.newest = epoch, header.base_offset
        if not self.epochs or epoch > self.epochs[-1][0]:
            self.epochs.append(self.newest)

    def _check_end(self) -> None:
        if not self._adjoins(self.next_offset, self._limit):
            raise _Wrong(f"offsets {self.next_offset} to {self._limit - 1} are missing at its end")


def joined(found: Sequence[Sequence[tuple[LeaderEpoch, Offset]]]) -> list[tuple[LeaderEpoch, Offset]] | None:
    """The epochs of a log from those of its segments; None where they go down from one segment to the next."""
    epochs: list[tuple[LeaderEpoch, Offset]] = []
    for each in found:
        for epoch, offset in each:
            if epochs and epoch < epochs[-1][0]:
                return None
            if not epochs or epoch > epochs[-1][0]:
                epochs.append((epoch, offset))
    return epochs
