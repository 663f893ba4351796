"""The values of the records of consumer, share and streams groups: an int16 version, which is 0, and the fields."""

from __future__ import annotations

import struct
from typing import Any, Final

from ottla.model import Buffer
from ottla.protocol import schemas
from ottla.protocol.internal.codec import MalformedRecord, decode, encode
from ottla.protocol.schemas.records import Record

VERSION: Final = 0
_SHORT = struct.Struct(">h")
_VERSION: Final = _SHORT.pack(VERSION)
_NAMES: Final = schemas.by_key("coordinator-value", "(Consumer|Share|Streams)Group")


def encode_group_value(value: Record) -> bytes:
    return _VERSION + encode(value, VERSION)


def decode_group_value(number: int, value: Buffer) -> Any:
    """The value of a record whose key has the type `number`. Raises MalformedRecord."""
    if len(value) < 2:
        raise MalformedRecord("a value without a version")
    (version,) = _SHORT.unpack_from(value)
    cls = schemas.message_class(_NAMES[number])
    if version != VERSION:
        raise MalformedRecord(f"{cls.__name__} in version {version}, newest known is {VERSION}")
    return decode(cls, version, value, 2)
