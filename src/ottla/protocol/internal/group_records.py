"""The records of `__consumer_offsets`: committed offsets and the state of classic groups, in Kafka's format.

A record's key starts with an int16 that names its type; its value starts with an int16 version, or is null, which
deletes what the key names. Keys of consumer, share and streams groups are in `modern_group_records.py`, their values in
`consumer_group_records.py`, `share_group_records.py` and `streams_group_records.py`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias
from uuid import UUID

from ottla.model import ZERO_UUID, Buffer
from ottla.protocol.internal.codec import MalformedRecord, decode, encode_into, spec
from ottla.protocol.internal.modern_group_records import ModernKey, decode_modern_key, encode_modern_key
from ottla.protocol.varint import write_uvarint

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.protocol.internal.group_values import GroupValue


@dataclass(slots=True)
class OffsetCommitKey:
    FLEXIBLE: ClassVar[str] = "none"
    group: str = spec("string")
    topic: str = spec("string")
    partition: int = spec("int32")


@dataclass(slots=True)
class OffsetCommitValue:
    FLEXIBLE: ClassVar[str] = "4+"
    offset: int = spec("int64")
    leader_epoch: int = spec("int32", versions="3+", default=-1, ignorable=True)
    metadata: str = spec("string")
    commit_timestamp: int = spec("int64")
    expire_timestamp: int = spec("int64", versions="1", default=-1, ignorable=True)
    topic_id: UUID = spec("uuid", versions="4+", tag=0, default=ZERO_UUID, ignorable=True)


@dataclass(slots=True)
class GroupMetadataKey:
    FLEXIBLE: ClassVar[str] = "none"
    group: str = spec("string")


@dataclass(slots=True)
class MemberMetadata:
    FLEXIBLE: ClassVar[str] = "4+"
    member_id: str = spec("string")
    group_instance_id: str | None = spec("string", versions="3+", nullable="3+", default=None, ignorable=True)
    client_id: str = spec("string")
    client_host: str = spec("string")
    rebalance_timeout: int = spec("int32", versions="1+", default=-1, ignorable=True)
    session_timeout: int = spec("int32")
    subscription: bytes = spec("bytes")
    assignment: bytes = spec("bytes")


@dataclass(slots=True)
class GroupMetadataValue:
    FLEXIBLE: ClassVar[str] = "4+"
    protocol_type: str = spec("string")
    generation: int = spec("int32")
    protocol: str | None = spec("string", nullable="0+")
    leader: str | None = spec("string", nullable="0+")
    current_state_timestamp: int = spec("int64", versions="2+", default=-1, ignorable=True)
    members: tuple[MemberMetadata, ...] = spec([MemberMetadata])


Key = OffsetCommitKey | GroupMetadataKey | ModernKey
Value: TypeAlias = "OffsetCommitValue | GroupMetadataValue | GroupValue | bytes"


class GroupRecord(NamedTuple):
    """A record of `__consumer_offsets`; a value of None deletes what the key names."""

    key: Key
    value: Value | None


class _Type(NamedTuple):
    key: type[OffsetCommitKey] | type[GroupMetadataKey]
    value: type[OffsetCommitValue] | type[GroupMetadataValue]
    newest_version: int
    """The newest version of the value that is read."""


OFFSET_COMMIT_VERSION = 4
EXPIRING_OFFSET_VERSION = 1
GROUP_METADATA_VERSION = 3
"""The version that Kafka 4.3 writes, and so the newest that its brokers on the same log are sure to read."""

_TYPES: dict[int, _Type] = {
    0: _Type(OffsetCommitKey, OffsetCommitValue, 4),
    1: _Type(OffsetCommitKey, OffsetCommitValue, 4),
    2: _Type(GroupMetadataKey, GroupMetadataValue, 4),
}
"""Keyed by the int16 at the start of the key. Type 0 is the offset commit of Kafka 0.8; the fields are the same."""

DECODED: Final = frozenset({3, 4, 5, 6, 7, 8, 16, 17, 19, 20, 21, 22, 23})
"""Types of newer protocols whose values are decoded, by `group_values.py`: a node that has none need not load it."""

PREFIXES_MAX = 1024
"""Encoded names of groups and topics that are kept, a few hundred bytes each: those that commit at the moment."""

_SHORT = struct.Struct(">h")
_OFFSET = struct.Struct(">hqi")
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")


def encode_key(key: Key) -> bytes:
    if isinstance(key, OffsetCommitKey):
        return _offset_key_prefix(key.group, key.topic) + _INT.pack(key.partition)
    if isinstance(key, ModernKey):
        return encode_modern_key(key)
    return _SHORT.pack(2) + _text(key.group)


def encode_value(value: Value | None) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, OffsetCommitValue):
        return _encode_offset(value)
    if not isinstance(value, GroupMetadataValue):
        return _of_newer_groups()(value)
    members: Any = value.members
    if type(members) is not tuple:  # those that a coordinator keeps encoded: `group_metadata.MemberRows`
        encoded: bytes = members.encoded(value)
        return encoded
    out = bytearray(_SHORT.pack(GROUP_METADATA_VERSION))
    encode_into(out, value, GROUP_METADATA_VERSION)
    return bytes(out)


@cache
def _of_newer_groups() -> Callable[[GroupValue], bytes]:
    """Looked up once: an import inside a function takes longer than encoding a value."""
    from ottla.protocol.internal.group_values import encode_group_value

    return encode_group_value


def decode_record(key: Buffer, value: Buffer | None) -> GroupRecord | None:
    """The record, or None for an unknown type. Raises MalformedRecord."""
    if len(key) < 2:
        raise MalformedRecord("a key without a type")
    known = _TYPES.get(_SHORT.unpack_from(key)[0])
    if known is None:
        return _decode_newer(key, value)
    decoded_key = decode(known.key, 0, key, 2)
    if value is None:
        return GroupRecord(decoded_key, None)
    if len(value) < 2:
        raise MalformedRecord("a value without a version")
    (version,) = _SHORT.unpack_from(value)
    if not 0 <= version <= known.newest_version:
        raise MalformedRecord(f"{known.value.__name__} in version {version}, newest known is {known.newest_version}")
    return GroupRecord(decoded_key, decode(known.value, version, value, 2))


def _decode_newer(key: Buffer, value: Buffer | None) -> GroupRecord | None:
    decoded = decode_modern_key(key)
    if decoded is None:
        return None
    if value is None:
        return GroupRecord(decoded, None)
    if decoded.type not in DECODED:
        return GroupRecord(decoded, bytes(value))
    from ottla.protocol.internal.group_values import decode_group_value

    return GroupRecord(decoded, decode_group_value(decoded.type, value))


def _text(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data


@lru_cache(PREFIXES_MAX)
def _offset_key_prefix(group: str, topic: str) -> bytes:
    return _SHORT.pack(1) + _text(group) + _text(topic)


def offset_value_tags(topic_id: UUID) -> bytes:
    """The tagged fields at the end of an offset's value."""
    return b"\0" if topic_id == ZERO_UUID else b"\1\0\x10" + topic_id.bytes


def _encode_offset(value: OffsetCommitValue) -> bytes:
    """By hand, because every commit pays for it; a test compares it with the codec. Only version 1 has room for a time
    of its own at which an offset expires; it has none for the leader epoch and the topic's id."""
    if value.expire_timestamp != -1:
        out = bytearray(_SHORT.pack(EXPIRING_OFFSET_VERSION))
        encode_into(out, value, EXPIRING_OFFSET_VERSION)
        return bytes(out)
    metadata = value.metadata.encode()
    length = bytearray()
    write_uvarint(length, len(metadata) + 1)
    tags = offset_value_tags(value.topic_id)
    head = _OFFSET.pack(OFFSET_COMMIT_VERSION, value.offset, value.leader_epoch)
    return b"".join((head, length, metadata, _LONG.pack(value.commit_timestamp), tags))
