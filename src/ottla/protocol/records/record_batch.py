"""The record batch (v2): the unit of the log, the same bytes on the wire and on disk.

A batch is a header of 61 bytes and a section of records that may be compressed. Hot paths look at headers only:
`read_batch_header` and `iterate_batches` read them in place, `set_base_offset_and_epoch` changes the two fields that
lie outside the CRC, and no record is touched. `iterate_records` and `build_batch` are for those who need the records.

Attributes: bits 0-2 codec, 3 timestamp type (0 CreateTime, 1 LogAppendTime), 4 transactional, 5 control batch,
6 the base timestamp is a delete horizon (KIP-534).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.model import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Buffer,
    Millis,
    Offset,
    TimestampAndOffset,
)
from ottla.protocol.crc32c import crc32c
from ottla.protocol.records import _records
from ottla.protocol.records.compression import (
    DECOMPRESSED_BYTES_MAX,
    DecompressionFailed,
    TooLong,
    compress,
    decompress,
)

Headers = tuple[tuple[str, bytes | None], ...]

HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12
"""Base offset and batch length, which the batch length does not count."""
LEADER_EPOCH_POSITION: Final = 12
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
MAX_TIMESTAMP_POSITION: Final = 35
MAGIC: Final = 2

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

_HEADER = struct.Struct(">qiibIhiqqqhii")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_UINT32 = struct.Struct(">I")
LENGTH_AND_MAGIC = struct.Struct(">i4xb")
"""Unpacked 8 bytes into a batch."""
_SEQUENCE_MAX: Final = 2**31 - 1


INLINE_BYTES_MAX: Final = 1 << 20
INLINE_RECORDS_MAX: Final = 100_000
"""Records of more bytes, decompressed, or of a larger number are not gone through on the event loop: what is less takes
some two milliseconds at most."""

RECORD_BYTES_MAX: Final = (1 << 31) - 9
"""Kafka's default of `max.decompressed.message.bytes`: more than a whole batch may have here."""


class CorruptBatch(KafkaError):
    """CORRUPT_MESSAGE: bytes that are no record batch, or not the one that its CRC was made of."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.corrupt_message, message)


class RecordTooLarge(KafkaError):
    """INVALID_RECORD: a record that is larger than `max.decompressed.message.bytes`. Its batch is not damaged."""

    def __init__(self, number: int, size_max: int) -> None:
        super().__init__(
            ErrorCode.invalid_record,
            f"record {number} of the batch has more than max.decompressed.message.bytes={size_max} bytes",
        )


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    """Bytes after this field; `size` is the whole batch."""
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    """Records in the batch; compaction may leave fewer than the offsets it spans."""

    @property
    def size(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_compressed(self) -> bool:
        return self.attributes & CODEC_MASK != 0

    @property
    def timestamp_type(self) -> int:
        return 1 if self.attributes & LOG_APPEND_TIME else 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON != 0


def increment_sequence(sequence: int, by: int) -> int:
    """Sequences count from 0 to the greatest int32 and start over."""
    return (sequence + by) & _SEQUENCE_MAX


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    attributes: int


class SimpleRecord(NamedTuple):
    """A producer's record: everything else follows from its batch."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


_new = tuple.__new__


def read_batch_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`. Raises CorruptBatch where it is cut off, of another format, or of impossible length."""
    try:
        header = _new(BatchHeader, _HEADER.unpack_from(buffer, position))
    except struct.error as error:
        raise CorruptBatch(f"{len(buffer) - position} bytes are too few for a batch header") from error
    if header[1] < HEADER_SIZE - LOG_OVERHEAD or header[3] != MAGIC:
        _refuse(header[1], header[3])
    return header


def unpack_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position` as it stands, for callers that check it themselves. Raises struct.error."""
    return _new(BatchHeader, _HEADER.unpack_from(buffer, position))


def _refuse(length: int, magic: int) -> None:
    if magic != MAGIC:
        raise CorruptBatch(f"a batch of message format {magic}; only {MAGIC} is supported")
    raise CorruptBatch(f"a batch length of {length} is less than the header's size")


def iterate_batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every whole batch from `position` on; a batch cut off at the end is left out.

    Raises CorruptBatch at bytes that no batch starts with.
    """
    end = len(buffer)
    while end - position > MAGIC_POSITION:
        length, magic = LENGTH_AND_MAGIC.unpack_from(buffer, position + 8)
        if length < HEADER_SIZE - LOG_OVERHEAD or magic != MAGIC:
            _refuse(length, magic)
        stop = position + LOG_OVERHEAD + length
        if stop > end:
            return
        yield position, _new(BatchHeader, _HEADER.unpack_from(buffer, position))
        position = stop


def compute_crc(buffer: Buffer, position: int, size: int) -> int:
    """CRC32C of a batch of `size` bytes: from its attributes to its end."""
    return crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : position + size])


