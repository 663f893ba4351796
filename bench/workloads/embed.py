"""How soon a test has a broker: `ottla.testing.Broker`, librdkafka's mock cluster, a JVM Kafka.

The clock runs from nothing to the first metadata that a librdkafka client gets, then to the first record acknowledged.
Kafka's directory is formatted beforehand, as a prepared container image has it; that time is a column of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench.method import compare
from bench.method.brokers import Kafka, resident_mb
from ottla.testing import Broker

Timings = dict[str, float]
ANSWER_SECONDS_MAX = 60


def _client(**settings: Any) -> Producer:
    return Producer({"log_level": 0, "reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 10, **settings})


def _use(client: Producer, start: float, timings: Timings) -> None:
    client.list_topics(timeout=ANSWER_SECONDS_MAX)
    timings["metadata s"] = time.perf_counter() - start
    client.produce("first", b"record")
    assert client.flush(ANSWER_SECONDS_MAX) == 0
    timings["record s"] = time.perf_counter() - start


@contextmanager
def _stopped(timings: Timings) -> Iterator[None]:
    start = time.perf_counter()
    yield
    timings["stop s"] = time.perf_counter() - start


def broker(_: Path) -> Timings:
    timings: Timings = {}
    start = time.perf_counter()
    node = Broker().start()
    timings["ready s"] = time.perf_counter() - start
    _use(_client(**{"bootstrap.servers": node.bootstrap}), start, timings)
    timings["RSS MB"] = resident_mb(node.pid)
    with _stopped(timings):
        node.stop()
    return timings


def mock(_: Path) -> Timings:
    """Start librdkafka's mock cluster, which is in the client's own process: its memory is not counted apart."""
    timings: Timings = {}
    start = time.perf_counter()
    client = _client(**{"test.mock.num.brokers": 1})
    timings["ready s"] = time.perf_counter() - start
    _use(client, start, timings)
    with _stopped(timings):
        del client
    return timings


def kafka(directory: Path) -> Timings:
    timings: Timings = {}
    start = time.perf_counter()
    directory.mkdir()
    node = Kafka(directory)
    timings["format s"] = time.perf_counter() - start
    start = time.perf_counter()
    node.start()
    timings["ready s"] = time.perf_counter() - start
    try:
        _use(_client(**{"bootstrap.servers": f"127.0.0.1:{node.port}"}), start, timings)
        timings["RSS MB"] = resident_mb(node.pid)
    finally:
        with _stopped(timings):
            node.stop()
    return timings


CONTENDERS: dict[str, tuple[Callable[[Path], Timings], int]] = {
    "ottla": (broker, 15),
    "librdkafka mock": (mock, 15),
    "kafka": (kafka, 3),
}
"""Contenders, with the number of times that each is started."""
COLUMNS = ("format s", "ready s", "metadata s", "record s", "stop s", "RSS MB")


def table(sides: list[str], base: Path) -> list[dict[str, Any]]:
    """A row for each with the medians of its starts, which alternate; the lowest and the highest of the record."""
    found: dict[str, list[Timings]] = {
        name: [] for name in CONTENDERS if name not in ("ottla", "kafka") or name in sides
    }
    for number in range(max(rounds for _, rounds in CONTENDERS.values())):
        for name, each in found.items():
            run, rounds = CONTENDERS[name]
            if number < rounds:
                each.append(run(base / f"embed-{name}-{number}"))
    rows = []
    for name, each in found.items():
        row: dict[str, Any] = {"side": name}
        for column in COLUMNS:
            if column in each[0]:
                spread = compare.Spread.of([timings[column] for timings in each])
                row[column] = spread.text(_digits) if column == "record s" else _digits(spread.median)
        rows.append(row)
    return rows


def _digits(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2f}"
