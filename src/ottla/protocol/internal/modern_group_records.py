"""The keys of the records of newer group protocols in `__consumer_offsets`: consumer (KIP-848), share (KIP-932) and
streams groups (KIP-1071).

A broker that deletes such a group must name each record. The values are in `consumer_group_records.py`,
`share_group_records.py` and `streams_group_records.py`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from ottla.model import Buffer
from ottla.protocol.internal.codec import MalformedRecord, decode, spec


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

_TYPES: Final = {
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
_SHORT = struct.Struct(">h")
_TYPE_AND_LENGTH = struct.Struct(">hh")
_INT = struct.Struct(">i")


@dataclass(slots=True)
class _GroupKey:
    FLEXIBLE: ClassVar[str] = "none"
    group: str = spec("string")


@dataclass(slots=True)
class _MemberKey:
    FLEXIBLE: ClassVar[str] = "none"
    group: str = spec("string")
    member: str = spec("string")


def types_of(key: ModernKey) -> ModernTypes:
    return _TYPES[key.type]


def name_of(key: ModernKey) -> str:
    """Kafka's name of this type of record."""
    types = _TYPES[key.type]
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
    if number not in _TYPES:
        return None
    if number in _OF_MEMBERS:
        member = decode(_MemberKey, 0, key, 2)
        return ModernKey(number, member.group, member.member)
    return ModernKey(number, decode(_GroupKey, 0, key, 2).group)


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
