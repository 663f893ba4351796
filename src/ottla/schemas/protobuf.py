"""Protobuf to Arrow columns and back, by descriptors (`protobuf_files.py`).

As Spark's `from_protobuf`: an enum is its name, a field with presence is null where it is absent, a repeated field an
array, Timestamp a timestamp, wrappers what they wrap. Refused: messages that hold themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from ottla.formats.errors import SchemaError
from ottla.formats.nested import Bad, Build, array, integer, mapping, scalars, struct, utf8
from ottla.schemas.protobuf_files import message_at, path_of
from ottla.schemas.wire import message_path, path_bytes

UTC = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class _Codec:
    type: pa.DataType
    build: Build
    read: Callable[[Any], Any]
    """Converts a protobuf field's value to the input of `build`."""
    write: Callable[[Any], Any]
    """An Arrow value to what protobuf takes."""


def _same(value: Any) -> Any:
    return value


def _plain(kind: pa.DataType, one: Callable[[Any], Any], python: type) -> _Codec:
    return _Codec(kind, scalars(kind, one, {python}), _same, _same)


_LONG = _plain(pa.int64(), partial(integer, bits=64), int)
_INT = _plain(pa.int32(), partial(integer, bits=32), int)
_DOUBLE = _plain(pa.float64(), float, float)
_FLOAT = _plain(pa.float32(), float, float)
_STRING = _plain(pa.string(), utf8, str)
_BYTES = _plain(pa.binary(), bytes, bytes)
_BOOL = _plain(pa.bool_(), bool, bool)
# By FieldDescriptor's type: double 1, float 2, int64 3, uint64 4, int32 5, fixed64 6, fixed32 7, bool 8, string 9,
# bytes 12, uint32 13, sfixed32 15, sfixed64 16, sint32 17, sint64 18.
_SCALARS = {
    1: _DOUBLE, 2: _FLOAT, 3: _LONG, 4: _LONG, 5: _INT, 6: _LONG, 7: _LONG, 8: _BOOL, 9: _STRING, 12: _BYTES,
    13: _LONG, 15: _INT, 16: _LONG, 17: _INT, 18: _LONG,
}  # fmt: skip
_ENUM, _MESSAGE, _GROUP = 14, 11, 10


class ProtobufValues:
    """Values of one message of a schema. The message indexes stand before each, in Confluent's way."""

    def __init__(self, file: Any, name: str | None = None) -> None:
        """The message of this name, else the first one. Raises SchemaError."""
        from google.protobuf import message_factory

        path = (0,) if name is None else path_of(file, name)
        self.descriptor = message_at(file, path)
        self._class = message_factory.GetMessageClass(self.descriptor)
        self._path = path_bytes(path)
        self._codec = _message(self.descriptor, ())
        self.type: pa.DataType = self._codec.type

    def decode(self, values: list[bytes | None], bad: Bad, file: Any) -> pa.Array:
        """Values written with the schema `file`, whose message indexes lead to a message of the same name."""
        parse, read = self._class.FromString, self._codec.read
        found: list[Any] = []
        names: dict[tuple[int, ...], str] = {}
        for row, value in enumerate(values):
            datum = None
            if value is not None:
                try:
                    path, at = message_path(value, 0)
                    if path not in names:
                        names[path] = message_at(file, path).full_name
                    if names[path] != self.descriptor.full_name:
                        raise ValueError(f"the message is {names[path]}, not {self.descriptor.full_name}")
                    datum = read(parse(value[at:]))
                except Exception as error:  # DecodeError, ValueError, and what else protobuf raises for wrong bytes
                    bad.mark(row, f"not Protobuf of this schema: {type(error).__name__}: {error}")
            found.append(datum)
        return self._codec.build(found, range(len(found)), bad)

    def encode(self, column: pa.Array) -> pa.Array:
        """Message indexes and bytes of each row. Raises ValueError for values that the schema has no place for."""
        found: list[bytes | None] = []
        if column.type != self.type:
            column = column.cast(self.type)
        for row in column.to_pylist():
            if row is None:
                found.append(None)
                continue
            try:
                datum = self._class(**self._codec.write(row))
                found.append(self._path + datum.SerializeToString(deterministic=True))
            except Exception as error:  # as above
                raise ValueError(f"a row does not fit its Protobuf schema: {error}") from error
        return pa.array(found, pa.binary())


