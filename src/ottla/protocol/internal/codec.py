"""Declares how the records travel that Kafka's brokers write for themselves; `reader.py` and `writer.py` go by it.

A record is a plain dataclass whose fields say how they travel, in the order and the words of Kafka's message schemas::

    @dataclass(slots=True)
    class TopicRecord:
        FLEXIBLE: ClassVar[str] = "0+"     # "none" for the old encoding; "0+" is the default
        name: str = spec("string")
        topic_id: UUID = spec("uuid")
        replicas: tuple[int, ...] = spec("[]int32")
        endpoints: tuple[Endpoint, ...] = spec([Endpoint], versions="1+")
        rack: str | None = spec("string", nullable="0+", default=None, tag=0)

`encode(record, version)` and `decode(cls, version, buffer)` then follow the message protocol: compact lengths and
tagged fields in flexible versions (KIP-482), int16 and int32 lengths before. Arrays decode to tuples, UUIDs to `UUID`.
The frames around a record (API key and version prefixes) belong to the modules that declare them.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from dataclasses import field as dataclass_field
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

from ottla.model import Buffer
from ottla.protocol import layout as layouts
from ottla.protocol import schemas
from ottla.protocol.layout import Field, Layout, Malformed
from ottla.protocol.layout import UnsupportedVersion as UnsupportedVersion
from ottla.protocol.reader import read_record
from ottla.protocol.schemas import ZEROS, Versions, within
from ottla.protocol.schemas import versions as version_range
from ottla.protocol.writer import write_struct

T = TypeVar("T")
FieldType = str | type | list[type]
"""A primitive's name, "[]" and a primitive's name, a record class, or a list of one record class."""

_METADATA: Final = "ottla.codec"


class MalformedRecord(ValueError):
    """Bytes that are no record of the claimed class and version."""


class _Spec(NamedTuple):
    type: FieldType
    versions: Versions
    nullable: Versions
    tag: int | None
    tagged: Versions
    ignorable: bool


def spec(
    type: FieldType,
    *,
    versions: str = "0+",
    nullable: str = "none",
    tag: int | None = None,
    tagged: str | None = None,
    default: Any = MISSING,
    ignorable: bool = False,
    secret: bool = False,
) -> Any:
    """A dataclass field of a record. Version ranges are "0+", "1-3", "2" or "none", as in Kafka's schemas.

    `tagged` are the versions in which a field with a `tag` travels as a tagged field (all of `versions` by default).
    Without `default` a field is zero: "", b"", (), False, the null UUID, or a record of zeros. An `ignorable` field
    that is set is dropped silently in versions that lack it; any other raises UnsupportedVersion. A `secret` field is
    not in the record's repr, and nobody else may show it either.
    """
    tagged_in = "none" if tag is None else tagged or versions
    plan = _Spec(
        type,
        version_range(versions),
        version_range(nullable),
        tag,
        version_range(tagged_in),
        ignorable,
    )
    metadata = {_METADATA: plan}
    shown = not secret
    if default is not MISSING:
        return dataclass_field(default=default, metadata=metadata, repr=shown)
    if isinstance(type, list):
        return dataclass_field(default=(), metadata=metadata, repr=shown)
    if isinstance(type, str):
        zero = () if type.startswith("[]") else ZEROS.get(type, 0)
        return dataclass_field(default=zero, metadata=metadata, repr=shown)
    return dataclass_field(default_factory=type, metadata=metadata, repr=shown)


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
    if issubclass(cls, schemas.Message):
        return schemas.record_layout(cls, version)
    return _layout(cls, version, within(version, version_range(getattr(cls, "FLEXIBLE", "0+"))))


def _layout(cls: Any, version: int, flexible: bool) -> Layout:
    plain: list[Field] = []
    tagged: list[Field] = []
    absent: list[Field] = []
    refused: list[Field] = []
    for each in fields(cls):
        plan: _Spec = each.metadata[_METADATA]
        is_array = isinstance(plan.type, list) or (isinstance(plan.type, str) and plan.type.startswith("[]"))
        item = plan.type[0] if isinstance(plan.type, list) else plan.type
        is_struct = not isinstance(item, str)
        is_tagged = flexible and within(version, plan.tagged)
        field = Field(
            each.name,
            "struct" if is_struct else str(item).removeprefix("[]"),
            is_array=is_array,
            nullable=within(version, plan.nullable),
            default=each.default if each.default_factory is MISSING else layouts.MISSING,
            layout=_layout(item, version, flexible) if is_struct else None,
            flexible=flexible,
            tag=plan.tag if is_tagged and plan.tag is not None else -1,
        )
        if within(version, plan.versions):
            (tagged if is_tagged else plain).append(field)
        else:
            absent.append(field)
            if not plan.ignorable:
                refused.append(field)
    return Layout(cls, plain, tagged, absent, refused, flexible)
