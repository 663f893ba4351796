"""Messages of the formats 0 and 1, which brokers wrote before Kafka 0.11 and which old logs may still hold.

A message is: offset (int64), size (int32), CRC-32 of what follows, magic, attributes, in format 1 a timestamp, key and
value with int32 lengths (-1 is null). The value of a compressed message is a set of messages: in format 0 they have
their own offsets, in format 1 offsets from 0 on, and the outer one has the last one's. Nobody writes these any more, so
they are read with an object for each. LZ4 in format 0, whose frames Kafka wrote with a wrong checksum, is not read.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.model import NO_TIMESTAMP, Buffer
from ottla.protocol.records.compression import DecompressionFailed, decompress
from ottla.protocol.records.record_batch import CODEC_MASK, LOG_APPEND_TIME, LOG_OVERHEAD, CorruptBatch

NO_TIMESTAMP_TYPE: Final = -1
"""Timestamp type of messages of format 0, as in Kafka's TimestampType."""

_HEAD = struct.Struct(">qiIbb")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_CRC_END: Final = 16
_SIZE_MIN: Final = 14
"""What the fields after `size` take in format 0, key and value being null."""


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


def read_messages(buffer: Buffer, position: int = 0) -> list[Message]:
    """The message at `position`, or those that are compressed in it. Raises CorruptBatch."""
    outer, attributes = _read(buffer, position)
    codec = attributes & CODEC_MASK
    if codec == 0:
        return [outer]
    try:
        section = decompress(codec, outer.value or b"")
    except DecompressionFailed as error:
        raise CorruptBatch(f"codec {codec}: {error}") from error
    inner = list(_inner(section))
    if not inner:
        raise CorruptBatch("a compressed message holds none")
    if outer.timestamp_type == NO_TIMESTAMP_TYPE:
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


def _inner(section: Buffer) -> Iterator[Message]:
    position = 0
    while len(section) - position >= LOG_OVERHEAD:
        message, attributes = _read(section, position)
        if attributes & CODEC_MASK:
            raise CorruptBatch("a compressed message in a compressed message")
        yield message
        position += size_of(section, position)


def _read(buffer: Buffer, position: int) -> tuple[Message, int]:
    """A message as it stands, and its attributes; the CRC is checked."""
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
    return Message(offset, timestamp, kind, key, value), attributes


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
