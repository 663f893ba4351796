"""The values of the records of consumer, share and streams groups: an int16 version, which is 0, and the fields."""

from __future__ import annotations

import struct
from typing import Final

from ottla.model import Buffer
from ottla.protocol.internal.codec import MalformedRecord, decode, encode
from ottla.protocol.internal.consumer_group_records import CONSUMER_GROUP_VALUES, ConsumerGroupValue
from ottla.protocol.internal.share_group_records import SHARE_GROUP_VALUES, ShareGroupValue
from ottla.protocol.internal.streams_group_records import STREAMS_GROUP_VALUES, StreamsGroupValue

GroupValue = ConsumerGroupValue | ShareGroupValue | StreamsGroupValue
VERSION: Final = 0
_SHORT = struct.Struct(">h")
_VERSION: Final = _SHORT.pack(VERSION)
_VALUES: Final[dict[int, type[GroupValue]]] = {
    **CONSUMER_GROUP_VALUES,
    **SHARE_GROUP_VALUES,
    **STREAMS_GROUP_VALUES,
}


def encode_group_value(value: GroupValue) -> bytes:
    return _VERSION + encode(value, VERSION)


def decode_group_value(number: int, value: Buffer) -> GroupValue:
    """The value of a record whose key has the type `number`. Raises MalformedRecord."""
    if len(value) < 2:
        raise MalformedRecord("a value without a version")
    (version,) = _SHORT.unpack_from(value)
    cls = _VALUES[number]
    if version != VERSION:
        raise MalformedRecord(f"{cls.__name__} in version {version}, newest known is {VERSION}")
    return decode(cls, version, value, 2)
