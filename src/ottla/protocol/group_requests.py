"""Requests of JoinGroup (0-9), SyncGroup (0-5), Heartbeat (0-4) and OffsetFetch (1-10), by hand.

A rebalance of a thousand members is three thousand of them, and everybody else waits while they are decoded. Names and
order of fields are Kafka's; what a version does not have is filled in.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.model import ZERO_UUID
from ottla.protocol.group_responses import (
    HEARTBEAT_FLEXIBLE_SINCE,
    JOIN_FLEXIBLE_SINCE,
    OFFSET_FETCH_FLEXIBLE_SINCE,
    OFFSET_FETCH_GROUPS_SINCE,
    OFFSET_FETCH_TOPIC_IDS_SINCE,
    SYNC_FLEXIBLE_SINCE,
)
from ottla.protocol.messages import MalformedRequest
from ottla.protocol.wire import (
    ELEMENTS_MAX,
    INT32,
    Buffer,
    end_of_tags,
    guarded,
    read_count,
    read_name,
    read_records,
    read_string,
    read_uuid,
)

_TIMEOUTS = struct.Struct(">ii")


class JoinGroupRequest(NamedTuple):
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    """That of the session in version 0."""
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: dict[str, bytes]
    """The metadata of each, in the order of the request."""


class SyncGroupRequest(NamedTuple):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]


class HeartbeatRequest(NamedTuple):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


class TopicToFetch(NamedTuple):
    name: str
    """Empty in version 10."""
    topic_id: UUID
    """ZERO_UUID before version 10."""
    partition_indexes: Sequence[int]


class GroupToFetch(NamedTuple):
    group_id: str
    topics: Sequence[TopicToFetch] | None
    """None for all of them."""


class OffsetFetchRequest(NamedTuple):
    groups: Sequence[GroupToFetch]
    """One before version 8."""
    require_stable: bool


@guarded
def decode_join(version: int, frame: Buffer, position: int) -> JoinGroupRequest:
    """The request whose body starts at `position`. Raises MalformedRequest, as the others do."""
    flexible = version >= JOIN_FLEXIBLE_SINCE
    group_id, position = read_name(frame, position, flexible)
    if version >= 1:
        session_timeout_ms, rebalance_timeout_ms = _TIMEOUTS.unpack_from(frame, position)
        position += 8
    else:
        (session_timeout_ms,) = INT32.unpack_from(frame, position)
        rebalance_timeout_ms = session_timeout_ms
        position += 4
    member_id, position = read_name(frame, position, flexible)
    instance_id = None
    if version >= 5:
        instance_id, position = read_string(frame, position, flexible)
    protocol_type, position = read_name(frame, position, flexible)
    protocols, position = _read_pairs(frame, position, flexible)
    if version >= 8:
        _, position = read_string(frame, position, flexible)  # why it joins, which nobody asks
    _end(frame, position, flexible)
    return JoinGroupRequest(
        group_id, session_timeout_ms, rebalance_timeout_ms, member_id, instance_id, protocol_type, protocols
    )


@guarded
def decode_sync(version: int, frame: Buffer, position: int) -> SyncGroupRequest:
    flexible = version >= SYNC_FLEXIBLE_SINCE
    (group_id, generation, member_id, instance_id), position = _read_member(version, frame, position, flexible)
    protocol_type = protocol_name = None
    if version >= 5:
        protocol_type, position = read_string(frame, position, flexible)
        protocol_name, position = read_string(frame, position, flexible)
    assignments, position = _read_pairs(frame, position, flexible)
    _end(frame, position, flexible)
    return SyncGroupRequest(group_id, generation, member_id, instance_id, protocol_type, protocol_name, assignments)


@guarded
def decode_heartbeat(version: int, frame: Buffer, position: int) -> HeartbeatRequest:
    flexible = version >= HEARTBEAT_FLEXIBLE_SINCE
    request, position = _read_member(version, frame, position, flexible)
    _end(frame, position, flexible)
    return request


def _read_member(version: int, frame: Buffer, position: int, flexible: bool) -> tuple[HeartbeatRequest, int]:
    """How SyncGroup and Heartbeat begin."""
    group_id, position = read_name(frame, position, flexible)
    (generation,) = INT32.unpack_from(frame, position)
    member_id, position = read_name(frame, position + 4, flexible)
    instance_id = None
    if version >= 3:
        instance_id, position = read_string(frame, position, flexible)
    return HeartbeatRequest(group_id, generation, member_id, instance_id), position


def _read_pairs(frame: Buffer, position: int, flexible: bool) -> tuple[dict[str, bytes], int]:
    """An array of names with bytes; of a name that comes twice, the last counts."""
    count, position = read_count(frame, position, flexible, 2)
    pairs = {}
    for _ in range(count):
        name, position = read_name(frame, position, flexible)
        data, position = read_records(frame, position, flexible)
        if data is None:
            raise MalformedRequest(f"the bytes of {name} are null")
        if flexible:
            position = end_of_tags(frame, position)
        pairs[name] = bytes(data)  # a copy: the frame lies in a buffer that is used again
    return pairs, position


@guarded
def decode_offset_fetch(version: int, frame: Buffer, position: int) -> OffsetFetchRequest:
    flexible = version >= OFFSET_FETCH_FLEXIBLE_SINCE
    groups = []
    count = 1
    if version >= OFFSET_FETCH_GROUPS_SINCE:
        count, position = read_count(frame, position, flexible, 3)
    left = ELEMENTS_MAX
    for _ in range(count):
        group_id, position = read_name(frame, position, flexible)
        if version >= 9:
            _, position = read_string(frame, position, flexible)  # member and epoch, of newer groups than ours
            position += 4
        topics, position = _read_topics(version, frame, position, flexible)
        if version >= OFFSET_FETCH_GROUPS_SINCE:
            position = end_of_tags(frame, position)
        groups.append(GroupToFetch(group_id, topics))
        left -= sum(1 + len(topic.partition_indexes) for topic in topics or ())
        if left < 0:
            raise MalformedRequest(f"more than {ELEMENTS_MAX} partitions")
    require_stable = False
    if version >= 7:
        require_stable = frame[position] != 0
        position += 1
    _end(frame, position, flexible)
    return OffsetFetchRequest(groups, require_stable)


def _read_topics(
    version: int, frame: Buffer, position: int, flexible: bool
) -> tuple[Sequence[TopicToFetch] | None, int]:
    count, position = read_count(frame, position, flexible, 3, nullable=version >= 2)
    if count < 0:
        return None, position
    topics = []
    for _ in range(count):
        name, topic_id = "", ZERO_UUID
        if version >= OFFSET_FETCH_TOPIC_IDS_SINCE:
            topic_id, position = read_uuid(frame, position)
        else:
            name, position = read_name(frame, position, flexible)
        partitions, position = read_count(frame, position, flexible, 4)
        indexes = struct.unpack_from(f">{partitions}i", frame, position)
        position += 4 * partitions
        if flexible:
            position = end_of_tags(frame, position)
        topics.append(TopicToFetch(name, topic_id, indexes))
    return topics, position


def _end(frame: Buffer, position: int, flexible: bool) -> None:
    if flexible:
        position = end_of_tags(frame, position)
    if position > len(frame):
        raise MalformedRequest("the request ends too early")
