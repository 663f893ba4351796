"""JSON Schema: drafts 4 to 2020-12, with other schemas that a schema refers to by their URIs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final
from urllib.parse import urljoin

import jsonschema.exceptions
import jsonschema.validators
import jsonschema_specifications
import referencing.exceptions
import referencing.jsonschema
from referencing import Registry, Resource

from ottla.registry.schema_types import json_comparison, json_diff
from ottla.registry.schema_types.json_nodes import Node, Places
from ottla.registry.schema_types.parsed import InvalidSchema, Resolved, json_of

ROOT: Final = ""
_DRAFTS_WITHOUT_SIBLINGS: Final = ("draft-03", "draft-04", "draft-06", "draft-07")


class JsonSchema:
    """One schema, and the documents that its references bring."""

    def __init__(self, text: str, references: Sequence[Resolved]) -> None:
        """Raises InvalidSchema."""
        self.tree = _tree(text)
        self._references = {each.name: _tree(each.text) for each in references}
        validator = jsonschema.validators.validator_for(self.tree, default=jsonschema.Draft7Validator)
        try:
            validator.check_schema(self.tree)
        except jsonschema.exceptions.SchemaError as error:
            raise InvalidSchema(f"{error.message} at {error.json_path}") from error
        self._dialect = str(validator.ID_OF(validator.META_SCHEMA)).rstrip("#")
        self._base, self._registry = self._resources()
        self.root.check()

    def _resources(self) -> tuple[str, Any]:
        specification = referencing.jsonschema.specification_with(self._dialect)
        resource = Resource.from_contents(self.tree, specification)
        base = resource.id() or ROOT
        registry: Registry[Any] = jsonschema_specifications.REGISTRY
        for name, tree in self._references.items():
            referred = Resource.from_contents(tree, specification)
            uris = {name, urljoin(base, name), referred.id() or name}
            registry = registry.with_resources((uri, referred) for uri in uris)
        return base, registry.with_resource(base, resource)

    @cached_property
    def root(self) -> Node:
        """Where comparisons begin."""
        return Places(self._dialect).node(self.tree, self._registry.resolver(self._base))

    @cached_property
    def text(self) -> str:
        return _dumps(self.tree)

    def normalized(self) -> str:
        return json.dumps(self.tree, separators=(",", ":"), ensure_ascii=False, sort_keys=True)

    def resolved(self) -> str:
        """The schema with the schemas it refers to as its own definitions, by name."""
        if not self._references or not isinstance(self.tree, dict):
            return self.text
        inside = {name: tree for name, tree in self._references.items() if isinstance(tree, dict)}
        word = "definitions" if any(draft in self._dialect for draft in _DRAFTS_WITHOUT_SIBLINGS) else "$defs"
        definitions = {**self.tree.get(word, {}), **{name: {"$id": name, **tree} for name, tree in inside.items()}}
        return _dumps({**self.tree, word: definitions})

    def formatted(self, name: str) -> str:
        return self.resolved() if name == "resolved" else self.text

    def differences(self, older: JsonSchema) -> list[str]:
        found = json_diff.compare(older.root, self.root)
        return [str(each) for each in found if each.kind not in json_comparison.COMPATIBLE]


def parse(text: str, references: Sequence[Resolved]) -> JsonSchema:
    """Raises InvalidSchema."""
    return JsonSchema(text, references)


def _tree(text: str) -> Any:
    tree = json_of(text)
    if not isinstance(tree, dict | bool):
        raise InvalidSchema("a JSON Schema is an object, true or false")
    if isinstance(tree, dict) and not isinstance(tree.get("$schema", ""), str):
        raise InvalidSchema("$schema is a string")
    return tree


def _dumps(tree: Any) -> str:
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False)
