"""`ottla pipeline run` in a process of its own: stopped, killed, gone on with; on a standalone cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.pipelines import feed, names, rows
from tests.spark.standalone import StandaloneCluster

ROOT = Path(__file__).parents[2]
PIPELINE = '''"""Halves of even numbers; and how many there were of each."""

from ottla.pipelines.runner import Job, Setting

SETTINGS = (Setting("input", "", "numbers"), Setting("halves", "", "halves"), Setting("counts", "", "counts"))


def build(job: Job) -> None:
    numbers = job.read("input", "number BIGINT", includeHeaders="true").select("value.*").where("number % 2 = 0")
    job.write("halves", numbers.selectExpr("number div 2 as half"), "halves", key="half")
    numbers = job.read("input", "number BIGINT", group="counts", dead_letters=False)
    numbers = numbers.select("value.number").where("number is not null")
    job.write("counts", numbers.groupBy("number").count(), "counts", key="number", mode="update")
'''


class Command:
    """`ottla pipeline run ... --json`; `until` waits for a status that is as it should be."""

    def __init__(self, work: Path, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        command = [sys.executable, "-m", "ottla.cli.main", "pipeline", "run", str(work / "mine.py"),
                   "--directory", str(work / "state"), "--json", *arguments]  # fmt: skip
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.errors: list[str] = []
        assert self.process.stderr is not None
        threading.Thread(target=lambda: self.errors.extend(self.process.stderr or ()), daemon=True).start()

    def until(self, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            status: dict[str, Any] = json.loads(line)
            if is_so(status):
                return status
        raise AssertionError(f"it ended with {self.process.wait(60)}: {''.join(self.errors)}")

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        self.process.communicate(timeout=120)
        return self.process.returncode


def ottla(*arguments: str) -> Any:
    """What a command prints with --json."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", *arguments, "--json"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "mine.py").write_text(PIPELINE)
    yield tmp_path


def set_(settings: dict[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def numbers(first: int, last: int) -> list[Any]:
    return [{"number": number} for number in range(first, last)]


def has_read(count: int) -> Callable[[dict[str, Any]], bool]:
    return lambda status: bool(status["queries"]) and all(query["rows"] >= count for query in status["queries"])


def is_done(status: dict[str, Any]) -> bool:
    return bool(status["queries"]) and all(query["lag_records"] == 0 for query in status["queries"])


def ensure_exact(bootstrap: str, settings: dict[str, str], count: int) -> None:
    assert sorted(row["half"] for row in rows(bootstrap, settings["halves"])) == list(range(count // 2))
    assert sorted(row["number"] for row in rows(bootstrap, settings["counts"])) == list(range(count))
    assert {row["count"] for row in rows(bootstrap, settings["counts"])} == {1}


@pytest.mark.usefixtures("spark")
def test_stopped_killed_and_gone_on_with(bootstrap: str, work: Path) -> None:
    settings = names("input", "halves", "counts")
    feed(bootstrap, settings["input"], [*numbers(0, 1000), b"{", b"null", *numbers(1000, 2000)])
    arguments = ["-b", bootstrap, "--master", "local[2]", "--batch-records", "1000", *set_(settings)]
    command = Command(work, *arguments)
    command.until(has_read(1))
    assert command.end(signal.SIGKILL) == -signal.SIGKILL
    directory = ["--directory", str(work / "state")]
    assert [each["state"] for each in ottla("pipeline", "status", *directory)] == ["died"]

    command = Command(work, *arguments)
    command.until(is_done)
    feed(bootstrap, settings["input"], numbers(2000, 3000))
    command.until(lambda status: is_done(status) and has_read(1000)(status))
    assert ottla("pipeline", "stop", "mine", *directory)["state"] == "stopped"
    assert command.ended() == 0

    feed(bootstrap, settings["input"], numbers(3000, 4000))
    command = Command(work, *arguments, "--once")
    last = command.until(lambda status: status["state"] == "done")
    assert command.ended() == 0
    ensure_exact(bootstrap, settings, 4000)
    assert last["dead_letters"] >= 1
    for group in ("ottla-mine", "ottla-mine-counts"):
        (described,) = ottla("group", "describe", group, "-b", bootstrap)
        assert described["lag"] == 0, described


@pytest.mark.usefixtures("spark")
def test_a_signal_ends_it_between_two_batches(bootstrap: str, work: Path) -> None:
    settings = names("input", "halves", "counts")
    feed(bootstrap, settings["input"], numbers(0, 100))
    command = Command(work, "-b", bootstrap, "--master", "local[2]", *set_(settings), "--metrics", "127.0.0.1:39404")
    command.until(has_read(100))
    with urllib.request.urlopen("http://127.0.0.1:39404/metrics") as answer:
        assert 'ottla_pipeline_rows_total{pipeline="mine",query="halves"} 100' in answer.read().decode()
    assert command.end(signal.SIGTERM) == 128 + signal.SIGTERM
    assert command.errors == []
    assert [each["state"] for each in ottla("pipeline", "status", "--directory", str(work / "state"))] == ["stopped"]
    ensure_exact(bootstrap, settings, 100)


@pytest.mark.usefixtures("spark")
def test_on_a_standalone_cluster(bootstrap: str, work: Path) -> None:
    settings = names("input", "halves", "counts")
    feed(bootstrap, settings["input"], numbers(0, 1000))
    path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    with StandaloneCluster(workers=2, environment={"PYTHONPATH": path}) as cluster:
        spark = ("spark.executor.memory=512m", "spark.driver.host=127.0.0.1", "spark.sql.shuffle.partitions=2")
        command = Command(
            work, "-b", bootstrap, "--master", cluster.url, "--once", *set_(settings),
            *(word for each in spark for word in ("--spark", each)),
        )  # fmt: skip
        command.until(lambda status: status["state"] == "done")
        assert command.ended() == 0
    ensure_exact(bootstrap, settings, 1000)
