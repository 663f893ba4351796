"""A JSON Schema as a comparison sees it: each place in it has one kind, by the keywords that it has.

Several kinds of keywords at one place stand for `allOf` of them (`{"type": "string", "enum": [...]}`), a list of types
for `anyOf`. So does the library behind Confluent's registry read schemas, whose rules are those of `json_diff.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import referencing.exceptions
import referencing.jsonschema

from ottla.registry.schema_types.parsed import InvalidSchema

_STRING: Final = frozenset({"minLength", "maxLength", "pattern", "format"})
_NUMBER: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_ARRAY: Final = frozenset({
    "items", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains", "prefixItems", "unevaluatedItems",
    "minContains", "maxContains",
})  # fmt: skip
_OBJECT: Final = frozenset({
    "properties", "required", "minProperties", "maxProperties", "dependencies", "patternProperties",
    "additionalProperties", "propertyNames", "dependentRequired", "dependentSchemas", "unevaluatedProperties",
})  # fmt: skip
_SNIFFED: Final = (("string", _STRING), ("array", _ARRAY), ("object", _OBJECT), ("number", _NUMBER))
"""Keywords that say what is described where no type does."""
_COMBINED: Final = {"allOf": "allOf", "anyOf": "anyOf", "oneOf": "oneOf"}
_MAPS: Final = ("properties", "patternProperties", "definitions", "$defs", "dependentSchemas", "dependencies")
_WITH_SCHEMAS: Final = (
    "allOf", "anyOf", "oneOf", "prefixItems", "not", "items", "additionalItems", "contains", "additionalProperties",
    "propertyNames", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
"""Keywords whose value is a schema, or a list of them."""


class Places:
    """The nodes of one schema and of what it refers to, one for each place."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self._specification = referencing.jsonschema.specification_with(dialect)
        self._nodes: dict[int, Node] = {}

    def node(self, tree: Any, resolver: Any) -> Node:
        """The node of a tree, by identity: nodes keep the trees, so that no other tree can have the same identity."""
        found = self._nodes.get(id(tree))
        if found is None:
            if isinstance(tree, dict) and isinstance(tree.get("$id"), str):
                resolver = resolver.in_subresource(self._specification.create_resource(tree))
            found = self._nodes[id(tree)] = Node(tree, resolver, self)
        return found


