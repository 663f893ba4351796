"""README.md has three figures, each that of docs/performance.json, and says of which commit they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.method import compare
from bench.method.rounds import DISTURBED
from bench.results import Results

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FIGURES = (("start", "start s", "s"), ("start", "idle RSS MB", "MB"), ("produce-one-record", "req/s", "requests/s"))


@pytest.fixture(scope="module")
def results() -> Results:
    return Results.read(ROOT / "docs" / "performance.json")


@pytest.mark.parametrize(("section", "figure", "unit"), FIGURES, ids=lambda value: str(value))
def test_the_figures_are_those_of_the_results(results: Results, section: str, figure: str, unit: str) -> None:
    kept = results.sections[section]
    cells = [f"{compare.short(compare.medians(kept.rounds(side))[figure])} {unit}" for side in ("ottla", "kafka")]
    assert f"| {' | '.join(cells)} |" in README
    assert DISTURBED not in kept.note, "a provisional figure is not for the README"
    assert f"commit {kept.made['commit'][:7]}" in README


def test_there_are_no_other_figures() -> None:
    assert len(re.findall(r"^\| .*\| \d.*\|$", README, re.MULTILINE)) == len(FIGURES)
    assert len(re.findall(r"requests/s|records/s|MB/s", README)) == 2


def test_who_shares_a_broker_waits_as_long_as_it_says(results: Results) -> None:
    ((times, ms),) = re.findall(r"waits ([\d.]+) times as long for its answers \(([\d.]+) ms", README)
    kept = results.sections["throttled"]
    ottla, kafka = (compare.medians(kept.rounds(side, "a writer"))["p99 ms"] for side in ("ottla", "kafka"))
    assert ottla == pytest.approx(float(ms), rel=0.1)
    assert ottla / kafka == pytest.approx(float(times), rel=0.1)


def test_what_is_missing_stands_before_the_links() -> None:
    assert README.index("There is no tiered storage") < README.index("## What do you want to do?")
