"""The changes between two JSON schemas as they are found, and which of them are compatible."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.registry.schema_types import json_messages
from ottla.registry.schema_types.json_nodes import Node
from ottla.registry.schema_types.parsed import check_stack

COMPATIBLE: Final = frozenset({
    "ID_CHANGED", "DESCRIPTION_CHANGED", "TITLE_CHANGED", "DEFAULT_CHANGED", "SCHEMA_REMOVED", "TYPE_EXTENDED",
    "MAX_LENGTH_INCREASED", "MAX_LENGTH_REMOVED", "MIN_LENGTH_DECREASED", "MIN_LENGTH_REMOVED", "PATTERN_REMOVED",
    "MAXIMUM_INCREASED", "MAXIMUM_REMOVED", "MINIMUM_DECREASED", "MINIMUM_REMOVED", "EXCLUSIVE_MAXIMUM_INCREASED",
    "EXCLUSIVE_MAXIMUM_REMOVED", "EXCLUSIVE_MINIMUM_DECREASED", "EXCLUSIVE_MINIMUM_REMOVED", "MULTIPLE_OF_REDUCED",
    "MULTIPLE_OF_REMOVED", "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED", "REQUIRED_ATTRIBUTE_REMOVED",
    "DEPENDENCY_ARRAY_NARROWED", "DEPENDENCY_ARRAY_REMOVED", "DEPENDENCY_SCHEMA_REMOVED", "MAX_PROPERTIES_INCREASED",
    "MAX_PROPERTIES_REMOVED", "MIN_PROPERTIES_DECREASED", "MIN_PROPERTIES_REMOVED", "ADDITIONAL_PROPERTIES_ADDED",
    "ADDITIONAL_PROPERTIES_EXTENDED", "UNEVALUATED_PROPERTIES_ADDED", "UNEVALUATED_PROPERTIES_EXTENDED",
    "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL",
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL", "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
    "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL",
    "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "MAX_ITEMS_INCREASED", "MAX_ITEMS_REMOVED",
    "MIN_ITEMS_DECREASED", "MIN_ITEMS_REMOVED", "MAX_CONTAINS_INCREASED", "MAX_CONTAINS_REMOVED",
    "MIN_CONTAINS_DECREASED", "MIN_CONTAINS_REMOVED", "UNIQUE_ITEMS_REMOVED", "ADDITIONAL_ITEMS_ADDED",
    "ADDITIONAL_ITEMS_EXTENDED", "UNEVALUATED_ITEMS_ADDED", "UNEVALUATED_ITEMS_EXTENDED",
    "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL",
    "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL",
    "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "ENUM_ARRAY_EXTENDED", "COMBINED_TYPE_EXTENDED", "PRODUCT_TYPE_NARROWED", "SUM_TYPE_EXTENDED", "NOT_TYPE_NARROWED",
})  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One change: its kind, and the path of the place."""

    kind: str
    path: str

    def __str__(self) -> str:
        described = json_messages.described(self.kind, self.path)
        return f'{{errorType:"{self.kind}", description:"{described}\'}}'


Pair = tuple[int, int]


@dataclass
class Memory:
    """What one pass knows of pairs of places. Schemas refer to themselves: a pair that is being compared is taken to be
    compatible, unless an earlier pass has found that it is not."""

    compare_kinds: Callable[[Comparison, Node, Node], None]
    """Compares two places that are there, by what kind of schema they are."""
    found: dict[Pair, list[Change]] = field(default_factory=dict)
    under_way: set[Pair] = field(default_factory=set)
    incompatible: dict[Pair, list[Change]] = field(default_factory=dict)
    has_assumed: bool = False


class Comparison:
    """Changes found so far, from one pair of places on, whose paths they are relative to."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._path: list[str] = []
        self.changes: list[Change] = []

    def add(self, kind: str, *places: str) -> None:
        self.changes.append(Change(kind, "#/" + "/".join([*self._path, *places])))

    @contextmanager
    def inside(self, *places: str) -> Iterator[None]:
        """Differences added within belong to a nested place."""
        self._path += places
        yield
        del self._path[-len(places) :]

    def trial(self) -> Comparison:
        """A comparison at the same place, for changes that may not count."""
        other = Comparison(self._memory)
        other._path = list(self._path)
        return other

    @property
    def is_compatible(self) -> bool:
        return all(each.kind in COMPATIBLE for each in self.changes)

    def compare(self, old: Node | None, new: Node | None) -> None:
        """Changes between two places, either of which may not be there. Raises InvalidSchema for what is nested too
        deeply."""
        if old is None and new is None:
            return
        if old is None:
            self.add("SCHEMA_ADDED")
        elif new is None:
            self.add("SCHEMA_REMOVED")
        else:
            prefix = "/".join(self._path)
            for each in self._remembered(old.target(), new.target()):
                path = "/".join(filter(None, [prefix, each.path.removeprefix("#/")]))
                self.changes.append(Change(each.kind, f"#/{path}"))

    def _remembered(self, old: Node, new: Node) -> list[Change]:
        memory, pair = self._memory, (id(old), id(new))
        if pair in memory.found:
            return memory.found[pair]
        if pair in memory.under_way:
            memory.has_assumed |= pair not in memory.incompatible
            return memory.incompatible.get(pair, [])
        memory.under_way.add(pair)
        check_stack()
        inner = Comparison(memory)
        memory.compare_kinds(inner, old, new)
        memory.under_way.discard(pair)
        memory.found[pair] = inner.changes
        return inner.changes

    # One keyword

    def limit(self, name: str, old: Any, new: Any, word: str) -> None:
        """Compare a numeric limit: added, removed, increased or decreased."""
        if old == new:
            return
        if old is None:
            self.add(f"{name}_ADDED", word)
        elif new is None:
            self.add(f"{name}_REMOVED", word)
        else:
            self.add(f"{name}_INCREASED" if old < new else f"{name}_DECREASED", word)
