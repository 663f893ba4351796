"""A run that is stopped after its first batch: its consumer groups show what it has done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.pipelines.runner import Job, Options, Run, Setting
from ottla.pipelines.runner.pipeline import Pipeline
from ottla.pipelines.runner.state import Status
from tests.spark.pipelines.pipelines import feed, names
from tests.spark.topics import Topics


def held(seen: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What a Python worker does with a first batch: nothing before somebody has looked at how far behind it is."""

    def pass_on(batches: Iterator[Any]) -> Iterator[Any]:
        while not Path(seen).exists():
            time.sleep(0.05)
        yield from batches

    return pass_on


def build(seen: str, job: Job) -> None:
    numbers = job.read("input", "number BIGINT").select("value.*").mapInArrow(held(seen), "number BIGINT")
    job.write("halves", numbers.selectExpr("number div 2 as half"), "halves")
    numbers = job.read("input", "number BIGINT", group="counts", dead_letters=False).select("value.*")
    numbers = numbers.mapInArrow(held(seen), "number BIGINT")
    job.write("counts", numbers.groupBy("number").count(), "counts", key="number", mode="update")


@pytest.mark.timeout(600)
def test_groups_show_what_is_done(spark: Any, bootstrap: str, topics: Topics, topic: str, tmp_path: Path) -> None:
    settings = names("input", "halves", "counts")
    seen = tmp_path / "seen"
    made = partial(build, str(seen))
    pipeline = Pipeline(topic, "", tuple(Setting(name, "", name) for name in settings), made, Path(__file__))
    topics.create(settings["input"])
    feed(bootstrap, settings["input"], [{"number": number} for number in range(20)])
    # The second batch, with which a source would learn that the first is done, is an hour away.
    run = Run(pipeline, Options(bootstrap, directory=tmp_path, every="1 hour"), settings, spark)
    shown: set[tuple[str, int]] = set()

    def show(status: Status) -> None:
        shown.update((each.name, each.lag_records) for each in status.queries if each.lag_records is not None)
        if len(shown) == 2:
            seen.touch()
        if status.queries and all(query.rows == 20 for query in status.queries):
            run.stop()

    runner = threading.Thread(target=run.run, args=(show,))
    runner.start()
    runner.join(500)
    assert run.status.state == "stopped", run.status.error
    assert shown >= {("halves", 20), ("counts", 20)}, "how far a first batch is behind"
    for group in f"ottla-{topic}", f"ottla-{topic}-counts":
        assert topics.committed(group) == {(settings["input"], 0): 20}