def _message(descriptor: Any, within: tuple[str, ...]) -> _Codec:
    name = descriptor.full_name
    if name in within:
        raise SchemaError(f"the Protobuf message {name} holds itself: recursive types have no columns")
    if name == "google.protobuf.Timestamp":
        build = scalars(UTC, partial(integer, bits=64), {int})
        return _Codec(UTC, build, lambda value: value.seconds * 1_000_000 + value.nanos // 1000, _timestamp)
    if descriptor.file.name == "google/protobuf/wrappers.proto":
        inner = _SCALARS[descriptor.fields[0].type]
        return _Codec(inner.type, inner.build, lambda value: value.value, lambda value: {"value": value})
    fields = [(each, _field(each, (*within, name))) for each in descriptor.fields]
    whole, build = struct([(each.name, codec.type, codec.build) for each, codec in fields])
    readers = [(each.name, each.has_presence, codec.read) for each, codec in fields]
    writers = {each.name: codec.write for each, codec in fields}

    def read(message: Any) -> dict[str, Any]:
        return {
            name: one(getattr(message, name))
            for name, optional, one in readers
            if not optional or message.HasField(name)
        }

    def write(row: dict[str, Any]) -> dict[str, Any]:
        return {name: writers[name](value) for name, value in row.items() if value is not None}

    return _Codec(whole, build, read, write)


def _timestamp(value: Any) -> dict[str, int]:
    from datetime import UTC as ZONE
    from datetime import datetime, timedelta

    micros = (value - datetime(1970, 1, 1, tzinfo=ZONE)) // timedelta(microseconds=1)
    seconds, left = divmod(micros, 1_000_000)
    return {"seconds": seconds, "nanos": left * 1000}


def _field(field: Any, within: tuple[str, ...]) -> _Codec:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        items = _one(value, within)
        whole, build = mapping(items.type, items.build)
        text = (lambda each: str(each).lower()) if key.type == 8 else str
        back: Callable[[str], Any] = str if key.type == 9 else (lambda each: each == "true") if key.type == 8 else int
        return _Codec(
            whole,
            build,
            lambda found: {text(name): items.read(found[name]) for name in found},
            lambda pairs: {back(name): items.write(each) for name, each in pairs},
        )
    one = _one(field, within)
    if not field.is_repeated:
        return one
    whole, build = array(one.type, one.build)
    return _Codec(
        whole,
        build,
        lambda found: [one.read(each) for each in found],
        lambda found: [one.write(each) for each in found],
    )


def _one(field: Any, within: tuple[str, ...]) -> _Codec:
    if field.type in (_MESSAGE, _GROUP):
        return _message(field.message_type, within)
    if field.type == _ENUM:
        numbers = {each.number: each.name for each in field.enum_type.values}
        codes = {each.name: each.number for each in field.enum_type.values}
        return _Codec(
            pa.string(),
            _STRING.build,
            lambda value: numbers.get(value, str(value)),
            lambda name: codes[name] if name in codes else int(name),
        )
    return _SCALARS[field.type]


def derived(kind: pa.DataType, name: str) -> str:
    """The text of a proto3 schema with one message for an Arrow struct. Raises SchemaError."""
    if not pa.types.is_struct(kind):
        raise SchemaError(f"Protobuf has messages only: a struct is wanted, not {kind}")
    body = _message_text(kind, name, "")
    uses = "google.protobuf.Timestamp" in body
    head = 'syntax = "proto3";\n' + ('import "google/protobuf/timestamp.proto";\n' if uses else "")
    return f"{head}\n{body}"


def _message_text(kind: pa.DataType, name: str, indent: str) -> str:
    lines, nested = [], []
    for number, field in enumerate(kind, 1):
        label, inner = "optional ", field.type
        if pa.types.is_list(inner):
            label, inner = "repeated ", inner.value_type
        if pa.types.is_map(inner) and label == "optional ":
            text, value = "map<string, {}>", inner.item_type
            label = ""
        else:
            text, value = "{}", inner
        message = f"{field.name[:1].upper()}{field.name[1:]}Message"
        if pa.types.is_struct(value):
            nested.append(_message_text(value, message, indent + "  "))
        found = message if pa.types.is_struct(value) else _TYPES.get(value)
        if found is None:
            raise SchemaError(f"{field.name}: {field.type} has no type in Protobuf")
        lines.append(f"{indent}  {label}{text.format(found)} {field.name} = {number};\n")
    return f"{indent}message {name} {{\n{''.join(nested)}{''.join(lines)}{indent}}}\n"


_TYPES = {
    pa.bool_(): "bool", pa.int8(): "int32", pa.int16(): "int32", pa.int32(): "int32", pa.int64(): "int64",
    pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.binary(): "bytes",
    UTC: "google.protobuf.Timestamp",
}  # fmt: skip
