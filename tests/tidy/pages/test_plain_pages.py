"""Pages are in plain English: a reader who knows Kafka never has to work out what a sentence means.

The phrases are those of which there were riddles; `test_words.py` beside this file does the same for the field's words.
Left out are code blocks, rows that `make compatibility` writes, and pages that are rendered from the code.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy.test_words import Rule

ROOT = Path(__file__).resolve().parents[3]
RENDERED = {f"reference/{name}.md" for name in ("cli", "settings", "metrics", "guarantees")}
PAGES = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if f"{path.parent.name}/{path.name}" not in RENDERED),
]
RULES = [
    Rule("(?:among|of) (?:its|their) own kind", "in mixed clusters with Kafka brokers", "among its own kind"),
    Rule("no jar to match", "without a connector JAR", "with no jar to match"),
    Rule("to just have", "install only", "To just have the command"),
    Rule("begins? one of your own", "scaffolds a pipeline of your own", "begins one of your own"),
    Rule("(?:that|who) lives? through", "resume", "Clients that live through the change"),
    Rule("takes it back", "cancels the move", "`--cancel` takes it back"),
    Rule("stands? still", "is hung; is paused", "a broker that stands still"),
    Rule("who is (?:beyond|silent|away)", "a client over its quota", "Who is beyond a quota"),
    Rule("not read from", "muted", "is not read from for so long"),
    Rule("those that nobody knows", "unknown options", "those that nobody knows"),
    Rule("taken along", "replicated", "What is not taken along"),
    Rule("takes? no records", "is unavailable for writes", "for how long it takes no records"),
    Rule("printed is", "the command prints", "Printed is where they begin"),
    Rule("what is there is there", "B keeps what it has", "what is there is there"),
    Rule("goes? on(?! (?:with|to)\\b)", "resumes; continues; keeps running", "the cluster goes on without it"),
    Rule("told of it", "informed; asked", "what was not told of it"),
]
_LEFT_OUT = re.compile(r"^( *)```.*?^ *```|<!-- begin: made by .*?<!-- end: |<!--.*?-->", re.DOTALL | re.MULTILINE)


def riddles(text: str) -> list[str]:
    """`LINE: what to write` of each phrase."""
    text = _LEFT_OUT.sub(lambda match: re.sub(r"[^\n]", "", match[0]), text)
    return [
        f"{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}: write {rule.write}"
        for rule in RULES
        for match in rule.compiled().finditer(text)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_has_no_riddles(page: Path) -> None:
    assert riddles(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.example)
def test_each_riddle_would_be_found(rule: Rule) -> None:
    assert len(riddles(f"A line.\n{rule.example}")) == 1
    assert riddles(f"```\n{rule.example}\n```\n") == []
    assert riddles(rule.write) == []
