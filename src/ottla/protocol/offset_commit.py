"""OffsetCommit, versions 2-10, by hand: the one group request that comes thousands of times a second.

Names and order of fields are those of
Kafka's schema; versions before 10 name topics, version 10 has their ids instead (KIP-848).
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.model import ZERO_UUID, Buffer
from ottla.protocol.messages import MalformedRequest
from ottla.protocol.offset_block import FLEXIBLE_SINCE, TOPIC_IDS_SINCE
from ottla.protocol.wire import (
    end_of_tags,
    guarded_steps,
    read_count,
    read_name,
    read_string,
    read_uuid,
    uuid_bytes,
    write_count,
    write_string,
)
from ottla.steps import at_once, without_pauses

ROWS_PER_STEP: Final = 250
"""Rows per step, of a microsecond each; a request with no more is decoded in one step."""
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_NUMBER_AND_OFFSET = struct.Struct(">iq")
_WITH_EPOCH = struct.Struct(">iqi")
_ROW = struct.Struct(">ih")
_ROW_AND_TAGS = struct.Struct(">ihb")


class PartitionToCommit(NamedTuple):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int = -1
    committed_metadata: str | None = None


class TopicToCommit(NamedTuple):
    name: str
    """Empty in version 10."""
    topic_id: UUID
    """ZERO_UUID before version 10."""
    partitions: Sequence[PartitionToCommit]


class OffsetCommitRequest(NamedTuple):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: Sequence[TopicToCommit]


class CommittedTopic(NamedTuple):
    name: str
    topic_id: UUID
    partitions: Sequence[tuple[int, ErrorCode]]


@guarded_steps
def decode_in_steps(version: int, frame: Buffer, position: int) -> Generator[int, None, OffsetCommitRequest]:
    """The request whose body starts at `position`; yields the cost of many partitions. Raises MalformedRequest."""
    flexible = version >= FLEXIBLE_SINCE
    group_id, position = read_name(frame, position, flexible)
    (generation,) = _INT32.unpack_from(frame, position)
    member_id, position = read_name(frame, position + 4, flexible)
    instance_id = None
    if version >= 7:
        instance_id, position = read_string(frame, position, flexible)
    retention_time_ms = -1
    if version <= 4:
        (retention_time_ms,) = _INT64.unpack_from(frame, position)
        position += 8
    count, position = read_count(frame, position, flexible, 3)
    topics = []
    for _ in range(count):
        topic, position = yield from _read_topic(version, frame, position, flexible)
        topics.append(topic)
        if len(topics) % ROWS_PER_STEP == 0:
            yield 5 * ROWS_PER_STEP
    if flexible:
        position = end_of_tags(frame, position)
    if position > len(frame):
        raise MalformedRequest("the request ends too early")
    return OffsetCommitRequest(group_id, generation, member_id, instance_id, retention_time_ms, topics)


decode_request = without_pauses(decode_in_steps)


def _read_topic(
    version: int, frame: Buffer, position: int, flexible: bool
) -> Generator[int, None, tuple[TopicToCommit, int]]:
    name, topic_id = "", ZERO_UUID
    if version >= TOPIC_IDS_SINCE:
        topic_id, position = read_uuid(frame, position)
    else:
        name, position = read_name(frame, position, flexible)
    numbers = _WITH_EPOCH if version >= 6 else _NUMBER_AND_OFFSET
    unpack, size = numbers.unpack_from, numbers.size
    count, position = read_count(frame, position, flexible, size + 1)
    partitions = []
    for _ in range(count):
        fields = unpack(frame, position)
        metadata, position = read_string(frame, position + size, flexible)
        if flexible:
            position = end_of_tags(frame, position)
        partitions.append(PartitionToCommit(fields[0], fields[1], fields[2] if version >= 6 else -1, metadata))
        if len(partitions) % ROWS_PER_STEP == 0:
            yield ROWS_PER_STEP
    if flexible:
        position = end_of_tags(frame, position)
    return TopicToCommit(name, topic_id, partitions), position


def encode_response(version: int, topics: Sequence[CommittedTopic], *, header: bytes = b"") -> bytearray:
    """The response behind its `header`."""
    return at_once(encode_response_in_steps(version, topics, header=header))


def encode_response_in_steps(
    version: int, topics: Sequence[CommittedTopic], *, header: bytes = b""
) -> Generator[int, None, bytearray]:
    """The same; yields the cost of what was encoded."""
    flexible = version >= FLEXIBLE_SINCE
    out = bytearray(header)
    if version >= 3:
        out += b"\0\0\0\0"
    write_count(out, len(topics), flexible)
    for name, topic_id, partitions in topics:
        if version >= TOPIC_IDS_SINCE:
            out += uuid_bytes(topic_id)
        else:
            write_string(out, name, flexible)
        write_count(out, len(partitions), flexible)
        for start in range(0, len(partitions), ROWS_PER_STEP):
            rows = partitions[start : start + ROWS_PER_STEP]
            if flexible:
                for number, error in rows:
                    out += _ROW_AND_TAGS.pack(number, error, 0)
            else:
                for number, error in rows:
                    out += _ROW.pack(number, error)
            yield 1 + len(rows) // 4
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    return out
