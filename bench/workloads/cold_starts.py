"""Cold starts, apart from all else: to the first answer, memory when idle, how the rate grows in the first seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.method import compare
from bench.method.brokers import make, resident_mb
from bench.method.counters import Meter
from bench.method.load import Client, batch_of
from bench.tables import Run, Section, table
from bench.workloads import embed
from bench.workloads.throughput import SETTINGS, SMALL_LOG, produce_window

IDLE_S = 2.0
STRETCHES_S = ((0, 1), (1, 3), (3, 6), (6, 12), (12, 18), (18, 25))
"""Stretches of the first seconds, from a broker's first request on."""


@table("start", "cold starts: to the first answer, and the rate of the first seconds")
def start(run: Run) -> Iterator[Section]:
    run.cool()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in run.sides}
    for name in compare.alternate(run.sides, max(run.rounds, 3)):
        broker = make(name, run.base)
        run.settle()
        started = broker.start()
        time.sleep(IDLE_S)
        idle = resident_mb(broker.pid)
        found[name].append({"start s": started, "idle RSS MB": idle, "stop s": broker.stop_and_delete()})
    rows = compare.rows(found, ("start s", "stop s"))
    data = {name: {"rounds": each} for name, each in found.items()}
    yield Section("Start of an empty node to the first answer, and memory at rest", rows, "", "start", data)
    yield growth(run)


def growth(run: Run) -> Section:
    """The rate of one-record requests from the first on, of a broker of which nothing was asked before."""
    batch, _ = batch_of(1)
    found: dict[str, list[dict[str, float]]] = {}
    for name in run.sides:
        broker = make(name, run.base, SETTINGS)
        broker.start()
        client = Client(broker.port)
        client.create_topic("growth", 6, SMALL_LOG)
        client.close()
        window = produce_window(broker.port, "growth", batch, settle_s=0.0)
        stretches = {}
        for first, last in STRETCHES_S:
            result = window(last - first, Meter(broker.pid))
            stretches[f"{first} to {last} s"] = result.requests_per_s
        found[name] = [stretches]
        broker.stop_and_delete()
    title = "The first seconds: requests per second of one 100-byte record, 6 connections x 5 in flight"
    data = {name: {"rounds": each} for name, each in found.items()}
    return Section(title, compare.rows(found), "", "first-seconds", data)


@table("embed", "a broker for a test")
def embedded(run: Run) -> Iterator[Section]:
    run.cool()
    yield Section("A broker for a test, medians of cold starts", embed.table(run.sides, run.base), "", "embed")
