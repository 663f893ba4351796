"""Responses to groups: JoinGroup, SyncGroup, Heartbeat and ConsumerGroupHeartbeat as coordinators give them.

A rebalance of a thousand members is three thousand of them at once. Names and order of fields are Kafka's. Answers to
JoinGroup differ in the member's id alone, those to SyncGroup in its assignment: what comes before is kept from the last
one. That field is followed by an empty array, or by nothing, and in flexible versions by no tagged fields.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from ottla.protocol.messages import FLEXIBLE_SINCE, ApiKey, response_layout
from ottla.protocol.varint import uvarint
from ottla.protocol.writer import write_struct

_JOIN_GROUP: Final = int(ApiKey.JOIN_GROUP)  # compiled code reads a name fifty times as fast as a member of an enum
_SYNC_GROUP: Final = int(ApiKey.SYNC_GROUP)
_HEARTBEAT: Final = int(ApiKey.HEARTBEAT)
_CONSUMER_GROUP_HEARTBEAT: Final = int(ApiKey.CONSUMER_GROUP_HEARTBEAT)
_FLEXIBLE_JOIN: Final[int] = FLEXIBLE_SINCE[_JOIN_GROUP]
_FLEXIBLE_ASSIGNING: Final[int] = FLEXIBLE_SINCE[_SYNC_GROUP]
_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_JOIN_ENDS: Final = (b"\0\0\0\0", b"\1\0")
"""No members, by whether the version is flexible."""
_ASSIGNMENT_ENDS: Final = (b"", b"\0")
_EMPTY_ID_BYTES: Final = (2, 1)
_EMPTY_BYTES: Final = (4, 1)
_ONE_BYTE_MAX: Final = 0x7F


class _Start:
    """The bytes of the last response before what differs, and what they were made of."""

    __slots__ = ("kept", "values", "version")

    def __init__(self) -> None:
        self.version = -1
        self.values: tuple[Any, ...] = ()
        self.kept = b""


_JOINING: Final = _Start()
_ASSIGNED: Final = _Start()


def encode_join(version: int, response: Mapping[str, Any], header: bytes) -> bytes:
    """The response behind its `header`. Before version 7 a protocol has a name, if an empty one."""
    if version < 7 and response["protocol_name"] is None:
        response = {**response, "protocol_name": ""}
    if response["members"]:
        return _encoded(_JOIN_GROUP, version, response, header)
    flexible = 1 if version >= _FLEXIBLE_JOIN else 0
    values = (
        response["error_code"],
        response["generation_id"],
        response["protocol_type"],
        response["protocol_name"],
        response["leader"],
        response["skip_assignment"],
    )
    start = _JOINING
    if start.version != version or start.values != values:
        whole = _encoded(_JOIN_GROUP, version, {**response, "member_id": ""}, b"")
        start.kept = whole[: -_EMPTY_ID_BYTES[flexible] - len(_JOIN_ENDS[flexible])]
        start.version, start.values = version, values
    member_id = response["member_id"].encode()
    size = len(member_id)
    length = _compact(size) if flexible else _SHORT.pack(size)
    return b"".join((header, start.kept, length, member_id, _JOIN_ENDS[flexible]))


def encode_sync(version: int, response: Mapping[str, Any], header: bytes) -> bytes:
    """The response behind its `header`."""
    flexible = 1 if version >= _FLEXIBLE_ASSIGNING else 0
    values = (response["error_code"], response["protocol_type"], response["protocol_name"])
    start = _ASSIGNED
    if start.version != version or start.values != values:
        whole = _encoded(_SYNC_GROUP, version, {**response, "assignment": b""}, b"")
        start.kept = whole[: -_EMPTY_BYTES[flexible] - len(_ASSIGNMENT_ENDS[flexible])]
        start.version, start.values = version, values
    assignment = response["assignment"]
    size = len(assignment)
    length = _compact(size) if flexible else _INT.pack(size)
    return b"".join((header, start.kept, length, assignment, _ASSIGNMENT_ENDS[flexible]))


def _compact(size: int) -> bytes:
    """The length of a string or of bytes in flexible versions."""
    return _ONE_BYTE[size] if size < _ONE_BYTE_MAX else uvarint(size + 1)


_ONE_BYTE: Final = [uvarint(size + 1) for size in range(_ONE_BYTE_MAX)]


def encode_consumer_heartbeat(version: int, response: Mapping[str, Any], header: bytes) -> bytes:
    """The response behind its `header`. The assignment is None, or partitions by topic id."""
    assigned = response["assignment"]
    if assigned is not None:
        rows = [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in assigned.items()]
        response = {**response, "assignment": {"topic_partitions": rows}}
    return _encoded(_CONSUMER_GROUP_HEARTBEAT, version, response, header)


def _encoded(api_key: int, version: int, response: Mapping[str, Any], header: bytes) -> bytes:
    return write_struct(response_layout(api_key, version), response, header)


def encode_heartbeat(version: int, error: int, header: bytes) -> bytes:
    """The response behind its `header`."""
    return _encoded(_HEARTBEAT, version, {"error_code": error}, header)
