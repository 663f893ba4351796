"""Responses to JoinGroup (0-9), SyncGroup (0-5) and Heartbeat (0-4), by hand.

A rebalance of a thousand members is three thousand of them at once. Names and order of fields are Kafka's.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from ottla.protocol.wire import INT16, write_count, write_string

JOIN_FLEXIBLE_SINCE: Final = 6
SYNC_FLEXIBLE_SINCE: Final = 4
HEARTBEAT_FLEXIBLE_SINCE: Final = 4
_NO_THROTTLE: Final = b"\0\0\0\0"
_ERROR_AND_GENERATION = struct.Struct(">hi")


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


def encode_heartbeat(version: int, error: int, header: bytes) -> bytes:
    """The response behind its `header`."""
    throttle = _NO_THROTTLE if version >= 1 else b""
    return header + throttle + INT16.pack(error) + (b"\0" if version >= HEARTBEAT_FLEXIBLE_SINCE else b"")
