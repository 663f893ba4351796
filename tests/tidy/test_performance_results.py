"""The figures of README.md and of docs/ are those of docs/performance.json, all of them."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from bench import render
from bench.results import Results

AGAIN = "run `python -m bench.render`"


@pytest.fixture(scope="module")
def results() -> Results:
    return Results.read(render.RESULTS)


@pytest.mark.parametrize("path", render.PAGES, ids=lambda path: path.name)
def test_the_pages_have_the_figures_of_the_results(path: Path, results: Results) -> None:
    page = path.read_text()
    assert page == render.page_with(page, results), AGAIN


def test_every_section_has_its_place(results: Results) -> None:
    places = {place for page in render.PAGES for place in render.places(page.read_text())}
    missing = [
        key for key, kept in results.sections.items() if not {key, f"rows-{key}", f"table-{kept.table}"} & places
    ]
    compared = {line.key for line in render.COMPARED}
    assert "before-after" in places
    assert [key for key in missing if key not in compared] == []


def test_the_readme_has_warm_figures_and_cold_ones_and_no_others() -> None:
    readme = next(path for path in render.PAGES if path.name == "README.md").read_text()
    assert render.places(readme) == ["warm", "cold"]
    outside = re.sub(r"<!-- bench: .*?<!-- end -->", "", readme, flags=re.DOTALL)
    assert not re.search(r"requests/s|records/s|MB/s", outside)


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
