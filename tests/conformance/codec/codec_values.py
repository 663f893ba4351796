"""Random messages of Kafka's definitions: their values, their JSON as Kafka's converters read it, and their bytes.

The bytes come from a writer that is as simple as it can be and notes where every length stands, so that a test can make
each of them hostile. Kafka's own writer has to give the same bytes.
"""

from __future__ import annotations

import base64
import random
import struct
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from tests.conformance.codec.message_definitions import INTEGERS, Definition, Field, Struct

Tree = dict[str, Any]
"""A struct's values by Kafka's field names, only those of the version."""
FORMATS: Final = {
    "int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q", "float64": ">d",
    "bool": ">?",
}  # fmt: skip
UNSAID: Final = object()
"""Stands for records, which Kafka's converters leave out of their JSON."""
TEXTS: Final = ("", "a", "topic-1", "ß中🐘", "\0", "e\u0301", "x" * 130, "é" * 70)
BLOBS: Final = (b"", b"\0", b"\xff\xfe", b"bytes", b"\x80" * 130)
FLOATS: Final = (0.0, -0.0, 1.5, -1e300, 5e-324, 1.7976931348623157e308)


@dataclass
class Dice:
    """What values a message is given."""

    randoms: random.Random
    dense: bool = False
    """Everything is there, no null and no empty array, and numbers are small."""


def default_of(field: Field) -> Any:
    """The value of a field that is not there."""
    text = field.default
    if text == "null":
        return None
    if field.is_array:
        return []
    if field.struct is not None:
        return {each.name: default_of(each) for each in field.struct.fields}
    if field.type in INTEGERS:
        return int(text, 0) if text else 0
    if field.type == "float64":
        return float(text or 0)
    return {"bool": text == "true", "uuid": UUID(int=0), "string": text or "", "bytes": b"", "records": None}[
        field.type
    ]


def defaults(each: Struct, version: int) -> Tree:
    return {field.name: default_within(field, version) for field in each.at(version)}


def default_within(field: Field, version: int) -> Any:
    value = default_of(field)
    return defaults(field.struct, version) if isinstance(value, dict) and field.struct is not None else value


def draw(each: Struct, version: int, dice: Dice) -> Tree:
    """Random values of a struct."""
    return {field.name: _draw_field(field, version, dice) for field in each.at(version)}


def _draw_field(field: Field, version: int, dice: Dice) -> Any:
    chance = dice.randoms.random()
    if not dice.dense:
        if version in field.nullable and chance < 0.2:
            return None
        if chance > 0.8:
            default = default_within(field, version)
            if default is not None or version in field.nullable:
                return default
    if not field.is_array:
        return _draw_one(field, version, dice)
    count = 1 if dice.dense else dice.randoms.choice((0, 1, 1, 2, 3))
    return [_draw_one(field, version, dice) for _ in range(count)]


def _draw_one(field: Field, version: int, dice: Dice) -> Any:
    randoms = dice.randoms
    if field.struct is not None:
        return draw(field.struct, version, dice)
    if field.type in INTEGERS:
        low, high = INTEGERS[field.type]
        if dice.dense:
            return randoms.randrange(100)
        edges = (low, high, 0, 1, max(low, -1))
        return randoms.choice(edges) if randoms.random() < 0.5 else randoms.randint(low, high)
    if field.type == "uuid":
        return UUID(int=randoms.choice((0, 1, randoms.getrandbits(128), 2**128 - 1)))
    if field.type == "float64":
        return randoms.choice((*FLOATS, randoms.random()))
    if field.type == "bool":
        return randoms.random() < 0.5
    return randoms.choice(TEXTS if field.type == "string" else BLOBS)


# JSON


def to_json(each: Struct, version: int, tree: Tree) -> Tree:
    """As Kafka's `JsonConverter` classes read it."""
    return {_camel(field.name): _json_field(field, version, tree[field.name]) for field in each.at(version)}


def _camel(name: str) -> str:
    return name[0].lower() + name[1:]


def _json_field(field: Field, version: int, value: Any) -> Any:
    if isinstance(value, list):
        return [_json_one(field, version, each) for each in value]
    return _json_one(field, version, value)


