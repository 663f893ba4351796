"""A walk over a request by kio's own schema: no length in it is believed, and what only kio refuses is written again.

kio's decoder, native code, reserves memory for as many items as a compact array claims: five bytes on the wire can
ask for 32 GB and end the process. Legacy arrays grow item by item, but ten million of them are still an attack. `check`
compares every count with the bytes that are left; it allocates nothing.

kio also refuses what Kafka's decoder reads: tagged fields that it does not know (KIP-482 says to skip them), strings
that are not UTF-8 (each bad byte is U+FFFD), any negative length but -1 for null, any byte but 0 and 1 for a boolean,
and a moment of -1 that may not be null (it becomes 0). `rewritten` gives such a message in the form that kio reads. And
kio takes null for an array that may not be null, which Kafka's refuses: `refuses_null` looks at what was decoded.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any, Final

from ottla.model import Buffer
from ottla.protocol.varint import read_length, read_uvarint, uvarint

ELEMENTS_MAX: Final = 200_000
"""Array items in one request, nested ones counted: the partitions of the largest clusters. A million would keep
everybody else waiting for half a minute."""
TAGS_MAX: Final = 10_000
STRING_BYTES_MAX: Final = 0x7FFF
"""Kafka's limit, also where the length is a varint: what is longer could not be said in older versions."""
_UNCHECKED_BYTES_MAX: Final = ELEMENTS_MAX
"""Every item takes a byte at least, so a shorter body cannot hold too many."""
_LONG_VARINT: Final = re.compile(rb"[\x80-\xff]{3}")
"""What every varint of 2^21 or more has; below that, an array's claim is small enough to be let through unseen."""
_LONG_STRING: Final = re.compile(rb"[\x80-\xff]{2}[\x02-\xff]")
"""What every compact string beyond STRING_BYTES_MAX begins with."""

FIXED_BYTES: Final = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4, "uint32": 4, "timedelta_i32": 4,
    "int64": 8, "float64": 8, "timedelta_i64": 8, "datetime_i64": 8, "uuid": 16,
}  # fmt: skip
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class OverLimit(ValueError):
    """A count or length that the bytes behind it do not bear out, or null where it is not allowed."""


class Walked:
    """Counts and, if requested, notes of a walk."""

    __slots__ = ("edits", "items_left")

    def __init__(self, edits: list[tuple[int, int, bytes]] | None) -> None:
        self.items_left = ELEMENTS_MAX
        self.edits = edits
        """(start, end, what kio wants to read there), in order; None if nobody asks."""

    def count(self, items: int) -> None:
        """Raises OverLimit where there are too many."""
        self.items_left -= items
        if self.items_left < 0:
            raise OverLimit(f"more than {ELEMENTS_MAX} array items")

    def null(self, start: int, end: int, nullable: bool, as_kio_reads_it: bytes) -> None:
        """A negative length. Raises OverLimit where it cannot stay."""
        if not nullable:
            raise OverLimit("null where it is not allowed")
        if self.edits is not None:
            self.edits.append((start, end, as_kio_reads_it))
        elif len(as_kio_reads_it) != end - start:
            raise OverLimit("a length that kio would believe")


Walk = Callable[[Buffer, int, Walked], int]
"""(frame, position, what was walked) -> position after the value."""


def check(cls: Any, frame: Buffer, position: int) -> None:
    """Raise OverLimit, IndexError or struct.error unless the entity at `position` fits the frame and the limits."""
    body = memoryview(frame)[position:]
    size = len(body)
    if size > _UNCHECKED_BYTES_MAX or (
        cls.__flexible__ and (_LONG_VARINT.search(body) or (size > STRING_BYTES_MAX and _LONG_STRING.search(body)))
    ):
        entity_walk(cls)(body, 0, Walked(None))


def rewritten(cls: Any, frame: Buffer, position: int) -> bytes:
    """The entity at `position`, which kio refused, as kio reads it. Raises what `check` raises."""
    body = memoryview(frame)[position:]
    edits: list[tuple[int, int, bytes]] = []
    end = entity_walk(cls)(body, 0, Walked(edits))
    return _edited(body, 0, end, edits)


