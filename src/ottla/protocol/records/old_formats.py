"""Record batches for clients of the message formats 0 and 1, and their message sets as record batches (KIP-32, KIP-98).

Up: the messages of a Produce request of versions 0 to 2 become one batch of format 2, with the codec that they had.
The rules are those of Kafka's `LogValidator` and `AbstractLegacyRecordBatch`. Down: batches become messages for a Fetch
of versions 0 to 3. Old clients know neither headers nor control batches, so both are left out; offsets stay. Records
before the offset that was asked for are left out too, and a large compressed batch becomes several compressed
messages: so a client never gets much more than it asked for, and this module never has more than a part of a batch.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.model import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Buffer,
    Offset,
)
from ottla.protocol.records import _records
from ottla.protocol.records.compression import DECOMPRESSED_BYTES_MAX, Codec, compress, room_for
from ottla.protocol.records.message_set import (
    CODEC_OF_FORMAT,
    Message,
    NotOneSet,
    produced_messages,
    size_of,
    with_old_header_checksum,
)
from ottla.protocol.records.record_batch import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_POSITION,
    RECORD_BYTES_MAX,
    BatchHeader,
    CorruptBatch,
    assemble,
    iterate_batches,
    records_section,
)

WRAPPED_BYTES: Final = 262_144
"""Bytes of messages after which a compressed message ends: clients that cannot read part of it fetch a megabyte."""

RECORDS_AT_ONCE: Final = 10_000
"""Records of a batch that are Python objects at the same time."""

DELTA_BYTES_MAX: Final = 5
"""By which a record may grow when it is numbered."""

_OVERHEAD: Final = {0: 26, 1: 34}
"""Bytes of a message beside its key and value."""
_HEAD_0 = struct.Struct(">bbi")
_HEAD_1 = struct.Struct(">bbqi")
_START = struct.Struct(">qiI")
_INT32 = struct.Struct(">i")
_NULL: Final = b"\xff\xff\xff\xff"


class Down(NamedTuple):
    """Messages for an old client."""

    data: bytearray
    next_offset: Offset
    """Everything before it was looked at: it is in `data`, or it is nothing that the client can get."""
    refused: bool
    """Whether the batch at `next_offset` has a codec that the client cannot read (zstd)."""


def up_convert(records: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> bytearray | None:
    """The messages of a Produce request as one batch; None if there are none. A message that is cut off at the end is
    left out, as in Kafka.

    Raises KafkaError (CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP), and TooLong for more than `limit`
    decompressed bytes, if that is less than any batch may have.
    """
    view = memoryview(records)
    codec, formats = 0, []
    into = _Section()
    for position, size in _whole_messages(view):
        formats.append(view[position + MAGIC_POSITION])
        attributes = view[position + MAGIC_POSITION + 1]
        codec = attributes & CODEC_MASK or codec
        if formats[-1] != formats[0]:
            raise KafkaError(ErrorCode.invalid_record, f"messages of formats {formats[0]} and {formats[-1]} in one set")
        if codec not in CODEC_OF_FORMAT:
            raise KafkaError(ErrorCode.invalid_record, f"messages of old formats have no codec {codec}")
        if codec and len(formats) > 1:
            raise KafkaError(ErrorCode.invalid_record, "a compressed message is not the only one of its partition")
        try:
            into.add(produced_messages(view[position : position + size], 0, limit))
        except NotOneSet as error:
            raise KafkaError(ErrorCode.invalid_record, error.message) from error
    return into.batch(codec)


def is_new(records: Buffer) -> bool:
    """Whether the records of an old request begin with a batch of format 2, which Kafka takes there too."""
    return len(records) > MAGIC_POSITION and records[MAGIC_POSITION] == MAGIC


def _whole_messages(view: memoryview) -> Iterator[tuple[int, int]]:
    """(position, size) of each. Raises KafkaError."""
    position, end = 0, len(view)
    while end - position > MAGIC_POSITION:
        size = size_of(view, position)
        magic = view[position + MAGIC_POSITION]
        if magic == MAGIC:
            raise KafkaError(ErrorCode.invalid_record, "a batch of format 2 behind messages of old formats")
        if magic > MAGIC:
            raise CorruptBatch(f"there is no message format {magic}")
        if size > end - position:
            return
        yield position, size
        position += size


class _Section:
    """The records of a batch in the making. A few of them are Python objects at a time."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._rows: list[tuple[int, bytes | None, bytes | None, tuple[()]]] = []
        self._count = 0
        self._base = self._greatest = NO_TIMESTAMP
        self._append_time = False

    def add(self, messages: Iterator[Message]) -> None:
        for each in messages:
            if each.timestamp < NO_TIMESTAMP:
                raise KafkaError(ErrorCode.invalid_timestamp, f"a timestamp of {each.timestamp}")
            self._rows.append((each.timestamp, each.key, each.value, ()))
            self._append_time = self._append_time or each.timestamp_type == 1
            if len(self._rows) == RECORDS_AT_ONCE:
                self._write()

    def _write(self) -> None:
        if not self._count:
            self._base = self._rows[0][0]
        self._greatest = max(self._greatest, _records.write(self._bytes, self._rows, self._base))
        self._count += len(self._rows)
        self._rows = []

    def batch(self, codec: int) -> bytearray | None:
        is_one = not self._count
        if self._rows:
            self._write()
        if not self._count:
            return None
        section: Buffer = self._bytes
        if not is_one:  # each part counts its offsets from 0
            out = room_for(len(section) + DELTA_BYTES_MAX * self._count)
            size = _records.renumber(out, section, 0, len(section), self._count)
            section = memoryview(out)[:size]
        attributes = codec | (LOG_APPEND_TIME if self._append_time else 0)
        header = BatchHeader(
            0,
            0,
            NO_LEADER_EPOCH,
            MAGIC,
            0,
            attributes,
            self._count - 1,
            self._base,
            self._greatest,
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
            NO_SEQUENCE,
            self._count,
        )
        return assemble(header, section if codec == 0 else compress(codec, section))


