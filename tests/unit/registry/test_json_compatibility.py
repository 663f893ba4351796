"""Every kind of change between two JSON Schemas, how it is found, and whether what was written stays readable."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.registry.schema_types import json_diff
from ottla.registry.schema_types.json_comparison import COMPATIBLE
from ottla.registry.schema_types.json_schema import JsonSchema

D2020 = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
CLOSED = {"additionalProperties": False}
S, N, I = {"type": "string"}, {"type": "number"}, {"type": "integer"}  # noqa: E741
ARRAY = {"type": "array"}


def has(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def limited(kind: str, word: str, *values: Any) -> list[dict[str, Any]]:
    return [{"type": kind} | ({} if value is None else {word: value}) for value in values]


def limits(name: str, kind: str, word: str, low: Any, high: Any) -> dict[str, tuple[Any, Any, str]]:
    """The four changes of a limit."""
    none, lower, higher = limited(kind, word, None, low, high)
    return {
        f"{word} added": (none, lower, f"{name}_ADDED #/{word}"),
        f"{word} removed": (lower, none, f"{name}_REMOVED #/{word}"),
        f"{word} increased": (lower, higher, f"{name}_INCREASED #/{word}"),
        f"{word} decreased": (higher, lower, f"{name}_DECREASED #/{word}"),
    }


CHANGES: dict[str, tuple[Any, Any, str | list[str]]] = {
    # what does not matter
    "nothing": (has(a=S), has(a=S), []),
    "order of properties": (has(a=S, b=N), has(b=N, a=S), []),
    "id": ({"$id": "http://a/one", **S}, {"$id": "http://a/two", **S}, "ID_CHANGED #/"),
    "title": ({"title": "a", **S}, {"title": "b", **S}, "TITLE_CHANGED #/"),
    "description": (S, {"description": "b", **S}, "DESCRIPTION_CHANGED #/"),
    "default": ({"default": "a", **S}, {"default": "b", **S}, "DEFAULT_CHANGED #/"),
    # types
    "anything allowed": (S, {}, []),
    "anything allowed, by true": (has(a=S), has(a=True), []),
    "nothing was allowed": (has(a=False), has(a=S), []),
    "a type where anything was allowed": ({}, S, "TYPE_CHANGED #/"),
    "another type": (S, N, "TYPE_CHANGED #/"),
    "boolean to null": ({"type": "boolean"}, {"type": "null"}, "TYPE_CHANGED #/"),
    "integers to numbers": (I, N, "TYPE_EXTENDED #/"),
    "numbers to integers": (N, I, "TYPE_NARROWED #/"),
    "bytes of Kafka Connect": ({"connect.type": "bytes", **S}, {"connect.type": "bytes", **N}, []),
    # strings
    **limits("MAX_LENGTH", "string", "maxLength", 5, 10),
    **limits("MIN_LENGTH", "string", "minLength", 5, 10),
    "pattern added": (S, {"pattern": "a", **S}, "PATTERN_ADDED #/pattern"),
    "pattern removed": ({"pattern": "a", **S}, S, "PATTERN_REMOVED #/pattern"),
    "pattern changed": ({"pattern": "a", **S}, {"pattern": "b", **S}, "PATTERN_CHANGED #/pattern"),
    # numbers
    **limits("MAXIMUM", "number", "maximum", 1, 2.5),
    **limits("MINIMUM", "number", "minimum", 1, 2.5),
    **limits("EXCLUSIVE_MAXIMUM", "number", "exclusiveMaximum", 1, 2.5),
    **limits("EXCLUSIVE_MINIMUM", "number", "exclusiveMinimum", 1, 2.5),
    "multipleOf added": (*limited("number", "multipleOf", None, 2), "MULTIPLE_OF_ADDED #/multipleOf"),
    "multipleOf removed": (*limited("number", "multipleOf", 2, None), "MULTIPLE_OF_REMOVED #/multipleOf"),
    "multipleOf expanded": (*limited("number", "multipleOf", 2, 4), "MULTIPLE_OF_EXPANDED #/multipleOf"),
    "multipleOf reduced": (*limited("number", "multipleOf", 4, 2), "MULTIPLE_OF_REDUCED #/multipleOf"),
    "multipleOf changed": (*limited("number", "multipleOf", 4, 3), "MULTIPLE_OF_CHANGED #/multipleOf"),
    "multipleOf with fractions": (*limited("number", "multipleOf", 0.5, 0.1), "MULTIPLE_OF_REDUCED #/multipleOf"),
    "multipleOf written otherwise": (*limited("number", "multipleOf", 0.5, 0.50), []),
    # enums and constants
    "enum in another order": ({"enum": [1, 2]}, {"enum": [2, 1]}, []),
    "enum extended": ({"enum": [1]}, {"enum": [1, 2]}, "ENUM_ARRAY_EXTENDED #/enum"),
    "enum narrowed": ({"enum": [1, 2]}, {"enum": [1]}, "ENUM_ARRAY_NARROWED #/enum"),
    "enum changed": ({"enum": [1, 2]}, {"enum": [1, 3]}, "ENUM_ARRAY_CHANGED #/enum"),
    "enum of true and 1": ({"enum": [1]}, {"enum": [True]}, "ENUM_ARRAY_CHANGED #/enum"),
    "const changed": ({"const": 1}, {"const": 2}, "ENUM_ARRAY_CHANGED #/const"),
    # properties in an open content model
    "optional property added to open": (
        has(), has(a=S), "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a"
    ),
    "required property added to open": (
        has(), {**has(a=S), "required": ["a"]}, "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a"
    ),
    "required property with default added to open": (
        has(), {**has(a={"default": "", **S}), "required": ["a"]},
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a",
    ),
    "property of anything added to open": (
        has(), has(a={}), "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a"
    ),
    "property removed from open": (has(a=S), has(), "PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL #/properties/a"),
    # in a closed one
    "optional property added to closed": (
        {**has(), **CLOSED}, {**has(a=S), **CLOSED}, "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a"
    ),
    "required property added to closed": (
        {**has(), **CLOSED}, {**has(a=S), **CLOSED, "required": ["a"]},
        "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a",
    ),
    "required property with default added to closed": (
        {**has(), **CLOSED}, {**has(a={"default": "", **S}), **CLOSED, "required": ["a"]},
        "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a",
    ),
    "property removed from closed": (
        {**has(a=S), **CLOSED}, {**has(), **CLOSED}, "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/a"
    ),
    "property that was forbidden removed from closed": (
        {**has(a=False), **CLOSED}, {**has(), **CLOSED},
        "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/a",
    ),
    # in a partially open one
    "property removed that a pattern covers": (
        {**has(ab=S), **CLOSED, "patternProperties": {"^a": S}}, {**has(), **CLOSED, "patternProperties": {"^a": S}},
        "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/ab",
    ),
    "property removed that others cover": (
        {**has(a=S), "additionalProperties": S}, {**has(), "additionalProperties": S},
        "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
    ),
    "property removed that others do not cover": (
        {**has(a=S), "additionalProperties": N}, {**has(), "additionalProperties": N},
        ["PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a", "TYPE_CHANGED #/properties/a"],
    ),
    "property added that others covered": (
        {**has(), "additionalProperties": S}, {**has(a=S), "additionalProperties": S},
        ["PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a",
         "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a"],
    ),
    "property added that others did not cover": (
        {**has(), "additionalProperties": N}, {**has(a=S), "additionalProperties": N},
        ["PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/a", "TYPE_CHANGED #/properties/a",
         "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a"],
    ),
    # what else objects say
    "property becomes required": (
        has(a=S), {**has(a=S), "required": ["a"]}, "REQUIRED_ATTRIBUTE_ADDED #/required/a"
    ),
    "property with default becomes required": (
        has(a={"default": "", **S}), {**has(a={"default": "", **S}), "required": ["a"]},
        "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED #/required/a",
    ),
    "property is required no more": (
        {**has(a=S), "required": ["a"]}, has(a=S), "REQUIRED_ATTRIBUTE_REMOVED #/required/a"
    ),
    "property changes": (has(a=S), has(a=N), "TYPE_CHANGED #/properties/a"),
    "property changes deep inside": (has(a=has(b=S)), has(a=has(b=N)), "TYPE_CHANGED #/properties/a/properties/b"),
    **limits("MAX_PROPERTIES", "object", "maxProperties", 1, 2),
    **limits("MIN_PROPERTIES", "object", "minProperties", 1, 2),
    "others are allowed": (
        {**has(), **CLOSED}, has(), "ADDITIONAL_PROPERTIES_ADDED #/additionalProperties"
    ),
    "others are forbidden": (has(), {**has(), **CLOSED}, "ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"),
    "others are restricted": (
        has(), {**has(), "additionalProperties": S}, "ADDITIONAL_PROPERTIES_NARROWED #/additionalProperties"
    ),
    "others are restricted no more": (
        {**has(), "additionalProperties": S}, has(), "ADDITIONAL_PROPERTIES_EXTENDED #/additionalProperties"
    ),
    "others change": (
        {**has(), "additionalProperties": S}, {**has(), "additionalProperties": N},
        "TYPE_CHANGED #/additionalProperties",
    ),
    "unevaluated are allowed": (
        {**D2020, **has(), "unevaluatedProperties": False}, {**D2020, **has()},
        "UNEVALUATED_PROPERTIES_ADDED #/unevaluatedProperties",
    ),
    "unevaluated are forbidden": (
        {**D2020, **has()}, {**D2020, **has(), "unevaluatedProperties": False},
        "UNEVALUATED_PROPERTIES_REMOVED #/unevaluatedProperties",
    ),
    "unevaluated are restricted": (
        {**D2020, **has(), "unevaluatedProperties": True}, {**D2020, **has(), "unevaluatedProperties": S},
        "UNEVALUATED_PROPERTIES_NARROWED #/unevaluatedProperties",
    ),
    "unevaluated are restricted no more": (
        {**D2020, **has(), "unevaluatedProperties": S}, {**D2020, **has()},
        "UNEVALUATED_PROPERTIES_EXTENDED #/unevaluatedProperties",
    ),
    **{
        f"needed names {what}": (
            {**has(), **({} if old is None else {"dependencies": {"a": old}})},
            {**has(), **({} if new is None else {"dependencies": {"a": new}})},
            f"DEPENDENCY_ARRAY_{kind} #/dependencies/a",
        )
        for what, old, new, kind in (
            ("added", None, ["b"], "ADDED"), ("removed", ["b"], None, "REMOVED"),
            ("extended", ["b"], ["b", "c"], "EXTENDED"), ("narrowed", ["b", "c"], ["b"], "NARROWED"),
            ("changed", ["b"], ["c"], "CHANGED"),
        )
    },
    "needed schema added": (
        has(), {**has(), "dependencies": {"a": has(b=S)}}, "DEPENDENCY_SCHEMA_ADDED #/dependencies/a"
    ),
    "needed schema removed": (
        {**has(), "dependencies": {"a": has(b=S)}}, has(), "DEPENDENCY_SCHEMA_REMOVED #/dependencies/a"
    ),
    "needed schema changed": (
        {**has(), "dependencies": {"a": has(b=S)}}, {**has(), "dependencies": {"a": has(b=N)}},
        "TYPE_CHANGED #/dependencies/a/properties/b",
    ),
    "dependentRequired of newer drafts": (
        {**D2020, **has(), "dependentRequired": {"a": ["b"]}}, {**D2020, **has()},
        "DEPENDENCY_ARRAY_REMOVED #/dependencies/a",
    ),
    # arrays
    "items get a schema": (ARRAY, {**ARRAY, "items": S}, "SCHEMA_ADDED #/items"),
    "items have no schema any more": ({**ARRAY, "items": S}, ARRAY, "SCHEMA_REMOVED #/items"),
    "items change": ({**ARRAY, "items": S}, {**ARRAY, "items": N}, "TYPE_CHANGED #/items"),
    **limits("MAX_ITEMS", "array", "maxItems", 1, 2),
    **limits("MIN_ITEMS", "array", "minItems", 1, 2),
    **{
        name: ({**D2020, **old}, {**D2020, **new}, change)
        for name, (old, new, change) in {
            **limits("MAX_CONTAINS", "array", "maxContains", 1, 2),
            **limits("MIN_CONTAINS", "array", "minContains", 1, 2),
        }.items()
    },
    "items become unique": (ARRAY, {**ARRAY, "uniqueItems": True}, "UNIQUE_ITEMS_ADDED #/uniqueItems"),
    "items need not be unique": ({**ARRAY, "uniqueItems": True}, ARRAY, "UNIQUE_ITEMS_REMOVED #/uniqueItems"),
    "item added to open": (
        {**ARRAY, "items": [S]}, {**ARRAY, "items": [S, N]}, "ITEM_ADDED_TO_OPEN_CONTENT_MODEL #/items/1"
    ),
    "item of anything added to open": (
        {**ARRAY, "items": [S]}, {**ARRAY, "items": [S, {}]},
        "ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL #/items/1",
    ),
    "item removed from open": (
        {**ARRAY, "items": [S, N]}, {**ARRAY, "items": [S]}, "ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL #/items/1"
    ),
    "item added to closed": (
        {**ARRAY, "items": [S], "additionalItems": False}, {**ARRAY, "items": [S, N], "additionalItems": False},
        "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL #/items/1",
    ),
    "item removed from closed": (
        {**ARRAY, "items": [S, N], "additionalItems": False}, {**ARRAY, "items": [S], "additionalItems": False},
        "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items/1",
    ),
    "item that was forbidden removed from closed": (
        {**ARRAY, "items": [S, False], "additionalItems": False}, {**ARRAY, "items": [S], "additionalItems": False},
        "ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL #/items/1",
    ),
    "item removed that others cover": (
        {**ARRAY, "items": [S, N], "additionalItems": N}, {**ARRAY, "items": [S], "additionalItems": N},
        "ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1",
    ),
    "item removed that others do not cover": (
        {**ARRAY, "items": [S, S], "additionalItems": N}, {**ARRAY, "items": [S], "additionalItems": N},
        ["ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1", "TYPE_CHANGED #/items/1"],
    ),
    "item added that others covered": (
        {**ARRAY, "items": [S], "additionalItems": N}, {**ARRAY, "items": [S, N], "additionalItems": N},
        "ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1",
    ),
    "item added that others did not cover": (
        {**ARRAY, "items": [S], "additionalItems": N}, {**ARRAY, "items": [S, S], "additionalItems": N},
        ["ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/items/1", "TYPE_CHANGED #/items/1"],
    ),
    "more items are allowed": (
        {**ARRAY, "items": [S], "additionalItems": False}, {**ARRAY, "items": [S]},
        "ADDITIONAL_ITEMS_ADDED #/additionalItems",
    ),
    "more items are forbidden": (
        {**ARRAY, "items": [S]}, {**ARRAY, "items": [S], "additionalItems": False},
        "ADDITIONAL_ITEMS_REMOVED #/additionalItems",
    ),
    "more items are restricted": (
        {**ARRAY, "items": [S]}, {**ARRAY, "items": [S], "additionalItems": N},
        "ADDITIONAL_ITEMS_NARROWED #/additionalItems",
    ),
    "more items are restricted no more": (
        {**ARRAY, "items": [S], "additionalItems": N}, {**ARRAY, "items": [S]},
        "ADDITIONAL_ITEMS_EXTENDED #/additionalItems",
    ),
    "prefixItems of newer drafts": (
        {**D2020, **ARRAY, "prefixItems": [S], "items": False},
        {**D2020, **ARRAY, "prefixItems": [S, N], "items": False},
        "ITEM_ADDED_TO_CLOSED_CONTENT_MODEL #/items/1",
    ),
    **{
        f"unevaluated items {what}": (
            {**D2020, **ARRAY, **({} if old is None else {"unevaluatedItems": old})},
            {**D2020, **ARRAY, **({} if new is None else {"unevaluatedItems": new})},
            f"UNEVALUATED_ITEMS_{kind} #/unevaluatedItems",
        )
        for what, old, new, kind in (
            ("are allowed", False, None, "ADDED"), ("are forbidden", None, False, "REMOVED"),
            ("are restricted", None, S, "NARROWED"), ("are restricted no more", S, None, "EXTENDED"),
        )
    },
    # combinations
    "alternatives in another order": ({"oneOf": [S, N]}, {"oneOf": [N, S]}, []),
    "an alternative more": ({"oneOf": [S]}, {"oneOf": [S, N]}, "SUM_TYPE_EXTENDED #/"),
    "an alternative less": ({"anyOf": [S, N]}, {"anyOf": [S]}, "SUM_TYPE_NARROWED #/"),
    "what becomes one of several": (S, {"oneOf": [N, S]}, "SUM_TYPE_EXTENDED #/"),
    "what becomes one of others": (S, {"oneOf": [N, {"type": "null"}]}, "TYPE_CHANGED #/"),
    "a list of types": ({"type": "string"}, {"type": ["string", "null"]}, "SUM_TYPE_EXTENDED #/"),
    "one more to match": (
        {"allOf": [has(a=S)]}, {"allOf": [has(a=S), has(b=S)]}, "PRODUCT_TYPE_EXTENDED #/"
    ),
    "one less to match": ({"allOf": [has(a=S), has(b=S)]}, {"allOf": [has(a=S)]}, "PRODUCT_TYPE_NARROWED #/"),
    "only one of all to match": ({"allOf": [has(a=S), has(b=S)]}, has(b=S), "PRODUCT_TYPE_NARROWED #/"),
    "any in place of one": ({"oneOf": [S, N]}, {"anyOf": [S, N]}, "COMBINED_TYPE_EXTENDED #/"),
    "one in place of any": ({"anyOf": [S, N]}, {"oneOf": [S, N]}, "COMBINED_TYPE_CHANGED #/"),
    "a list with one alternative": (S, {"oneOf": [S]}, []),
    "an alternative changes": (
        {"oneOf": [S, N]}, {"oneOf": [S, {"type": "boolean"}]}, "COMBINED_TYPE_SUBSCHEMAS_CHANGED #/"
    ),
    "the same alternative twice": ({"oneOf": [S]}, {"oneOf": [S, S]}, []),
    "less is forbidden": ({"not": N}, {"not": I}, "NOT_TYPE_NARROWED #/not"),
    "more is forbidden": ({"not": I}, {"not": N}, "NOT_TYPE_EXTENDED #/not"),
    # references
    "a reference in place of its target": (
        has(a=S), {**has(a={"$ref": "#/definitions/text"}), "definitions": {"text": S}}, []
    ),
    "the target of a reference changes": (
        {**has(a={"$ref": "#/definitions/x"}), "definitions": {"x": S}},
        {**has(a={"$ref": "#/definitions/x"}), "definitions": {"x": N}},
        "TYPE_CHANGED #/properties/a",
    ),
    "a schema that contains itself": (
        has(v=S, next={"$ref": "#"}), has(v=N, next={"$ref": "#"}),
        ["TYPE_CHANGED #/properties/v", "TYPE_CHANGED #/properties/next/properties/v"],
    ),
}  # fmt: skip

INCOMPATIBLE = {
    "SCHEMA_ADDED", "TYPE_NARROWED", "TYPE_CHANGED", "MAX_LENGTH_ADDED", "MAX_LENGTH_DECREASED", "MIN_LENGTH_ADDED",
    "MIN_LENGTH_INCREASED", "PATTERN_ADDED", "PATTERN_CHANGED", "MAXIMUM_ADDED", "MAXIMUM_DECREASED", "MINIMUM_ADDED",
    "MINIMUM_INCREASED", "EXCLUSIVE_MAXIMUM_ADDED", "EXCLUSIVE_MAXIMUM_DECREASED", "EXCLUSIVE_MINIMUM_ADDED",
    "EXCLUSIVE_MINIMUM_INCREASED", "MULTIPLE_OF_ADDED", "MULTIPLE_OF_EXPANDED", "MULTIPLE_OF_CHANGED",
    "REQUIRED_ATTRIBUTE_ADDED", "MAX_PROPERTIES_ADDED", "MAX_PROPERTIES_DECREASED", "MIN_PROPERTIES_ADDED",
    "MIN_PROPERTIES_INCREASED", "ADDITIONAL_PROPERTIES_REMOVED", "ADDITIONAL_PROPERTIES_NARROWED",
    "UNEVALUATED_PROPERTIES_REMOVED", "UNEVALUATED_PROPERTIES_NARROWED", "DEPENDENCY_ARRAY_ADDED",
    "DEPENDENCY_ARRAY_EXTENDED", "DEPENDENCY_ARRAY_CHANGED", "DEPENDENCY_SCHEMA_ADDED",
    "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL",
    "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "MAX_ITEMS_ADDED", "MAX_ITEMS_DECREASED",
    "MIN_ITEMS_ADDED", "MIN_ITEMS_INCREASED", "MAX_CONTAINS_ADDED", "MAX_CONTAINS_DECREASED", "MIN_CONTAINS_ADDED",
    "MIN_CONTAINS_INCREASED", "UNIQUE_ITEMS_ADDED", "ADDITIONAL_ITEMS_REMOVED", "ADDITIONAL_ITEMS_NARROWED",
    "UNEVALUATED_ITEMS_REMOVED", "UNEVALUATED_ITEMS_NARROWED", "ITEM_ADDED_TO_OPEN_CONTENT_MODEL",
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "ENUM_ARRAY_NARROWED", "ENUM_ARRAY_CHANGED",
    "COMBINED_TYPE_CHANGED", "PRODUCT_TYPE_EXTENDED", "SUM_TYPE_NARROWED", "COMBINED_TYPE_SUBSCHEMAS_CHANGED",
    "NOT_TYPE_EXTENDED",
}  # fmt: skip


def schema(tree: Any) -> JsonSchema:
    return JsonSchema(json.dumps(tree), ())


def expected(name: str) -> list[str]:
    changes = CHANGES[name][2]
    return [changes] if isinstance(changes, str) else changes


@pytest.mark.parametrize("name", CHANGES)
def test_change(name: str) -> None:
    old, new = (schema(each) for each in CHANGES[name][:2])
    found = json_diff.compare(old.root, new.root)
    assert sorted(f"{each.kind} {each.path}" for each in found) == sorted(expected(name))
    incompatible = [each.partition(" ")[0] for each in expected(name) if each.partition(" ")[0] in INCOMPATIBLE]
    assert len(new.differences(old)) == len(incompatible)


def test_every_kind_of_change_has_a_case() -> None:
    tested = {each.partition(" ")[0] for name in CHANGES for each in expected(name)}
    assert tested == INCOMPATIBLE | COMPATIBLE
    assert not INCOMPATIBLE & COMPATIBLE


@pytest.mark.parametrize("name", CHANGES)
def test_each_incompatible_change_is_described(name: str) -> None:
    old, new = (schema(each) for each in CHANGES[name][:2])
    for message in new.differences(old):
        assert message.count("%s") == 2, message


def union(names: list[str]) -> dict[str, Any]:
    return {"oneOf": [{"$ref": f"#/definitions/{name}"} for name in names]}


def test_schemas_that_refer_to_each_other_are_compared_in_time() -> None:
    names = [f"T{number}" for number in range(8)]

    def tree(kind: str) -> dict[str, Any]:
        definitions = {name: has(id=S, one=union(names), other=union(names)) for name in names}
        definitions[names[0]]["properties"]["id"] = {"type": kind}
        return {**has(root=union(names)), "definitions": definitions}

    assert schema(tree("string")).differences(schema(tree("string"))) == []
    assert schema(tree("number")).differences(schema(tree("string"))) != []


def test_what_was_taken_for_granted_of_a_cycle_is_looked_at_again() -> None:
    def tree(first: str, second: str) -> dict[str, Any]:
        def item(kind: str, to: str) -> dict[str, Any]:
            return has(id={"type": kind}, ref=union([to]))

        definitions = {"A": item(first, "C"), "B": item(second, "C"), "C": item("integer", "A")}
        return {**has(root=union(["A", "B"])), "definitions": definitions}

    assert schema(tree("boolean", "number")).differences(schema(tree("integer", "boolean"))) != []