class Node:
    """A place in a schema. Nodes of one place are the same object, so that comparisons can be remembered by it."""

    def __init__(self, tree: Any, resolver: Any, places: Places, kind: str | None = None) -> None:
        """`kind` is given for a part of a place that has several."""
        self.tree = tree
        self._resolver = resolver
        self._places = places
        self._parts: list[Node] | None = None
        self.criterion = ""
        """Keyword of a combined schema: `allOf`, `anyOf` or `oneOf`."""
        self.kind = kind or self._kind()

    # What it is

    def _kind(self) -> str:
        if self.tree is True or self.tree is False:
            return "true" if self.tree else "false"
        if "$ref" in self.tree:
            return "reference"
        kinds = [*self._kinds()]
        if not kinds:
            return "empty"
        if len(kinds) == 1 and kinds[0] in _COMBINED:
            self.criterion = kinds[0]
            return "combined"
        if len(kinds) == 1:
            return self._single(kinds[0])
        self.criterion = "allOf"
        self._parts = [self._part(each) for each in kinds]
        return "combined"

    def _kinds(self) -> Iterator[str]:
        """Kinds of the schema by its keywords: one for each group of keywords present."""
        tree = self.tree
        if "enum" in tree:
            yield "enum"
        yield from (word for word in _COMBINED if word in tree)
        if "not" in tree:
            yield "not"
        if "const" in tree:
            yield "const"
        if "if" in tree and ("then" in tree or "else" in tree):
            yield "conditional"
        if "type" in tree:
            yield "types" if isinstance(tree["type"], list) else str(tree["type"])
        elif "enum" not in tree and "const" not in tree:
            yield from (kind for kind, words in _SNIFFED if words & tree.keys())

    def _single(self, kind: str) -> str:
        if kind != "types":
            return "number" if kind == "integer" else kind
        self.criterion = "anyOf"
        self._parts = [self._part(str(each)) for each in self.tree["type"]]
        return "combined"

    def _part(self, kind: str) -> Node:
        if kind in _COMBINED or kind == "types":
            reduced = {kind: self.tree[kind]} if kind in _COMBINED else {**self.tree}
            if kind == "types":
                for word in ("enum", "const", "not", *_COMBINED):
                    reduced.pop(word, None)
            return Node(reduced, self._resolver, self._places)
        tree = {**self.tree, "type": kind} if kind in ("integer", "number") else self.tree
        return Node(tree, self._resolver, self._places, "number" if kind == "integer" else kind)

    @property
    def parts(self) -> list[Node]:
        """Parts of a combined schema."""
        if self._parts is None:
            self._parts = [self.at(each) for each in self.tree[self.criterion]]
        return self._parts

    @property
    def is_integer(self) -> bool:
        return bool(self.tree.get("type") == "integer")

    @property
    def is_anything(self) -> bool:
        """True, or an object without a keyword that forbids anything."""
        return self.kind in ("true", "empty")

    @property
    def has_default(self) -> bool:
        return isinstance(self.tree, dict) and "default" in self.tree

    def get(self, word: str) -> Any:
        """A keyword's value, None without it."""
        return self.tree.get(word) if isinstance(self.tree, dict) else None

    # What is in it

    def at(self, tree: Any) -> Node:
        """The node of a subschema."""
        return self._places.node(tree, self._resolver)

    def child(self, word: str) -> Node | None:
        """The subschema that a keyword has."""
        value = self.get(word)
        return self.at(value) if isinstance(value, dict | bool) else None

    def children(self, word: str) -> Mapping[str, Node]:
        """The subschemas that a keyword has by name."""
        value = self.get(word)
        if not isinstance(value, dict):
            return {}
        return {name: self.at(each) for name, each in value.items() if isinstance(each, dict | bool)}

    @property
    def has_prefix(self) -> bool:
        """Whether `items` is what follows `prefixItems`, as from draft 2020-12 on."""
        return "2020-12" in self._places.dialect

    def target(self) -> Node:
        """The target of a reference, through references to references. Raises InvalidSchema."""
        node, seen = self, set()
        while node.kind == "reference":
            reference = node.tree["$ref"]
            if id(node) in seen:
                raise InvalidSchema(f"the reference {reference} leads back to itself")
            seen.add(id(node))
            node = node._looked_up(reference)
        return node

    def _looked_up(self, reference: str) -> Node:
        try:
            found = self._resolver.lookup(reference)
        except referencing.exceptions.Unresolvable as error:
            raise InvalidSchema(f"the reference {reference} leads nowhere") from error
        except (TypeError, ValueError, LookupError, AttributeError) as error:  # a pointer into what is no schema
            raise InvalidSchema(f"the reference {reference} cannot be followed: {error}") from error
        if not isinstance(found.contents, dict | bool):
            raise InvalidSchema(f"the reference {reference} does not lead to a schema")
        return self._places.node(found.contents, found.resolver)

    def check(self) -> None:
        """Every reference leads to a schema. Raises InvalidSchema."""
        seen: set[int] = set()
        waiting: list[tuple[Node, Any]] = [(self, self.tree)]
        while waiting:
            node, tree = waiting.pop()
            if not isinstance(tree, dict) or id(tree) in seen:
                continue
            seen.add(id(tree))
            if isinstance(tree.get("$ref"), str):
                target = node.target()
                waiting.append((target, target.tree))
                continue
            waiting += [(node.at(each), each) for each in _subschemas(tree)]


def _subschemas(tree: Mapping[str, Any]) -> Iterator[Any]:
    for word in _MAPS:
        value = tree.get(word)
        if isinstance(value, dict):
            yield from (each for each in value.values() if isinstance(each, dict | bool))
    for word in _WITH_SCHEMAS:
        value = tree.get(word)
        if isinstance(value, dict | bool):
            yield value
        elif isinstance(value, list):
            yield from value
