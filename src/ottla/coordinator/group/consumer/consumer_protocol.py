"""What consumers of the classic protocol tell each other through the coordinator: the embedded consumer protocol."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from ottla.coordinator.group.consumer.member import Partitions
from ottla.metadata.image import MetadataImage
from ottla.protocol.internal.codec import MalformedRecord, decode_from, encode_into
from ottla.protocol.layout import ELEMENTS_MAX
from ottla.protocol.schemas.records import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicNumbers

VERSION_MAX: Final = 3
_SHORT = struct.Struct(">h")


def version_of(metadata: bytes) -> int:
    """The version of the embedded protocol; a newer one is read like the newest known. Raises MalformedRecord."""
    if len(metadata) < 2:
        raise MalformedRecord("an embedded protocol without a version")
    (version,) = _SHORT.unpack_from(metadata)
    if version < 0:
        raise MalformedRecord(f"an embedded protocol of version {version}")
    return min(int(version), VERSION_MAX)


def decode_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Raises MalformedRecord."""
    return decode_from(ConsumerProtocolSubscription, version_of(metadata), metadata, 2, ELEMENTS_MAX)[0]


def decode_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    """Raises MalformedRecord."""
    return decode_from(ConsumerProtocolAssignment, version_of(assignment), assignment, 2, ELEMENTS_MAX)[0]


def encode_assignment(partitions: Partitions, image: MetadataImage, version: int) -> bytes:
    """For a member whose metadata have `version`; topics that are gone are left out."""
    rows = []
    for topic_id, numbers in sorted(partitions.items()):
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            rows.append(TopicNumbers(topic.name, tuple(sorted(numbers))))
    out = bytearray(_SHORT.pack(version))
    encode_into(out, ConsumerProtocolAssignment(tuple(rows)), version)
    return bytes(out)


def by_id(rows: Iterable[TopicNumbers], image: MetadataImage) -> dict[UUID, frozenset[int]]:
    """Partitions by the ids of topics that exist."""
    found: dict[UUID, frozenset[int]] = {}
    for row in rows:
        topic = image.topic(row.topic)
        if topic is not None:
            found[topic.id] = frozenset(row.partitions)
    return found
