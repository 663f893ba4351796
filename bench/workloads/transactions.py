"""What transactions cost: records that librdkafka writes in them, how late read_committed readers get them, commits."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from bench.method.counters import Meter
from bench.method.load import Client, Result
from bench.method.rounds import Load, Warmed, measure, section
from bench.method.three_nodes import Topic, WarmClusters
from bench.tables import Run, Section, table
from bench.workloads.throughput import SETTINGS, SMALL_LOG

COMMIT_S = 0.1
"""Between two commits: the commit interval of Kafka Streams with exactly_once_v2."""
VALUE = bytes(100)
PACED = 1_000
"""Records a second where it is latency that counts."""
COMMITTERS = 10
TOPIC = "transactions"
STAMP = struct.Struct(">d")

Window = Callable[[float, Meter], Result]


def producer_of(port: int, transactional_id: str) -> Any:
    from confluent_kafka import Producer

    found = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "transactional.id": transactional_id,
            "linger.ms": 5,
            "queue.buffering.max.messages": 500_000,
            "log_level": 0,
        }
    )
    found.init_transactions(60)
    return found


def produce_window(port: int) -> Window:
    """A producer as fast as it can be, with a commit every 100 ms."""
    producer = producer_of(port, "bench-produce")

    def window(seconds: float, meter: Meter) -> Result:
        result = Result()
        meter.start()
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            producer.begin_transaction()
            ends = time.perf_counter() + COMMIT_S
            while time.perf_counter() < ends:
                for _ in range(500):
                    while True:
                        try:
                            producer.produce(TOPIC, VALUE)
                            break
                        except BufferError:
                            producer.poll(0.01)
                result.requests += 500
                producer.poll(0)
            began = time.perf_counter()
            producer.commit_transaction(60)
            result.latencies_ms.append((time.perf_counter() - began) * 1000)
        result.seconds = time.perf_counter() - start
        meter.stop()
        result.bytes = result.requests * len(VALUE)
        result.take(meter)
        return result

    return window


class Reader:
    """A read_committed consumer, and how old records were when it got them."""

    def __init__(self, port: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._consumer = Consumer(
            {"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "unused", "log_level": 0, "fetch.wait.max.ms": 500}
        )
        end = self._consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), 60)[1]
        self._consumer.assign([TopicPartition(TOPIC, 0, end)])
        self.ages_ms: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(0.05)  # `consume` would wait for many
            if message is None or message.error():
                continue
            value = message.value() or b""
            if len(value) >= STAMP.size:
                self.ages_ms.append((time.perf_counter() - STAMP.unpack_from(value)[0]) * 1000)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()


def latency_window(port: int) -> Window:
    """So many records a second, a commit every 100 ms, and a reader that waits for them."""
    producer = producer_of(port, "bench-latency")

    def window(seconds: float, meter: Meter) -> Result:
        result, reader = Result(), Reader(port)
        meter.start()
        start = time.perf_counter()
        try:
            while (now := time.perf_counter()) - start < seconds:
                producer.begin_transaction()
                ends = now + COMMIT_S
                while (now := time.perf_counter()) < ends:
                    producer.produce(TOPIC, STAMP.pack(now) + VALUE)
                    result.requests += 1
                    producer.poll(1 / PACED)
                producer.commit_transaction(60)
            result.seconds = time.perf_counter() - start
            meter.stop()
            deadline = time.perf_counter() + 10
            while len(reader.ages_ms) < result.requests * 0.9 and time.perf_counter() < deadline:
                time.sleep(0.02)
        finally:
            reader.close()
        result.latencies_ms = reader.ages_ms
        result.bytes = result.requests * (len(VALUE) + STAMP.size)
        result.take(meter)
        return result

    return window


def commit_window(port: int, committers: int) -> Window:
    """Transactions of one record, one after the other, of so many producers."""
    producers = [producer_of(port, f"bench-commit-{committers}-{number}") for number in range(committers)]

    def window(seconds: float, meter: Meter) -> Result:
        result = Result()
        meter.start()
        start = time.perf_counter()

        def run(producer: Any) -> None:
            while (began := time.perf_counter()) - start < seconds:
                producer.begin_transaction()
                producer.produce(TOPIC, VALUE)
                producer.commit_transaction(60)
                result.latencies_ms.append((time.perf_counter() - began) * 1000)

        threads = [threading.Thread(target=run, args=(each,)) for each in producers]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        result.seconds = time.perf_counter() - start
        meter.stop()
        result.requests = len(result.latencies_ms)
        result.take(meter)
        return result

    return window


def throughput(result: Result) -> dict[str, float]:
    return {
        "records/s": result.requests_per_s,
        "CPU-s/GB": result.cpu_s_per_gb,
        "commit p50 ms": result.percentile(0.5),
        "commit p99 ms": result.percentile(0.99),
    }


def ages(result: Result) -> dict[str, float]:
    return {f"p{q * 100:g} ms": result.percentile(q) for q in (0.5, 0.99)} | {
        "CPU ms per 1,000": result.cpu_ms_per_1000
    }


def commits(result: Result) -> dict[str, float]:
    return {
        "commits/s": result.requests_per_s,
        "CPU ms per commit": result.cpu_ms_per_1000 / 1000,
        "p50 ms": result.percentile(0.5),
        "p99 ms": result.percentile(0.99),
    }


LOADS: dict[str, tuple[str, Callable[[int], Window], Callable[[Result], dict[str, float]], tuple[str, ...]]] = {
    "produce": (
        "Transactional producer (librdkafka), 100-byte records, a commit every 100 ms", produce_window, throughput,
        ("records/s", "CPU-s/GB"),
    ),
    "latency": (
        f"From producing to a read_committed reader, {PACED:,} records/s, a commit every 100 ms", latency_window, ages,
        ("p50 ms",),
    ),
    "commits-1": (
        "Transactions of one record, one producer", partial(commit_window, committers=1), commits, ("commits/s",),
    ),
    f"commits-{COMMITTERS}": (
        f"Transactions of one record, {COMMITTERS} producers", partial(commit_window, committers=COMMITTERS), commits,
        ("commits/s",),
    ),
}  # fmt: skip
"""Loads by the end of their key: title, load of a port, figures, and the figures that are shown with a spread."""


def _sections(run: Run, sides: Mapping[str, tuple[Sequence[int], int]], warm: Warmed, where: str) -> Iterator[Section]:
    """`sides` are the processes and a port of each."""
    for name, (title, window_of, figures, ranged) in LOADS.items():
        if run.wants(name):
            loads = {side: Load(pids, window_of(port), warm) for side, (pids, port) in sides.items()}
            note = "The producer runs in this process, which needs a core for itself."
            key = "-".join((*where.split(), "transactions", name))
            yield section(f"{title}, on {where}" if where else title, key, measure(run, loads), figures, ranged, note)


@table("transactions", "transactional producers of librdkafka: records/s, latency to readers, commits/s")
def transactions(run: Run) -> Iterator[Section]:
    warm = run.warm(SETTINGS)
    with ExitStack() as stack:
        for broker in warm.brokers.values():
            client = Client(broker.port)
            stack.callback(client.close)
            client.create_topic(TOPIC, 1, SMALL_LOG)
            stack.callback(partial(client.delete_topic, TOPIC))
        yield from _sections(run, {side: ([each.pid], each.port) for side, each in warm.brokers.items()}, warm, "")


@table("cluster-transactions", "the same on three nodes, with three replicas of everything")
def cluster_transactions(run: Run) -> Iterator[Section]:
    run.cool()
    warm = WarmClusters(run.sides, run.base, SETTINGS)
    try:
        with ExitStack() as stack:
            for cluster in warm.clusters.values():
                stack.callback(Topic(cluster, TOPIC, [[1, 2, 3]], SMALL_LOG).delete)
            sides = {side: (each.pids, each.ports[0]) for side, each in warm.clusters.items()}
            yield from _sections(run, sides, warm, "three nodes")
    finally:
        warm.stop()
