"""Responses to JoinGroup (0-9), SyncGroup (0-5), Heartbeat (0-4) and OffsetFetch (1-10), by hand.

A rebalance of a thousand members is three thousand of them at once. Names and order of fields are Kafka's.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final

from ottla.protocol.wire import INT16, FetchedGroup, FetchedTopic, uuid_bytes, write_count, write_string
from ottla.steps import at_once

JOIN_FLEXIBLE_SINCE: Final = 6
SYNC_FLEXIBLE_SINCE: Final = 4
HEARTBEAT_FLEXIBLE_SINCE: Final = 4
OFFSET_FETCH_FLEXIBLE_SINCE: Final = 6
OFFSET_FETCH_GROUPS_SINCE: Final = 8
OFFSET_FETCH_TOPIC_IDS_SINCE: Final = 10
ROWS_PER_STEP: Final = 500
"""Fetched offsets, which cost a microsecond at most."""
_NO_THROTTLE: Final = b"\0\0\0\0"
_ERROR_AND_GENERATION = struct.Struct(">hi")
_TWO_INTS = struct.Struct(">ii")
_OFFSET = struct.Struct(">iq")
_OFFSET_AND_EPOCH = struct.Struct(">iqi")
_WITHOUT_METADATA = struct.Struct(">iqiBhB")
"""A flexible row whose metadata is empty, as that of nearly all is: a length of 1, the error, no tagged fields."""


def encode_join(version: int, response: Mapping[str, Any], header: bytes) -> bytearray:
    """The response behind its `header`; what the version has no field for is left out."""
    flexible = version >= JOIN_FLEXIBLE_SINCE
    out = bytearray(header)
    if version >= 2:
        out += _NO_THROTTLE
    out += _ERROR_AND_GENERATION.pack(response["error_code"], response["generation_id"])
    protocol = response["protocol_name"]
    if version >= 7:
        write_string(out, response["protocol_type"], True)
        write_string(out, protocol, True)
    else:
        write_string(out, protocol or "", flexible)
    write_string(out, response["leader"], flexible)
    if version >= 9:
        out.append(response["skip_assignment"])
    write_string(out, response["member_id"], flexible)
    members = response["members"]
    write_count(out, len(members), flexible)
    for member in members:
        write_string(out, member["member_id"], flexible)
        if version >= 5:
            write_string(out, member["group_instance_id"], flexible)
        metadata = member["metadata"]
        write_count(out, len(metadata), flexible)
        out += metadata
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    return out


def encode_sync(version: int, response: Mapping[str, Any], header: bytes) -> bytearray:
    """The response behind its `header`."""
    flexible = version >= SYNC_FLEXIBLE_SINCE
    out = bytearray(header)
    if version >= 1:
        out += _NO_THROTTLE
    out += INT16.pack(response["error_code"])
    if version >= 5:
        write_string(out, response["protocol_type"], True)
        write_string(out, response["protocol_name"], True)
    assignment = response["assignment"]
    write_count(out, len(assignment), flexible)
    out += assignment
    if flexible:
        out.append(0)
    return out


def encode_consumer_heartbeat(_: int, response: Mapping[str, Any], header: bytes) -> bytearray:
    """Encode ConsumerGroupHeartbeat 0 and 1, which are the same. The assignment is None, or partitions by topic id."""
    out = bytearray(header)
    out += _NO_THROTTLE
    out += INT16.pack(response["error_code"])
    write_string(out, response["error_message"], True)
    write_string(out, response["member_id"], True)
    out += _TWO_INTS.pack(response["member_epoch"], response["heartbeat_interval"])
    assignment = response["assignment"]
    if assignment is None:
        out += b"\xff\0"
        return out
    out.append(1)
    write_count(out, len(assignment), True)
    for topic_id, partitions in assignment.items():
        out += uuid_bytes(topic_id)
        write_count(out, len(partitions), True)
        out += struct.pack(f">{len(partitions)}i", *partitions)
        out.append(0)
    out += b"\0\0"
    return out


def encode_heartbeat(version: int, error: int, header: bytes) -> bytes:
    """The response behind its `header`."""
    throttle = _NO_THROTTLE if version >= 1 else b""
    return header + throttle + INT16.pack(error) + (b"\0" if version >= HEARTBEAT_FLEXIBLE_SINCE else b"")


def encode_offset_fetch(version: int, groups: Sequence[FetchedGroup], header: bytes) -> bytearray:
    """The response behind its `header`: of several groups since version 8, before of one."""
    return at_once(encode_offset_fetch_in_steps(version, groups, header))


def encode_offset_fetch_in_steps(
    version: int, groups: Sequence[FetchedGroup], header: bytes
) -> Generator[int, None, bytearray]:
    """Like `encode_offset_fetch`; at each yield others may run."""
    flexible = version >= OFFSET_FETCH_FLEXIBLE_SINCE
    out = bytearray(header)
    if version >= 3:
        out += _NO_THROTTLE
    if version >= OFFSET_FETCH_GROUPS_SINCE:
        write_count(out, len(groups), True)
        for group in groups:
            write_string(out, group.group_id, True)
            yield from _write_topics(out, version, group.topics)
            yield 3
            out += INT16.pack(group.error) + b"\0"
    else:
        (group,) = groups
        yield from _write_topics(out, version, group.topics)
        if version >= 2:
            out += INT16.pack(group.error)
    if flexible:
        out.append(0)
    return out


def _write_topics(out: bytearray, version: int, topics: Sequence[FetchedTopic]) -> Generator[int, None, None]:
    flexible = version >= OFFSET_FETCH_FLEXIBLE_SINCE
    tags = b"\0" if flexible else b""
    write_count(out, len(topics), flexible)
    for topic in topics:
        if version >= OFFSET_FETCH_TOPIC_IDS_SINCE:
            out += uuid_bytes(topic.topic_id)
        else:
            write_string(out, topic.name, flexible)
        write_count(out, len(topic.partitions), flexible)
        for number, (partition, offset, epoch, metadata, error) in enumerate(topic.partitions, start=1):
            if number % ROWS_PER_STEP == 0:
                yield ROWS_PER_STEP // 2
            if flexible and not metadata:
                out += _WITHOUT_METADATA.pack(partition, offset, epoch, 1, error, 0)
                continue
            if version >= 5:
                out += _OFFSET_AND_EPOCH.pack(partition, offset, epoch)
            else:
                out += _OFFSET.pack(partition, offset)
            write_string(out, metadata, flexible)
            out += INT16.pack(error) + tags
        out += tags
        yield 1
