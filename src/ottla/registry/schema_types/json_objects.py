"""The rules of `json_diff.py` for objects and arrays: properties, items, and what else their content models allow."""

from __future__ import annotations

import re

from ottla.registry.schema_types.json_comparison import Comparison
from ottla.registry.schema_types.json_nodes import Node


def compare_objects(comparison: Comparison, old: Node, new: Node) -> None:
    _compare_required(comparison, old, new)
    _compare_properties(comparison, old, new)
    _compare_dependencies(comparison, old, new)
    _compare_others(comparison, old, new, "additionalProperties", "ADDITIONAL_PROPERTIES")
    _compare_unevaluated(comparison, old, new, "unevaluatedProperties", "UNEVALUATED_PROPERTIES")
    comparison.limit("MAX_PROPERTIES", old.get("maxProperties"), new.get("maxProperties"), "maxProperties")
    comparison.limit("MIN_PROPERTIES", old.get("minProperties"), new.get("minProperties"), "minProperties")


def compare_arrays(comparison: Comparison, old: Node, new: Node) -> None:
    with comparison.inside("items"):
        comparison.compare(_all_items(old), _all_items(new))
    _compare_items(comparison, old, new)
    _compare_others(comparison, old, new, "additionalItems", "ADDITIONAL_ITEMS")
    _compare_unevaluated(comparison, old, new, "unevaluatedItems", "UNEVALUATED_ITEMS")
    comparison.limit("MAX_ITEMS", old.get("maxItems"), new.get("maxItems"), "maxItems")
    comparison.limit("MIN_ITEMS", old.get("minItems"), new.get("minItems"), "minItems")
    was_unique, is_unique = bool(old.get("uniqueItems")), bool(new.get("uniqueItems"))
    if was_unique != is_unique:
        comparison.add("UNIQUE_ITEMS_REMOVED" if was_unique else "UNIQUE_ITEMS_ADDED", "uniqueItems")
    comparison.limit("MAX_CONTAINS", old.get("maxContains"), new.get("maxContains"), "maxContains")
    comparison.limit("MIN_CONTAINS", old.get("minContains"), new.get("minContains"), "minContains")


# Content models


def _others(node: Node, word: str) -> Node | bool:
    """Whether additional properties are allowed, by `additionalProperties` or its equivalent: true, false, or by a
    schema."""
    if word == "additionalItems" and node.has_prefix:
        if "prefixItems" not in node.tree and not isinstance(node.get("items"), bool):
            return True
        word = "items"
    child = node.child(word)
    if child is None:
        return True
    if child.kind in ("true", "false"):
        return child.kind == "true"
    return child


def _is_open(node: Node, word: str, unevaluated: str) -> bool:
    if _others(node, word) is not True or (word == "additionalProperties" and node.get("patternProperties")):
        return False
    rest = node.child(unevaluated)
    return rest is None or rest.is_anything


def _covering(node: Node, name: str | None) -> Node | None:
    """The schema that others have to match: of a pattern that the name of a property matches, or of all others."""
    is_object = name is not None
    if name is not None:
        for pattern, child in node.children("patternProperties").items():
            if _finds(pattern, name):
                return child
    others = _others(node, "additionalProperties" if is_object else "additionalItems")
    if isinstance(others, Node):
        return others
    rest = node.child("unevaluatedProperties" if is_object else "unevaluatedItems")
    if others and rest is not None and rest.kind != "false" and not rest.is_anything:
        return rest
    return None


