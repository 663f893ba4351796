"""Messages for each kind of incompatible change of a JSON Schema."""

from __future__ import annotations

from typing import Final

_KEYWORD: Final = "The keyword at path '{path}' in the %s schema is not present in the %s schema"
_MORE: Final = "The value at path '{path}' in the %s schema is more than its value in the %s schema"
_LESS: Final = "The value at path '{path}' in the %s schema is less than its value in the %s schema"
_OTHER: Final = "The value at path '{path}' is different between the %s and %s schema"
_FEWER: Final = "An array or combined type at path '{path}' has fewer elements in the %s schema than the %s schema"
_LONGER: Final = "An array or combined type at path '{path}' has more elements in the %s schema than the %s schema"
_TYPE: Final = "A type at path '{path}' is different between the %s schema and the %s schema"
_TO_OPEN: Final = (
    "The %s schema has an open content model and has a property or item at path '{path}' which is missing in the %s "
    "schema"
)
_TO_UNOPEN: Final = (
    "The %s schema has an unopen content model and has a required property at path '{path}' which is missing in the %s "
    "schema"
)
_FROM_CLOSED: Final = (
    "The %s has a closed content model and is missing a property or item present at path '{path}' in the %s schema"
)
_REMOVED: Final = (
    "A property or item is missing in the %s schema but present at path '{path}' in the %s schema and is not covered "
    "by its partially open content model"
)
_ADDED: Final = (
    "The %s schema has a property or item at path '{path}' which is missing in the %s schema and is not covered by its "
    "partially open content model"
)

_EXACT: Final = {
    "ADDITIONAL_ITEMS_REMOVED": _KEYWORD,
    "ADDITIONAL_PROPERTIES_REMOVED": _KEYWORD,
    "UNEVALUATED_PROPERTIES_REMOVED": _KEYWORD,
    "UNEVALUATED_ITEMS_REMOVED": _KEYWORD,
    "MULTIPLE_OF_EXPANDED": _MORE,
    "PATTERN_CHANGED": _OTHER,
    "MULTIPLE_OF_CHANGED": _OTHER,
    "DEPENDENCY_ARRAY_CHANGED": _OTHER,
    "TYPE_NARROWED": _TYPE,
    "TYPE_CHANGED": _TYPE,
    "COMBINED_TYPE_CHANGED": _TYPE,
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": _TYPE,
    "ENUM_ARRAY_CHANGED": _TYPE,
    "SCHEMA_ADDED": _KEYWORD,
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": _TO_UNOPEN,
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": _FROM_CLOSED,
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": _FROM_CLOSED,
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _REMOVED,
    "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _REMOVED,
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _ADDED,
    "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _ADDED,
}
_BY_ENDING: Final = (
    ("_ADDED_TO_OPEN_CONTENT_MODEL", _TO_OPEN),
    ("_INCREASED", _MORE),
    ("_DECREASED", _LESS),
    ("_NARROWED", _FEWER),
    ("_EXTENDED", _LONGER),
    ("_ADDED", _KEYWORD),
)


def described(kind: str, path: str) -> str:
    """A sentence with two `%s`, for which is the new and which the old schema."""
    text = _EXACT.get(kind) or next((text for ending, text in _BY_ENDING if kind.endswith(ending)), "")
    return text.replace("{path}", path)