def value_rewritten(walk: Walk, frame: Buffer, position: int) -> tuple[bytes, int]:
    """The same for the value at `position` that `walk` goes over, and the position after it."""
    edits: list[tuple[int, int, bytes]] = []
    end = walk(frame, position, Walked(edits))
    return _edited(frame, position, end, edits), end


def _edited(frame: Buffer, start: int, end: int, edits: list[tuple[int, int, bytes]]) -> bytes:
    parts: list[Buffer] = []
    for edit_start, edit_end, instead in edits:
        parts += (frame[start:edit_start], instead)
        start = edit_end
    return b"".join([*parts, frame[start:end]])


@cache
def refuses_null(cls: Any) -> Callable[[Any], None] | None:
    """A check that raises OverLimit for a null array in an entity of `cls` that must not be null; None if it has no
    such array."""
    from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional

    steps: list[tuple[str, bool, bool, Callable[[Any], None] | None]] = []
    for field in fields(cls):
        kind = classify_field(field)
        inner = refuses_null(kind.type_) if isinstance(kind, EntityField | EntityTupleField) else None
        if kind.is_array or inner is not None:
            steps.append((field.name, kind.is_array, is_optional(field), inner))
    if not steps:
        return None

    def look(entity: Any) -> None:
        for name, is_array, nullable, inner in steps:
            value = getattr(entity, name)
            if value is None:
                if not nullable:
                    raise OverLimit(f"{name} is null")
            elif inner is not None:
                if is_array:
                    for row in value:
                        inner(row)
                else:
                    inner(value)

    return look


def _past(frame: Buffer, position: int, length: int) -> int:
    end = position + length
    if end > len(frame):
        raise OverLimit(f"{length} bytes where {len(frame) - position} are left")
    return end


def _fixed_walk(size: int) -> Walk:
    return lambda frame, position, walked: _past(frame, position, size)


def _bool_walk(frame: Buffer, position: int, walked: Walked) -> int:
    if frame[position] > 1 and walked.edits is not None:
        walked.edits.append((position, position + 1, b"\1"))
    return position + 1


def _sized_walk(flexible: bool, is_string: bool, nullable: bool) -> Walk:
    """A walk over a string, or over bytes or records."""
    layout = _INT16 if is_string else _INT32

    def walk(frame: Buffer, position: int, walked: Walked) -> int:
        start = position
        if flexible:
            length, position = read_length(frame, position)
        else:
            (length,) = layout.unpack_from(frame, position)
            position += layout.size
        if length < 0:
            walked.null(start, position, nullable, b"\0" if flexible else layout.pack(-1))
            return position
        if is_string and length > STRING_BYTES_MAX:
            raise OverLimit(f"a string of {length} bytes")
        end = _past(frame, position, length)
        if is_string and walked.edits is not None:
            text = bytes(frame[position:end])
            readable = text.decode("utf-8", "replace").encode()
            if readable != text:
                if len(readable) > STRING_BYTES_MAX:
                    raise OverLimit("a long string that is not UTF-8")
                length_of_it = uvarint(len(readable) + 1) if flexible else layout.pack(len(readable))
                walked.edits.append((start, end, length_of_it + readable))
        return end

    return walk


def _moment_walk(frame: Buffer, position: int, walked: Walked) -> int:
    """kio takes -1 for null, which not every moment may be: DescribeTransactions has it where nothing began."""
    if walked.edits is not None and frame[position : position + 8] == b"\xff" * 8:
        walked.edits.append((position, position + 8, bytes(8)))
    return position + 8


_LOOKED_AT: Final[dict[str, Walk]] = {"bool": _bool_walk, "datetime_i64": _moment_walk}
"""Fields of a fixed size whose values kio may refuse to read."""


