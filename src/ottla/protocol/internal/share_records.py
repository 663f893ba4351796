"""The records of `__share_group_state`: how the deliveries of each share-partition stand, in Kafka's format (KIP-932).

A record's key starts with an int16 that names its type: 0 is a snapshot, 1 an update of the last snapshot. Its value
starts with an int16 version, or is null, which deletes the share-partition (a snapshot's key, always).
"""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from ottla.model import Buffer
from ottla.protocol.internal.codec import MalformedRecord, decode, encode
from ottla.protocol.schemas.records import ShareSnapshotKey, ShareSnapshotValue, ShareUpdateValue

NOT_COUNTED: Final = -1
"""Stands for a missing `delivery_complete_count`: written before Kafka counted, or nothing was fetched yet."""


class DeliveryState(IntEnum):
    """State of a record in flight, by Kafka's numbers."""

    AVAILABLE = 0
    ACQUIRED = 1
    """Never written: a lock is the leader's alone."""
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """Not delivered again; its dead letter is being written (KIP-1191). A new leader writes the letter again."""
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        """Whether nothing is left to do for it: no delivery, no dead letter."""
        return self is DeliveryState.ACKNOWLEDGED or self is DeliveryState.ARCHIVED


class SharePartitionKey(NamedTuple):
    """A partition as one share group sees it."""

    group_id: str
    topic_id: UUID
    partition: int


class ShareRecord(NamedTuple):
    """A record of `__share_group_state`; a value of None deletes the share-partition."""

    key: SharePartitionKey
    value: ShareSnapshotValue | ShareUpdateValue | None


_SNAPSHOT: Final = 0
_UPDATE: Final = 1
_VERSION: Final = 0

KEYS_CACHED: Final = 4_096
NAME_CACHED_MAX: Final = 256
"""Groups with longer ids are nobody's, and 4,096 of them would fill the memory."""
_SHORT = struct.Struct(">h")


def encode_record(record: ShareRecord) -> tuple[bytes, bytes | None]:
    """Key and value."""
    number = _UPDATE if isinstance(record.value, ShareUpdateValue) else _SNAPSHOT
    encode_key = _encoded_key if len(record.key.group_id) > NAME_CACHED_MAX else _cached_key
    key = encode_key(number, record.key)
    return key, None if record.value is None else _SHORT.pack(_VERSION) + encode(record.value, _VERSION)


def _encoded_key(number: int, key: SharePartitionKey) -> bytes:
    return _SHORT.pack(number) + encode(ShareSnapshotKey(*key), 0)


_cached_key = lru_cache(KEYS_CACHED)(_encoded_key)


def decode_record(key: Buffer, value: Buffer | None) -> ShareRecord | None:
    """The record, or None for an unknown type. Raises MalformedRecord."""
    if len(key) < 2:
        raise MalformedRecord("a key without a type")
    (number,) = _SHORT.unpack_from(key)
    if number not in (_SNAPSHOT, _UPDATE):
        return None
    parts = decode(ShareSnapshotKey, 0, key, 2)
    share_partition = SharePartitionKey(parts.group_id, parts.topic_id, parts.partition)
    if value is None:
        if number == _UPDATE:
            raise MalformedRecord("an update of a share-partition without a value")
        return ShareRecord(share_partition, None)
    if len(value) < 2:
        raise MalformedRecord("a value without a version")
    (version,) = _SHORT.unpack_from(value)
    if version != _VERSION:
        raise MalformedRecord(f"a share-partition's state in version {version}, newest known is {_VERSION}")
    if number == _UPDATE:
        return ShareRecord(share_partition, decode(ShareUpdateValue, version, value, 2))
    return ShareRecord(share_partition, decode(ShareSnapshotValue, version, value, 2))
