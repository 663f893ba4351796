"""A hash of the topics that a group reads: when it changes, so must the assignment (KIP-1101).

The same number as Kafka's, so that a group that changes between brokers of both kinds need not rebalance.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from xxhash import xxh3_64_digest

from ottla.metadata.image import MetadataImage, TopicImage

_MAGIC: Final = b"\0"
_INT = struct.Struct("<i")
_LONG = struct.Struct("<q")
_HASH = struct.Struct(">q")
Hashes = dict[str, tuple[TopicImage, int]]
"""Keyed by name, of topics that groups read; one that has changed since is another TopicImage."""


def group_hash(topics: Iterable[str], image: MetadataImage, cache: Hashes) -> int:
    """Hash of the topics that exist; 0 if none does."""
    found = []
    for name in sorted(topics):
        topic = image.topic(name)
        if topic is None:
            cache.pop(name, None)
            continue
        cached = cache.get(name)
        if cached is None or cached[0] is not topic:
            cached = cache[name] = topic, _topic_hash(topic, image)
        found.append(_LONG.pack(cached[1]))
    return _hash(b"".join(found)) if found else 0


def _topic_hash(topic: TopicImage, image: MetadataImage) -> int:
    """Hash of a topic's id, name, number of partitions and the racks of each."""
    high, low = struct.unpack(">qq", topic.id.bytes)
    parts = [_MAGIC, _LONG.pack(high), _LONG.pack(low), _string(topic.name), _INT.pack(len(topic.partitions))]
    for number in range(len(topic.partitions)):
        parts.append(_INT.pack(number))
        registration = topic.partitions.get(number)
        brokers = [image.brokers.get(replica) for replica in (() if registration is None else registration.replicas)]
        for rack in sorted(broker.rack for broker in brokers if broker is not None and broker.rack is not None):
            parts += (_INT.pack(_length(rack)), _string(rack))
    return _hash(b"".join(parts))


def _hash(data: bytes) -> int:
    """XXH3 of 64 bits without a seed, as a signed number: hash4j's, which Kafka uses, gives a Java long."""
    found: int = _HASH.unpack(xxh3_64_digest(data))[0]
    return found


def _length(text: str) -> int:
    """Length of a Java string."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _string(text: str) -> bytes:
    data = text.encode("utf-16-le", "surrogatepass")
    return data + _INT.pack(len(data) // 2)
