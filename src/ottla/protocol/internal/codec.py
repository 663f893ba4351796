"""Encodes and decodes the records that Kafka's brokers write for themselves, whose classes are in `schemas/records.py`.

`encode(record, version)` and `decode(cls, version, buffer)` follow the message protocol: compact lengths and tagged
fields in flexible versions (KIP-482), int16 and int32 lengths before. Arrays decode to tuples, UUIDs to `UUID`. The
frames around a record (API key and version prefixes) belong to the modules beside.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from ottla.model import Buffer
from ottla.protocol import schemas
from ottla.protocol.layout import Layout, Malformed
from ottla.protocol.layout import UnsupportedVersion as UnsupportedVersion
from ottla.protocol.reader import read_record
from ottla.protocol.writer import write_struct

T = TypeVar("T")


class MalformedRecord(ValueError):
    """Bytes that are no record of the claimed class and version."""


def encode(record: Any, version: int) -> bytes:
    """The bytes of `record` in `version`. Raises UnsupportedVersion, or struct.error for a number out of range."""
    cls: Any = type(record)
    return write_struct(layout(cls, version), record)


def encode_into(out: bytearray, record: Any, version: int) -> None:
    """Append the bytes of `record` in `version` to `out`; raises as `encode` does."""
    out += encode(record, version)


def decode(cls: type[T], version: int, buffer: Buffer, position: int = 0) -> T:
    """The record that fills `buffer` from `position` on. Raises MalformedRecord, also for bytes left over."""
    record, end = decode_from(cls, version, buffer, position)
    if end != len(buffer):
        raise MalformedRecord(f"{cls.__name__} v{version}: {len(buffer) - end} bytes left over")
    return record


def decode_from(cls: type[T], version: int, buffer: Buffer, position: int = 0, items_max: int = 0) -> tuple[T, int]:
    """The record at `position` and the position after it; a client's has at most `items_max` items of arrays, one of
    the broker's own as many as there are bytes. Raises MalformedRecord."""
    hashable: Any = cls
    try:
        return read_record(layout(hashable, version), buffer, position, items_max)
    except Malformed as error:
        raise MalformedRecord(f"{cls.__name__} v{version}: {error}") from error


@cache
def layout(cls: Any, version: int) -> Layout:
    """How a record of `cls` travels in `version`."""
    return schemas.record_layout(cls, version)
