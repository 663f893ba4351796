"""The records of `__share_group_state`: how the deliveries of each share-partition stand, in Kafka's format (KIP-932).

A record's key starts with an int16 that names its type: 0 is a snapshot, 1 an update of the last snapshot. Its value
starts with an int16 version, or is null, which deletes the share-partition (a snapshot's key, always).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple
from uuid import UUID

from ottla.model import ZERO_UUID, Buffer
from ottla.protocol.internal.codec import MalformedRecord, decode, encode, spec

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


@dataclass(slots=True)
class ShareStateKey:
    """The key of both types of records."""

    FLEXIBLE: ClassVar[str] = "none"
    group_id: str = spec("string")
    topic_id: UUID = spec("uuid", default=ZERO_UUID)
    partition: int = spec("int32")


@dataclass(slots=True, unsafe_hash=True)
class StateBatch:
    """Offsets in a row, both ends included, whose deliveries stand alike. Nobody changes one: it is not `frozen` only
    because that makes it four times as slow to make, and there are several for each acknowledgement."""

    first_offset: int = spec("int64")
    last_offset: int = spec("int64")
    delivery_state: int = spec("int8")
    delivery_count: int = spec("int16")


@dataclass(slots=True)
class ShareSnapshotValue:
    """All that is known of a share-partition."""

    snapshot_epoch: int = spec("int32")
    state_epoch: int = spec("int32")
    leader_epoch: int = spec("int32")
    start_offset: int = spec("int64")
    delivery_complete_count: int = spec("int32", tag=0, default=NOT_COUNTED)
    create_timestamp: int = spec("int64")
    """When what is known was last made whole, by a snapshot that had something new or by an initialization."""
    write_timestamp: int = spec("int64")
    """When it was last written whole."""
    state_batches: tuple[StateBatch, ...] = spec([StateBatch])


@dataclass(slots=True)
class ShareUpdateValue:
    """Changes since the snapshot of the same epoch."""

    snapshot_epoch: int = spec("int32")
    leader_epoch: int = spec("int32")
    start_offset: int = spec("int64")
    """-1 where it stays as it is."""
    delivery_complete_count: int = spec("int32", tag=0, default=NOT_COUNTED)
    state_batches: tuple[StateBatch, ...] = spec([StateBatch])


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
    return _SHORT.pack(number) + encode(ShareStateKey(*key), 0)


_cached_key = lru_cache(KEYS_CACHED)(_encoded_key)


def decode_record(key: Buffer, value: Buffer | None) -> ShareRecord | None:
    """The record, or None for an unknown type. Raises MalformedRecord."""
    if len(key) < 2:
        raise MalformedRecord("a key without a type")
    (number,) = _SHORT.unpack_from(key)
    if number not in (_SNAPSHOT, _UPDATE):
        return None
    parts = decode(ShareStateKey, 0, key, 2)
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
