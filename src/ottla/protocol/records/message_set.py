"""Messages of the formats 0 and 1, which brokers wrote before Kafka 0.11 and which old logs may still hold.

A message is: offset (int64), size (int32), CRC-32 of what follows, magic, attributes, in format 1 a timestamp, key and
value with int32 lengths (-1 is null). The value of a compressed message is a set of messages: in format 0 they have
their own offsets, in format 1 offsets from 0 on, and the outer one has the last one's. Nobody writes these any more, so
they are read with an object for each. Frames of LZ4 in format 0 have a wrong checksum of their header (KAFKA-3160).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ottla.model import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, Buffer
from ottla.protocol.records.compression import (
    DECOMPRESSED_BYTES_MAX,
    Codec,
    DecompressionFailed,
    TooLong,
    compress,
    decompress,
)
from ottla.protocol.records.record_batch import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    CorruptBatch,
    assemble,
)
from ottla.protocol.varint import write_uvarint

NO_TIMESTAMP_TYPE: Final = -1
"""Timestamp type of messages of format 0, as in Kafka's TimestampType."""

_HEAD = struct.Struct(">qiIbb")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
CODEC_OF_FORMAT: Final = frozenset({Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4})
"""Codecs of messages of format 0 and 1; zstd came later."""
_CRC_END: Final = 16
_LZ4_CONTENT_SIZE: Final = 0x08
_SIZE_MIN: Final = 14
"""What the fields after `size` take in format 0, key and value being null."""


class NotOneSet(CorruptBatch):
    """A compressed message that is intact, but does not hold the messages that it should."""


class Message(NamedTuple):
    offset: int
    timestamp: int
    """Milliseconds, -1 in format 0."""
    timestamp_type: int
    key: bytes | None
    value: bytes | None


def size_of(buffer: Buffer, position: int) -> int:
    """Bytes of the message at `position`, which may end behind the buffer. Raises CorruptBatch."""
    (size,) = _INT32.unpack_from(buffer, position + 8)
    if size < _SIZE_MIN:
        raise CorruptBatch(f"a message of {size} bytes is shorter than its fields")
    return LOG_OVERHEAD + int(size)


def check_message(data: Buffer) -> None:
    """Raises CorruptBatch unless `data` is one message with the CRC that it was written with."""
    _read(data, 0)


def read_messages(buffer: Buffer, position: int = 0) -> list[Message]:
    """The message at `position`, or those that are compressed in it. Raises CorruptBatch."""
    outer, attributes, magic = _read(buffer, position)
    if attributes & CODEC_MASK == 0:
        return [outer]
    inner = list(_inner(_section(outer, attributes, DECOMPRESSED_BYTES_MAX), magic))
    if not inner:
        raise NotOneSet("a compressed message holds none")
    if magic == 0:
        return inner
    base = outer.offset - inner[-1].offset
    append_time = outer.timestamp if outer.timestamp_type else None
    return [
        each._replace(
            offset=base + each.offset,
            timestamp=each.timestamp if append_time is None else append_time,
            timestamp_type=outer.timestamp_type,
        )
        for each in inner
    ]


def produced_messages(buffer: Buffer, position: int, limit: int) -> Iterator[Message]:
    """The same of what a client sends, one by one, with the offsets that it gave them. Raises CorruptBatch (NotOneSet),
    and TooLong for more than `limit` decompressed bytes, if that is less than any batch may have."""
    outer, attributes, magic = _read(buffer, position)
    if attributes & CODEC_MASK == 0:
        yield outer
        return
    last = None
    for each in _inner(_section(outer, attributes, limit), magic):
        last = each.offset
        if outer.timestamp_type == 1:
            each = each._replace(timestamp=outer.timestamp, timestamp_type=1)
        yield each
    if last is None:
        raise NotOneSet("a compressed message holds none")
    if magic and 0 != outer.offset < last:  # certain versions of librdkafka leave it 0
        raise NotOneSet(f"the offset of a compressed message is {outer.offset}, less than its last one's, {last}")


def _section(outer: Message, attributes: int, limit: int) -> Buffer:
    codec = attributes & CODEC_MASK
    try:
        value = outer.value or b""
        if codec == Codec.LZ4 and outer.timestamp_type == NO_TIMESTAMP_TYPE:
            value = _with_header_checksum(value)
        return decompress(codec, value, limit)
    except DecompressionFailed as error:
        if limit < DECOMPRESSED_BYTES_MAX and isinstance(error, TooLong):
            raise
        raise NotOneSet(f"codec {codec}: {error}") from error


