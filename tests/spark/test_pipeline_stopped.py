"""A run that is stopped after its first batch: its consumer groups show what it has done."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.pipelines.runner import Job, Options, Run, Setting
from ottla.pipelines.runner.pipeline import Pipeline
from ottla.pipelines.runner.state import Status
from tests.spark.pipelines import feed, names
from tests.spark.topics import Topics


def build(job: Job) -> None:
    numbers = job.read("input", "number BIGINT").select("value.*")
    job.write("halves", numbers.selectExpr("number div 2 as half"), "halves")
    numbers = job.read("input", "number BIGINT", group="counts", dead_letters=False).select("value.*")
    job.write("counts", numbers.groupBy("number").count(), "counts", key="number", mode="update")


@pytest.mark.timeout(600)
def test_groups_show_what_is_done(spark: Any, bootstrap: str, topics: Topics, topic: str, tmp_path: Path) -> None:
    settings = names("input", "halves", "counts")
    pipeline = Pipeline(topic, "", tuple(Setting(name, "", name) for name in settings), build, Path(__file__))
    topics.create(settings["input"])
    feed(bootstrap, settings["input"], [{"number": number} for number in range(20)])
    # The second batch, with which a source would learn that the first is done, is an hour away.
    run = Run(pipeline, Options(bootstrap, directory=tmp_path, every="1 hour"), settings, spark)
    shown: list[dict[str, int | None]] = []

    def show(status: Status) -> None:
        shown.append({query.name: query.lag_records for query in status.queries if query.rows == 0})
        if status.queries and all(query.rows == 20 for query in status.queries):
            run.stop()

    runner = threading.Thread(target=run.run, args=(show,))
    runner.start()
    runner.join(500)
    assert run.status.state == "stopped", run.status.error
    # A batch may be done before anybody looks; the one that keeps state takes longer.
    assert {lag for each in shown for lag in each.values() if lag is not None} == {20}, (
        "how far a first batch is behind"
    )
    for group in f"ottla-{topic}", f"ottla-{topic}-counts":
        assert topics.committed(group) == {(settings["input"], 0): 20}
