"""Primitives of the wire that the hand-written codecs share: strings, lengths, UUIDs, tagged fields, node endpoints.

Readers take a buffer and a position and return the value and the position after it. They raise MalformedRequest,
IndexError or struct.error at bytes that are not what they should be; `guarded` makes one of all. As Kafka's decoder
they take any negative length for null, and U+FFFD for each byte that is not UTF-8.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.model import ZERO_UUID, Buffer
from ottla.protocol.layout import ELEMENTS_MAX as ELEMENTS_MAX
from ottla.protocol.layout import STRING_BYTES_MAX
from ottla.protocol.messages import MalformedRequest, skip_tagged_fields
from ottla.protocol.varint import read_length, read_uvarint, write_uvarint

T = TypeVar("T")

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
_REPLACED_BYTES_MAX: Final = STRING_BYTES_MAX // 3
"""U+FFFD takes three bytes: from here on a string that is not UTF-8 may become too long for older versions."""
_UUID_CACHE_SIZE: Final = 4096


def guarded(decode: Callable[[int, Buffer, int], T]) -> Callable[[int, Buffer, int], T]:
    """Let a decoder of (version, frame, position) raise MalformedRequest only."""

    @wraps(decode)
    def checked(version: int, frame: Buffer, position: int) -> T:
        try:
            return decode(version, frame, position)
        except (struct.error, IndexError) as error:
            raise MalformedRequest(f"truncated or garbled: {error}") from error

    return checked


def read_string(frame: Buffer, position: int, flexible: bool) -> tuple[str | None, int]:
    """A string that may be null: compact, or with an int16 length."""
    if flexible:
        length = frame[position] - 1
        position += 1
        if length > 126:
            length, position = read_length(frame, position - 1)
    else:
        (length,) = INT16.unpack_from(frame, position)
        position += 2
    if length < 0:
        return None, position
    end = position + length
    if end > len(frame) or length > STRING_BYTES_MAX:
        raise MalformedRequest(f"a string of {length} bytes where {len(frame) - position} are left")
    text = str(frame[position:end], "utf-8", "replace")
    if length > _REPLACED_BYTES_MAX and len(text.encode()) > STRING_BYTES_MAX:
        raise MalformedRequest("a long string that is not UTF-8")
    return text, end


def read_name(frame: Buffer, position: int, flexible: bool) -> tuple[str, int]:
    """A string that is never null."""
    value, position = read_string(frame, position, flexible)
    if value is None:
        raise MalformedRequest("a name is null")
    return value, position


def write_string(out: bytearray, value: str | None, flexible: bool) -> None:
    if value is None:
        out += b"\0" if flexible else b"\xff\xff"
        return
    data = value.encode()
    if flexible:
        write_uvarint(out, len(data) + 1)
    else:
        out += INT16.pack(len(data))
    out += data


def read_count(
    frame: Buffer, position: int, flexible: bool, item_bytes_min: int, nullable: bool = False
) -> tuple[int, int]:
    """The number of items of an array, -1 for null: no more than fit into the rest at `item_bytes_min` each."""
    if flexible:
        count = frame[position] - 1
        position += 1
        if count > 126:
            count, position = read_length(frame, position - 1)
    else:
        (count,) = INT32.unpack_from(frame, position)
        position += 4
    if count < 0 and nullable:
        return -1, position
    if count < 0 or count * item_bytes_min > len(frame) - position or count > ELEMENTS_MAX:
        raise MalformedRequest(f"an array of {count} items in {len(frame) - position} bytes")
    return count, position


def read_records(frame: Buffer, position: int, flexible: bool) -> tuple[memoryview | None, int]:
    """Records as a view into the frame, None for null."""
    if flexible:
        length = frame[position] - 1
        position += 1
        if length > 126:
            length, position = read_length(frame, position - 1)
    else:
        (length,) = INT32.unpack_from(frame, position)
        position += 4
    if length < 0:
        return None, position
    end = position + length
    if end > len(frame):
        raise MalformedRequest("records end past the end")
    return memoryview(frame)[position:end], end


@lru_cache(_UUID_CACHE_SIZE)
def uuid_of(data: bytes) -> UUID:
    """The UUID of 16 bytes, cached: topic ids recur, and building a UUID costs more than finding it."""
    return UUID(bytes=data)


def read_uuid(frame: Buffer, position: int) -> tuple[UUID, int]:
    end = position + 16
    data = bytes(frame[position:end])
    if len(data) != 16:
        raise MalformedRequest("a UUID ends past the end")
    return uuid_of(data), end


def uuid_bytes(value: UUID | None) -> bytes:
    return (value or ZERO_UUID).bytes


def end_of_tags(frame: Buffer, position: int) -> int:
    """The position after tagged fields that nobody here knows; nearly always there are none."""
    return position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)


def read_tags(frame: Buffer, position: int) -> tuple[dict[int, tuple[int, int]], int]:
    """Tagged fields as tag -> (start, end), and the position after them."""
    count, start = read_uvarint(frame, position)
    stop = skip_tagged_fields(frame, position)
    tags = {}
    for _ in range(count):
        tag, start = read_uvarint(frame, start)
        length, start = read_uvarint(frame, start)
        tags[tag] = (start, start + length)
        start += length
    return tags, stop


def write_tags(out: bytearray, tags: Sequence[tuple[int, bytes | bytearray]]) -> None:
    """Tagged fields, in the order of their tags."""
    write_uvarint(out, len(tags))
    for tag, data in tags:
        write_uvarint(out, tag)
        write_uvarint(out, len(data))
        out += data


class LeaderIdAndEpoch(NamedTuple):
    """The leader of a partition, for a client that asked another node (KIP-951)."""

    leader_id: int = -1
    leader_epoch: int = -1


class NodeEndpoint(NamedTuple):
    """Where a leader named in the same response can be reached (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


_INT32_PAIR = struct.Struct(">iix")
"""Two int32 and no tagged fields."""


def leader_bytes(leader: LeaderIdAndEpoch) -> bytes:
    return _INT32_PAIR.pack(*leader)


def read_leader(frame: Buffer, position: int) -> LeaderIdAndEpoch:
    return LeaderIdAndEpoch(*_INT32_PAIR.unpack_from(frame, position))


def endpoints_bytes(endpoints: Sequence[NodeEndpoint]) -> bytearray:
    """The value of the NodeEndpoints field; always flexible."""
    out = bytearray()
    write_uvarint(out, len(endpoints) + 1)
    for endpoint in endpoints:
        out += INT32.pack(endpoint.node_id)
        write_string(out, endpoint.host, True)
        out += INT32.pack(endpoint.port)
        write_string(out, endpoint.rack, True)
        out.append(0)
    return out


def read_endpoints(frame: Buffer, position: int) -> tuple[NodeEndpoint, ...]:
    count, position = read_count(frame, position, True, 11)
    endpoints = []
    for _ in range(count):
        (node_id,) = INT32.unpack_from(frame, position)
        host, position = read_name(frame, position + 4, True)
        (port,) = INT32.unpack_from(frame, position)
        rack, position = read_string(frame, position + 4, True)
        position = end_of_tags(frame, position)
        endpoints.append(NodeEndpoint(node_id, host, port, rack))
    return tuple(endpoints)


class FetchedOffset(NamedTuple):
    """The committed offset of one partition; -1 if there is none. Fields have Kafka's names: it is a row as it is."""

    partition_index: int
    committed_offset: int = -1
    committed_leader_epoch: int = -1
    metadata: str = ""
    error_code: ErrorCode = ErrorCode.none


class FetchedTopic(NamedTuple):
    name: str
    """Absent since version 10."""
    topic_id: UUID
    """Absent before version 10."""
    partitions: Sequence[FetchedOffset]


class FetchedGroup(NamedTuple):
    group_id: str
    topics: Sequence[FetchedTopic]
    error_code: ErrorCode = ErrorCode.none
