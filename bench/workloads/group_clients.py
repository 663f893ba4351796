"""How long real consumers, of librdkafka, take until all have their partitions."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from bench.method import compare
from bench.method.brokers import Side
from bench.method.load import Client
from bench.tables import Run, Section, table
from bench.workloads.group_requests import SETTINGS, prepare

Row = dict[str, Any]
CONSUMERS, PARTITIONS = 8, 16
ATTEMPTS = 7


def until_assigned(side: Side, strategy: str, name: str) -> float:
    """Seconds from the start of consumers of confluent-kafka until all partitions are assigned and shared out evenly.

    librdkafka begins a join at most once a second. Where the first member has a generation to itself, some that join
    the second have to join the third, and wait out their second: that, on either side, is what most of the time is.
    """
    from confluent_kafka import Consumer

    conf = {
        "bootstrap.servers": f"127.0.0.1:{side.port}",
        "group.id": name,
        "partition.assignment.strategy": strategy,
        "heartbeat.interval.ms": 100,
        "session.timeout.ms": 10_000,
    }
    begin = time.perf_counter()
    members = [Consumer(conf) for _ in range(CONSUMERS)]
    try:
        for member in members:
            member.subscribe(["shared"])
        while True:
            for member in members:
                member.poll(0.001)
            owned = [len(member.assignment()) for member in members]
            if sum(owned) == PARTITIONS and max(owned) == PARTITIONS // CONSUMERS:
                return time.perf_counter() - begin
            if time.perf_counter() - begin > 60:
                raise RuntimeError(f"not assigned: {owned}")
    finally:
        for member in members:
            with suppress(RuntimeError):
                member.close()


@table("consumers", "8 librdkafka consumers until all have their partitions")
def consumers(run: Run) -> Iterator[Section]:
    warm = run.warm(SETTINGS)
    for side in warm.brokers.values():
        prepare(side)
        client = Client(side.port)
        client.create_topic("shared", PARTITIONS)
        client.close()
    found: dict[str, dict[str, list[float]]] = {name: {} for name in warm.brokers}
    for kind, strategy in (("eager", "range"), ("cooperative", "cooperative-sticky")):
        for number in range(ATTEMPTS + 1):
            for name, side in warm.brokers.items():
                seconds = until_assigned(side, strategy, f"{strategy}-{number}")
                if number:  # the first warms up
                    found[name].setdefault(kind, []).append(seconds)
    rows = [{"side": name, **_columns(kinds)} for name, kinds in found.items()]
    title = "8 librdkafka consumers (confluent-kafka), 16 partitions, heartbeat.interval.ms=100, until all are assigned"
    yield Section(title, rows, "", "librdkafka-consumers", dict(found))


def _columns(kinds: dict[str, list[float]]) -> Row:
    row: Row = {}
    for kind, times in kinds.items():
        quick = sum(seconds < 0.9 for seconds in times)
        row |= {
            f"{kind}: median s": compare.short(statistics.median(times)),
            f"{kind}: best s": compare.short(min(times)),
            f"{kind}: within 0.9 s": f"{quick} of {len(times)}",
        }
    return row
