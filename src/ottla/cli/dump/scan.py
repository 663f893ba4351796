"""Walks a segment from its first byte to its last and holds every batch against what must be true of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.errors import KafkaError
from ottla.filesystem import File
from ottla.protocol.record_batch import HEADER_SIZE, BatchHeader, crc_is_valid, iterate_records, read_batch_header

CHUNK_BYTES = 1 << 20
MAGIC_OFFSET = 16


class Batch(NamedTuple):
    """A batch as it lies in the file."""

    position: int
    header: BatchHeader
    data: bytes
    problems: tuple[str, ...]


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

    def note(self, batch: Batch) -> None:
        header = batch.header
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


def walk(file: File, scan: Scan, base_offset: int, *, deep: bool) -> Iterator[Batch]:
    """Every batch that can be found, sound or not; `scan` adds up, and its problems end with why the walk ended early.

    `deep` also decompresses and counts the records.
    """
    position = 0
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
            else:
                scan.problems.append(f"byte {position} of {scan.size}: {why}")
            return
        data = file.pread(header.size, position)
        problems = tuple(_problems(header, data, expected_offset, epoch, deep=deep))
        batch = Batch(position, header, data, problems)
        scan.note(batch)
        yield batch
        position += header.size
        expected_offset, epoch = header.next_offset, header.leader_epoch


class _Unreadable(Exception):
    """Nothing beyond this byte can be made sense of."""


def _header(head: bytes) -> BatchHeader:
    if head[MAGIC_OFFSET] < 2:
        raise _Unreadable(f"records of magic {head[MAGIC_OFFSET]}, from before Kafka 0.11, or no records at all")
    try:
        return read_batch_header(head)
    except KafkaError as error:
        raise _Unreadable(error.message or error.code.name) from error


def _problems(header: BatchHeader, data: bytes, expected_offset: int, epoch: int, *, deep: bool) -> Iterator[str]:
    if not crc_is_valid(data, 0, header):
        yield "its checksum does not match its bytes"
        return
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
