"""`python -m bench page` makes what is not done, keeps it after each table, and can be stopped at any moment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import plan, results
from bench.plan import PAGE, RESULTS, Runner, Step, describe, ending, given_up_after, refusal, settings_of, steps_of
from bench.render import SUBJECTS, places
from bench.results import ROOT, Results
from bench.subjects import SUMMARY
from bench.tables import Run, Section, Table, all_tables
from bench.workloads import throughput

STEPS = (Step("one", 1.0, ("a", "b")), Step("two", 5.0, ("c",), parts=("some",), rounds=1), Step("three", 1.0, ("d",)))


class Made:
    """Tables that note how they were called; `acts` are what they do before their last section."""

    def __init__(self, acts: dict[str, Callable[[], object]] | None = None) -> None:
        self.called: list[tuple[str, tuple[str, ...], int]] = []
        self.acts = acts or {}

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.called]

    def tables(self) -> dict[str, Table]:
        def table(step: Step) -> Table:
            def make(run: Run) -> Iterator[Section]:
                self.called.append((step.name, tuple(run.parts), run.rounds))
                for key in step.keys:
                    if key == step.keys[-1] and step.name in self.acts:
                        self.acts[step.name]()
                    yield Section(f"Table {key}", [{"figure": 1}], key=key)

            return Table(step.name, "", make)

        return {step.name: table(step) for step in STEPS}


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan.counters, "busy_cores", lambda: 0.07)
    monkeypatch.setattr(results, "commit", lambda: "abc")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.json"


def runner_of(run: Run, made: Made, path: Path, **options: Any) -> Runner:
    return Runner(run, made.tables(), path, **options)


def test_each_section_is_kept_with_its_commit_and_what_the_machine_did_before(run: Run, path: Path) -> None:
    made = Made()
    runner = runner_of(run, made, path)
    runner.all(runner.left(STEPS), 100)
    assert made.called == [("one", (), 3), ("two", ("some",), 1), ("three", (), 3)]
    assert run.parts == () and run.rounds == 3
    kept = Results.read(path).sections
    assert list(kept) == ["a", "b", "c", "d"]
    assert {(each.made["commit"], each.made["busy"]) for each in kept.values()} == {("abc", "0.07")}
    assert kept["c"].made["windows"].startswith("1 round of") and kept["c"].table == "two"
    assert runner.left(STEPS) == []


def test_a_run_that_was_stopped_continues_where_it_was(run: Run, path: Path) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    first = runner_of(run, Made({"two": stop}), path)
    with pytest.raises(KeyboardInterrupt):
        first.all(first.left(STEPS), 100)
    assert list(Results.read(path).sections) == ["a", "b"]
    again = Made()
    second = runner_of(run, again, path)
    second.all(second.left(STEPS), 100)
    assert again.names == ["two", "three"]


def test_a_step_with_half_of_its_sections_is_made_again_and_so_is_one_of_another_commit(
    run: Run, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = runner_of(run, Made(), path)
    runner.all(STEPS, 100)
    kept = Results.read(path)
    del kept.sections["b"]
    kept.write(path)
    assert [step.name for step in runner.left(STEPS)] == ["one"]
    monkeypatch.setattr(results, "commit", lambda: "def")
    assert runner_of(run, Made(), path).left(STEPS) == list(STEPS)


def test_a_step_that_does_not_fit_is_left_out_and_a_shorter_one_behind_it_is_made(run: Run, path: Path) -> None:
    made = Made()
    runner = runner_of(run, made, path)
    runner.all(STEPS, 3)
    assert made.names == ["one", "three"]
    assert [step.name for step in runner.left(STEPS)] == ["two"]


def test_the_time_that_steps_have_taken_counts(run: Run, path: Path) -> None:
    now = 0.0

    def slow() -> None:
        nonlocal now
        now += 20 * 60

    made = Made({"one": slow})
    runner = runner_of(run, made, path, clock=lambda: now)
    runner.all(STEPS, 20.5)
    assert made.names == ["one"]


def test_a_step_that_fails_or_hangs_does_not_stop_the_others(
    run: Run, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "PATIENCE", 0.05 / 60)

    def fail() -> None:
        raise RuntimeError("no broker")

    def hang() -> None:
        while True:
            try:
                sys.stdin.fileno()
            except (OSError, RuntimeError):  # as loops do that wait for a broker
                pass

    runner = runner_of(run, Made({"one": fail, "three": hang}), path)
    runner.all((STEPS[0], STEPS[2]), 100)
    assert runner.failed == ["one", "three"]
    assert list(Results.read(path).sections) == ["a"], "what it had found before is kept"


def test_nothing_is_given_up_afterwards() -> None:
    with given_up_after(0.05):
        pass
    with pytest.raises(plan.GivenUp), given_up_after(0.001):
        while True:
            pass


def test_a_command_gets_the_file_and_ends_with_the_run(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    class Process:
        def __init__(self, command: list[str], **_: Any) -> None:
            asked.append(command)
            self.args, self.ended = command, False

        def wait(self, timeout: float | None = None) -> int:
            if timeout is None and not self.ended:
                raise KeyboardInterrupt
            return 1

        def terminate(self) -> None:
            self.ended = True
            asked.append(["terminated"])

    monkeypatch.setattr(subprocess, "Popen", Process)
    step = Step("spark", 1.0, ("s",), command=("bench.spark", "--page"), tiny=("--rows", "1"))
    for quick in (False, True):
        with pytest.raises(KeyboardInterrupt):
            runner_of(run, Made(), path, quick=quick).all((step,), 10)
    command = [sys.executable, "-m", "bench.spark", "--page", "--json", str(path)]
    assert asked == [
        [*command, "--busy", "0.07"],
        ["terminated"],
        [*command, "--rows", "1", "--busy", "0.07"],
        ["terminated"],
    ]


def test_figures_of_a_page_are_of_a_commit_and_not_tiny() -> None:
    arguments = plan.argparse.Namespace(quick=False, json=RESULTS)
    assert refusal(arguments, "abc") == ""
    assert "commit" in refusal(arguments, "abc-dirty")
    arguments.quick = True
    assert "--json" in refusal(arguments, "abc")
    arguments.json = Path("other.json")
    assert refusal(arguments, "abc-dirty") == ""


def test_a_jvm_has_25_seconds_of_load_first(run: Run) -> None:
    page = settings_of(run, quick=False)
    assert page.first_warm_up_s >= 25 and page.rounds == 3 and page.seconds == plan.WINDOW_S
    assert plan.SETTINGS.items() >= throughput.SETTINGS.items(), "one pair of brokers for all tables of one node"
    tiny = settings_of(run, quick=True)
    assert tiny.more == page.more and tiny.seconds == run.seconds and tiny.rule == run.rule


def test_the_plan_says_what_is_done_and_how_to_go_on() -> None:
    text = describe(STEPS, STEPS[1:], Path("out.json"), "abc")
    assert "1 of 3 steps are done" in text and "about 6 minutes" in text
    assert text.splitlines()[2:] == [
        f"  done {'one':<30}1 min",
        f"       {'two':<30}5 min",
        f"       {'three':<30}1 min",
    ]
    assert "bench.render" in ending([], [])
    assert "Not done: two" in (text := ending(STEPS[1:2], ["two"])) and "Failed: two" in text


def test_every_step_is_a_table_or_a_command_and_its_sections_stand_in_a_page() -> None:
    tables = all_tables()
    assert [step.name for step in plan.STEPS if not step.command and (step.table or step.name) not in tables] == []
    keys = [key for step in plan.STEPS for key in step.keys]
    assert len(set(keys)) == len(keys)
    shown = {line.key for subject in SUBJECTS.values() for line in subject.lines}
    shown |= {"killed-nodes", "flood", "embed"}  # in tables of their own
    of_page = {key for step in PAGE for key in step.keys}
    assert shown == of_page, "a row that is never measured, or a measurement that no page shows"
    assert {line.key for line in SUMMARY} <= of_page
    text = (ROOT / "docs" / "performance.md").read_text()
    assert {f"subject-{name}" for name in SUBJECTS} <= set(places(text))


def test_all_steps_of_the_page_fit_into_three_quarters_of_an_hour() -> None:
    assert sum(step.minutes for step in PAGE) < 45
    assert steps_of([]) == list(PAGE)
    assert [step.name for step in steps_of(["spark", "start"])] == ["start", "spark"]
    assert len(steps_of([], extra=True)) == len(plan.STEPS)
