"""The partition of a coordinator's topic that keeps a group, a transactional id or a share-partition."""

from __future__ import annotations

import struct
from functools import lru_cache

_UTF_16 = struct.Struct(">H")
_PARTITIONS_CACHED = 4_096
_NAME_CACHED_MAX = 256
"""Longer ids are nobody's, and 4,096 of them would fill the memory."""


def partition_for(group_id: str, partition_count: int) -> int:
    """The absolute value of Java's String.hashCode of an id, modulo the partitions (Kafka's `Utils.abs`, which makes 0
    of the one value that has no positive counterpart)."""
    if len(group_id) > _NAME_CACHED_MAX:
        return _partition_for(group_id, partition_count)
    return _cached_partition_for(group_id, partition_count)


def _partition_for(group_id: str, partition_count: int) -> int:
    code = 0
    for (unit,) in _UTF_16.iter_unpack(group_id.encode("utf-16-be", "surrogatepass")):
        code = (31 * code + unit) & 0xFFFF_FFFF
    magnitude = code if code <= 0x7FFF_FFFF else (1 << 32) - code
    return magnitude % partition_count if magnitude <= 0x7FFF_FFFF else 0


_cached_partition_for = lru_cache(_PARTITIONS_CACHED)(_partition_for)
