"""Walks a segment from its first byte to its last and holds every batch against what must be true of it.

It trusts nothing, and goes on behind what cannot be read: at the next bytes that are a whole batch with its checksum.
`ottla log dump`, `verify` and `repair` use it, and recovery where it has to say what lies behind a damage.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.errors import KafkaError
from ottla.filesystem import File
from ottla.protocol.records.record_batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    crc_is_valid,
    iterate_records,
    read_batch_header,
    unpack_header,
)

CHUNK_BYTES = 1 << 20
_MAGIC = bytes([MAGIC])
_CODEC_MAX = 4
_OFFSET_AHEAD_MAX = 1 << 31
"""A segment spans no more offsets than that, so what claims to lie further ahead is no batch of it."""


class Batch(NamedTuple):
    """A batch as it lies in the file."""

    position: int
    header: BatchHeader
    data: bytes
    problems: tuple[str, ...]
    is_whole: bool = True
    """Whether its bytes are those that its checksum was made of."""


@dataclass
class Damaged:
    """Bytes [start, end) that are no whole batch, and what is whole behind them in the same file."""

    start: int
    end: int
    why: str
    next_offset: int
    """The offset that should begin here."""
    batches_behind: int = 0
    first_offset_behind: int = -1
    last_offset_behind: int = -1

    def note(self, header: BatchHeader) -> None:
        if not self.batches_behind:
            self.first_offset_behind = header.base_offset
        self.batches_behind += 1
        self.last_offset_behind = header.last_offset

    @property
    def behind(self) -> str:
        """What is whole behind it, in words."""
        if not self.batches_behind:
            return "no whole batch lies behind it in this file"
        return (
            f"{self.batches_behind} whole batches lie behind it in this file, "
            f"offsets {self.first_offset_behind} to {self.last_offset_behind}"
        )


class Gap(NamedTuple):
    """Offsets [first, end) that are missing before the batch at `position`."""

    position: int
    first: int
    end: int


@dataclass
class Scan:
    """What one walk found. Offsets are -1 while no batch was seen."""

    size: int
    batches: int = 0
    records: int = 0
    valid_bytes: int = 0
    """Where the last whole and sound batch ends; recovery would cut the file here."""
    preallocated_bytes: int = 0
    """Zeros at the end, as a broker with `preallocate=true` leaves them while it writes."""
    first_offset: int = -1
    next_offset: int = -1
    leader_epoch: int = -1
    max_timestamp: int = -1
    problems: list[str] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)
    """What cannot be read, in the order of the file."""
    gaps: list[Gap] = field(default_factory=list)
    """A log that was compacted has them."""

    def note(self, batch: Batch) -> None:
        header = batch.header
        if not batch.is_whole:
            self.problems += [f"batch at byte {batch.position}: {problem}" for problem in batch.problems]
            return
        self.batches += 1
        self.records += header.count
        if self.first_offset < 0:
            self.first_offset = header.base_offset
        self.next_offset = header.next_offset
        self.leader_epoch = max(self.leader_epoch, header.leader_epoch)
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
        if not self.problems and not batch.problems:
            self.valid_bytes = batch.position + header.size
        self.problems += [f"batch at byte {batch.position}: {problem}" for problem in batch.problems]


def walk(file: File, scan: Scan, base_offset: int, *, deep: bool, start: int = 0) -> Iterator[Batch]:
    """Every batch from `start` on that can be found, sound or not; `scan` adds up.

    `deep` also decompresses and counts the records.
    """
    position = start
    expected_offset, epoch = base_offset, -1
    while position < scan.size:
        head = file.pread(HEADER_SIZE, position)
        try:
            if len(head) < HEADER_SIZE:
                raise _Unreadable(f"{len(head)} bytes are no batch header")
            header = _header(head)
            if header.size > scan.size - position:
                raise _Unreadable(f"a batch of {header.size} bytes is cut short after {scan.size - position}")
        except _Unreadable as why:
            if _is_zero(file, position, scan.size):
                scan.preallocated_bytes = scan.size - position
                return
            scan.problems.append(f"byte {position} of {scan.size}: {why}")
            position = _skip(file, scan, position, str(why), expected_offset)
            continue
        data = file.pread(header.size, position)
        if not crc_is_valid(data, 0, header):
            why_not = "its checksum does not match its bytes"
            broken = Batch(position, header, data, (why_not,), is_whole=False)
            scan.note(broken)
            yield broken
            position = _skip(file, scan, position, why_not, expected_offset, claimed=position + header.size)
            continue
        batch = Batch(position, header, data, tuple(_problems(header, data, expected_offset, epoch, deep=deep)))
        scan.note(batch)
        if header.base_offset > expected_offset:
            scan.gaps.append(Gap(position, expected_offset, header.base_offset))
        for damaged in scan.damaged:
            damaged.note(header)
        yield batch
        position += header.size
        expected_offset, epoch = header.next_offset, header.leader_epoch


def _skip(file: File, scan: Scan, position: int, why: str, next_offset: int, claimed: int | None = None) -> int:
    """Note damage at `position`; returns where the next whole batch begins, or the end of the file.

    `claimed` is where the damaged batch says that it ends: believed if another one begins there, or the file ends.
    """
    if claimed is not None and (claimed == scan.size or batch_at(file, claimed, scan.size, next_offset) is not None):
        end = claimed
    else:
        for end in find_batch(file, position + 1, scan.size, next_offset):
            if end >= 0:
                break
        else:
            end = scan.size
    scan.damaged.append(Damaged(position, end, why, next_offset))
    return end


def batch_at(file: File, position: int, size: int, offset_min: int) -> BatchHeader | None:
    """The header of the batch at `position`, if a whole one with its checksum lies there."""
    head = file.pread(HEADER_SIZE, position)
    header = _plausible(head, 0, size - position, offset_min)
    if header is None or not crc_is_valid(file.pread(header.size, position), 0, header):
        return None
    return header


def find_batch(file: File, position: int, size: int, offset_min: int) -> Generator[int, None, None]:
    """Looks for the next whole batch from `position` on: gives its position once, and -1 before for each chunk looked
    through, so that the caller can yield to the event loop."""
    while size - position >= HEADER_SIZE:
        chunk = file.pread(CHUNK_BYTES, position)
        found = chunk.find(_MAGIC, MAGIC_POSITION)
        while 0 <= found <= len(chunk) - HEADER_SIZE + MAGIC_POSITION:
            start = found - MAGIC_POSITION
            header = _plausible(chunk, start, size - position - start, offset_min)
            if header is not None and crc_is_valid(file.pread(header.size, position + start), 0, header):
                yield position + start
                return
            found = chunk.find(_MAGIC, found + 1)
        if len(chunk) < CHUNK_BYTES:
            return
        position += len(chunk) - HEADER_SIZE + 1
        yield -1


def _plausible(data: bytes, start: int, left: int, offset_min: int) -> BatchHeader | None:
    """The header at `start` if a batch of this log could have it; `left` bytes of the file follow."""
    if len(data) - start < HEADER_SIZE:
        return None
    header = unpack_header(data, start)
    good = (
        header.magic == MAGIC
        and HEADER_SIZE - LOG_OVERHEAD <= header.batch_length <= left - LOG_OVERHEAD
        and 0 <= header.base_offset - offset_min < _OFFSET_AHEAD_MAX
        and header.leader_epoch >= -1
        and 0 <= header.count <= header.last_offset_delta + 1
        and header.codec <= _CODEC_MAX
    )
    return header if good else None


class _Unreadable(Exception):
    """No batch can be made of the bytes here."""


def _header(head: bytes) -> BatchHeader:
    if head[MAGIC_POSITION] < MAGIC:
        raise _Unreadable(f"records of magic {head[MAGIC_POSITION]}, from before Kafka 0.11, or no records at all")
    try:
        return read_batch_header(head)
    except KafkaError as error:
        raise _Unreadable(error.message or error.code.name) from error


def _problems(header: BatchHeader, data: bytes, expected_offset: int, epoch: int, *, deep: bool) -> Iterator[str]:
    if header.base_offset < expected_offset:
        yield f"it starts at offset {header.base_offset}, where {expected_offset} or more should follow"
    if header.leader_epoch < epoch:
        yield f"its leader epoch {header.leader_epoch} comes after epoch {epoch}"
    if header.last_offset_delta < 0 or not 0 <= header.count <= header.last_offset_delta + 1:
        yield f"{header.count} records cannot have offset deltas up to {header.last_offset_delta}"
    elif deep:
        yield from _record_problems(header, data)


def _record_problems(header: BatchHeader, data: bytes) -> Iterator[str]:
    previous = header.base_offset - 1
    count = 0
    try:
        for record in iterate_records(data):
            if not previous < record.offset <= header.last_offset:
                yield f"record {count} has offset {record.offset} after {previous}"
                return
            previous = record.offset
            count += 1
    except KafkaError as error:
        yield f"its records cannot be read: {error.message or error.code.name}"
        return
    if count != header.count:
        yield f"it claims {header.count} records and holds {count}"


def _is_zero(file: File, position: int, end: int) -> bool:
    while position < end:
        chunk = file.pread(min(CHUNK_BYTES, end - position), position)
        if not chunk or chunk.count(0) != len(chunk):
            return False
        position += len(chunk)
    return True


OnBatch = Callable[[Batch], None]
