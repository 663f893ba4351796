"""Pages are made from results, and only where they ask for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import render, subjects
from bench.method.compare import rows
from bench.method.load import Result
from bench.method.rounds import Measured, busy
from bench.method.steady import Rule, WarmUp
from bench.render import commits, made, measured, page_with, text_of
from bench.results import Results
from bench.subjects import SUMMARY, Line, Subject
from bench.tables import Run, Section

OURS = [{"req/s": 100.0}, {"req/s": 300.0}]
THEIRS = [{"req/s": 200.0}, {"req/s": 300.0}]


ONE = Line("one record", "one", "req/s", "requests/s")


@pytest.fixture
def results(run: Run) -> Results:
    found = Results()
    data = {"ottla": {"rounds": OURS}, "kafka": {"rounds": THEIRS}}
    found.add("small", Section("One record", rows({"ottla": OURS, "kafka": THEIRS}), "A note.", "one", data), run)
    found.add("flood", Section("Attacks", [{"attack": "none"}], key="attacks"), run)
    return found


def of(ours: float, theirs: float, run: Run) -> Results:
    found = Results()
    data = {"ottla": {"rounds": [{"ms": ours}]}, "kafka": {"rounds": [{"ms": theirs}]}}
    found.add("small", Section("One", [], key="one", data=data), run)
    return found


def test_a_page_gets_its_tables_and_keeps_its_text(results: Results) -> None:
    page = (
        "before\n<!-- bench: rows-one -->\nold\n<!-- end -->\nbetween <!-- x -->\n"
        "<!-- bench: table-flood -->\n<!-- end -->"
    )
    once = page_with(page, results)
    assert once.startswith("before\n<!-- bench: rows-one -->\n\n| side |")
    assert "| ottla | 200 |" in once
    assert "A note." in once
    assert "#### Attacks" in once
    assert "old" not in once
    assert "between <!-- x -->" in once
    assert page_with(once, results) == once


def test_what_was_not_measured_leaves_nothing_and_what_there_is_not_is_an_error(results: Results) -> None:
    for key in ("table-none", "rows-none", "subject-spark", "failover", "flood"):
        assert page_with(f"<!-- bench: {key} -->\nold\n<!-- end -->", results) == f"<!-- bench: {key} -->\n<!-- end -->"
    with pytest.raises(KeyError):
        page_with("<!-- bench: unknown -->\n<!-- end -->", results)
    with pytest.raises(KeyError):
        page_with("<!-- bench: subject-unknown -->\n<!-- end -->", results)


def test_a_table_has_medians_ratios_of_the_pairs_and_only_rows_that_were_measured(results: Results) -> None:
    table = Subject((ONE, Line("another", "two", "req/s", "requests/s")), "load").markdown(results)
    assert table.splitlines()[0] == "| load | Ottla | Apache Kafka | Ottla / Kafka (range) |"
    assert table.splitlines()[2:] == ["| one record | 200 requests/s | 250 requests/s | 0.75 x (0.50 x to 1.00 x) |"]


def test_the_cpu_is_compared_with_the_bare_loops_where_that_was_measured(run: Run) -> None:
    found = Results()
    sides = {side: {"rounds": [{"req/s": 1.0, "CPU": cpu}]} for side, cpu in (("ottla", 3), ("kafka", 6))}
    lines = tuple(Line(key, key, "req/s", "requests/s", cpu="CPU") for key in ("one", "two"))
    found.add("small", Section("Two", [], key="two", data=sides), run)
    assert "bare loop" not in Subject(lines, beside_bare=True).markdown(found)
    bare = {"bare loop": {"rounds": [{"req/s": 9.0, "CPU": 2.0}]}}
    found.add("small", Section("One", [], key="one", data={**sides, **bare}), run)
    table = Subject(lines, beside_bare=True).markdown(found).splitlines()
    assert table[0].endswith("| CPU, ratio | CPU, ratio to the bare loop |")
    assert table[2].endswith("| 0.50 x | 1.50 x |") and table[3].endswith("| 0.50 x |  |")
    assert "bare loop" not in Subject(lines).markdown(found)


def test_figures_beside_the_rate_stand_in_the_same_row(run: Run) -> None:
    found = Results()
    figures = {"req/s": 100.0, "CPU": 3.0, "p99 ms": 7.0}
    data = {"ottla": {"rounds": [figures]}, "kafka": {"rounds": [{"req/s": 50.0, "CPU": 6.0, "p99 ms": 9.0}]}}
    found.add("small", Section("One", [], key="one", data=data), run)
    line = Line("one", "one", "req/s", "requests/s", cpu="CPU")
    table = Subject((line,), columns=(("p99 ms", "p99 ms"),)).markdown(found)
    assert table.splitlines()[-1] == "| one | 100 requests/s | 50 requests/s | 2.00 x | 0.50 x | 7 | 9 |"


@pytest.mark.parametrize(
    ("ours", "theirs", "lower", "said"),
    [
        (300.0, 100.0, False, "Ottla 3.0 x"),
        (100.0, 300.0, False, "**Kafka 3.0 x**"),
        (100.0, 300.0, True, "Ottla 3.0 x"),
        (300.0, 100.0, True, "**Kafka 3.0 x**"),
        (100.0, 104.0, False, "even"),
        (104.0, 100.0, True, "even"),
        (12.0, 300.0, True, "Ottla 25 x"),
        (90.0, 100.0, False, "**Kafka 1.1 x**"),
    ],
)
def test_the_summary_says_who_is_ahead_whoever_it_is(
    ours: float, theirs: float, lower: bool, said: str, run: Run
) -> None:
    results = of(ours, theirs, run)
    line = Line("one", "one", "ms", "ms", lower=lower)
    kept = line.kept(results)
    assert kept is not None
    assert line.ahead(kept) == said


def test_the_other_side_is_not_always_kafka(run: Run) -> None:
    found = Results()
    data = {"ottla": {"rounds": [{"ms": 1.0}]}, subjects.CONNECTOR: {"rounds": [{"ms": 2.0}]}}
    found.add("spark", Section("One", [], key="one", data=data), run)
    line = Line("one", "one", "ms", "ms", sides=("ottla", subjects.CONNECTOR))
    kept = line.kept(found)
    assert kept is not None and line.ahead(kept) == "**the connector 2.0 x**"


def test_failovers_are_the_median_and_the_longest_of_each_client(run: Run) -> None:
    gaps = {"leader": {"librdkafka": [100.0, 300.0, 200.0], "java": [1.0]}}
    slow = {"leader": {"librdkafka": [9000.0], "java": [8000.0]}}
    found = Results()
    data = {"ottla": {"rounds": [{"gaps": gaps}]}, "kafka": {"rounds": [{"gaps": slow}]}}
    found.add("failover", Section("Killed", [], key="killed-nodes", data=data), run)
    lines = subjects.failover(found).splitlines()
    assert lines[2] == "| kill -9 of a leader | librdkafka | 200 ms (300) | 9,000 ms (9,000) | 0.022 x |"
    assert len(lines) == 4
    assert subjects.summary(found).splitlines()[-1].endswith("| 200 ms | 9,000 ms | Ottla 45 x |")


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


def test_each_table_says_its_commit_and_what_disturbed_it(results: Results) -> None:
    kept = results.sections["one"]
    text = measured([kept, kept])
    assert text.count(kept.made["commit"]) == 1 and kept.made["date"] in text and "3 rounds of 3 s" in text
    kept.note = busy([Measured(WarmUp(Rule()), [Result(seconds=1.0, other_cpu_seconds=1.0)])])
    assert "(other processes used up to 1.0 cores)" in measured([results.sections["attacks"], kept])
    results.sections["attacks"].made["commit"] = "another"
    assert measured(list(results.sections.values())).count("; commit") == 1


def test_tables_of_several_commits_are_said_to_be(run: Run) -> None:
    found = Results()
    for table, key in (("small", "produce-one-record"), ("latency", "round-trip"), ("durable", "produce-fsync")):
        found.add(table, Section("A table", [], key=key), run)
    commit = found.sections["round-trip"].made["commit"]
    assert commits(found) == {commit: ["small", "latency", "durable"]}
    assert made(found).startswith(f"All tables: commit {commit}")
    found.sections["produce-fsync"].made["commit"] = "old"
    assert commits(found) == {commit: ["small", "latency"], "old": ["durable"]}
    assert "not all of one commit" in made(found) and "- durable: commit old" in made(found)


def test_pages_are_not_written_if_one_commit_was_asked_for(
    results: Results, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results.add("small", Section("A table", [], key="produce-one-record"), run)
    results.add("latency", Section("A table", [], key="round-trip"), run)
    results.sections["round-trip"].made["commit"] = "old"
    path = tmp_path / "results.json"
    results.write(path)
    written: list[Path] = []
    monkeypatch.setattr(render, "pages", lambda: written)
    monkeypatch.setattr("sys.argv", ["render", "--one-commit", "--json", str(path)])
    with pytest.raises(SystemExit, match="not of one commit"):
        render.main()
    monkeypatch.setattr("sys.argv", ["render", "--json", str(path)])
    render.main()


def test_the_summary_has_the_rows_in_which_kafka_is_faster() -> None:
    """A summary without them would flatter."""
    keys = {(line.key, line.name) for line in SUMMARY}
    assert {("fetch-64k", None), ("fetch-1m", None), ("rebalances", "one leaves, 1,000")} <= keys
    assert {("consumer-rebalances", "one joins, 1,000"), ("transactions-commits-10", None)} <= keys
    assert {("share-groups-deliveries", None), ("rebalances", "1,000 groups of 3 join at once")} <= keys
    assert len(SUMMARY) <= 22
    assert text_of("instructions", Results()).startswith("| cpython")
