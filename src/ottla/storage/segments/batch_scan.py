# cython: boundscheck=False, wraparound=False
"""Going through the batches of a log file by their headers, from a batch boundary on.

Compiled, with C types in `batch_scan.pxd`: each fetch that is not at the tail looks at a header.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.errors import ErrorCode, KafkaError
from ottla.model import Millis, Offset, ProducerId
from ottla.protocol.records.record_batch import HEADER_SIZE
from ottla.storage.segments.segment_files import ColdRead, SegmentFile

SCAN_BYTES = 4096
"""What a look-up reads at once: about the distance of two index entries."""

# C globals when compiled.
_HEADER = HEADER_SIZE
_BATCH_BYTES_MIN = HEADER_SIZE - 12
_OFFSET_MAX = 2**63 - 1
_TWO_31 = 1 << 31
_TWO_32 = 1 << 32
_LENGTH, _LAST_OFFSET_DELTA, _MAX_TIMESTAMP, _PRODUCER_ID = 8, 23, 35, 43
"""Where fields of a batch header are; the base offset comes first."""


class FoundBatch:
    """Where a batch is in a log file, and as much of its header as a look-up needs."""

    __slots__ = ("base_offset", "last_offset", "max_timestamp", "position", "producer_id", "size")

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
    chunk = b""
    start, path = position, handle.file.path
    while position < end:
        if end - position < _HEADER:
            raise corrupt(path, position)
        if position + _HEADER > start + len(chunk):
            start = position
            chunk = _read(handle, position, min(SCAN_BYTES, end - position), nowait)
            if len(chunk) < _HEADER:
                raise corrupt(path, position)
        found = _unpack(chunk, position - start, position, end)
        if found is None:
            raise corrupt(path, position)
        yield found
        position += found.size


def batch_at(handle: SegmentFile, position: int, end: int, *, nowait: bool) -> FoundBatch | None:
    """The batch at `position`, None where there is none that is right. Raises `ColdRead` if `nowait`."""
    if end - position < _HEADER:
        return None
    data = _read(handle, position, _HEADER, nowait)
    return None if len(data) < _HEADER else _unpack(data, 0, position, end)


def _unpack(data: bytes, at: int, position: int, end: int) -> FoundBatch | None:
    """The batch at `position` of the file, whose header begins at `data[at]`; None for what cannot be one."""
    length = _int32(data, at + _LENGTH)
    delta = _int32(data, at + _LAST_OFFSET_DELTA)
    base_offset = _int64(data, at)
    if length < _BATCH_BYTES_MIN or position + length + 12 > end or delta < 0 or base_offset > _OFFSET_MAX - delta:
        return None
    found = FoundBatch()
    found.position = position
    found.base_offset = base_offset
    found.size = length + 12
    found.last_offset = base_offset + delta
    found.max_timestamp = _int64(data, at + _MAX_TIMESTAMP)
    found.producer_id = _int64(data, at + _PRODUCER_ID)
    return found


def _int32(data: bytes, at: int) -> int:
    value: int = data[at]
    value = value << 8 | data[at + 1]
    value = value << 8 | data[at + 2]
    value = value << 8 | data[at + 3]
    return value - _TWO_32 if value >= _TWO_31 else value


def _int64(data: bytes, at: int) -> int:
    low = _int32(data, at + 4)
    return _int32(data, at) * _TWO_32 + (low if low >= 0 else low + _TWO_32)


def _read(handle: SegmentFile, position: int, length: int, nowait: bool) -> bytes:
    if not nowait:
        return handle.file.pread(length, position)
    data = handle.file.pread_nowait(length, position)
    if data is None:
        # Holds the handle: until a thread gets to it the segment may be deleted, and its descriptor another file's.
        raise _cold(handle, length, position)
    return data if type(data) is bytes else bytes(data)


def _cold(handle: SegmentFile, length: int, position: int) -> ColdRead:
    return ColdRead(lambda: handle.file.pread(length, position))