def down_convert(batches: Buffer, magic: int, offset: Offset, max_bytes: int) -> Down:
    """Whole batches as messages of format `magic`, from `offset` on; at most `max_bytes`, but one message at least.

    Raises CorruptBatch.
    """
    out = bytearray()
    next_offset = offset
    view = memoryview(batches)
    for position, header in iterate_batches(view):
        if header.is_control or header.count <= 0:
            next_offset = max(next_offset, header.next_offset)
            continue
        if header.codec not in CODEC_OF_FORMAT:
            return Down(out, next_offset, True)
        for records in _parts(view[position : position + header.size], header):
            records = [each for each in records if each[0] >= next_offset]
            if not records:
                continue
            add = _add_compressed if header.codec else _add_plain
            done, next_offset = add(out, records, magic, header, max_bytes)
            if not done:
                return Down(out, next_offset, False)
        next_offset = max(next_offset, header.next_offset)
        if len(out) >= max_bytes:
            break
    return Down(out, next_offset, False)


def _parts(batch: memoryview, header: BatchHeader) -> Iterator[list[Any]]:
    """The records of a batch, some at a time, as `_records.read` gives them. Raises CorruptBatch."""
    section = bytes(records_section(batch, header, record_bytes_max=RECORD_BYTES_MAX))
    append_time = header.max_timestamp if header.timestamp_type else NO_TIMESTAMP
    start, left = 0, header.count
    while left > 0:
        count = min(left, RECORDS_AT_ONCE)
        stop = len(section) if count == left else _after(section, start, count)
        try:
            yield _records.read(section, start, stop, count, header.base_offset, header.base_timestamp, append_time)
        except ValueError as error:
            raise CorruptBatch(str(error)) from error
        start, left = stop, left - count


def _after(section: bytes, start: int, count: int) -> int:
    """Where the next `count` records end."""
    status, stop, seen = _records.measure(section, start, len(section), 0, count, RECORD_BYTES_MAX)
    if seen != count:
        raise CorruptBatch(_records.problem(status, seen))
    return stop


def _add_plain(
    out: bytearray, records: list[Any], magic: int, header: BatchHeader, max_bytes: int
) -> tuple[bool, Offset]:
    """Append the records as messages; returns whether all have found room, and the offset of the next."""
    attributes = LOG_APPEND_TIME if header.timestamp_type and magic else 0
    for offset, timestamp, key, value, *_ in records:
        size = _size(magic, key, value)
        if out and len(out) + size > max_bytes:
            return False, offset
        _put(out, offset, timestamp, key, value, magic, attributes)
    return True, records[-1][0] + 1


def _add_compressed(
    out: bytearray, records: list[Any], magic: int, header: BatchHeader, max_bytes: int
) -> tuple[bool, Offset]:
    """The same, as messages that are compressed sets of them."""
    attributes = LOG_APPEND_TIME if header.timestamp_type and magic else 0
    at = 0
    while at < len(records):
        first = records[at][0]
        base = first if magic else 0  # format 1 counts offsets from the set's first
        inner = bytearray()
        greatest = NO_TIMESTAMP
        while at < len(records) and len(inner) < WRAPPED_BYTES:
            offset, timestamp, key, value, *_ = records[at]
            _put(inner, offset - base, timestamp, key, value, magic, attributes)
            greatest = max(greatest, timestamp)
            at += 1
        value = compress(header.codec, inner)
        if header.codec == Codec.LZ4 and magic == 0:
            value = with_old_header_checksum(value)
        if out and len(out) + _size(magic, None, value) > max_bytes:
            return False, first
        _put(out, records[at - 1][0], greatest, None, value, magic, attributes | header.codec)
    return True, records[-1][0] + 1


def _size(magic: int, key: bytes | None, value: bytes | None) -> int:
    return _OVERHEAD[magic] + len(key or b"") + len(value or b"")


def _put(
    out: bytearray, offset: Offset, timestamp: int, key: bytes | None, value: bytes | None, magic: int, attributes: int
) -> None:
    length = -1 if key is None else len(key)
    if magic:
        body = bytearray(_HEAD_1.pack(magic, attributes, timestamp, length))
    else:
        body = bytearray(_HEAD_0.pack(magic, attributes, length))
    if key is not None:
        body += key
    if value is None:
        body += _NULL
    else:
        body += _INT32.pack(len(value))
        body += value
    out += _START.pack(offset, len(body) + 4, zlib.crc32(body))
    out += body
