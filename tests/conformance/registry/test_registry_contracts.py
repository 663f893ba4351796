"""Registering and looking up schemas that have metadata and rules, and references to the latest version."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.registry.test_registry import Api, api, broker, record, registry

__all__ = ["api", "broker", "registry"]

RULES: Any = {"domainRules": [{"name": "r1", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "true"}]}


def test_a_schema_is_found_by_its_text_though_it_has_metadata(api: Api) -> None:
    """What a serializer does that does not register."""
    api.register("s", record("a"), metadata={"properties": {"owner": "x"}})
    found = api.ask("POST", "/subjects/s", {"schema": record("a")})
    assert (found["version"], found["metadata"]) == (1, {"properties": {"owner": "x"}})
    assert api.ask("POST", "/subjects/s", {"schema": record("b")}) == 40403
    assert api.ask("POST", "/subjects/s", {"schema": ""}) == 40403


def test_a_contract_without_a_schema_is_for_the_latest_schema(api: Api) -> None:
    api.register("s", record("a"), metadata={"properties": {"owner": "x"}})
    assert api.ask("POST", "/subjects/s/versions", {"ruleSet": RULES})["version"] == 2
    assert api.ask("POST", "/subjects/s/versions", {"metadata": {"properties": {"owner": "y"}}})["version"] == 3
    found = api.ask("GET", "/subjects/s/versions/3")
    assert (found["schema"], found["metadata"]) == (record("a"), {"properties": {"owner": "y"}})
    assert found["ruleSet"]["domainRules"][0]["name"] == "r1"
    assert api.ask("POST", "/subjects/t/versions", {"ruleSet": RULES}) == 42201


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"metadata": {"properties": [1]}}, 422),
        ({"metadata": {"tags": {"a": "b"}}}, 422),
        ({"metadata": 7}, 422),
        ({"ruleSet": {"domainRules": [{"name": "9", "type": "CEL"}]}}, 42210),
        ({"ruleSet": []}, 42210),
    ],
)
def test_a_contract_that_is_none_is_refused(api: Api, body: Any, code: int) -> None:
    assert api.ask("POST", "/subjects/s/versions", {"schema": record("a"), **body}) == code
    assert api.ask("GET", "/subjects") == []


def test_a_version_that_is_noted_is_registered_once(api: Api) -> None:
    first = api.ask("POST", "/subjects/s/versions", {"schema": record("a"), "version": -1})
    assert first["metadata"] == {"properties": {"confluent:version": "1"}}
    assert api.ask("POST", "/subjects/s/versions", {"schema": record("a"), "version": -1}) == first
    assert api.register("s", record("a")) == first["id"]
    assert api.ask("POST", "/subjects/s", {"schema": record("a")})["version"] == 1
    assert api.ask("POST", "/subjects/s/versions", {"schema": record("a", "b?"), "version": -1})["version"] == 2


def test_a_reference_to_the_latest_version(api: Api) -> None:
    outer = '{"type":"record","name":"Outer","fields":[{"name":"i","type":"Inner"}]}'
    latest = [{"name": "Inner", "subject": "inner", "version": -1}]
    first = [{"name": "Inner", "subject": "inner", "version": 1}]
    assert api.register("outer", outer, references=latest) == 42201
    api.register("inner", record("a", name="Inner"))
    assert api.register("outer", outer, references=latest) == 2
    assert api.ask("POST", "/subjects/outer", {"schema": outer, "references": first})["id"] == 2
    api.register("inner", record("a", "b?", name="Inner"))
    assert api.ask("POST", "/subjects/outer", {"schema": outer, "references": first}) == 40403


def test_the_latest_version_is_deleted_for_good_only_after_it_was_deleted(api: Api) -> None:
    """`latest` is the latest that is not deleted, here too."""
    api.register("s", record("a"))
    api.register("s", record("a", "b?"))
    assert api.ask("DELETE", "/subjects/s/versions/latest") == 2
    assert api.ask("DELETE", "/subjects/s/versions/latest", permanent="true") == 40407
    assert api.ask("DELETE", "/subjects/s/versions/1") == 1
    assert api.ask("DELETE", "/subjects/s/versions/latest", permanent="true") == 40402
    assert api.ask("GET", "/subjects/s/versions", deleted="true") == [1, 2]


@pytest.mark.parametrize("version", ["Latest", " 1 ", "+1"])
def test_ways_of_writing_a_version(api: Api, version: str) -> None:
    api.register("s", record("a"))
    assert api.ask("GET", f"/subjects/s/versions/{version}")["version"] == 1


@pytest.mark.parametrize(
    "schema", ['"\\ud800"', '"{\\"type\\":\\"fixed\\",\\"name\\":\\"F\\",\\"size\\":1,\\"x\\":\\"\\\\ud800\\"}"']
)
def test_half_a_surrogate_pair_is_refused(api: Api, schema: str) -> None:
    answer = api.http.post("/subjects/s/versions", content=f'{{"schema":{schema}}}')
    assert answer.status_code in (400, 422), answer.text
    assert api.ask("GET", "/subjects") == []
