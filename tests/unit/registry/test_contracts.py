"""Metadata and rules: what is taken, the form they are kept in, and how they count in a digest."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from ottla.registry import contracts
from ottla.registry.contracts import InvalidContract, are_same_metadata, metadata_of, rule_set_of
from ottla.registry.proposals import Proposal, inherited
from ottla.registry.records import SchemaRecord, digest_of


def rule(**more: Any) -> dict[str, Any]:
    return {"name": "r", "type": "CEL", **more}


def test_the_form_of_metadata() -> None:
    given = {"properties": {"b": 1, "a": True}, "tags": {"p": ["y", "x", "y"]}, "sensitive": [], "unknown": 1}
    assert metadata_of(given) == {"tags": {"p": ["x", "y"]}, "properties": {"a": "true", "b": "1"}}
    assert list(metadata_of(given) or {}) == ["tags", "properties"]
    assert metadata_of({}) == {}
    assert metadata_of(None) is None


@pytest.mark.parametrize(
    "given",
    [
        [],
        "x",
        {"properties": [1]},
        {"properties": {"a": None}},
        {"tags": {"a": "b"}},
        {"tags": {"a": [[]]}},
        {"sensitive": "all"},
    ],
)
def test_metadata_that_are_none(given: Any) -> None:
    with pytest.raises(InvalidContract):
        metadata_of(given)


def test_the_form_of_rules() -> None:
    found = rule_set_of({"domainRules": [rule(tags=["b", "a"], params={"z": 1}, doc=None)], "migrationRules": None})
    assert found == {
        "domainRules": [
            {
                "name": "r",
                "kind": "TRANSFORM",
                "mode": "WRITEREAD",
                "type": "CEL",
                "tags": ["a", "b"],
                "params": {"z": "1"},
                "disabled": False,
            }
        ],
    }


@pytest.mark.parametrize(
    ("kind", "given", "why"),
    [
        ("domainRules", {"type": "CEL"}, "Missing rule name"),
        ("domainRules", {"name": "r"}, "Missing rule type"),
        ("domainRules", rule(name="9r"), "Illegal initial character in rule name: 9r"),
        ("domainRules", rule(name="r r"), "Illegal character in rule name: r r"),
        ("domainRules", rule(name="r" * 257), "Rule name too long"),
        ("domainRules", rule(mode="UPGRADE"), "Domain rules can only be WRITE, READ, WRITEREAD"),
        ("migrationRules", rule(), "Migration rules can only be UPGRADE, DOWNGRADE, UPDOWN"),
        ("encodingRules", rule(mode="UPDOWN"), "Encoding rules can only be WRITE, READ, WRITEREAD"),
        ("domainRules", rule(mode="READ", onFailure="a,b"), "Multiple actions only valid with WRITEREAD and UPDOWN"),
        ("domainRules", rule(kind="OTHER"), "rule 'r' has kind OTHER and mode WRITEREAD"),
        ("domainRules", 7, "domainRules is a list of rules"),
    ],
)
def test_rules_that_are_none(kind: str, given: Any, why: str) -> None:
    with pytest.raises(InvalidContract, match=f"^{why}$"):
        rule_set_of({kind: [given]})


def test_names_of_rules_differ() -> None:
    with pytest.raises(InvalidContract, match="duplicate name 'r'"):
        rule_set_of({"domainRules": [rule()], "migrationRules": [rule(mode="UPDOWN")]})


def test_a_rule_of_a_newer_registry_is_kept() -> None:
    stored = {"domainRules": [rule(mode="SOMETIMES")]}
    assert (rule_set_of(stored, is_checked=False) or {})["domainRules"][0]["mode"] == "SOMETIMES"


def test_the_digest_is_of_members_in_confluents_order() -> None:
    """`Schema.updateHash`, `Metadata.updateHash`, `Rule.updateHash` of Confluent's registry."""
    metadata = metadata_of({"properties": {"b": "2", "a": "1"}, "tags": {"t": ["y", "x"]}, "sensitive": ["s"]})
    rules = rule_set_of(
        {
            "domainRules": [rule(doc="d", tags=["g"], params={"p": "q"}, expr="e", onFailure="f", disabled=True)],
            "enableAt": "SERVER",
        }
    )
    expected = b'"int"' + b"\1" + b"txya1b2s" + b"\1" + b"rdTRANSFORMWRITEREADCELgpqef" + b"\1" + b"SERVER"
    assert digest_of('"int"', (), metadata, rules) == hashlib.md5(expected, usedforsecurity=False).digest()


def test_a_version_that_one_of_two_notes() -> None:
    plain, noted = {"properties": {"a": "1"}}, {"properties": {"a": "1", "confluent:version": "3"}}
    assert are_same_metadata(plain, noted, 3)
    assert are_same_metadata(None, {"properties": {"confluent:version": "3"}}, 3)
    assert are_same_metadata(noted, plain, 3)
    assert not are_same_metadata(noted, plain, 4)
    assert not are_same_metadata(None, noted, 3)
    assert not are_same_metadata(noted, contracts.with_version(plain, 4), 3)


def test_what_a_version_inherits() -> None:
    before = SchemaRecord("s", 1, 1, '"int"', metadata={"properties": {"a": "1"}}, rule_set={"domainRules": []})
    config = {"defaultMetadata": {"properties": {"a": "0", "b": "0"}}, "overrideMetadata": {"properties": {"c": "9"}}}
    found = inherited(Proposal("s", ""), before, config, 2)
    assert (found.text, found.rule_set) == ('"int"', {"domainRules": []})
    assert found.metadata == {"properties": {"a": "1", "b": "0", "c": "9"}}
    noted = inherited(Proposal("s", '"long"', version=-1), before, {}, 2)
    assert noted.metadata == {"properties": {"a": "1", "confluent:version": "2"}}
