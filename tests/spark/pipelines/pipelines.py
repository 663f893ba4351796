"""Pipelines in tests: input as JSON, a run to its end in the tests' Spark, output as dicts."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from ottla import arrow
from ottla.pipelines.runner import Options, Run, load
from ottla.pipelines.runner.state import Status
from ottla.pipelines.runner.topics import Topics

_numbers = itertools.count()
PATIENCE_S = 120.0
LOOK_EVERY_S = 0.1
"""Most looks read a topic: closer together they took the processor that the pipeline waited for."""


def feed(bootstrap: str, topic: str, rows: Iterable[Mapping[str, Any] | bytes], key: str | None = None) -> None:
    """Produce rows as JSON, bytes as they are; by the field `key`, all to one partition without."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 20})
    for row in rows:
        value = row if isinstance(row, bytes) else json.dumps(row).encode()
        chosen = {} if isinstance(row, bytes) or key is None else {"key": str(row[key])}
        producer.produce(topic, value, **chosen) if chosen else producer.produce(topic, value, partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0


def rows(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """The committed values of a topic, from JSON, partition after partition; transactions that have ended are there."""
    topics = Topics(bootstrap)
    try:
        wait_for(lambda: topics.ends({topic}) == topics.ends({topic}, read_committed=False))
    finally:
        topics.close()
    values = arrow.read(topic, bootstrap, columns=["value"]).read_all().column("value").to_pylist()
    return [json.loads(value) for value in values]


def dead_letters(bootstrap: str, pipeline: str, topic: str) -> list[bytes]:
    """Values of a pipeline's dead letters of one topic: other tests on the same broker have theirs beside them."""
    columns = ["value", "headers"]
    found = arrow.read(f"{pipeline}-dead-letters", bootstrap, columns=columns, headers=True).read_all().to_pylist()
    origin = {"key": "__connect.errors.topic", "value": topic.encode()}
    return [each["value"] for each in found if origin in each["headers"]]


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(LOOK_EVERY_S)


def names(*topics: str) -> dict[str, str]:
    """Topic names that no other test uses, by setting."""
    number = next(_numbers)
    return {topic: f"{topic}-{number}" for topic in topics}


def run_once(
    spark: Any, name: str, bootstrap: str, directory: Path, settings: Mapping[str, Any], **options: Any
) -> Status:
    """Until all that is there is done; the status says how."""
    chosen = Options(bootstrap, directory=directory, once=True, restarts_max=0, **options)
    status = Run(load(name), chosen, settings, spark).run()
    assert status.state == "done", status.error
    return status
