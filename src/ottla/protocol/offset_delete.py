"""Responses to OffsetDelete (version 0) by hand: there is a row for each partition, of which a topic can have many."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from ottla.errors import ErrorCode
from ottla.protocol.wire import INT32, write_count, write_string

_ERROR_AND_THROTTLE = struct.Struct(">hi")
_ROW = struct.Struct(">ih")


def encode_response(error: ErrorCode, topics: Mapping[str, Sequence[tuple[int, ErrorCode]]], header: bytes) -> bytes:
    """The response behind its `header`; of each topic the partitions with their errors."""
    parts: list[bytes | bytearray] = [header, _ERROR_AND_THROTTLE.pack(error, 0), INT32.pack(len(topics))]
    for name, partitions in topics.items():
        start = bytearray()
        write_string(start, name, False)
        write_count(start, len(partitions), False)
        parts.append(start)
        parts += [_ROW.pack(number, code) for number, code in partitions]
    return b"".join(parts)
