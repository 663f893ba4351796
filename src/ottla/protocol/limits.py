"""A walk over a request before it is decoded, so that no length in it is believed.

kio's decoder, native code, sets memory aside for as many items as a compact array claims: five bytes on the wire can
ask for 32 GB and end the process. Legacy arrays grow item by item, but ten million of them are still an attack. `check`
walks a request by kio's own schema and compares every count with the bytes that are left; it allocates nothing.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any, Final

from ottla.model import Buffer
from ottla.protocol.varint import read_uvarint

Walk = Callable[[Buffer, int, list[int]], int]
"""(frame, position, [elements that may still come]) -> position after the value."""

ELEMENTS_MAX: Final = 200_000
"""Array items in one request, nested ones counted: the partitions of the largest clusters. A million would keep
everybody else waiting for half a minute."""
TAGS_MAX: Final = 10_000
_UNCHECKED_BYTES_MAX: Final = ELEMENTS_MAX
"""Every item takes a byte at least, so a shorter body cannot hold too many."""
_LONG_VARINT: Final = re.compile(rb"[\x80-\xff]{3}")
"""What every varint of 2^21 or more has; below that, an array's claim is small enough to be let through unseen."""

FIXED_BYTES: Final = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4, "uint32": 4, "timedelta_i32": 4,
    "int64": 8, "float64": 8, "timedelta_i64": 8, "datetime_i64": 8, "uuid": 16,
}  # fmt: skip
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class OverLimit(ValueError):
    """A count or length that the bytes behind it do not bear out."""


def check(cls: Any, frame: Buffer, position: int) -> None:
    """Raise OverLimit, IndexError or struct.error unless the entity at `position` fits the frame and the limits."""
    body = memoryview(frame)[position:]
    if len(body) > _UNCHECKED_BYTES_MAX or (cls.__flexible__ and _LONG_VARINT.search(body)):
        _entity_walk(cls)(body, 0, [ELEMENTS_MAX])


def _past(frame: Buffer, position: int, length: int) -> int:
    end = position + length
    if end > len(frame):
        raise OverLimit(f"{length} bytes where {len(frame) - position} are left")
    return end


def _fixed_walk(size: int) -> Walk:
    return lambda frame, position, budget: _past(frame, position, size)


def _compact_walk(frame: Buffer, position: int, budget: list[int]) -> int:
    length, position = read_uvarint(frame, position)
    return _past(frame, position, max(length - 1, 0))


def _short_walk(frame: Buffer, position: int, budget: list[int]) -> int:
    return _past(frame, position + 2, max(_INT16.unpack_from(frame, position)[0], 0))


def _long_walk(frame: Buffer, position: int, budget: list[int]) -> int:
    return _past(frame, position + 4, max(_INT32.unpack_from(frame, position)[0], 0))


def _array_walk(walk_item: Walk, item_size: int, flexible: bool) -> Walk:
    """`item_size` is the size of items that all have the same, 0 for others, which are walked one by one."""

    def walk(frame: Buffer, position: int, budget: list[int]) -> int:
        if flexible:
            count, position = read_uvarint(frame, position)
            count -= 1
        else:
            count = _INT32.unpack_from(frame, position)[0]
            position += 4
        if count <= 0:
            return position
        if count * max(item_size, 1) > len(frame) - position:
            raise OverLimit(f"an array of {count} items in {len(frame) - position} bytes")
        budget[0] -= count
        if budget[0] < 0:
            raise OverLimit(f"more than {ELEMENTS_MAX} array items")
        if item_size:
            return position + count * item_size
        for _ in range(count):
            position = walk_item(frame, position, budget)
        return position

    return walk


def _nullable_walk(walk_value: Walk) -> Walk:
    """An entity that may be null has a byte before it, negative for null."""

    def walk(frame: Buffer, position: int, budget: list[int]) -> int:
        return position + 1 if frame[position] > 0x7F else walk_value(frame, position + 1, budget)

    return walk


def _field_walk(field: Any, flexible: bool) -> tuple[Walk, int]:
    """The walk over a field, and its size where that is fixed (else 0)."""
    from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional

    kind = classify_field(field)
    size = 0
    if isinstance(kind, EntityField | EntityTupleField):
        walk = _entity_walk(kind.type_)
        if not kind.is_array and is_optional(field):
            walk = _nullable_walk(walk)
    else:
        kafka_type = field.metadata["kafka_type"]
        size = FIXED_BYTES.get(kafka_type, 0)
        if size:
            walk = _fixed_walk(size)
        elif flexible:
            walk = _compact_walk
        else:
            walk = _short_walk if kafka_type == "string" else _long_walk
    if kind.is_array:
        return _array_walk(walk, size, flexible), 0
    return walk, size


@cache
def _entity_walk(cls: Any) -> Walk:
    """The walk over an entity: neighbours of fixed size are one step."""
    flexible = cls.__flexible__
    steps: list[Walk | int] = []
    tagged: dict[int, Walk] = {}
    for field in fields(cls):
        walk, size = _field_walk(field, flexible)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = walk
        elif size and steps and isinstance(steps[-1], int):
            steps[-1] += size
        else:
            steps.append(size or walk)
    walks = [_fixed_walk(step) if isinstance(step, int) else step for step in steps]

    def walk_entity(frame: Buffer, position: int, budget: list[int]) -> int:
        for step in walks:
            position = step(frame, position, budget)
        if not flexible:
            return position
        if position < len(frame) and frame[position] == 0:
            return position + 1
        return _walk_tags(frame, position, budget, tagged)

    return walk_entity


def _walk_tags(frame: Buffer, position: int, budget: list[int], tagged: dict[int, Walk]) -> int:
    count, position = read_uvarint(frame, position)
    if count > TAGS_MAX:
        raise OverLimit(f"{count} tagged fields")
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        length, position = read_uvarint(frame, position)
        end = _past(frame, position, length)
        known = tagged.get(tag)
        if known is not None and known(frame, position, budget) != end:
            raise OverLimit(f"tagged field {tag} is not as long as it says")
        position = end
    return position