def crc_is_valid(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the batch is wholly in `buffer` and is what its CRC was made of."""
    size = header.size
    return position + size <= len(buffer) and compute_crc(buffer, position, size) == header.crc


class LongWork(Exception):
    """Raised instead of work on a batch that would keep the event loop for long; `do` is for a thread.

    `do` raises KafkaError. It touches nothing but the bytes of the batch, of which it has a copy.
    """

    def __init__(self, do: Callable[[], Any], next_offset: Offset = -1) -> None:
        super().__init__("long work")
        self.do = do
        self.next_offset = next_offset
        """Where to look on, if `do` finds nothing."""


def records_section(
    batch: Buffer,
    header: BatchHeader,
    position: int = 0,
    *,
    limit: int = DECOMPRESSED_BYTES_MAX,
    record_bytes_max: int = RECORD_BYTES_MAX,
) -> Buffer:
    """The records of the batch at `position`, decompressed; uncompressed ones are a view into `batch`.

    Raises CorruptBatch; RecordTooLarge for a record of more than `record_bytes_max` bytes in a compressed batch, of
    which no more than needed is decompressed; TooLong for more than `limit` bytes, if that is less than any batch may
    have.
    """
    end = position + header.size
    if end > len(batch):
        raise CorruptBatch(f"a batch of {header.size} bytes in {len(batch) - position}")
    section = memoryview(batch)[position + HEADER_SIZE : end]
    if not header.is_compressed:
        return section
    watcher = None if record_bytes_max >= DECOMPRESSED_BYTES_MAX else _watcher(header.count, record_bytes_max)
    try:
        return decompress(header.codec, section, limit, watcher)
    except DecompressionFailed as error:
        if limit < DECOMPRESSED_BYTES_MAX and isinstance(error, TooLong):
            raise
        raise CorruptBatch(f"codec {header.codec}: {error}") from error


def _watcher(count: int, record_bytes_max: int) -> Callable[[Buffer], None]:
    """Refuses records by the lengths that they begin with, before they are decompressed.

    Java reads a record at a time from a stream that decompresses, and looks at each length (`DefaultRecord.readFrom`,
    which counts the bytes behind it). Lengths that are none, or more records than `count`, end the work as well.
    """
    at = seen = 0

    def watch(section: Buffer) -> None:
        nonlocal at, seen
        status, at, seen = _records.measure(section, at, len(section), seen, count, record_bytes_max)
        if status == _records.OVERSIZED:
            raise RecordTooLarge(seen, record_bytes_max)
        if status != _records.OK:
            raise CorruptBatch(_records.problem(_records.LEFT_OVER if seen >= count else status, seen))

    return watch


def iterate_records(batch: Buffer, position: int = 0, *, record_bytes_max: int = RECORD_BYTES_MAX) -> Iterator[Record]:
    """The records of the batch at `position`, with absolute offsets and timestamps.

    Under LogAppendTime every record has the batch's greatest timestamp. Raises CorruptBatch, RecordTooLarge.
    """
    header = read_batch_header(batch, position)
    section = bytes(records_section(batch, header, position, record_bytes_max=record_bytes_max))
    append_time = header.max_timestamp if header.timestamp_type else NO_TIMESTAMP
    try:
        found = _records.read(
            section, 0, len(section), header.count, header.base_offset, header.base_timestamp, append_time
        )
    except ValueError as error:
        raise CorruptBatch(str(error)) from error
    return map(Record._make, found)


def first_record(
    batch: Buffer,
    timestamp: Millis,
    offset: Offset,
    *,
    in_thread: bool = False,
    record_bytes_max: int = RECORD_BYTES_MAX,
) -> TimestampAndOffset | None:
    """The first record of a batch with at least this timestamp and offset. Raises CorruptBatch, RecordTooLarge, and
    LongWork, which finds the same in a thread, unless called from that thread.
    """
    header = read_batch_header(batch)
    try:
        if not in_thread and header.count > INLINE_RECORDS_MAX:
            raise TooLong
        limit = DECOMPRESSED_BYTES_MAX if in_thread else INLINE_BYTES_MAX
        section = records_section(batch, header, limit=limit, record_bytes_max=record_bytes_max)
    except TooLong:
        copy = bytes(batch)
        work = partial(first_record, copy, timestamp, offset, in_thread=True, record_bytes_max=record_bytes_max)
        raise LongWork(work, header.next_offset) from None
    scan = _records.scan_unlocked if in_thread else _records.scan
    status, seen, *_ = scan(section, 0, len(section), header.count, header.base_timestamp)
    if status != _records.OK:
        raise CorruptBatch(_records.problem(status, seen))
    append_time = header.max_timestamp if header.timestamp_type else NO_TIMESTAMP
    delta, found = _records.first_at(
        section,
        0,
        len(section),
        header.count,
        header.base_timestamp,
        append_time,
        timestamp,
        min(max(offset - header.base_offset, 0), _SEQUENCE_MAX),
    )
    return None if delta < 0 else (found, header.base_offset + delta, header.leader_epoch)


def build_batch(
    records: Sequence[tuple[int, bytes | None, bytes | None, Headers]],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    codec: int = 0,
    timestamp_type: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    level: int | None = None,
) -> bytearray:
    """A batch of `SimpleRecord`s at consecutive offsets. Raises ValueError without records."""
    if not records:
        raise ValueError("a batch has at least one record")
    base_timestamp = records[0][0]
    section = bytearray()
    max_timestamp = _records.write(section, records, base_timestamp)
    attributes = codec | (LOG_APPEND_TIME if timestamp_type else 0)
    attributes |= (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    header = BatchHeader(
        base_offset,
        0,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        len(records) - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    return assemble(header, section if codec == 0 else compress(codec, section, level))


def assemble(header: BatchHeader, section: Buffer) -> bytearray:
    """A batch of a header and its records, compressed already if at all; length and CRC are computed."""
    batch = bytearray(HEADER_SIZE)
    batch += section
    put_header(header, batch)
    return batch


def put_header(header: BatchHeader, batch: bytearray | memoryview) -> None:
    """Write the header of a batch whose records are behind HEADER_SIZE bytes; length and CRC are computed."""
    _HEADER.pack_into(batch, 0, *header)
    _INT32.pack_into(batch, 8, len(batch) - LOG_OVERHEAD)
    _UINT32.pack_into(batch, CRC_POSITION, compute_crc(batch, 0, len(batch)))


def set_base_offset_and_epoch(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Write the two fields that a leader assigns, in place; they lie outside the CRC."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + LEADER_EPOCH_POSITION, leader_epoch)


def set_max_timestamp_and_attributes(
    buffer: bytearray | memoryview, position: int, max_timestamp: int, attributes: int
) -> int:
    """Write both in place and compute the CRC again; returns it."""
    (length,) = _INT32.unpack_from(buffer, position + 8)
    _INT16.pack_into(buffer, position + ATTRIBUTES_POSITION, attributes)
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, max_timestamp)
    crc = compute_crc(buffer, position, length + LOG_OVERHEAD)
    _UINT32.pack_into(buffer, position + CRC_POSITION, crc)
    return crc


def in_transaction(producer_id: int, producer_epoch: int) -> BatchHeader:
    """The header of a transactional batch that is not written yet, and that nobody numbers."""
    return BatchHeader(
        0,
        0,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        TRANSACTIONAL,
        0,
        NO_TIMESTAMP,
        NO_TIMESTAMP,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        1,
    )


# Transaction markers: control batches of one record. The key holds a version and the type, the value a version and the
# epoch of the transaction coordinator; newer versions may append fields, which are ignored.

ABORT_KEY: Final = b"\0\0\0\0"
COMMIT_KEY: Final = b"\0\0\0\1"
_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_PLAIN_MARKER = struct.Struct(">27xq22xi5s2xhb2xib")
"""The base timestamp, record count, what comes before the key, type, size of the value, coordinator epoch and header
count of a marker as coordinators write it."""
_PLAIN_MARKER_HEAD = b"\x20\0\0\0\x08"
"""The record's size, no attributes, the batch's timestamp and offset, the key's size."""
_ABORT, _COMMIT = 0, 1


class EndMarker(NamedTuple):
    """The content of a transaction's control batch."""

    is_abort: bool
    coordinator_epoch: int
    timestamp: int


def marker_batch(
    producer_id: int, producer_epoch: int, *, committed: bool, coordinator_epoch: int, timestamp: int
) -> bytearray:
    """The batch that ends a transaction in a partition."""
    key = COMMIT_KEY if committed else ABORT_KEY
    record = (timestamp, key, _MARKER_VALUE.pack(0, coordinator_epoch), ())
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )


def read_end_marker(batch: bytes | bytearray | memoryview) -> EndMarker | None:
    """The transaction marker in a control batch; None if the batch is empty or its record is of another kind."""
    if len(batch) == _PLAIN_MARKER.size and batch[ATTRIBUTES_POSITION + 1] == TRANSACTIONAL | CONTROL:
        timestamp, count, head, kind, value_size, epoch, headers = _PLAIN_MARKER.unpack(batch)
        if (count, head, value_size, headers) == (1, _PLAIN_MARKER_HEAD, 12, 0) and kind in (_ABORT, _COMMIT):
            return EndMarker(kind == _ABORT, epoch, timestamp)
    for record in iterate_records(batch):
        if record.key is None or len(record.key) < _MARKER_KEY.size:
            return None
        _, kind = _MARKER_KEY.unpack_from(record.key)
        if kind not in (_ABORT, _COMMIT):
            return None
        if record.value is None or len(record.value) < _MARKER_VALUE.size:
            return None
        _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
        return EndMarker(kind == _ABORT, coordinator_epoch, record.timestamp)
    return None
