"""A stretch of a topic once more, as it was or changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla import arrow
from ottla.pipelines.runner import Options, Run, load
from tests.spark.pipelines.pipelines import names, run_once
from tests.spark.topics import Topics

BASE_MS = 1_790_000_000_000


def fill(bootstrap: str, topic: str, first: int, last: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(first, last):
        value = None if number % 10 == 9 else b'{"n": %d}' % number
        producer.produce(
            topic,
            value,
            None if number % 7 == 6 else str(number).encode(),
            partition=number % 3,
            timestamp=BASE_MS + number * 1000,
            headers=[("n", str(number).encode()), ("e", None)],
        )
    assert producer.flush(30) == 0


def records(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    columns = ["key", "value", "partition", "timestamp", "headers"]
    found: list[dict[str, Any]] = arrow.read(topic, bootstrap, columns=columns, headers=True).read_all().to_pylist()
    return found


def at(number: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(BASE_MS / 1000 + number, UTC).isoformat()


def test_as_it_was(spark: Any, bootstrap: str, topics: Topics, tmp_path: Path) -> None:
    settings = names("input", "output")
    topics.create(settings["input"], 3)
    fill(bootstrap, settings["input"], 0, 100)
    run_once(spark, "replay", bootstrap, tmp_path, {**settings, "from": at(10), "to": at(120)}, batch_records=25)
    original = records(bootstrap, settings["input"])
    key = lambda record: record["timestamp"]  # noqa: E731
    assert sorted(records(bootstrap, settings["output"]), key=key) == sorted(original, key=key)[10:]
    # What has come since, up to the end that was given.
    fill(bootstrap, settings["input"], 100, 150)
    run_once(spark, "replay", bootstrap, tmp_path, {**settings, "from": at(10), "to": at(120)})
    original = sorted(records(bootstrap, settings["input"]), key=key)
    replayed = records(bootstrap, settings["output"])
    assert sorted(replayed, key=key) == original[10:120]
    for partition in range(3):
        mine = [record for record in replayed if record["partition"] == partition]
        assert mine == sorted(mine, key=key), "in order"


def test_changed_into_a_topic_of_other_partitions(spark: Any, bootstrap: str, topics: Topics, tmp_path: Path) -> None:
    settings = names("input", "output")
    topics.create(settings["input"], 3)
    topics.create(settings["output"], 1)
    fill(bootstrap, settings["input"], 0, 30)
    chosen = {"schema": "n INT", "filter": "value.n >= 20", "value": "concat('n=', value.n)"}
    run_once(spark, "replay", bootstrap, tmp_path, {**settings, **chosen})
    found = sorted(record["value"].decode() for record in records(bootstrap, settings["output"]))
    assert found == [f"n={number}" for number in range(20, 29)]


def test_no_time_is_an_error(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    settings = {**names("input", "output"), "from": "yesterday"}
    status = Run(load("replay"), Options(bootstrap, directory=tmp_path), settings, spark).run()
    assert status.error == "from: expected a time such as 2026-11-25T09:00:00Z, got 'yesterday'"
    with pytest.raises(ValueError, match="no setting till"):
        Run(load("replay"), Options(bootstrap, directory=tmp_path), {"till": ""}, spark)
