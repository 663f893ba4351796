"""Records of any values, by what the table says of their fields."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from ottla.protocol import schemas
from ottla.protocol.schemas import FieldSchema

_BITS: Final = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_PRIMITIVES: Final[dict[str, st.SearchStrategy[Any]]] = {
    **{name: st.integers(-(1 << bits), (1 << bits) - 1) for name, bits in _BITS.items()},
    "bool": st.booleans(),
    "uint16": st.integers(0, 65535),
    "float64": st.floats(allow_nan=False),
    "uuid": st.uuids(),
    "string": st.text(max_size=20),
    "bytes": st.binary(max_size=20),
}


def values_of(cls: Any) -> st.SearchStrategy[Any]:
    return st.builds(cls, **{field.name: _field(cls, field) for field in cls._schema})


def _field(cls: Any, field: FieldSchema) -> st.SearchStrategy[Any]:
    found = values_of(schemas.struct_class(cls, field.name)) if field.struct else _PRIMITIVES[field.type]
    if field.is_array:
        found = st.lists(found, max_size=3).map(tuple)
    return st.none() | found if field.nullable[1] >= 0 else found
