"""Responses to groups: JoinGroup, SyncGroup and ConsumerGroupHeartbeat as coordinators give them; Heartbeat (0-4) and
OffsetFetch (1-10) by hand.

A rebalance of a thousand members is three thousand of them at once. Names and order of fields are Kafka's.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final

from ottla.protocol.messages import ApiKey, response_layout
from ottla.protocol.wire import INT16, FetchedGroup, FetchedTopic, uuid_bytes, write_count, write_string
from ottla.protocol.writer import write_struct
from ottla.steps import at_once

HEARTBEAT_FLEXIBLE_SINCE: Final = 4
OFFSET_FETCH_FLEXIBLE_SINCE: Final = 6
OFFSET_FETCH_GROUPS_SINCE: Final = 8
OFFSET_FETCH_TOPIC_IDS_SINCE: Final = 10
ROWS_PER_STEP: Final = 500
"""Fetched offsets, which cost a microsecond at most."""
_NO_THROTTLE: Final = b"\0\0\0\0"
_OFFSET = struct.Struct(">iq")
_OFFSET_AND_EPOCH = struct.Struct(">iqi")
_WITHOUT_METADATA = struct.Struct(">iqiBhB")
"""A flexible row whose metadata is empty, as that of nearly all is: a length of 1, the error, no tagged fields."""


def encode_join(version: int, response: Mapping[str, Any], header: bytes) -> bytes:
    """The response behind its `header`. Before version 7 a protocol has a name, if an empty one."""
    if version < 7 and response["protocol_name"] is None:
        response = {**response, "protocol_name": ""}
    return _encoded(ApiKey.JOIN_GROUP, version, response, header)


def encode_sync(version: int, response: Mapping[str, Any], header: bytes) -> bytes:
    """The response behind its `header`."""
    return _encoded(ApiKey.SYNC_GROUP, version, response, header)


def encode_consumer_heartbeat(version: int, response: Mapping[str, Any], header: bytes) -> bytes:
    """The response behind its `header`. The assignment is None, or partitions by topic id."""
    assigned = response["assignment"]
    if assigned is not None:
        rows = [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in assigned.items()]
        response = {**response, "assignment": {"topic_partitions": rows}}
    return _encoded(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, response, header)


def _encoded(api_key: int, version: int, response: Mapping[str, Any], header: bytes) -> bytes:
    return write_struct(response_layout(api_key, version), response, header)


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
