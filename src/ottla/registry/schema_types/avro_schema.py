"""Avro's schemas. The canonical text is that of Avro's Java library (`Schema.toString`), as it is in every registry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import avro.errors
import avro.schema
from avro.name import Names

from ottla.registry.schema_types import avro_compatibility
from ottla.registry.schema_types.parsed import InvalidSchema, Resolved, json_of

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_OWN: Final = {
    "record": ("type", "name", "namespace", "doc", "fields", "aliases"),
    "error": ("type", "name", "namespace", "doc", "fields", "aliases"),
    "enum": ("type", "name", "namespace", "doc", "symbols", "default", "aliases"),
    "fixed": ("type", "name", "namespace", "doc", "size", "aliases"),
    "array": ("type", "items"),
    "map": ("type", "values"),
    "field": ("name", "type", "doc", "default", "order", "aliases"),
}
"""Members that a schema of the kind has; all others are properties, which are kept as they are."""


_make_field_objects = avro.schema.RecordSchema.make_field_objects


def _fields(field_data: Any, names: Names, validate_names: bool = True) -> list[Any]:
    """The fields of a record, as the library makes them, which looks for each name in a list of all before it."""
    found: dict[str, Any] = {}
    for each in field_data:
        (field,) = _make_field_objects([each], names, validate_names)
        if field.name in found:
            raise avro.errors.SchemaParseException(f"Field name {field.name} already in use.")
        found[field.name] = field
    return [*found.values()]


avro.schema.RecordSchema.make_field_objects = staticmethod(_fields)  # type: ignore[method-assign]


class AvroSchema:
    """One schema, and the names that its references bring."""

    def __init__(self, text: str, references: Sequence[Resolved]) -> None:
        """Raises InvalidSchema."""
        self._references = references
        self.tree = _tree(text)
        names = Names(validate_names=True)
        for each in references:
            _checked(_tree(each.text), names)
        self.schema = _checked(self.tree, names)
        self._known = {name for each in references for name in _defined(_tree(each.text), "")}

    @cached_property
    def text(self) -> str:
        return _dumps(_canonical(self.tree, "", set(self._known), is_sorted=False))

    def normalized(self) -> str:
        return _dumps(_canonical(self.tree, "", set(self._known), is_sorted=True))

    def resolved(self) -> str:
        """The schema with the definitions of references where they are first used."""
        definitions: dict[str, tuple[Any, str]] = {}
        for each in self._references:
            _collect(_tree(each.text), "", definitions)
        return _dumps(_canonical(self.tree, "", set(), is_sorted=False, definitions=definitions))

    def formatted(self, name: str) -> str:
        return self.resolved() if name == "resolved" else self.text

    def differences(self, older: AvroSchema) -> list[str]:
        return [str(each) for each in avro_compatibility.differences(self.schema, older.schema)]


def parse(text: str, references: Sequence[Resolved]) -> AvroSchema:
    """Raises InvalidSchema."""
    return AvroSchema(text, references)


def _tree(text: str) -> Any:
    if text.strip() in PRIMITIVES:  # as Avro's own parsers take it
        return text.strip()
    return json_of(text)


def _checked(tree: Any, names: Names) -> avro.schema.Schema:
    try:
        schema = avro.schema.make_avsc_object(tree, names)
    except (avro.errors.AvroException, TypeError, KeyError, AttributeError, ValueError) as error:
        raise InvalidSchema(str(error) or type(error).__name__) from error
    _check_aliases(tree)
    return schema


def _check_aliases(tree: Any) -> None:
    """Check the aliases of named types and fields: an array of names, which Avro's Python library does not look at.
    Raises InvalidSchema."""
    if isinstance(tree, list):
        for each in tree:
            _check_aliases(each)
    elif isinstance(tree, dict):
        kind = tree["type"]
        if isinstance(kind, dict | list):
            _check_aliases(kind)
        elif kind in _NAMED:
            fields = tree.get("fields") or ()
            for each in (tree, *fields):
                aliases = each.get("aliases", ())
                if not isinstance(aliases, list | tuple):
                    raise InvalidSchema(f"aliases not an array: {_dumps(aliases)}")
                for alias in aliases:
                    if not isinstance(alias, str):
                        raise InvalidSchema(f"alias not a string: {_dumps(alias)}")
            for each in fields:
                _check_aliases(each["type"])
        elif kind in ("array", "map"):
            _check_aliases(tree["items" if kind == "array" else "values"])


def _dumps(tree: Any) -> str:
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False)


def _split(name: str, namespace: Any, enclosing: str) -> tuple[str, str]:
    """Namespace and simple name of a definition or of a mention."""
    if "." in name:
        space, _, simple = name.rpartition(".")
        return space, simple
    return namespace if isinstance(namespace, str) else enclosing, name


def _full(name: str, namespace: Any, enclosing: str) -> str:
    space, simple = _split(name, namespace, enclosing)
    return f"{space}.{simple}" if space else simple


def _defined(tree: Any, enclosing: str) -> list[str]:
    found: dict[str, tuple[Any, str]] = {}
    _collect(tree, enclosing, found)
    return list(found)


def _collect(tree: Any, enclosing: str, found: dict[str, tuple[Any, str]]) -> None:
    """Every named type that is defined in a tree, by its full name, and the namespace around it."""
    if isinstance(tree, list):
        for each in tree:
            _collect(each, enclosing, found)
    elif isinstance(tree, dict):
        kind = tree.get("type")
        if isinstance(kind, dict | list):
            _collect(kind, enclosing, found)
        elif kind in _NAMED:
            found[_full(tree["name"], tree.get("namespace"), enclosing)] = (tree, enclosing)
            inner, _ = _split(tree["name"], tree.get("namespace"), enclosing)
            for each in tree.get("fields", ()):
                _collect(each["type"], inner, found)
        elif kind in ("array", "map"):
            _collect(tree["items" if kind == "array" else "values"], enclosing, found)


def _canonical(
    tree: Any,
    enclosing: str,
    known: set[str],
    *,
    is_sorted: bool,
    definitions: Mapping[str, tuple[Any, str]] | None = None,
) -> Any:
    """A tree as Java's library writes it. `known` are names that are defined already; `definitions` of others are put
    in where they are first mentioned."""

    def inner(each: Any, space: str) -> Any:
        return _canonical(each, space, known, is_sorted=is_sorted, definitions=definitions)

    if isinstance(tree, str):
        if tree in PRIMITIVES:
            return tree
        full = _full(tree, None, enclosing)
        if definitions and full not in known and full in definitions:
            definition, space = definitions[full]
            return inner(_qualified(definition, full, space, enclosing), enclosing)
        return _mention(full, enclosing)
    if isinstance(tree, list):
        return [inner(each, enclosing) for each in tree]
    kind = tree["type"]
    if isinstance(kind, dict | list):
        return inner(kind, enclosing)
    if kind in _NAMED:
        return _named(tree, enclosing, known, inner, is_sorted)
    if kind in ("array", "map"):
        items = "items" if kind == "array" else "values"
        return {"type": kind, items: inner(tree[items], enclosing), **_properties(tree, _OWN[kind], is_sorted)}
    properties = _properties(tree, ("type",), is_sorted)
    plain = inner(kind, enclosing)
    return {"type": plain, **properties} if properties and kind in PRIMITIVES else plain


def _qualified(definition: Any, full: str, space: str, enclosing: str) -> Any:
    """A definition from elsewhere: with the namespace that it had there."""
    del space, enclosing
    namespace, _, simple = full.rpartition(".")
    return {**definition, "name": simple, "namespace": namespace}


def _named(tree: Any, enclosing: str, known: set[str], inner: Any, is_sorted: bool) -> Any:
    kind = tree["type"]
    space, simple = _split(tree["name"], tree.get("namespace"), enclosing)
    known.add(f"{space}.{simple}" if space else simple)
    written: dict[str, Any] = {"type": kind, "name": simple}
    if space != enclosing:
        written["namespace"] = space
    if tree.get("doc") is not None:
        written["doc"] = tree["doc"]
    if kind in ("record", "error"):
        written["fields"] = [_field(each, space, inner, is_sorted) for each in tree.get("fields", ())]
    elif kind == "enum":
        written["symbols"] = tree["symbols"]
        if tree.get("default") is not None:
            written["default"] = tree["default"]
    else:
        written["size"] = tree["size"]
    written |= _properties(tree, _OWN[kind], is_sorted)
    if tree.get("aliases"):
        written["aliases"] = [_mention(_full(each, None, space), space) for each in tree["aliases"]]
    return written


def _field(field: Any, space: str, inner: Any, is_sorted: bool) -> dict[str, Any]:
    written: dict[str, Any] = {"name": field["name"], "type": inner(field["type"], space)}
    if field.get("doc") is not None:
        written["doc"] = field["doc"]
    if "default" in field:
        written["default"] = field["default"]
    if field.get("order", "ascending") != "ascending":
        written["order"] = field["order"]
    if field.get("aliases"):
        written["aliases"] = field["aliases"]
    return {**written, **_properties(field, _OWN["field"], is_sorted)}


def _properties(tree: Any, own: Sequence[str], is_sorted: bool) -> dict[str, Any]:
    found = {name: value for name, value in tree.items() if name not in own}
    return dict(sorted(found.items())) if is_sorted else found


def _mention(full: str, enclosing: str) -> str:
    """A name without its namespace where that is the one around it."""
    space, _, simple = full.rpartition(".")
    return simple if space == enclosing else full
