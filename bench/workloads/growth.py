"""Three nodes become six and three again while clients produce and consume: what these notice, and how long it takes.

The commands are those of an operator: `ottla cluster add`, `balance --run`, `drain`, `remove`. The clients are
librdkafka's: an idempotent producer as fast as it goes, and a group of one that reads all of it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.method.compare import OURS, short
from bench.method.three_nodes import NODES, OttlaNodes, wait_until
from bench.tables import Run, Section, table

TOPIC = "growth"
PARTITIONS = 12
VALUE_BYTES = 4096
IN_FLIGHT = 2000
"""Records that are not acknowledged yet; then the producer waits."""
KEPT = {"retention.bytes": str(64 << 20), "segment.bytes": str(16 << 20), "file.delete.delay.ms": "1000"}
"""Size of each partition: about what a node holds before the cluster grows, so that something has to move."""
SETTINGS = {"log.retention.check.interval.ms": "1000"}
STEADY_WINDOWS = 5
"""Windows of `--seconds` each, before, with six nodes, and after."""
LIMIT_S = 120.0


@dataclass
class Seen:
    """Everything that the clients heard, in the order in which they heard it."""

    at: list[float] = field(default_factory=list)
    """Time at which each record was acknowledged, on `time.monotonic`'s clock."""
    latency_s: list[float] = field(default_factory=list)
    partition: list[int] = field(default_factory=list)
    failures: list[tuple[float, str]] = field(default_factory=list)
    """Failures of producer and consumer, after librdkafka tried again until it gave up."""
    acknowledged: Counter[int] = field(default_factory=Counter)
    """Records, by partition."""
    read: Counter[int] = field(default_factory=Counter)


class Clients:
    """Run while it is entered; leaving waits until all that was acknowledged has been read."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Consumer, Producer

        self.seen = Seen()
        shared = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._producer = Producer(
            {
                **shared,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.size": 256 << 10,
                "queue.buffering.max.messages": IN_FLIGHT,
            }
        )
        self._consumer = Consumer({**shared, "group.id": TOPIC, "auto.offset.reset": "earliest"})
        self._consumer.subscribe([TOPIC])
        self._written, self._all_read = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._consume)]

    def __enter__(self) -> Clients:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._written.set()
        self._threads[0].join()
        deadline = time.monotonic() + (LIMIT_S if error is None else 0)
        while self.seen.read != self.seen.acknowledged and time.monotonic() < deadline:
            time.sleep(0.05)
        self._all_read.set()
        self._threads[1].join()

    def _produce(self) -> None:
        number, value = 0, bytes(VALUE_BYTES)
        while not self._written.is_set():
            try:
                self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._delivered)
                number += 1
                self._producer.poll(0)
            except BufferError:
                self._producer.poll(0.1)
        if left := self._producer.flush(LIMIT_S):
            self.seen.failures.append((time.monotonic(), f"{left} records without an answer"))

    def _delivered(self, error: Any, message: Any) -> None:
        seen, now = self.seen, time.monotonic()
        if error is not None:
            seen.failures.append((now, str(error)))
            return
        seen.at.append(now)
        seen.latency_s.append(message.latency())
        seen.partition.append(message.partition())
        seen.acknowledged[message.partition()] += 1

    def _consume(self) -> None:
        """Each partition's records must come without a gap and none twice, though the group may begin again."""
        ends = dict.fromkeys(range(PARTITIONS), 0)
        seen = self.seen
        while not self._all_read.is_set():
            for message in self._consumer.consume(1000, 0.1):
                if message.error() is not None:
                    seen.failures.append((time.monotonic(), message.error().str()))
                    continue
                partition, offset = int(message.partition() or 0), int(message.offset() or 0)
                if offset > ends[partition]:
                    seen.failures.append((time.monotonic(), f"{partition}: {ends[partition]} to {offset} did not come"))
                if offset >= ends[partition]:
                    ends[partition] = offset + 1
                    seen.read[partition] += 1
        self._consumer.close()


class Growing(OttlaNodes):
    """Nodes that come and go beside the first three; commands are run as somebody types them."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, SETTINGS)
        self._place = directory
        self.added: dict[int, subprocess.Popen[str]] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def run(self, *command: str) -> str:
        """Raises RuntimeError with what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "ottla.cli.main", *command, "--bootstrap", self.bootstrap],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout

    def add(self, node: int) -> None:
        """Returns when it has joined. Raises RuntimeError."""
        command = [sys.executable, "-m", "ottla.cli.main", "cluster", "add", str(self._place / f"node-{node}")]
        process = subprocess.Popen(
            [*command, "--node-id", str(node), "--bootstrap", self.bootstrap],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.added[node] = process
        assert process.stdout is not None
        line = process.stdout.readline()
        if "has joined" not in line:
            raise RuntimeError(f"node {node} does not join: {line}")

    def leave(self, node: int) -> None:
        """A node that was drained. Raises RuntimeError."""
        process = self.added.pop(node)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=LIMIT_S)
        if process.returncode:
            raise RuntimeError(f"node {node}: {out}")
        self.run("cluster", "remove", str(node))

    def stop(self) -> None:
        for each in self.added.values():
            each.terminate()
            each.communicate(timeout=LIMIT_S)
        self.added.clear()
        super().stop()

    def holders(self) -> set[int]:
        """Nodes that have a copy of some partition of the topic."""
        (described,) = json.loads(self.run("topic", "describe", TOPIC, "--json"))
        return {node for each in described["partitions"] for node in each["replicas"]}


