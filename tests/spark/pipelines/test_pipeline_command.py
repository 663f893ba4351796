"""`ottla pipeline run` in a process of its own: stopped, killed, gone on with; on a standalone cluster."""

from __future__ import annotations

import os
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.pipelines.pipeline_process import ROOT, Command, has_read, is_done, ottla, set_
from tests.spark.pipelines.pipelines import feed, names, rows
from tests.spark.standalone import StandaloneCluster

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


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "mine.py").write_text(PIPELINE)
    yield tmp_path


def numbers(first: int, last: int) -> list[Any]:
    return [{"number": number} for number in range(first, last)]


def ensure_exact(bootstrap: str, settings: dict[str, str], count: int) -> None:
    assert sorted(row["half"] for row in rows(bootstrap, settings["halves"])) == list(range(count // 2))
    assert sorted(row["number"] for row in rows(bootstrap, settings["counts"])) == list(range(count))
    assert {row["count"] for row in rows(bootstrap, settings["counts"])} == {1}


@pytest.mark.usefixtures("spark")
def test_stopped_killed_and_gone_on_with(bootstrap: str, work: Path) -> None:
    settings = names("input", "halves", "counts")
    feed(bootstrap, settings["input"], [*numbers(0, 1000), b"{", b"null", *numbers(1000, 2000)])
    arguments = ["-b", bootstrap, "--master", "local[2]", "--batch-records", "1000", *set_(settings)]
    command = Command(str(work / "mine.py"), work, *arguments)
    command.until(has_read(1))
    assert command.end(signal.SIGKILL) == -signal.SIGKILL
    directory = ["--directory", str(work / "state")]
    assert [each["state"] for each in ottla("pipeline", "status", *directory)] == ["died"]

    command = Command(str(work / "mine.py"), work, *arguments)
    command.until(is_done)
    feed(bootstrap, settings["input"], numbers(2000, 3000))
    command.until(lambda status: is_done(status) and has_read(1000)(status))
    assert ottla("pipeline", "stop", "mine", *directory)["state"] == "stopped"
    assert command.ended() == 0

    feed(bootstrap, settings["input"], numbers(3000, 4000))
    command = Command(str(work / "mine.py"), work, *arguments, "--once")
    last = command.until(lambda status: status["state"] == "done")
    assert command.ended() == 0
    ensure_exact(bootstrap, settings, 4000)
    assert last["dead_letters"] >= 1
    for group in ("ottla-mine", "ottla-mine-counts"):
        (described,) = ottla("group", "describe", group, "-b", bootstrap)
        assert described["lag"] == 0, described


@pytest.mark.nightly(
    "tests/spark/pipelines/test_pipeline_command.py::test_stopped_killed_and_gone_on_with",
    "tests/spark/test_mirror.py::test_what_copies_is_killed_on_a_cluster_of_workers",
    "tests/unit/pipelines/test_runner.py",
)
@pytest.mark.usefixtures("spark")
def test_a_signal_ends_it_between_two_batches(bootstrap: str, work: Path) -> None:
    settings = names("input", "halves", "counts")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    feed(bootstrap, settings["input"], numbers(0, 100))
    command = Command(
        str(work / "mine.py"),
        work,
        "-b",
        bootstrap,
        "--master",
        "local[2]",
        *set_(settings),
        "--metrics",
        f"127.0.0.1:{port}",
    )
    command.until(has_read(100))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert 'ottla_pipeline_rows_total{pipeline="mine",query="halves"} 100' in answer.read().decode()
    assert command.end(signal.SIGTERM) == 128 + signal.SIGTERM
    assert command.errors == []
    assert [each["state"] for each in ottla("pipeline", "status", "--directory", str(work / "state"))] == ["stopped"]
    ensure_exact(bootstrap, settings, 100)


@pytest.mark.usefixtures("spark")
def test_on_a_standalone_cluster(standalone: StandaloneCluster, bootstrap: str, work: Path) -> None:
    settings = names("input", "halves", "counts")
    feed(bootstrap, settings["input"], numbers(0, 1000))
    spark = (
        "spark.executor.memory=512m",
        "spark.driver.host=127.0.0.1",
        "spark.sql.shuffle.partitions=2",
        f"spark.executorEnv.PYTHONPATH={ROOT / 'src'}{os.pathsep}{ROOT}",
    )
    command = Command(
        str(work / "mine.py"),
        work,
        "-b",
        bootstrap,
        "--master",
        standalone.url,
        "--once",
        *set_(settings),
        *(word for each in spark for word in ("--spark", each)),
    )
    command.until(lambda status: status["state"] == "done")
    assert command.ended() == 0
    ensure_exact(bootstrap, settings, 1000)
