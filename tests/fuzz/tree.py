"""A request as a tree of values that can each be written wrong: by kio's schemas, but with a writer of its own.

A writer that only writes what is right is no use here, so each `Value` may hold raw bytes to be written in its place.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional

from ottla.protocol import messages

FIXED = {
    "bool": ">B", "int8": ">b", "int16": ">h", "uint16": ">H", "error_code": ">h", "int32": ">i", "uint32": ">I",
    "timedelta_i32": ">i", "int64": ">q", "float64": ">d", "timedelta_i64": ">q", "datetime_i64": ">q",
}  # fmt: skip
SIZED = ("string", "bytes", "records")


@dataclass(slots=True)
class Value:
    path: str
    kind: str
    """A type of kio's for scalars, else "array", "struct", "records"."""
    flexible: bool
    nullable: bool
    content: Any
    """A number, bytes, a list of values, or None for null."""
    tags: list[tuple[int, Any]] = field(default_factory=list)
    """Tagged fields of a struct: tag and value (or bytes)."""
    raw: bytes | None = None
    """Written instead, whatever else is here."""

    @property
    def children(self) -> list[Value]:
        below = self.content if isinstance(self.content, list) else []
        return [*below, *(each for _, each in self.tags if isinstance(each, Value))]

    def walk(self) -> Iterator[Value]:
        """This value and all below it that are written."""
        yield self
        if self.raw is None:
            for each in self.children:
                yield from each.walk()


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def length(value: Value, count: int) -> bytes:
    """The length that stands before strings, bytes and arrays; -1 for null."""
    if value.flexible:
        return uvarint((count + 1) & 0xFFFFFFFF)
    return struct.pack(">h" if value.kind == "string" else ">i", count)


def null(value: Value) -> bytes:
    return b"\xff" if value.kind == "struct" else length(value, -1)


def render(value: Value) -> bytes:
    """The bytes of a value and all below it."""
    if value.raw is not None:
        return value.raw
    if value.kind in FIXED:
        return struct.pack(FIXED[value.kind], value.content)
    if value.kind == "uuid":
        return bytes(value.content)
    if value.content is None:
        return null(value)
    return head(value) + body(value)


def head(value: Value) -> bytes:
    """Bytes before the content: a length, or the byte that says that a struct is not null."""
    if value.kind == "struct":
        return b"\1" if value.nullable else b""
    return length(value, len(value.content))


def body(value: Value) -> bytes:
    """The content without what stands before it."""
    if value.kind in SIZED:
        return bytes(value.content)
    written = b"".join(map(render, value.content))
    if value.kind == "struct" and value.flexible:
        written += tagged(value.tags)
    return written


def tagged(tags: list[tuple[int, Any]]) -> bytes:
    out = uvarint(len(tags))
    for tag, value in tags:
        data = value if isinstance(value, bytes) else render(value)
        out += uvarint(tag) + uvarint(len(data)) + data
    return out


Draw = Callable[[Any, str, bool, bool], Any]
"""(kio's field, its type, whether it may be null, whether it is an array) -> a number, bytes, None, or rows."""


def tree(cls: type, draw: Draw, path: str = "", nullable: bool = False) -> Value:
    """A struct of kio's class `cls` with drawn values."""
    made = Value(path, "struct", cls.__flexible__, nullable, [])  # type: ignore[attr-defined]
    for each in fields(cls):
        value = _field(each, draw, f"{path}.{each.name}" if path else each.name, made.flexible)
        if "tag" not in each.metadata:
            made.content.append(value)
        elif value is not None:
            made.tags.append((each.metadata["tag"], value))
    return made


def _field(each: Any, draw: Draw, path: str, flexible: bool) -> Value:
    kind = classify_field(each)
    of_struct = isinstance(kind, EntityField | EntityTupleField)
    kafka_type = "struct" if of_struct else each.metadata["kafka_type"]
    nullable = is_optional(each)
    drawn = draw(each, kafka_type, nullable, kind.is_array)
    if kind.is_array:
        rows = None
        if drawn is not None:
            rows = [
                tree(kind.type_, draw, path) if of_struct else Value(path, kafka_type, flexible, False, item)
                for item in drawn
            ]
        return Value(path, "array", flexible, nullable, rows)
    if of_struct:
        if drawn is None:
            return Value(path, "struct", flexible, True, None)
        return tree(kind.type_, draw, path, nullable)
    return Value(path, kafka_type, flexible, nullable, drawn)


def frame(key: int, version: int, correlation_id: int, client_id: str, request: Value) -> bytes:
    """A request frame without its length prefix."""
    name = client_id.encode()
    head = struct.pack(">hhih", key, version, correlation_id, len(name)) + name
    return head + (b"\0" if messages.is_flexible(key, version) else b"") + render(request)
