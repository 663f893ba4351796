"""Masks hide what their rules name, and a rule that is not understood is refused: it would hide nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.console.masks import HIDDEN, How, parse_masks, read_masks
from ottla.errors import OttlaError

RULES = {
    "mask": [
        {"topics": ["pay*"], "fields": ["card.number", "email"], "headers": ["auth*"], "except": ["alice"]},
        {"topics": ["*"], "fields": ["password"]},
        {"topics": ["secret"], "value": True},
    ]
}


def test_fields_are_hidden_by_path_and_everywhere() -> None:
    mask = parse_masks(RULES, "f").of("payments", "bob")
    value = {
        "card": {"number": "4111", "kind": "visa"},
        "other": {"number": 7},
        "deep": [{"Email": "a@b", "password": ["x"]}, {"card": {"number": 1}}],
        "email": None,
        "cards": 1,
    }
    assert mask.masked(value) == {
        "card": {"number": HIDDEN, "kind": "visa"},
        "other": {"number": 7},
        "deep": [{"Email": HIDDEN, "password": HIDDEN}, {"card": {"number": 1}}],
        "email": HIDDEN,
        "cards": 1,
    }


def test_lists_on_the_way_are_passed_through() -> None:
    mask = parse_masks({"mask": [{"topics": ["*"], "fields": ["cards.number"]}]}, "f").of("t", None)
    assert mask.masked({"cards": [{"number": 1}, {"number": 2, "x": 3}]}) == {
        "cards": [{"number": HIDDEN}, {"number": HIDDEN, "x": 3}]
    }


def test_headers_and_whole_values() -> None:
    masks = parse_masks(RULES, "f")
    assert masks.of("payments", "bob").header("Authorization") == How()
    assert masks.of("payments", "bob").header("trace") is None
    assert masks.of("orders", "bob").header("authorization") is None
    assert masks.of("secret", None).value == How()
    assert masks.of("secret", None).key is None


def test_exempt_users_see_what_the_other_rules_leave() -> None:
    mask = parse_masks(RULES, "f").of("payments", "alice")
    assert mask.masked({"email": 1, "password": 2}) == {"email": 1, "password": HIDDEN}
    # Nobody logged in is not somebody.
    assert parse_masks(RULES, "f").of("payments", None).masked({"email": 1}) == {"email": HIDDEN}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"masks": []}, "unknown entry 'masks'"),
        ({"mask": {"topics": ["a"]}}, "two brackets"),
        ({"mask": [{"topics": ["a"], "field": ["x"]}]}, "unknown entry 'field'"),
        ({"mask": [{"fields": ["x"]}]}, "topics is missing"),
        ({"mask": [{"topics": "a", "fields": ["x"]}]}, "topics must be a list"),
        ({"mask": [{"topics": ["a"], "fields": [""]}]}, "fields must be a list"),
        ({"mask": [{"topics": ["a"], "value": "yes"}]}, "value must be true or false"),
        ({"mask": [{"topics": ["a"], "except": ["x"]}]}, "hides nothing"),
    ],
)
def test_wrong_rules_are_refused(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(OttlaError, match=complaint):
        parse_masks(given, "f")


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "masks.toml"
    file.write_text('[[mask]]\ntopics = ["*"]\nfields = ["a"]\n')
    assert read_masks(file).of("t", None).masked({"a": 1}) == {"a": HIDDEN}
    file.write_text("[[mask]\n")
    with pytest.raises(OttlaError, match=r"masks\.toml"):
        read_masks(file)
    with pytest.raises(OttlaError, match="cannot be read"):
        read_masks(tmp_path / "none")
