"""Going through the batches of a log file by their headers, from a batch boundary on."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.model import Millis, Offset, ProducerId
from ottla.protocol.record_batch import HEADER_SIZE
from ottla.storage.segment_files import ColdRead, SegmentFile

SCAN_BYTES = 4096
"""What a look-up reads at once: about the distance of two index entries."""

_BATCH_BYTES_MIN = HEADER_SIZE - 12
_new = tuple.__new__
_POSITION = struct.Struct(">qi11xi8xqq")
"""Fields of a batch header: base offset, length, last offset delta, largest timestamp, producer id."""


class FoundBatch(NamedTuple):
    """Where a batch is in a log file, and as much of its header as a look-up needs."""

    position: int
    base_offset: Offset
    size: int
    last_offset: Offset
    max_timestamp: Millis
    producer_id: ProducerId


def corrupt(path: str, position: int) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, f"{path} has no valid batch at position {position}")


def scan_batches(handle: SegmentFile, position: int, end: int, *, nowait: bool) -> Iterator[FoundBatch]:
    """The batches from `position`, a batch boundary, up to `end`.

    Raises `KafkaError` CORRUPT_MESSAGE, and `ColdRead` if `nowait`.
    """
    chunk: bytes | bytearray = b""
    start, path = position, handle.file.path
    while position < end:
        if position + _POSITION.size > start + len(chunk):
            start = position
            chunk = _read(handle, position, min(SCAN_BYTES, end - position), nowait)
            if len(chunk) < min(HEADER_SIZE, end - position):
                raise corrupt(path, position)
        if end - position < HEADER_SIZE:
            raise corrupt(path, position)
        base_offset, length, delta, max_timestamp, producer_id = _POSITION.unpack_from(chunk, position - start)
        if length < _BATCH_BYTES_MIN or position + length + 12 > end or delta < 0:
            raise corrupt(path, position)
        yield FoundBatch(position, base_offset, length + 12, base_offset + delta, max_timestamp, producer_id)
        position += length + 12


def batch_at(handle: SegmentFile, position: int, end: int, *, nowait: bool) -> FoundBatch | None:
    """The batch at `position`, None where there is none that is right. Raises `ColdRead` if `nowait`."""
    if end - position < HEADER_SIZE:
        return None
    data = _read(handle, position, HEADER_SIZE, nowait)
    if len(data) < HEADER_SIZE:
        return None
    base_offset, length, delta, max_timestamp, producer_id = _POSITION.unpack_from(data)
    if length < _BATCH_BYTES_MIN or position + length + 12 > end or delta < 0:
        return None
    return _new(FoundBatch, (position, base_offset, length + 12, base_offset + delta, max_timestamp, producer_id))


def _read(handle: SegmentFile, position: int, length: int, nowait: bool) -> bytes | bytearray:
    if not nowait:
        return handle.file.pread(length, position)
    data = handle.file.pread_nowait(length, position)
    if data is None:
        # Holds the handle: until a thread gets to it the segment may be deleted, and its descriptor another file's.
        raise ColdRead(lambda: handle.file.pread(length, position))
    return data
