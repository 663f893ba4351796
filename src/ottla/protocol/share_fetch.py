"""The answer to a ShareFetch that found nothing wrong, versions 1 and 2: records are sent from where they were read.

Any other answer goes by the schema (`messages.py`), which copies what it is given.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Final
from uuid import UUID

from ottla.model import Buffer, Millis
from ottla.protocol.varint import write_uvarint
from ottla.protocol.writer import COPIED_BYTES_MAX

Acquired = tuple[int, int, int]
"""First offset, last offset, how often they were delivered."""
Row = tuple[int, Buffer, Sequence[Acquired]]
"""A partition, its records, and which of them the member has."""

_HEAD: Final = struct.Struct(">ixi2xxi")
"""Correlation id and no tags; no throttling, no error, and how long the records are locked."""
_PARTITION: Final = struct.Struct(">i2xx2xx8xx")
"""A partition without errors, whose leader is this node."""


@cache
def _acquired(rows: int) -> struct.Struct:
    """Ranges of records; at most as many as are answered at once."""
    return struct.Struct(">" + "qqhx" * rows)


def encode_response(
    correlation_id: int, lock_timeout_ms: Millis, topics: Mapping[UUID, Iterable[Row]]
) -> tuple[list[Buffer], int]:
    """The parts of the frame, without its length, and their size in bytes."""
    out = bytearray(_HEAD.pack(correlation_id, 0, lock_timeout_ms))
    parts: list[Buffer] = []
    size = 0
    write_uvarint(out, len(topics) + 1)
    for topic_id, rows in topics.items():
        out += topic_id.bytes
        rows = [*rows]
        write_uvarint(out, len(rows) + 1)
        for partition, records, acquired in rows:
            out += _PARTITION.pack(partition)
            write_uvarint(out, len(records) + 1)
            if len(records) <= COPIED_BYTES_MAX:
                out += records
            else:
                parts += (bytes(out), records)
                size += len(out) + len(records)
                out.clear()
            write_uvarint(out, len(acquired) + 1)
            out += _acquired(len(acquired)).pack(*chain.from_iterable(acquired))
            out.append(0)
        out.append(0)
    out += b"\1\0"  # no other nodes, no tags
    parts.append(bytes(out))
    return parts, size + len(out)
