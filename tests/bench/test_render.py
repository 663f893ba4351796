"""Pages are made from results, and only where they ask for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import render
from bench.compare import rows
from bench.load import Result
from bench.render import COLD, COMPARED, WARM, Line, before_after, made, page_with, readme_table
from bench.results import Results
from bench.rounds import Measured, busy
from bench.steady import Rule, WarmUp
from bench.tables import Run, Section

OURS = [{"req/s": 100.0}, {"req/s": 300.0}]
THEIRS = [{"req/s": 200.0}, {"req/s": 300.0}]


@pytest.fixture
def results(run: Run) -> Results:
    found = Results()
    data = {"ottla": {"rounds": OURS}, "kafka": {"rounds": THEIRS}}
    found.add("small", Section("One record", rows({"ottla": OURS, "kafka": THEIRS}), "A note.", "one", data), run)
    found.add("flood", Section("Attacks", [{"attack": "none"}], key="attacks"), run)
    return found


def test_a_page_gets_its_tables_and_keeps_its_text(results: Results) -> None:
    page = (
        "before\n<!-- bench: one -->\nold\n<!-- end -->\nbetween <!-- x -->\n<!-- bench: table-flood -->\n<!-- end -->"
    )
    once = page_with(page, results)
    assert once.startswith("before\n<!-- bench: one -->\n\n### One record\n")
    assert "| ottla | 200 |" in once
    assert "A note." in once
    assert "### Attacks" in once
    assert "old" not in once
    assert "between <!-- x -->" in once
    assert page_with(once, results) == once
    assert page_with("<!-- bench: table-none -->\n<!-- end -->", results).count("\n") == 3
    assert render.NOT_MEASURED in page_with("<!-- bench: unknown -->\n<!-- end -->", results)


def test_the_readme_has_medians_and_ratios_of_the_pairs(results: Results) -> None:
    table = readme_table(results, (Line("one record", "one", "req/s", "requests/s"),))
    assert table.splitlines()[-1] == "| one record | 200 requests/s | 250 requests/s | 0.75 x (0.50 x to 1.00 x) |"


def test_the_readme_says_where_other_work_disturbed_the_measurement(results: Results) -> None:
    line = Line("one record", "one", "req/s", "requests/s")
    assert render.PROVISIONAL not in readme_table(results, (line,))
    disturbed = Measured(WarmUp(Rule()), [Result(seconds=1.0, other_cpu_seconds=1.0)])
    results.sections["one"].note = busy([disturbed])
    assert readme_table(results, (line,)).endswith(f"\n\n{render.PROVISIONAL}\n")


def test_a_figure_of_the_readme_that_was_not_measured_is_an_error(results: Results) -> None:
    with pytest.raises(KeyError):
        readme_table(results, (Line("one record", "unknown", "req/s", "requests/s"),))


def test_results_survive_the_file_and_tables_that_are_made_again_replace_themselves(
    results: Results, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "results.json"
    assert Results.read(path).sections == {}
    results.write(path)
    again = Results.read(path)
    assert again == results
    again.add("flood", Section("Attacks", [{"attack": "one"}], key="attacks"), run)
    assert list(again.sections) == ["one", "attacks"]
    assert again.of("flood")[0].rows == [{"attack": "one"}]


def test_how_it_was_measured_is_said_once_or_for_each_group_of_tables(results: Results) -> None:
    assert made(results).count("Measured on") == 1
    results.sections["attacks"].made["date"] = "2001-01-01"
    assert "Tables small: Measured on" in made(results)
    assert "Tables flood: Measured on 2001-01-01" in made(results)


def test_two_commits_stand_beside_each_other_in_a_row_for_each_load_that_was_measured(
    results: Results, run: Run
) -> None:
    assert render.NOT_MEASURED in page_with("<!-- bench: before-after -->\n<!-- end -->", results)
    figures = {
        "ottla": {"rounds": [{"req/s": 100.0, "CPU ms per 1,000": 2.0}, {"req/s": 300.0, "CPU ms per 1,000": 3.0}]},
        "base": {"rounds": [{"req/s": 50.0, "CPU ms per 1,000": 4.0}, {"req/s": 100.0, "CPU ms per 1,000": 4.0}]},
    }
    name = next(line.name for line in COMPARED if line.key == "compare-group-requests")
    note = busy([Measured(WarmUp(Rule()), [Result(seconds=1.0, other_cpu_seconds=1.0)])])
    results.add("compare", Section("One record", [], "", "compare-produce-one-record", figures), run)
    assert render.PROVISIONAL not in before_after(results)
    results.add("compare", Section("Groups", [], note, "compare-group-requests", {name: figures}), run)
    page = page_with("<!-- bench: before-after -->\n<!-- end -->", results)
    row = "| 75 requests/s | 200 requests/s | 2.50 x (2.00 x to 3.00 x) | 0.62 x (0.50 x to 0.75 x) |"
    assert page.splitlines()[4:] == [
        f"| produce, one 100-byte record a request {row}", f"| {name} {row}", "", render.PROVISIONAL, "",
        "<!-- end -->",
    ]  # fmt: skip


def test_the_readme_shows_where_kafka_is_faster() -> None:
    """Rows that a flattering table would leave out."""
    keys = [(line.key, line.name) for line in WARM]
    assert ("produce-1m", None) in keys
    assert ("fetch-1m", None) in keys
    assert ("group-requests", "offset fetch of 20 partitions, 50 groups x 5 in flight") in keys
    assert ("rebalances", "one leaves, 1,000") in keys
    assert {line.key for line in COLD} == {"start", "first-seconds"}
    assert render.RESULTS.name == "performance.json"
