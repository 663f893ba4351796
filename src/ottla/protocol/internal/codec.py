"""A declarative codec for the records that Kafka's brokers write for themselves, which kio's schemas leave out.

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

import struct
from collections.abc import Callable, Sequence
from dataclasses import MISSING, field, fields
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from ottla.model import ZERO_UUID, Buffer
from ottla.protocol.varint import read_uvarint, write_uvarint

T = TypeVar("T")
FieldType = str | type | list[type]
"""A primitive's name, "[]" and a primitive's name, a record class, or a list of one record class."""

Write = Callable[[bytearray, Any], None]
Read = Callable[[Buffer, int], tuple[Any, int]]

_METADATA: Final = "ottla.codec"
_VERSION_MAX: Final = 32767


class MalformedRecord(ValueError):
    """Bytes that are no record of the claimed class and version."""


class UnsupportedVersion(ValueError):
    """A record holds a value that the version asked for has no field for."""


class _Spec(NamedTuple):
    type: FieldType
    versions: tuple[int, int]
    nullable: tuple[int, int]
    tag: int | None
    tagged: tuple[int, int]
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
    plan = _Spec(
        type,
        _version_range(versions),
        _version_range(nullable),
        tag,
        _version_range("none" if tag is None else tagged or versions),
        ignorable,
    )
    metadata = {_METADATA: plan}
    shown = not secret
    if default is not MISSING:
        return field(default=default, metadata=metadata, repr=shown)
    if isinstance(type, list):
        return field(default=(), metadata=metadata, repr=shown)
    if isinstance(type, str):
        zero = () if type.startswith("[]") else _PRIMITIVES[type].zero
        return field(default=zero, metadata=metadata, repr=shown)
    return field(default_factory=type, metadata=metadata, repr=shown)


def encode(record: Any, version: int) -> bytes:
    """The bytes of `record` in `version`. Raises UnsupportedVersion, or struct.error for a number out of range."""
    out = bytearray()
    encode_into(out, record, version)
    return bytes(out)


def encode_into(out: bytearray, record: Any, version: int) -> None:
    """Append the bytes of `record` in `version` to `out`; raises as `encode` does."""
    cls: Any = type(record)
    _struct_writer(cls, version, _is_flexible(cls, version))(out, record)


def decode(cls: type[T], version: int, buffer: Buffer, position: int = 0) -> T:
    """The record that fills `buffer` from `position` on. Raises MalformedRecord, also for bytes left over."""
    record, end = decode_from(cls, version, buffer, position)
    if end != len(buffer):
        raise MalformedRecord(f"{cls.__name__} v{version}: {len(buffer) - end} bytes left over")
    return record


def decode_from(cls: type[T], version: int, buffer: Buffer, position: int = 0) -> tuple[T, int]:
    """The record at `position` and the position after it. Raises MalformedRecord."""
    try:
        hashable: Any = cls
        record, end = _struct_reader(hashable, version, _is_flexible(cls, version))(buffer, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedRecord(f"{cls.__name__} v{version}: {error}") from error
    return record, end


def _is_flexible(cls: Any, version: int) -> bool:
    return _within(version, _version_range(getattr(cls, "FLEXIBLE", "0+")))


@cache
def _version_range(text: str) -> tuple[int, int]:
    if text == "none":
        return (0, -1)
    low, dash, high = text.partition("-")
    if low.endswith("+"):
        return (int(low[:-1]), _VERSION_MAX)
    return (int(low), int(high) if dash else int(low))


def _within(version: int, versions: tuple[int, int]) -> bool:
    return versions[0] <= version <= versions[1]


# Primitives


class _Primitive(NamedTuple):
    zero: Any
    fixed: str | None
    """The `struct` format of a type of fixed width; None for strings, bytes and UUIDs."""


_PRIMITIVES: Final[dict[str, _Primitive]] = {
    "bool": _Primitive(False, ">?"),
    "int8": _Primitive(0, ">b"),
    "int16": _Primitive(0, ">h"),
    "uint16": _Primitive(0, ">H"),
    "int32": _Primitive(0, ">i"),
    "uint32": _Primitive(0, ">I"),
    "int64": _Primitive(0, ">q"),
    "float64": _Primitive(0.0, ">d"),
    "uuid": _Primitive(ZERO_UUID, None),
    "string": _Primitive("", None),
    "bytes": _Primitive(b"", None),
}


def _fixed_writer(format_: str) -> Write:
    pack = struct.Struct(format_).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return write


def _fixed_reader(format_: str) -> Read:
    codec = struct.Struct(format_)
    unpack_from, size = codec.unpack_from, codec.size

    def read(buffer: Buffer, position: int) -> tuple[Any, int]:
        return unpack_from(buffer, position)[0], position + size

    return read


def _write_uuid(out: bytearray, value: UUID | None) -> None:
    out += (value or ZERO_UUID).bytes


def _read_uuid(buffer: Buffer, position: int) -> tuple[UUID, int]:
    end = position + 16
    return UUID(bytes=bytes(_slice(buffer, position, end))), end


def _slice(buffer: Buffer, position: int, end: int) -> Buffer:
    if end > len(buffer):
        raise MalformedRecord("a length points past the end")
    return buffer[position:end]


def _write_length(flexible: bool, small: bool) -> Callable[[bytearray, int], None]:
    """Writer of a length, -1 for null: compact (plus one, as uvarint), int16 for strings or int32 for the rest."""
    if flexible:
        return lambda out, length: write_uvarint(out, length + 1)
    return _fixed_writer(">h" if small else ">i")


def _read_length(flexible: bool, small: bool, nullable: bool) -> Callable[[Buffer, int], tuple[int, int]]:
    fixed = _fixed_reader(">h" if small else ">i")

    def read(buffer: Buffer, position: int) -> tuple[int, int]:
        length, position = read_uvarint(buffer, position) if flexible else fixed(buffer, position)
        if flexible:
            length -= 1
        if length < -1 or (length == -1 and not nullable):
            raise MalformedRecord("null in a field that is not nullable" if length == -1 else "a negative length")
        return length, position

    return read


def _text_writer(flexible: bool, nullable: bool, is_string: bool) -> Write:
    write_length = _write_length(flexible, small=is_string)

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise UnsupportedVersion("null in a field that is not nullable in this version")
            write_length(out, -1)
            return
        data = value.encode() if is_string else value
        write_length(out, len(data))
        out += data

    return write


def _text_reader(flexible: bool, nullable: bool, is_string: bool) -> Read:
    read_length = _read_length(flexible, is_string, nullable)

    def read(buffer: Buffer, position: int) -> tuple[Any, int]:
        length, position = read_length(buffer, position)
        if length < 0:
            return None, position
        end = position + length
        data = _slice(buffer, position, end)
        return (str(data, "utf-8") if is_string else bytes(data)), end

    return read


# Arrays


def _array_writer(write_item: Write, flexible: bool, nullable: bool) -> Write:
    write_length = _write_length(flexible, small=False)

    def write(out: bytearray, value: Sequence[Any] | None) -> None:
        if value is None:
            if not nullable:
                raise UnsupportedVersion("null in an array that is not nullable in this version")
            write_length(out, -1)
            return
        write_length(out, len(value))
        for item in value:
            write_item(out, item)

    return write


def _array_reader(read_item: Read, flexible: bool, nullable: bool) -> Read:
    read_length = _read_length(flexible, False, nullable)

    def read(buffer: Buffer, position: int) -> tuple[tuple[Any, ...] | None, int]:
        count, position = read_length(buffer, position)
        if count < 0:
            return None, position
        if count > len(buffer) - position:  # an item takes at least a byte
            raise MalformedRecord(f"{count} items in {len(buffer) - position} bytes")
        items = []
        for _ in range(count):
            item, position = read_item(buffer, position)
            items.append(item)
        return tuple(items), position

    return read


def _int_array_writer(format_: str, flexible: bool, nullable: bool) -> Write:
    """Writer of an array of numbers, all in one pack."""
    write_length = _write_length(flexible, small=False)
    letter = format_[1]

    def write(out: bytearray, value: Sequence[Any] | None) -> None:
        if value is None:
            if not nullable:
                raise UnsupportedVersion("null in an array that is not nullable in this version")
            write_length(out, -1)
            return
        write_length(out, len(value))
        out += struct.pack(f">{len(value)}{letter}", *value)

    return write


def _int_array_reader(format_: str, flexible: bool, nullable: bool) -> Read:
    """Reader of an array of numbers, all in one unpack."""
    read_length = _read_length(flexible, False, nullable)
    size = struct.calcsize(format_)
    letter = format_[1]

    def read(buffer: Buffer, position: int) -> tuple[tuple[Any, ...] | None, int]:
        count, position = read_length(buffer, position)
        if count < 0:
            return None, position
        end = position + count * size
        if end > len(buffer):
            raise MalformedRecord("a length points past the end")
        return struct.unpack_from(f">{count}{letter}", buffer, position), end

    return read


# Fields and structs


def _item_codec(
    type_: str | type, version: int, flexible: bool, nullable: bool, null_byte: int = 0xFF
) -> tuple[Write, Read]:
    if not isinstance(type_, str):
        if nullable:
            return _nullable_struct(type_, version, flexible, null_byte)
        return _struct_writer(type_, version, flexible), _struct_reader(type_, version, flexible)
    if type_ == "uuid":
        return _write_uuid, _read_uuid
    fixed = _PRIMITIVES[type_].fixed
    if fixed is not None:
        return _fixed_writer(fixed), _fixed_reader(fixed)
    is_string = type_ == "string"
    return _text_writer(flexible, nullable, is_string), _text_reader(flexible, nullable, is_string)


def _field_codec(plan: _Spec, version: int, flexible: bool) -> tuple[Write, Read]:
    nullable = _within(version, plan.nullable)
    if isinstance(plan.type, list):
        item: str | type = plan.type[0]
    elif isinstance(plan.type, str) and plan.type.startswith("[]"):
        item = plan.type[2:]
    else:
        is_tagged = flexible and _within(version, plan.tagged)
        return _item_codec(plan.type, version, flexible, nullable, 0 if is_tagged else 0xFF)
    write, read = _item_codec(item, version, flexible, nullable=False)
    fixed = _PRIMITIVES[item].fixed if isinstance(item, str) else None
    if fixed:
        return _int_array_writer(fixed, flexible, nullable), _int_array_reader(fixed, flexible, nullable)
    return _array_writer(write, flexible, nullable), _array_reader(read, flexible, nullable)


def _nullable_struct(cls: type, version: int, flexible: bool, null_byte: int) -> tuple[Write, Read]:
    """A struct that may be null has a byte before it: 1 for a value, and for null -1 or, in a tagged field, 0."""
    write_value, read_value = _struct_writer(cls, version, flexible), _struct_reader(cls, version, flexible)

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(null_byte)
        else:
            out.append(1)
            write_value(out, value)

    def read(buffer: Buffer, position: int) -> tuple[Any, int]:
        if buffer[position] == 0 if null_byte == 0 else buffer[position] > 0x7F:
            return None, position + 1
        return read_value(buffer, position + 1)

    return write, read


class _Field(NamedTuple):
    name: str
    plan: _Spec
    default: Any


@cache
def _fields(cls: type) -> tuple[_Field, ...]:
    found = []
    for item in fields(cls):
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        found.append(_Field(item.name, item.metadata[_METADATA], default))
    return tuple(found)


def _split(cls: type, version: int, flexible: bool) -> tuple[list[_Field], list[_Field], list[_Field]]:
    """The fields of a class in a version: in sequence, tagged (by tag), absent."""
    plain, tagged, absent = [], [], []
    for item in _fields(cls):
        if not _within(version, item.plan.versions):
            absent.append(item)
        elif flexible and _within(version, item.plan.tagged):
            tagged.append(item)
        else:
            plain.append(item)
    tagged.sort(key=lambda item: item.plan.tag or 0)
    return plain, tagged, absent


@cache
def _struct_writer(cls: type, version: int, flexible: bool) -> Write:
    plain_fields, tagged_fields, absent = _split(cls, version, flexible)
    plain = [(item.name, _field_codec(item.plan, version, flexible)[0]) for item in plain_fields]
    tagged = [
        (item.name, item.plan.tag or 0, item.default, _field_codec(item.plan, version, flexible)[0])
        for item in tagged_fields
    ]
    refused = [(item.name, item.default) for item in absent if not item.plan.ignorable]

    def write(out: bytearray, record: Any) -> None:
        for name, default in refused:
            if getattr(record, name) != default:
                raise UnsupportedVersion(f"{cls.__name__} v{version} has no field {name}")
        for name, write_field in plain:
            write_field(out, getattr(record, name))
        if flexible:
            _write_tagged(out, record, tagged)

    return write


def _write_tagged(out: bytearray, record: Any, tagged: Sequence[tuple[str, int, Any, Write]]) -> None:
    """Tagged fields that differ from their default, after their number; each as tag, size, value."""
    present = []
    for name, tag, default, write_field in tagged:
        value = getattr(record, name)
        if isinstance(value, list):
            value = tuple(value)
        if value != default:
            data = bytearray()
            write_field(data, value)
            present.append((tag, data))
    write_uvarint(out, len(present))
    for tag, data in present:
        write_uvarint(out, tag)
        write_uvarint(out, len(data))
        out += data


@cache
def _struct_reader(cls: type[Any], version: int, flexible: bool) -> Read:
    plain_fields, tagged_fields, _ = _split(cls, version, flexible)
    plain = [(item.name, _field_codec(item.plan, version, flexible)[1]) for item in plain_fields]
    tagged = {item.plan.tag or 0: (item.name, _field_codec(item.plan, version, flexible)[1]) for item in tagged_fields}

    def read(buffer: Buffer, position: int) -> tuple[Any, int]:
        values = {}
        for name, read_field in plain:
            values[name], position = read_field(buffer, position)
        if flexible:
            position = _read_tagged(buffer, position, tagged, values)
        return cls(**values), position

    return read


def _read_tagged(buffer: Buffer, position: int, tagged: dict[int, tuple[str, Read]], values: dict[str, Any]) -> int:
    """Put known tagged fields into `values`, skip the others, and return the position after them."""
    count, position = read_uvarint(buffer, position)
    if count > len(buffer) - position:  # a tagged field takes at least two bytes
        raise MalformedRecord(f"{count} tagged fields in {len(buffer) - position} bytes")
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        length, position = read_uvarint(buffer, position)
        end = position + length
        if end > len(buffer):
            raise MalformedRecord("a tagged field points past the end")
        known = tagged.get(tag)
        if known is not None:
            name, read_field = known
            values[name], stop = read_field(buffer, position)
            if stop != end:
                raise MalformedRecord(f"tagged field {name} is not as long as it says")
        position = end
    return position
