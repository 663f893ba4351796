# cython: boundscheck=False, wraparound=False, initializedcheck=False
"""How the structs of Kafka's messages travel, as the reader and the writer go by it.

A `Layout` says how one struct travels in one version; `schemas` makes layouts from Kafka's own definitions, and
`internal/codec.py` from the classes of records. Objects are filled and read by the places of their slots.

Compiled, with C types in `layout.pxd`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

try:
    import cython
except ImportError:  # interpreted, where Cython is not installed
    from ottla import no_cython as cython

KINDS = {
    "int8": 1, "int16": 2, "uint16": 3, "int32": 4, "uint32": 5, "int64": 6, "bool": 7, "error": 8, "float64": 9,
    "uuid": 10, "string": 11, "bytes": 12, "records": 13, "struct": 14,
}  # fmt: skip
"""How values travel. The kinds up to `error` are whole numbers."""
SIZES = {1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 8, 10: 16}
"""Bytes of a value of a kind, where all have the same."""
ELEMENTS_MAX = 200_000
"""Array items in one request or response, nested ones counted: the partitions of the largest clusters. A million would
keep all others waiting."""
TAGS_MAX = 100
"""More tagged fields of a struct than any client sends. Skipping them costs time that no step counts."""
TAGGED_ARRAY_BYTES_MAX = 262_144
"""Kafka's tagged arrays are short (endpoints, directories). They are read in one piece, also in steps."""
STRING_BYTES_MAX = 0x7FFF
"""Kafka's limit, also where the length is a varint: what is longer could not be said in older versions."""
ROW_COST = 5
"""Decoding or encoding a row, with the object that it becomes. A number or a string costs 1."""
STEP_COST = 250
"""Done in one piece: yielding has a cost too."""
ROW_ITEMS_MAX = 1000
"""Array items in a row that is done in one piece."""

_MISSING = object()


class Malformed(ValueError):
    """Bytes that are no message of the claimed class and version."""


class UnsupportedVersion(ValueError):
    """A message holds a value that the version asked for has no field for, or null where it may not be."""


class TooLong(Exception):
    """A row is not for one piece."""


class Field:
    """One field of a struct in one version."""

    __slots__ = (
        "default",
        "flexible",
        "is_array",
        "item_bytes_min",
        "item_cost",
        "kind",
        "layout",
        "name",
        "nullable",
        "offset",
        "shortened",
        "tag",
    )

    def __init__(
        self,
        name: str,
        kind: str,
        *,
        is_array: bool,
        nullable: bool,
        default: Any,
        layout: Any,
        flexible: bool,
        tag: int = -1,
    ) -> None:
        """`layout` is that of the struct, or of an array's structs. `flexible`: a length is a varint."""
        self.name = sys.intern(name)
        self.kind = KINDS[kind]
        self.is_array = is_array
        self.nullable = nullable
        self.default = default
        self.layout = layout
        self.flexible = flexible
        self.tag = tag
        self.shortened = name == "error_message"
        self.item_cost = ROW_COST if layout is not None else 1
        self.item_bytes_min = layout.bytes_min if layout is not None else SIZES.get(self.kind, 1)
        if kind == "string" and not flexible:
            self.item_bytes_min = 2
        elif kind in ("bytes", "records") and not flexible:
            self.item_bytes_min = 4


class Layout:
    """How a struct of class `cls` travels in one version: its fields in order, those with tags, and those that the
    version does not have, with what they are then."""

    __slots__ = (
        "absent",
        "by_tag",
        "bytes_min",
        "cls",
        "fields",
        "flexible",
        "has_arrays",
        "other",
        "plain",
        "refused",
        "tagged",
    )

    def __init__(
        self,
        cls: type,
        fields: Iterable[Field],
        tagged: Iterable[Field],
        absent: Iterable[Field],
        refused: Iterable[Field],
        flexible: bool,
    ) -> None:
        """`refused` are the absent fields that must have their default when the struct is written."""
        self.cls = cls
        self.other: Any = None
        """Type of the last values that were neither of the class nor a mapping."""
        self.fields = list(fields)
        self.tagged = sorted(tagged, key=lambda field: field.tag)
        self.absent = list(absent)
        self.refused = list(refused)
        self.flexible = flexible
        self.plain = flexible and not self.tagged and not self.absent
        self.by_tag = {field.tag: field for field in self.tagged}
        self.has_arrays = any(
            field.is_array or (field.layout is not None and field.layout.has_arrays)
            for field in [*self.fields, *self.tagged]
        )
        self.bytes_min = int(flexible)
        for field in self.fields:
            if field.is_array:
                self.bytes_min += 1 if field.flexible else 4
            elif field.nullable and field.layout is not None:
                self.bytes_min += 1
            else:
                self.bytes_min += field.item_bytes_min
            _locate(self, field)
        for field in [*self.tagged, *self.absent]:
            _locate(self, field)


def _locate(layout, field):
    """Where the field is in an object of the class."""
    if cython.compiled:
        field.offset = slot_offset(getattr(layout.cls, field.name))
        if field.offset < 0:
            raise TypeError(f"{layout.cls.__name__}.{field.name} is no slot")


def leave_to_counts(cls: type) -> None:
    """Objects of a class that was just made, with slots and nothing else, are freed by their reference counts alone.
    Reading a row costs a third less; nobody may put an object into one of its own slots."""
    if cython.compiled:
        uncollect(cls)


def of_defaults(layout: Layout) -> Any:
    """An object of which every field has its default."""
    made = layout.cls.__new__(layout.cls)
    for field in [*layout.fields, *layout.tagged, *layout.absent]:
        value = of_defaults(field.layout) if field.default is _MISSING else field.default
        setattr(made, field.name, value)
    return made


MISSING = _MISSING
"""The default of a struct that is not null: one of defaults."""
