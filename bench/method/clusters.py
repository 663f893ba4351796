"""Three nodes of Ottla beside three of Kafka: replicated produce, scaling, an empty replica that catches up, starts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.method import bare_loop, compare
from bench.method.bare_loop import bare_loop as start_bare_loop
from bench.method.brokers import cpu_seconds
from bench.method.counters import Meter
from bench.method.load import PRODUCE_VERSION, Client, Result, batch_of, fetch_frame, produce_frame
from bench.method.rounds import Load, measure, section
from bench.method.three_nodes import NODES, Nodes, Topic, WarmClusters, nodes, wait_until
from bench.method.uniform_load import uniform_load
from bench.tables import Run, Section, table
from bench.workloads.throughput import SETTINGS, fetch_window, produce_answer
from ottla.protocol.messages import ApiKey

PARTITIONS = 6
IN_FLIGHT = 5
SMALL_LOG = {"retention.bytes": str(128 << 20), "segment.bytes": str(128 << 20), "file.delete.delay.ms": "1000"}
CATCH_UP_MB = 768
CATCH_UP_BATCH = 256 << 10
IDLE_S = 2.0
SCALING = "Produce, 16 KB batches, one replica, acks=all, on one, two and three nodes of the cluster"
CATCH_UP = f"An empty replica of {PARTITIONS} partitions, {CATCH_UP_MB} MB in all, until it is in sync"
START = "Start of three empty nodes to the first acknowledged record, and memory at rest"
REPLICATED = (
    ("replicated-one-record", "one 100-byte record a request", 1),
    ("replicated-16k", "16 KB batches", 16 << 10),
    ("replicated-64k", "64 KB batches", 64 << 10),
)


def spread(over: int, replicas: int) -> list[list[int]]:
    """Replicas of each partition, whose leaders are the first `over` nodes in turn."""
    return [[(number % over + step) % NODES + 1 for step in range(replicas)] for number in range(PARTITIONS)]


def produce_window(topic: Topic, batch: bytes) -> Callable[[float, Meter], Result]:
    """acks=all, a connection to the leader of each partition."""
    frames = [[produce_frame(topic.name, number, batch)] for number in range(len(topic.ports))]

    def window(seconds: float, meter: Meter) -> Result:
        return uniform_load(
            topic.ports,
            frames,
            ApiKey.PRODUCE,
            PRODUCE_VERSION,
            in_flight=IN_FLIGHT,
            seconds=seconds,
            meter=meter,
            payload_bytes=len(batch),
            fixed=produce_answer,
        )

    return window


@table("cluster", "three nodes: replicated produce, scaling, catch-up, start, memory")
def cluster(run: Run) -> Iterator[Section]:
    run.cool()
    warm = WarmClusters(run.sides, run.base, SETTINGS)
    try:
        for key, label, size in REPLICATED:
            title = f"Produce, {label}, three replicas, acks=all, {PARTITIONS} connections x {IN_FLIGHT} in flight"
            if run.wants(title):
                yield _produce(run, warm, title, key, size, spread(NODES, NODES))
        if run.wants(SCALING):
            yield _scaling(run, warm)
        if run.wants(CATCH_UP):
            yield _catch_up(run, warm)
    finally:
        warm.stop()
    if run.wants(START):
        yield _starts(run)


def _loads(
    stack: ExitStack, warm: WarmClusters, name: str, size: int, assignments: Sequence[Sequence[int]]
) -> dict[str, Load]:
    batch, _ = batch_of(size)
    loads = {}
    for side, each in warm.clusters.items():
        topic = Topic(each, name, assignments, SMALL_LOG)
        stack.callback(topic.delete)
        loads[side] = Load(each.pids, produce_window(topic, batch), warm, warmed=topic.keep_all)
    return loads


def _produce(
    run: Run, warm: WarmClusters, title: str, key: str, size: int, assignments: Sequence[Sequence[int]]
) -> Section:
    with ExitStack() as stack:
        return section(title, key, measure(run, _loads(stack, warm, key, size, assignments)))


def _scaling(run: Run, warm: WarmClusters) -> Section:
    """The same load on one, two and three of the nodes, without copies."""
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for over in range(1, NODES + 1):
        with ExitStack() as stack:
            measured = measure(run, _loads(stack, warm, f"on-{over}", 16 << 10, spread(over, 1)))
        found[f"{over}"] = {
            side: [{"req/s": each.requests_per_s, "CPU-s/GB": each.cpu_s_per_gb} for each in of_side.rounds]
            for side, of_side in measured.items()
        }
    rows = compare.pivot("nodes", found, ("req/s",), ("req/s", "CPU-s/GB"))
    cores = f"All nodes and the load share the machine's {os.cpu_count()} cores."
    data = {over: {side: {"rounds": each} for side, each in sides.items()} for over, sides in found.items()}
    return Section(SCALING, rows, cores, "cluster-scaling", data)


def _catch_up(run: Run, warm: WarmClusters) -> Section:
    """An empty replica on node 2 of what node 1 has, until it is in sync; beside a bare loop that sends as much, to a
    receiver that keeps it and to one that throws it away."""
    batch, _ = batch_of(CATCH_UP_BATCH)
    count = CATCH_UP_MB * (1 << 20) // len(batch) // PARTITIONS
    total = count * len(batch) * PARTITIONS
    found: dict[str, list[dict[str, float]]] = {side: [] for side in warm.clusters}
    with ExitStack() as stack:
        topics = {}
        for side, cluster in warm.clusters.items():
            topic = topics[side] = Topic(
                cluster, "catch-up", [[1]] * PARTITIONS, {"file.delete.delay.ms": "1000", "retention.bytes": "-1"}
            )
            stack.callback(topic.delete)
            fill(topic, batch, count)
        port, pid = stack.enter_context(start_bare_loop(_file(run.base), str(1 << 20)))
        bare = fetch_window(port, [[fetch_frame("x", number, 0, 1 << 20)] for number in range(2)])
        found[bare_loop.KEEPING], found[bare_loop.NAME] = [], []
        for _ in range(1 + run.rounds):  # the first is the warm-up
            for side, topic in topics.items():
                run.settle()
                found[side].append(_caught_up(topic, warm.clusters[side], total))
            run.settle()
            found[bare_loop.KEEPING].append(_kept(run.base, port, pid))
            run.settle()
            result = bare(run.seconds, Meter(pid))
            found[bare_loop.NAME].append({"MB/s": result.mb_per_s, "CPU-s/GB": result.cpu_s_per_gb})
    found = {side: rounds[1:] for side, rounds in found.items()}
    note = (
        "From the reassignment to the replica in sync, CPU of all nodes. The bare loop sends as much by sendfile over "
        "one connection to a process that writes it to as many files, 64 KB at a time, CPU of both; and, in the last "
        "line, to somebody who throws it away."
    )
    data = {side: {"rounds": each} for side, each in found.items()}
    return Section(CATCH_UP, compare.rows(found, ("MB/s",)), note, "catch-up", data)


def _kept(base: Path, port: int, pid: int) -> dict[str, float]:
    cpu, count = cpu_seconds(pid), CATCH_UP_MB
    took, used = bare_loop.kept(base, port, 1 << 20, count, PARTITIONS)
    used += cpu_seconds(pid) - cpu
    total = count << 20
    return {"MB/s": total / 1e6 / took, "CPU-s/GB": used / (total / 1e9)}


def _file(base: Path) -> Path:
    (base / "bare").write_bytes(bytes(64 << 20))
    return base


def fill(topic: Topic, batch: bytes, count: int) -> None:
    for number, port in enumerate(topic.ports):
        client = Client(port)
        request = produce_frame(topic.name, number, batch)
        for _ in range(count):
            client.socket.sendall(request)
            client.receive_frame()
        client.close()


def _caught_up(topic: Topic, cluster: Nodes, total: int) -> dict[str, float]:
    cpu, begin = sum(map(cpu_seconds, cluster.pids)), time.perf_counter()
    topic.reassign([1, 2])
    wait_until(lambda: min(topic.in_sync()) == 2)
    took, used = time.perf_counter() - begin, sum(map(cpu_seconds, cluster.pids)) - cpu
    topic.reassign([1])
    wait_until(lambda: max(topic.in_sync()) == 1)
    wait_until(lambda: not any(cluster.directory.rglob("*-delete")))  # or the next round pays for it
    return {"MB/s": total / 1e6 / took, "CPU-s/GB": used / (total / 1e9)}


def _starts(run: Run) -> Section:
    """Time from the command to the first record that three nodes have acknowledged, and memory."""
    found: dict[str, list[dict[str, float]]] = {side: [] for side in run.sides}
    for side in compare.alternate(run.sides, max(run.rounds, 3)):
        started = nodes(side, run.base, {})
        run.settle()
        try:
            begin = time.perf_counter()
            started.launch()
            wait_until(partial(_acknowledged, started))
            took = time.perf_counter() - begin
            time.sleep(IDLE_S)
            found[side].append({"start s": took, "PSS MB per node": pss_mb(started.pids) / NODES})
        finally:
            started.stop()
    note = (
        "From the command that starts all three (of Kafka with directories formatted before) to the first record with "
        "three replicas acknowledged; PSS counts what processes share once."
    )
    data = {side: {"rounds": each} for side, each in found.items()}
    return Section(START, compare.rows(found, ("start s",)), note, "cluster-start", data)


def _acknowledged(cluster: Nodes) -> bool:
    """Creates the topic when there are brokers enough for it. Raises OSError, RuntimeError while that is not so."""
    topic = Topic(cluster, f"first-{time.monotonic_ns()}", [[1, 2, 3]], {})
    fill(topic, batch_of(1)[0], 1)
    return True


def pss_mb(pids: Sequence[int]) -> float:
    """Memory of processes, in which each page that several have counts once in all."""
    return sum(_pss_kb(pid) for pid in pids) / 1024


def _pss_kb(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