def _json_one(field: Field, version: int, value: Any) -> Any:
    if isinstance(value, dict) and field.struct is not None:
        return to_json(field.struct, version, value)
    if isinstance(value, UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def from_json(each: Struct, version: int, json: Tree) -> Tree:
    """The values in what a `JsonConverter` wrote, which leaves out tagged fields at their defaults."""
    return {
        field.name: _value_of(field, version, json[_camel(field.name)])
        if _camel(field.name) in json
        else default_within(field, version)
        for field in each.at(version)
    }


def _value_of(field: Field, version: int, json: Any) -> Any:
    if json is None:
        return None
    if field.is_array and isinstance(json, list):
        return [_value_of_one(field, version, each) for each in json]
    return _value_of_one(field, version, json)


def _value_of_one(field: Field, version: int, json: Any) -> Any:
    if field.struct is not None:
        return from_json(field.struct, version, json)
    if field.type == "uuid":
        return UUID(bytes=base64.urlsafe_b64decode(json + "=="))
    if field.type == "float64":
        return float(json)
    if field.type == "records":
        return UNSAID
    return base64.b64decode(json) if field.type == "bytes" else json


# Bytes


@dataclass
class Length:
    """Where a length stands in a message."""

    start: int
    end: int
    kind: str
    """`string`, `bytes`, `array`, `tags` (their number) or `tag` (the size of one)."""
    compact: bool
    value: int
    """-1 for null."""

    def changed(self, frame: bytes, value: int) -> bytes:
        """The message with another length here, in the range that it can be written in."""
        return frame[: self.start] + self.bytes_of(value) + frame[self.end :]

    def bytes_of(self, value: int) -> bytes:
        if self.compact:
            return uvarint((value + (self.kind not in ("tags", "tag"))) & 0xFFFFFFFF)
        low, high = INTEGERS["int16" if self.kind == "string" else "int32"]
        return struct.pack(">h" if self.kind == "string" else ">i", min(max(value, low), high))


@dataclass
class Writer:
    """Writes a message and notes its lengths."""

    version: int
    flexible: bool
    out: bytearray = field(default_factory=bytearray)
    lengths: list[Length] = field(default_factory=list)

    def length(self, kind: str, value: int) -> None:
        found = Length(len(self.out), 0, kind, self.flexible, value)
        self.out += found.bytes_of(value)
        found.end = len(self.out)
        self.lengths.append(found)

    def struct(self, each: Struct, tree: Tree) -> None:
        present = each.at(self.version)
        tagged = [one for one in present if self.flexible and one.is_tagged(self.version)]
        for one in present:
            if one not in tagged:
                self.value(one, tree[one.name])
        if self.flexible:
            self._tags([one for one in tagged if tree[one.name] != default_within(one, self.version)], tree)

    def _tags(self, tagged: list[Field], tree: Tree) -> None:
        self.length("tags", len(tagged))
        for one in sorted(tagged, key=lambda each: each.tag or 0):
            self.out += uvarint(one.tag or 0)
            inner = Writer(self.version, self.flexible)
            inner.value(one, tree[one.name])
            self.length("tag", len(inner.out))
            for each in inner.lengths:
                each.start += len(self.out)
                each.end += len(self.out)
            self.lengths += inner.lengths
            self.out += inner.out

    def value(self, field: Field, value: Any) -> None:
        if not field.is_array:
            self.one(field, value)
            return
        self.length("array", -1 if value is None else len(value))
        for each in value or ():
            self.one(field, each)

    def one(self, field: Field, value: Any) -> None:
        if field.struct is not None:
            if not field.is_array and self.version in field.nullable:
                self.out += b"\1" if value is not None else b"\0" if field.is_tagged(self.version) else b"\xff"
            if value is not None:
                self.struct(field.struct, value)
        elif field.type in FORMATS:
            self.out += struct.pack(FORMATS[field.type], value)
        elif field.type == "uuid":
            self.out += value.bytes
        else:
            data = value.encode() if isinstance(value, str) else value
            self.length("string" if field.type == "string" else "bytes", -1 if data is None else len(data))
            self.out += data or b""


def written(definition: Definition, version: int, tree: Tree) -> tuple[bytes, list[Length]]:
    """The bytes of a message, and where its lengths are."""
    writer = Writer(version, version in definition.flexible)
    writer.struct(definition.struct, tree)
    return bytes(writer.out), writer.lengths


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
