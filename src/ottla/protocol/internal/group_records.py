"""The records of `__consumer_offsets`: committed offsets and the state of classic groups, in Kafka's format.

A record's key starts with an int16 that names its type; its value starts with an int16 version, or is null, which
deletes what the key names. The values of consumer (KIP-848), share (KIP-932) and streams groups (KIP-1071) are decoded
by `group_values.py`; the broker that deletes such a group must name each record.
"""

from __future__ import annotations

import struct
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from ottla.model import ZERO_UUID, Buffer
from ottla.protocol.internal.codec import MalformedRecord, decode, encode_into
from ottla.protocol.schemas.records import (
    ConsumerGroupMemberMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    Record,
)
from ottla.protocol.varint import write_uvarint

if TYPE_CHECKING:
    from collections.abc import Callable


class ModernKey(NamedTuple):
    """Key of a record: a group, or a member (or a pattern) of it."""

    type: int
    """The int16 at the start of the key."""
    group: str
    member: str | None = None
    """The member, or for type 16 a regular expression."""


class ModernTypes(NamedTuple):
    """The types of records that one protocol has."""

    group_type: str
    """The name in ListGroups, and the protocol type."""
    metadata: int
    target: int
    """The epoch of the target assignment."""
    member: int
    member_target: int
    member_current: int
    others: tuple[int, ...]
    """Record types of the whole group that need not exist."""


CONSUMER: Final = ModernTypes("consumer", 3, 6, 5, 7, 8, (4, 16))
SHARE: Final = ModernTypes("share", 11, 12, 10, 13, 14, (9, 15))
STREAMS: Final = ModernTypes("streams", 17, 20, 19, 21, 22, (23,))

_MODERN: Final = {
    number: types
    for types in (CONSUMER, SHARE, STREAMS)
    for number in (types.metadata, types.target, types.member, types.member_target, types.member_current, *types.others)
}
_OF_MEMBERS: Final = {16} | {
    number
    for types in (CONSUMER, SHARE, STREAMS)
    for number in (types.member, types.member_target, types.member_current)
}
_NAMES: Final = {
    4: "ConsumerGroupPartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    9: "ShareGroupPartitionMetadata",
    15: "ShareGroupStatePartitionMetadata",
    23: "StreamsGroupTopology",
}

Key = OffsetCommitKey | GroupMetadataKey | ModernKey
Value: TypeAlias = "Record | bytes"


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
_TYPE_AND_LENGTH = struct.Struct(">hh")


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
def _of_newer_groups() -> Callable[[Record], bytes]:
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


def types_of(key: ModernKey) -> ModernTypes:
    return _MODERN[key.type]


def name_of(key: ModernKey) -> str:
    """Kafka's name of this type of record."""
    types = _MODERN[key.type]
    ends = {
        types.metadata: "Metadata",
        types.target: "TargetAssignmentMetadata",
        types.member: "MemberMetadata",
        types.member_target: "TargetAssignmentMember",
        types.member_current: "CurrentMemberAssignment",
    }
    return _NAMES.get(key.type) or f"{types.group_type.capitalize()}Group{ends[key.type]}"


def decode_modern_key(key: Buffer) -> ModernKey | None:
    """None for a key of another type. Raises MalformedRecord."""
    if len(key) < 2:
        raise MalformedRecord("a key without a type")
    (number,) = _SHORT.unpack_from(key)
    if number not in _MODERN:
        return None
    if number in _OF_MEMBERS:
        member = decode(ConsumerGroupMemberMetadataKey, 0, key, 2)
        return ModernKey(number, member.group_id, member.member_id)
    return ModernKey(number, decode(GroupMetadataKey, 0, key, 2).group)


def encode_modern_key(key: ModernKey) -> bytes:
    number, name, of = key
    group = name.encode()
    if of is None:
        return b"".join((_TYPE_AND_LENGTH.pack(number, len(group)), group))
    member = of.encode()
    return b"".join((_TYPE_AND_LENGTH.pack(number, len(group)), group, _SHORT.pack(len(member)), member))


def epoch_of(value: bytes) -> int:
    """The epoch with which the records of groups, target and current assignments begin. Raises MalformedRecord."""
    if len(value) < 6:
        raise MalformedRecord(f"an epoch in {len(value)} bytes")
    return int(_INT.unpack_from(value, 2)[0])


def member_state(value: bytes) -> tuple[int, int]:
    """(epoch, state) of a member, from its current assignment. Raises MalformedRecord."""
    epoch = epoch_of(value)
    if len(value) < 11:
        raise MalformedRecord(f"a current assignment of {len(value)} bytes")
    return epoch, value[10]
