"""The figures of the pages are those of docs/performance.json, all of them."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from bench import render
from bench.plan import STEPS
from bench.results import Results

AGAIN = "run `python -m bench.render`"


@pytest.fixture(scope="module")
def results() -> Results:
    return Results.read(render.RESULTS)


@pytest.mark.parametrize("path", render.pages(), ids=lambda path: path.name)
def test_the_pages_have_the_figures_of_the_results(path: Path, results: Results) -> None:
    page = path.read_text()
    assert page == render.page_with(page, results), AGAIN


@pytest.mark.parametrize("path", render.pages(), ids=lambda path: path.name)
def test_no_section_is_empty(path: Path) -> None:
    assert re.findall(r"<!-- bench: ([\w-]+) -->\s*<!-- end -->", path.read_text()) == []


def test_every_section_has_its_place(results: Results) -> None:
    keys = {key for step in STEPS for key in step.keys}
    assert set(results.sections) - keys == set(), "no step of `python -m bench page` makes these"
    shown = {place for page in render.pages() for place in render.places(page.read_text())}
    assert {"made", "summary", "failover", "flood", "instructions"} <= shown
    missing = [step.name for step in STEPS if step.is_extra and f"table-{step.name}" not in shown]
    assert missing == []


def test_the_page_begins_with_a_summary_that_is_short() -> None:
    text = (render.ROOT / "docs" / "performance.md").read_text()
    summary = text[: text.index("<!-- end -->")].splitlines()
    assert 15 < len(summary) <= 32
    assert not re.search(r"provisional|not measured", text, re.IGNORECASE)


def test_results_say_when_where_and_from_what(results: Results) -> None:
    assert results.sections
    for kept in results.sections.values():
        assert date.fromisoformat(kept.made["date"])
        assert re.match(r"[0-9a-f]{7,}", kept.made["commit"])
        assert "cores" in kept.made["machine"]


def test_warm_results_have_three_rounds_of_steady_sides_or_say_that_they_were_not(results: Results) -> None:
    for key in ("produce-one-record", "produce-16k", "fetch-64k"):
        kept = results.sections[key]
        for side in ("ottla", "kafka"):
            assert len(kept.rounds(side)) >= 3
            assert kept.data[side]["steady"] or any("not steady" in str(row.get("warm-up")) for row in kept.rows)
