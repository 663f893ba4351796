"""What members of classic groups are assigned, as the protocol of consumers writes it."""

from __future__ import annotations

import re
import struct

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def assigned_places(assignment: bytes) -> list[tuple[str, int]]:
    """The partitions in a ConsumerProtocolAssignment, whose version 0 is a prefix of all others; none in anything else,
    such as what a client library tells its members."""
    try:
        (version,) = _INT16.unpack_from(assignment)
        (topics,) = _INT32.unpack_from(assignment, _INT16.size)
        position = _INT16.size + _INT32.size
        if version < 0:
            return []
        places: list[tuple[str, int]] = []
        for _ in range(topics):
            (length,) = _INT16.unpack_from(assignment, position)
            position += _INT16.size
            name = str(assignment[position : position + length], "utf-8") if length > 0 else ""
            position += max(length, 0)
            (count,) = _INT32.unpack_from(assignment, position)
            position += _INT32.size
            if not _TOPIC.fullmatch(name) or name in (".", "..") or not 0 <= count <= len(assignment):
                return []
            numbers = struct.unpack_from(f">{count}i", assignment, position)
            position += count * _INT32.size
            if any(number < 0 for number in numbers):
                return []
            places += [(name, number) for number in numbers]
    except (struct.error, UnicodeDecodeError):
        return []
    return sorted(places)