def _finds(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:  # ECMAScript's expressions can be others than Python's
        return False


# Objects


def _compare_required(comparison: Comparison, old: Node, new: Node) -> None:
    was, now = _required(old), _required(new)
    after = new.children("properties")
    for name in old.children("properties"):
        if name not in after:
            continue
        if name in was and name not in now:
            comparison.add("REQUIRED_ATTRIBUTE_REMOVED", "required", name)
        elif name in now and name not in was:
            with_default = "WITH_DEFAULT_" if after[name].has_default else ""
            comparison.add(f"REQUIRED_ATTRIBUTE_{with_default}ADDED", "required", name)


def _required(node: Node) -> frozenset[str]:
    """The names of properties that have to be there. (In draft 3 a property says so itself, by a boolean.)"""
    names = node.get("required")
    return frozenset(names) if isinstance(names, list) else frozenset()


def _compare_properties(comparison: Comparison, old: Node, new: Node) -> None:
    before, after, required = old.children("properties"), new.children("properties"), _required(new)
    for name in dict.fromkeys([*before, *after]):
        with comparison.inside("properties", name):
            if name not in after:
                _removed_property(comparison, before[name], new, name)
            elif name not in before:
                _added_property(comparison, old, after[name], name, name in required)
            else:
                comparison.compare(before[name], after[name])


def _removed_property(comparison: Comparison, property: Node, new: Node, name: str) -> None:
    """Compare a removed property: data written with it exists, so the new content model must allow it."""
    if _is_open(new, "additionalProperties", "unevaluatedProperties"):
        comparison.add("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL")
        return
    covering = _covering(new, name)
    if covering is not None:
        is_covered = _tried(comparison, property, covering)
        comparison.add(f"PROPERTY_REMOVED_{is_covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
    elif property.kind == "false":
        comparison.add("PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL")
    else:
        comparison.add("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL")


def _added_property(comparison: Comparison, old: Node, property: Node, name: str, is_required: bool) -> None:
    """Compare an added property: written data may have one of that name, unless the old content model forbade it."""
    with_default = "WITH_DEFAULT_" if property.has_default else ""
    if _is_open(old, "additionalProperties", "unevaluatedProperties"):
        if property.is_anything:
            comparison.add("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL")
        elif is_required:
            comparison.add(f"REQUIRED_PROPERTY_{with_default}ADDED_TO_OPEN_CONTENT_MODEL")
        else:
            comparison.add("OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL")
        return
    covering = _covering(old, name)
    if covering is not None:
        is_covered = _tried(comparison, covering, property)
        comparison.add(f"PROPERTY_ADDED_{is_covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
    if is_required:
        comparison.add(f"REQUIRED_PROPERTY_{with_default}ADDED_TO_UNOPEN_CONTENT_MODEL")
    else:
        comparison.add("OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL")


def _tried(comparison: Comparison, old: Node, new: Node) -> str:
    """Compare, and say whether the one covers the other: `IS` or `NOT`."""
    trial = comparison.trial()
    trial.compare(old, new)
    comparison.changes += trial.changes
    return "IS" if trial.is_compatible else "NOT"


def _compare_dependencies(comparison: Comparison, old: Node, new: Node) -> None:
    before, after = _needed_names(old), _needed_names(new)
    for name in dict.fromkeys([*before, *after]):
        if name not in after:
            change = "REMOVED"
        elif name not in before:
            change = "ADDED"
        elif before[name] == after[name]:
            continue
        elif before[name] <= after[name]:
            change = "EXTENDED"
        else:
            change = "NARROWED" if after[name] <= before[name] else "CHANGED"
        comparison.add(f"DEPENDENCY_ARRAY_{change}", "dependencies", name)
    schemas_before = {**old.children("dependencies"), **old.children("dependentSchemas")}
    schemas_after = {**new.children("dependencies"), **new.children("dependentSchemas")}
    for name in dict.fromkeys([*schemas_before, *schemas_after]):
        with comparison.inside("dependencies", name):
            if name not in schemas_after:
                comparison.add("DEPENDENCY_SCHEMA_REMOVED")
            elif name not in schemas_before:
                comparison.add("DEPENDENCY_SCHEMA_ADDED")
            else:
                comparison.compare(schemas_before[name], schemas_after[name])


def _needed_names(node: Node) -> dict[str, set[str]]:
    found = {**(node.get("dependencies") or {}), **(node.get("dependentRequired") or {})}
    return {name: set(names) for name, names in found.items() if isinstance(names, list)}


def _compare_others(comparison: Comparison, old: Node, new: Node, word: str, name: str) -> None:
    before, after = _others(old, word), _others(new, word)
    with comparison.inside(word):
        if (before is False) != (after is False):
            comparison.add(f"{name}_ADDED" if before is False else f"{name}_REMOVED")
        elif isinstance(before, Node) and isinstance(after, Node):
            comparison.compare(before, after)
        elif isinstance(after, Node):
            comparison.add(f"{name}_NARROWED")
        elif isinstance(before, Node):
            comparison.add(f"{name}_EXTENDED")


def _compare_unevaluated(comparison: Comparison, old: Node, new: Node, word: str, name: str) -> None:
    before, after = old.child(word), new.child(word)
    if before is None and after is None:
        return
    was_closed = before is not None and before.kind == "false"
    is_closed = after is not None and after.kind == "false"
    was_open = before is None or before.is_anything
    is_open = after is None or after.is_anything
    with comparison.inside(word):
        if was_closed != is_closed:
            comparison.add(f"{name}_ADDED" if was_closed else f"{name}_REMOVED")
        elif before is None or (was_open and not is_open):
            comparison.add(f"{name}_NARROWED")
        elif after is None or (is_open and not was_open):
            comparison.add(f"{name}_EXTENDED")
        else:
            comparison.compare(before, after)


# Arrays


def _all_items(node: Node) -> Node | None:
    """The schema of every item, where it is one for all."""
    if node.has_prefix and ("prefixItems" in node.tree or isinstance(node.get("items"), bool)):
        return None
    return node.child("items")


def _items(node: Node) -> list[Node]:
    """The schemas of items by their place."""
    found = node.get("prefixItems" if node.has_prefix else "items")
    return [node.at(each) for each in found] if isinstance(found, list) else []


def _compare_items(comparison: Comparison, old: Node, new: Node) -> None:
    before, after = _items(old), _items(new)
    for index in range(max(len(before), len(after))):
        with comparison.inside("items", str(index)):
            if index >= len(after):
                _removed_item(comparison, before[index], new)
            elif index >= len(before):
                _added_item(comparison, old, after[index])
            else:
                comparison.compare(before[index], after[index])


def _removed_item(comparison: Comparison, item: Node, new: Node) -> None:
    covering = _covering(new, None)
    if _is_open(new, "additionalItems", "unevaluatedItems"):
        comparison.add("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL")
    elif covering is not None:
        is_covered = _tried(comparison, item, covering)
        comparison.add(f"ITEM_REMOVED_{is_covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
    elif item.kind == "false":
        comparison.add("ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL")
    else:
        comparison.add("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL")


def _added_item(comparison: Comparison, old: Node, item: Node) -> None:
    covering = _covering(old, None)
    if _is_open(old, "additionalItems", "unevaluatedItems"):
        with_empty = "_WITH_EMPTY_SCHEMA" if item.is_anything else ""
        comparison.add(f"ITEM{with_empty}_ADDED_TO_OPEN_CONTENT_MODEL")
    elif covering is not None:
        is_covered = _tried(comparison, covering, item)
        comparison.add(f"ITEM_ADDED_{is_covered}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
    else:
        comparison.add("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL")
