"""The topics that a consumer's metadata names. The coordinator needs no more of the embedded consumer protocol."""

from __future__ import annotations

import struct

CONSUMER_PROTOCOL_TYPE = "consumer"
_INT16 = struct.Struct(">h")
_VERSION_AND_COUNT = struct.Struct(">hi")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics of a ConsumerProtocolSubscription, whose version 0 is a prefix of all others; None for anything else."""
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(metadata)
        if version < 0 or not 0 <= count <= len(metadata) // 2:
            return None
        position = _VERSION_AND_COUNT.size
        topics = set()
        for _ in range(count):
            (length,) = _INT16.unpack_from(metadata, position)
            position += _INT16.size
            end = position + length
            if length < 0 or end > len(metadata):
                return None
            topics.add(str(metadata[position:end], "utf-8"))
            position = end
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
