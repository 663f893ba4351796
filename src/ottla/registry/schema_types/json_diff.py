"""Changes between two JSON Schemas, and which of them keep what was written readable: Confluent's rules.

A change is compatible if every document that the older schema accepts is accepted by the newer one. Whether a property
may be added or removed depends on the content model: open (other properties are allowed), closed, or partially open
(others are allowed that match a pattern or a schema).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from fractions import Fraction
from typing import Any, Final

from ottla.registry.schema_types import json_objects
from ottla.registry.schema_types.json_comparison import COMPATIBLE, Change, Comparison, Memory, Pair
from ottla.registry.schema_types.json_nodes import Node
from ottla.registry.schema_types.matching import largest_matching


def compare(old: Node, new: Node) -> list[Change]:
    """All changes from one schema to another, compatible or not."""
    incompatible: dict[Pair, list[Change]] = {}
    while True:
        memory = Memory(_compare_kinds, incompatible=incompatible)
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
    comparison: Comparison,
    criterion: str,
    before: Sequence[Node],
    after: Sequence[Node],
    pairs: Iterable[tuple[int, int]],
) -> dict[tuple[int, int], list[Change]]:
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
