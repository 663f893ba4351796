"""Messages of the formats 0 and 1, as brokers before Kafka 0.11 wrote them."""

from __future__ import annotations

import struct
import zlib

TIME = 1_700_000_000_000


def message(
    offset: int,
    value: bytes | None,
    *,
    magic: int = 1,
    attributes: int = 0,
    time: int = TIME,
    key: bytes | None = b"k",
) -> bytes:
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", time) if magic else b"")
    for field in (key, value):
        body += struct.pack(">i", len(field)) + field if field is not None else b"\xff" * 4
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body