@contextmanager
def _started(base: Path) -> Iterator[Growing]:
    directory = base / f"growing-{time.monotonic_ns()}"
    directory.mkdir()
    cluster = Growing(directory)
    try:
        cluster.launch()
        cluster.wait_ready()
        yield cluster
    finally:
        cluster.stop()


def grow_and_shrink(base: Path, steady_s: float) -> tuple[Seen, dict[str, tuple[float, float]]]:
    """What clients saw, and when each phase began and ended. Raises RuntimeError."""
    phases: dict[str, tuple[float, float]] = {}

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        begin = time.monotonic()
        yield
        phases[name] = (begin, time.monotonic())

    more = range(NODES + 1, 2 * NODES + 1)
    with _started(base) as cluster:
        settings = [part for name, value in KEPT.items() for part in ("--set", f"{name}={value}")]
        cluster.run("topic", "create", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "3", *settings)
        with Clients(cluster.bootstrap) as clients:
            wait_until(lambda: len(clients.seen.read) == PARTITIONS)
            time.sleep(steady_s)  # warm
            with phase("three nodes"):
                time.sleep(steady_s)
            with phase("three join"):
                for node in more:
                    cluster.add(node)
            with phase("partitions move there"):
                cluster.run("cluster", "balance", "--run")
            if not cluster.holders().issuperset(more):
                raise RuntimeError(f"the new nodes hold nothing: {cluster.holders()}")
            with phase("six nodes"):
                time.sleep(steady_s)
            with phase("partitions move back"):
                cluster.run("cluster", "drain", *map(str, more))
            with phase("three leave"):
                for node in more:
                    cluster.leave(node)
            with phase("three nodes again"):
                time.sleep(steady_s)
    return clients.seen, phases


def figures(seen: Seen, begin: float, end: float) -> dict[str, float]:
    """Row of one phase. The gap is the longest time in which a partition acknowledged nothing."""
    chosen = [number for number, at in enumerate(seen.at) if begin <= at < end]
    latencies = sorted(seen.latency_s[number] for number in chosen)
    last = dict.fromkeys(range(PARTITIONS), begin)
    gap_s = 0.0
    for number in chosen:
        partition = seen.partition[number]
        gap_s = max(gap_s, seen.at[number] - last[partition])
        last[partition] = seen.at[number]
    gap_s = max(gap_s, *(end - each for each in last.values()))
    return {
        "seconds": end - begin,
        "MB/s": len(chosen) * VALUE_BYTES / 1e6 / (end - begin),
        "p50 ms": 1e3 * latencies[len(latencies) // 2] if latencies else float("nan"),
        "p99 ms": 1e3 * latencies[int(0.99 * len(latencies))] if latencies else float("nan"),
        "longest gap ms": 1e3 * gap_s,
        "failed": sum(begin <= at < end for at, _ in seen.failures),
    }


def missing(seen: Seen) -> int:
    """Records that were acknowledged and did not come to the consumer, or came though nobody was told of them."""
    return sum(abs(seen.acknowledged[each] - seen.read[each]) for each in range(PARTITIONS))


def rows(found: dict[str, Sequence[dict[str, float]]]) -> list[dict[str, Any]]:
    """Medians of the rounds; the longest gap and the failures of all."""
    out = []
    for name, rounds in found.items():
        row: dict[str, Any] = {"phase": name}
        for figure in rounds[0]:
            values = sorted(each[figure] for each in rounds)
            if figure == "failed":
                row[figure] = f"{sum(values):.0f}"
            else:
                row[figure] = short(values[-1] if "gap" in figure else values[len(values) // 2])
        out.append(row)
    return out


@table("growth", "three nodes become six and three again under load")
def growth(run: Run) -> Iterator[Section]:
    run.cool()
    if OURS not in run.sides:
        return
    found: dict[str, list[dict[str, float]]] = {}
    records = lost = 0
    for _ in range(run.rounds):
        seen, phases = grow_and_shrink(run.base, run.seconds * STEADY_WINDOWS)
        for name, (begin, end) in phases.items():
            found.setdefault(name, []).append(figures(seen, begin, end))
        records, lost = records + len(seen.at), lost + missing(seen)
        for _, text in seen.failures[:5]:
            print(text, file=sys.stderr)
    note = (
        f"{PARTITIONS} partitions with three replicas of up to 64 MB, {VALUE_BYTES:,}-byte records, acks=all, at most "
        f"{IN_FLIGHT:,} records in flight; all nodes, the producer and the consumer share {os.cpu_count()} cores. "
        f"Acknowledged in all: {records:,}; of these the consumer did not read, or read twice: {lost}."
    )
    data = {name: {"rounds": rounds} for name, rounds in found.items()}
    yield Section("Three nodes become six and three again", rows(dict(found)), note, "growth", data)