def _array_walk(walk_item: Walk, item_size: int, flexible: bool, nullable: bool) -> Walk:
    """`item_size` is the size of items that all have the same, 0 for others, which are walked one by one."""

    def walk(frame: Buffer, position: int, walked: Walked) -> int:
        start = position
        if flexible:
            count, position = read_length(frame, position)
        else:
            count = _INT32.unpack_from(frame, position)[0]
            position += 4
        if count < 0:
            walked.null(start, position, nullable, b"\0" if flexible else b"\xff\xff\xff\xff")
            return position
        if count * max(item_size, 1) > len(frame) - position:
            raise OverLimit(f"an array of {count} items in {len(frame) - position} bytes")
        walked.count(count)
        if item_size:
            return position + count * item_size
        for _ in range(count):
            position = walk_item(frame, position, walked)
        return position

    return walk


def _nullable_walk(walk_value: Walk) -> Walk:
    """An entity that may be null has a byte before it, negative for null."""

    def walk(frame: Buffer, position: int, walked: Walked) -> int:
        return position + 1 if frame[position] > 0x7F else walk_value(frame, position + 1, walked)

    return walk


def field_walk(field: Any, flexible: bool) -> tuple[Walk, int]:
    """The walk over a field, and its size where that is fixed (else 0)."""
    from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional

    kind = classify_field(field)
    size = 0
    if isinstance(kind, EntityField | EntityTupleField):
        walk = entity_walk(kind.type_)
        if not kind.is_array and is_optional(field):
            walk = _nullable_walk(walk)
    else:
        kafka_type = field.metadata["kafka_type"]
        size = 0 if kafka_type in _LOOKED_AT else FIXED_BYTES.get(kafka_type, 0)
        walk = scalar_walk(field, flexible)
    if kind.is_array:
        return _array_walk(walk, size, flexible, is_optional(field)), 0
    return walk, size


def scalar_walk(field: Any, flexible: bool) -> Walk:
    """The walk over one value of a field, or of an array's items, that is no entity."""
    from kio.serial._introspect import classify_field, is_optional

    kafka_type = field.metadata["kafka_type"]
    size = FIXED_BYTES.get(kafka_type, 0)
    if kafka_type in _LOOKED_AT:
        return _LOOKED_AT[kafka_type]
    if size:
        return _fixed_walk(size)
    return _sized_walk(flexible, kafka_type == "string", is_optional(field) and not classify_field(field).is_array)


@cache
def entity_walk(cls: Any) -> Walk:
    """The walk over an entity: neighbours of fixed size are one step."""
    flexible = cls.__flexible__
    steps: list[Walk | int] = []
    tagged: dict[int, Walk] = {}
    for field in fields(cls):
        walk, size = field_walk(field, flexible)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = walk
        elif size and steps and isinstance(steps[-1], int):
            steps[-1] += size
        else:
            steps.append(size or walk)
    walks = [_fixed_walk(step) if isinstance(step, int) else step for step in steps]

    def walk_entity(frame: Buffer, position: int, walked: Walked) -> int:
        for step in walks:
            position = step(frame, position, walked)
        if not flexible:
            return position
        if position < len(frame) and frame[position] == 0:
            return position + 1
        return _walk_tags(frame, position, walked, tagged)

    return walk_entity


def _walk_tags(frame: Buffer, position: int, walked: Walked, tagged: dict[int, Walk]) -> int:
    edits, start = walked.edits, position
    known: dict[int, bytes] = {}
    count, position = read_uvarint(frame, position)
    if count > TAGS_MAX:
        raise OverLimit(f"{count} tagged fields")
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        length, position = read_uvarint(frame, position)
        end = _past(frame, position, length)
        walk = tagged.get(tag)
        if walk is not None:
            if edits is not None:
                walked.edits = []
            if walk(frame, position, walked) != end:
                raise OverLimit(f"tagged field {tag} is not as long as it says")
            if walked.edits is not None:
                known[tag] = _edited(frame, position, end, walked.edits)
            walked.edits = edits
        position = end
    if edits is not None:
        parts = [uvarint(len(known))]
        for tag, data in sorted(known.items()):
            parts += (uvarint(tag), uvarint(len(data)), data)
        edits.append((start, position, b"".join(parts)))
    return position
