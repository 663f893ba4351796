"""Each statement of `docs/inside/durability.md` names the tests that fail when it is false, and these tests exist.

A statement is a sentence (or a part of one) or a cell of a table; behind it stands `<!-- proof: test_a, test_b -->`, or
`<!-- no claim -->` where nothing is promised. A name that two files have is written `file.py::test_a`.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "inside" / "durability.md"
HOW_IT_IS_TESTED = "## How it is tested"

_COMMENT = re.compile(r"<!--\s*(.*?)\s*-->", re.DOTALL)
_SENTENCE_ENDS_INSIDE = re.compile(r"[.:;]\s+(?=[A-Z`(])(?!`[a-z])|\.\s+(?=`)")
_TEST = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
STATEMENTS_MIN = 30
"""The page has more; fewer found means that this file reads it wrongly."""


def blocks(page: str) -> list[str]:
    """Paragraphs, items of lists and cells of tables, each on one line; headings and the rows that name columns not."""
    text = page.partition(HOW_IT_IS_TESTED)[0]
    text = re.sub(r"\A# .*?\n\s*<!--.*?-->", "", text, flags=re.DOTALL)  # the title, and what says how to write this
    found: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        lines = [line for line in block.splitlines() if line.strip() and not line.startswith("#")]
        if lines and lines[0].startswith("|"):
            for row in lines[2:]:
                found += [cell.strip() for cell in row.strip().strip("|").split("|")][1:]
            continue
        items = re.split(r"(?m)^(?:- |\d+\. )", "\n".join(lines))
        found += [" ".join(item.split()) for item in items if item.strip()]
    return found


def statements(page: str) -> list[tuple[str, str]]:
    """(statement, what its comment says); without a comment that is empty."""
    found = []
    for block in blocks(page):
        parts = _COMMENT.split(block)
        for text, comment in zip(parts[::2], [*parts[1::2], ""], strict=True):
            *bare, last = _SENTENCE_ENDS_INSIDE.split(text.strip())
            found += [(each, "") for each in bare]
            if last:
                found.append((last, comment))
    return found


@cache
def functions_of_the_tree() -> dict[str, set[str]]:
    """Test functions by name, with the names of the files that have them."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in _TEST.findall(path.read_text(encoding="utf-8")):
            found.setdefault(name, set()).add(path.name)
    return found


def problems(page: str) -> list[str]:
    found = []
    for statement, comment in statements(page):
        if comment == "no claim":
            continue
        if not comment.startswith("proof: "):
            found.append(f"nothing proves: {statement}")
            continue
        for name in re.split(r",\s*", comment.removeprefix("proof: ")):
            file, _, function = name.rpartition("::")
            files = functions_of_the_tree().get(function, set())
            if not files or (file and file not in files):
                found.append(f"there is no {name}, which should prove: {statement}")
            elif not file and len(files) > 1:
                found.append(f"{name} is in {', '.join(sorted(files))}: say which")
    return found


def test_each_statement_names_tests_that_exist() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(statements(page)) >= STATEMENTS_MIN
    assert problems(page) == []


PROVEN = "<!-- proof: test_each_statement_names_tests_that_exist -->"


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (f"A. {PROVEN}\nB c\nd. {PROVEN}", 0),
        (f"A; {PROVEN}\nb. {PROVEN}\n\n- C {PROVEN}\n- D. <!-- no claim -->", 0),
        (f"A. B. {PROVEN}", 1),
        (f"A. {PROVEN} B.", 1),
        (f"A. {PROVEN}\n\nB.", 1),
        (f"- A. {PROVEN}\n- B.", 1),
        (f"A. `b` c. {PROVEN}", 1),
        (f"| x | y | z |\n|---|---|---|\n| a | b {PROVEN} | c {PROVEN} |", 0),
        (f"| x | y | z |\n|---|---|---|\n| a | b {PROVEN} | c |", 1),
        ("A. <!-- proof: test_that_nobody_wrote -->", 1),
        ("A. <!-- proof: test_nowhere.py::test_each_statement_names_tests_that_exist -->", 1),
        ("A. <!-- a remark -->", 1),
    ],
)
def test_what_is_not_proven_is_found(page: str, found: int) -> None:
    assert len(problems(page)) == found