def in_format_2(messages: Sequence[Message], codec: int) -> bytearray:
    """The same records as one batch, compressed again, with the offsets that they have; at least one."""
    first = messages[0]
    section = bytearray()
    for each in messages:
        body = bytearray(1)
        for number in (each.timestamp - first.timestamp, each.offset - first.offset):
            write_uvarint(body, number << 1 if number >= 0 else (-number << 1) - 1)
        for field in (each.key, each.value):
            if field is None:
                body.append(1)
            else:
                write_uvarint(body, len(field) << 1)
                body += field
        body.append(0)
        write_uvarint(section, len(body) << 1)
        section += body
    attributes = codec | (LOG_APPEND_TIME if first.timestamp_type == 1 else 0)
    header = BatchHeader(
        first.offset,
        0,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        attributes,
        messages[-1].offset - first.offset,
        first.timestamp,
        max(each.timestamp for each in messages),
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        len(messages),
    )
    return assemble(header, section if codec == 0 else compress(codec, section))


def _with_header_checksum(frame: bytes) -> bytes:
    """A frame with the checksum that LZ4's frame format asks for: of the descriptor, where Kafka took the magic too."""
    return _with_checksum_from(frame, 4)


def with_old_header_checksum(frame: bytes) -> bytes:
    """A frame as clients of format 0 expect it, the other way round."""
    return _with_checksum_from(frame, 0)


def _with_checksum_from(frame: bytes, start: int) -> bytes:
    if len(frame) < 7:
        return frame
    end = 6 + (8 if frame[4] & _LZ4_CONTENT_SIZE else 0)
    from xxhash import xxh32_intdigest  # only old formats need it

    return frame[:end] + bytes([xxh32_intdigest(frame[start:end]) >> 8 & 0xFF]) + frame[end + 1 :]


def _inner(section: Buffer, magic: int) -> Iterator[Message]:
    position = 0
    while len(section) - position >= LOG_OVERHEAD:
        message, attributes, inner_magic = _read(section, position)
        if attributes & CODEC_MASK:
            raise NotOneSet("a compressed message in a compressed message")
        if inner_magic != magic:
            raise NotOneSet(f"a message of format {inner_magic} in a compressed message of format {magic}")
        yield message
        position += size_of(section, position)


def _read(buffer: Buffer, position: int) -> tuple[Message, int, int]:
    """A message as it stands, its attributes and its format; the CRC is checked."""
    end = position + size_of(buffer, position)
    if end > len(buffer):
        raise CorruptBatch("a message is cut off")
    offset, _, crc, magic, attributes = _HEAD.unpack_from(buffer, position)
    if magic not in (0, 1):
        raise CorruptBatch(f"a message of format {magic} in a set of messages of format 0 or 1")
    if zlib.crc32(memoryview(buffer)[position + _CRC_END : end]) != crc:
        raise CorruptBatch(f"the CRC of the message at offset {offset} is wrong")
    at = position + _HEAD.size
    timestamp, kind = NO_TIMESTAMP, NO_TIMESTAMP_TYPE
    if magic == 1:
        if end - at < _INT64.size:
            raise CorruptBatch("a message ends inside its timestamp")
        (timestamp,) = _INT64.unpack_from(buffer, at)
        at += _INT64.size
        kind = 1 if attributes & LOG_APPEND_TIME else 0
    key, at = _bytes(buffer, at, end)
    value, at = _bytes(buffer, at, end)
    if at != end:
        raise CorruptBatch("a message is longer than its fields")
    return Message(offset, timestamp, kind, key, value), attributes, magic


def _bytes(buffer: Buffer, at: int, end: int) -> tuple[bytes | None, int]:
    if end - at < _INT32.size:
        raise CorruptBatch("a message ends before its fields do")
    (length,) = _INT32.unpack_from(buffer, at)
    at += _INT32.size
    if length < 0:
        return None, at
    if length > end - at:
        raise CorruptBatch(f"a field of {length} bytes in {end - at}")
    return bytes(buffer[at : at + length]), at + length
