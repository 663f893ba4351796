"""Changes between two JSON Schemas, and which of them keep what was written readable: Confluent's rules.

A change is compatible if every document that the older schema accepts is accepted by the newer one. Whether a property
may be added or removed depends on the content model: open (other properties are allowed), closed, or partially open
(others are allowed that match a pattern or a schema).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from ottla.registry.schema_types import json_messages, json_objects
from ottla.registry.schema_types.json_nodes import Node
from ottla.registry.schema_types.matching import largest_matching
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
class _Memory:
    """What one pass knows of pairs of places. Schemas refer to themselves: a pair that is being compared is taken to be
    compatible, unless an earlier pass has found that it is not."""

    found: dict[Pair, list[Change]] = field(default_factory=dict)
    under_way: set[Pair] = field(default_factory=set)
    incompatible: dict[Pair, list[Change]] = field(default_factory=dict)
    has_assumed: bool = False


class Comparison:
    """Changes found so far, from one pair of places on, whose paths they are relative to."""

    def __init__(self, memory: _Memory) -> None:
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
        _compare_kinds(inner, old, new)
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


def compare(old: Node, new: Node) -> list[Change]:
    """All changes from one schema to another, compatible or not."""
    incompatible: dict[Pair, list[Change]] = {}
    while True:
        memory = _Memory(incompatible=incompatible)
        comparison = Comparison(memory)
        comparison.compare(old, new)
        found = {
            pair: changes
            for pair, changes in memory.found.items()
            if any(each.kind not in COMPATIBLE for each in changes)
        }
        # What was taken for granted may have turned out wrong: again with what is known now, until nothing changes.
        if not memory.has_assumed or found.keys() == incompatible.keys():
            return comparison.changes
        incompatible = found


def _compare_kinds(comparison: Comparison, old: Node, new: Node) -> None:
    if _is_branch(comparison, old, new):
        return
    if old.kind != new.kind and not (old.is_anything and new.is_anything):
        is_bytes = old.get("connect.type") == "bytes" and new.get("connect.type") == "bytes"
        if old.kind != "false" and not new.is_anything and not is_bytes:
            comparison.add("TYPE_CHANGED")
        return
    for word, name in (("$id", "ID"), ("title", "TITLE"), ("description", "DESCRIPTION"), ("default", "DEFAULT")):
        if old.get(word) != new.get(word):
            comparison.add(f"{name}_CHANGED")
    compare_them = _KINDS.get(old.kind)
    if compare_them is not None:
        compare_them(comparison, old, new)


def _is_branch(comparison: Comparison, old: Node, new: Node) -> bool:
    """Whether one of them is a combination and the other one of what it combines."""
    if old.kind != "combined" and new.kind == "combined":
        is_sum = new.criterion in ("anyOf", "oneOf")
        pairs, change = [(old, each) for each in new.parts], "SUM_TYPE_EXTENDED"
    elif old.kind == "combined" and new.kind != "combined":
        is_sum = old.criterion == "allOf"
        pairs, change = [(each, new) for each in old.parts], "PRODUCT_TYPE_NARROWED"
    else:
        return False
    is_single = len(pairs) == 1
    if not is_single and not is_sum:
        return False
    for before, after in pairs:
        trial = comparison.trial()
        trial.compare(before, after)
        if trial.is_compatible:
            comparison.changes += trial.changes
            if not is_single:
                comparison.add(change)
            return True
    return False


def _compare_strings(comparison: Comparison, old: Node, new: Node) -> None:
    comparison.limit("MAX_LENGTH", old.get("maxLength"), new.get("maxLength"), "maxLength")
    comparison.limit("MIN_LENGTH", old.get("minLength"), new.get("minLength"), "minLength")
    before, after = old.get("pattern"), new.get("pattern")
    if before != after:
        change = "ADDED" if before is None else "REMOVED" if after is None else "CHANGED"
        comparison.add(f"PATTERN_{change}", "pattern")


def _compare_numbers(comparison: Comparison, old: Node, new: Node) -> None:
    for word, name in (
        ("maximum", "MAXIMUM"),
        ("minimum", "MINIMUM"),
        ("exclusiveMaximum", "EXCLUSIVE_MAXIMUM"),
        ("exclusiveMinimum", "EXCLUSIVE_MINIMUM"),
    ):
        comparison.limit(name, _limit(old, word), _limit(new, word), word)
    _compare_multiples(comparison, old.get("multipleOf"), new.get("multipleOf"))
    if old.is_integer != new.is_integer:
        comparison.add("TYPE_EXTENDED" if old.is_integer else "TYPE_NARROWED")


def _limit(node: Node, word: str) -> Any:
    """Draft 4 says with a boolean beside it that a limit is exclusive."""
    exclusive = {"maximum": "exclusiveMaximum", "minimum": "exclusiveMinimum"}
    value = node.get(word)
    if word in exclusive:
        return None if node.get(exclusive[word]) is True else value
    if isinstance(value, bool):
        return node.get("maximum" if word == "exclusiveMaximum" else "minimum") if value else None
    return value


def _compare_multiples(comparison: Comparison, old: Any, new: Any) -> None:
    before = None if old is None else Fraction(str(old))
    after = None if new is None else Fraction(str(new))
    if before == after:
        return
    if before is None:
        change = "ADDED"
    elif after is None:
        change = "REMOVED"
    elif after % before == 0:
        change = "EXPANDED"
    else:
        change = "REDUCED" if before % after == 0 else "CHANGED"
    comparison.add(f"MULTIPLE_OF_{change}", "multipleOf")


def _compare_constants(comparison: Comparison, old: Node, new: Node) -> None:
    if not same(old.get("const"), new.get("const")):
        comparison.add("ENUM_ARRAY_CHANGED", "const")


def _compare_enums(comparison: Comparison, old: Node, new: Node) -> None:
    before, after = old.get("enum"), new.get("enum")
    is_extended, is_narrowed = _has_all(after, before), _has_all(before, after)
    if is_extended and is_narrowed:
        return
    change = "EXTENDED" if is_extended else "NARROWED" if is_narrowed else "CHANGED"
    comparison.add(f"ENUM_ARRAY_{change}", "enum")


def same(left: Any, right: Any) -> bool:
    """Equality as in JSON Schema: 1 and true are different, 1 and 1.0 are not."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)


def _has_all(values: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Whether each of `wanted` is the `same` as one of the values."""
    known = {frozen(each) for each in values}
    return all(frozen(each) in known for each in wanted)


def frozen(value: Any) -> Hashable:
    """A value that is equal to that of another where the two are the `same`: a boolean is no number, but within an
    array or an object, where Python takes 1 and true for equal."""
    return (bool, value) if isinstance(value, bool) else _inner(value)


def _inner(value: Any) -> Hashable:
    if isinstance(value, list):
        return tuple(map(_inner, value))
    if isinstance(value, dict):
        return frozenset((name, _inner(each)) for name, each in value.items())
    return value  # type: ignore[no-any-return]


def _compare_negations(comparison: Comparison, old: Node, new: Node) -> None:
    with comparison.inside("not"):
        trial = comparison.trial()
        trial.compare(new.child("not"), old.child("not"))  # what is forbidden has to become less
        comparison.add("NOT_TYPE_NARROWED" if trial.is_compatible else "NOT_TYPE_EXTENDED")


def _compare_combined(comparison: Comparison, old: Node, new: Node) -> None:
    if old.criterion != new.criterion:
        is_single_before, is_single_after = len(old.parts) == 1, len(new.parts) == 1
        is_extended = (
            new.criterion == "anyOf"
            or (is_single_before and (is_single_after or new.criterion == "oneOf"))
            or (is_single_after and old.criterion == "allOf")
        )
        comparison.add("COMBINED_TYPE_EXTENDED" if is_extended else "COMBINED_TYPE_CHANGED")
        if not is_extended:
            return
    before, after = _distinct(old.parts), _distinct(new.parts)
    if len(before) < len(after):
        comparison.add("PRODUCT_TYPE_EXTENDED" if new.criterion == "allOf" else "SUM_TYPE_EXTENDED")
    elif len(before) > len(after):
        comparison.add("PRODUCT_TYPE_NARROWED" if old.criterion == "allOf" else "SUM_TYPE_NARROWED")
    _match(comparison, old.criterion, before, after)


def _match(comparison: Comparison, criterion: str, before: Sequence[Node], after: Sequence[Node]) -> None:
    """Each of the smaller side's alternatives has to go with one of the other side, and no two with the same.

    Those that are written alike are tried with each other first, and only the rest are all compared. Where that does
    not find enough, all are: one that is written alike may have to go with another."""
    wanted = min(len(before), len(after))
    places = {(each.kind, _inner(each.tree)): place for place, each in enumerate(after)}
    alike = [
        (index, places[key]) for index, each in enumerate(before) if (key := (each.kind, _inner(each.tree))) in places
    ]
    found = _edges(comparison, criterion, before, after, alike)
    lefts, rights = {left for left, _ in found}, {right for _, right in found}
    rest = [
        (left, right)
        for left in range(len(before))
        if left not in lefts
        for right in range(len(after))
        if right not in rights
    ]
    found |= _edges(comparison, criterion, before, after, rest)
    matched = largest_matching(found.keys(), len(before))
    if len(matched) < wanted and alike:
        every = [(left, right) for left in range(len(before)) for right in range(len(after))]
        found |= _edges(comparison, criterion, before, after, [each for each in every if each not in found])
        matched = largest_matching(found.keys(), len(before))
    for edge in matched:
        comparison.changes += found[edge]
    if len(matched) < wanted:
        comparison.add("COMBINED_TYPE_SUBSCHEMAS_CHANGED")


def _edges(
    comparison: Comparison, criterion: str, before: Sequence[Node], after: Sequence[Node],
    pairs: Iterable[tuple[int, int]],
) -> dict[tuple[int, int], list[Change]]:  # fmt: skip
    """Pairs of alternatives that can become each other, with the necessary changes."""
    found: dict[tuple[int, int], list[Change]] = {}
    for left, right in pairs:
        with comparison.inside(criterion, str(left)):
            trial = comparison.trial()
            trial.compare(before[left], after[right])
            if trial.is_compatible:
                found[left, right] = trial.changes
    return found


def _distinct(parts: Sequence[Node]) -> list[Node]:
    found: dict[Hashable, Node] = {}
    for each in parts:
        found.setdefault((each.kind, _inner(each.tree)), each)
    return [*found.values()]


_KINDS: Final[dict[str, Any]] = {
    "string": _compare_strings,
    "number": _compare_numbers,
    "const": _compare_constants,
    "enum": _compare_enums,
    "combined": _compare_combined,
    "not": _compare_negations,
    "object": json_objects.compare_objects,
    "array": json_objects.compare_arrays,
}
