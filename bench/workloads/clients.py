"""What producers of real clients reach: librdkafka in this process, Kafka's own performance tool in its own JVM."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

from bench.method import compare
from bench.method.brokers import Side, cpu_seconds
from bench.method.counters import Meter
from bench.method.load import Client, Result
from bench.method.rounds import Load, measure, section
from bench.tables import Run, Section, table
from bench.workloads.throughput import SETTINGS, SMALL_LOG

VALUE = bytes(100)
JAVA_RECORDS = 1_000_000


def librdkafka_window(port: int) -> Callable[[float, Meter], Result]:
    """confluent-kafka's producer as fast as it can: 100-byte values, its default batching, acks=all."""
    from confluent_kafka import Producer

    def window(seconds: float, meter: Meter) -> Result:
        producer = Producer(
            {"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 5, "queue.buffering.max.messages": 500_000}
        )
        failed: list[object] = []

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                failed.append(error)

        result = Result()
        meter.start()
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            for _ in range(1000):
                while True:
                    try:
                        producer.produce("librdkafka", VALUE, on_delivery=delivered)
                        break
                    except BufferError:
                        producer.poll(0.05)
            result.requests += 1000
            producer.poll(0)
        producer.flush(60)
        result.seconds = time.perf_counter() - start
        meter.stop()
        if failed:
            raise RuntimeError(f"{len(failed)} records were not delivered: {failed[0]}")
        result.bytes = result.requests * len(VALUE)
        result.take(meter)
        return result

    return window


def figures(result: Result) -> dict[str, float]:
    return {
        "records/s": result.requests_per_s,
        "MB/s": result.mb_per_s,
        "CPU-s/GB": result.cpu_s_per_gb,
    }


def java_producer(side: Side, records: int) -> Result:
    """Kafka's own ProducerPerformance: 100-byte records, unthrottled, acks=all, its defaults otherwise."""
    from peers import kafka

    cpu_start = cpu_seconds(side.pid)
    out = (
        kafka.tool(
            "org.apache.kafka.tools.ProducerPerformance",
            "--topic",
            "java",
            "--num-records",
            str(records),
            "--record-size",
            "100",
            "--throughput",
            "-1",
            "--bootstrap-server",
            f"127.0.0.1:{side.port}",
        )
        .stdout.strip()
        .splitlines()[-1]
    )
    rate = float(out.split(",")[1].split()[0])
    result = Result(requests=records, bytes=records * 100, seconds=records / rate)
    result.cpu_seconds = cpu_seconds(side.pid) - cpu_start
    return result


@table("clients", "producers of librdkafka and of Kafka's own client")
def clients(run: Run) -> Iterator[Section]:
    warm = run.warm(SETTINGS)
    with ExitStack() as stack:
        loads = {}
        for name, broker in warm.brokers.items():
            client = Client(broker.port)
            stack.callback(client.close)
            for topic in ("librdkafka", "java"):
                client.create_topic(topic, 1, SMALL_LOG)
                stack.callback(partial(client.delete_topic, topic))
            loads[name] = Load(broker.pid, librdkafka_window(broker.port), warm)
        measured = measure(run, loads)
        note = "The producer needs a core for itself: on both sides it is what limits the rate, not the broker."
        title = "librdkafka producer (confluent-kafka), 100-byte records"
        yield section(title, "librdkafka-producer", measured, figures, ("records/s",), note)
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in warm.brokers}
        for name in compare.alternate(list(warm.brokers), run.rounds):
            rounds[name].append(figures(java_producer(warm.brokers[name], JAVA_RECORDS)))
        note = "The tool starts a new JVM each time, which is cold: compare the brokers' CPU rather than the rates."
        title = "Java ProducerPerformance, 1 M records of 100 bytes"
        rows = compare.rows(rounds, ("records/s", "CPU-s/GB"))
        yield Section(title, rows, note, "java-producer", {name: {"rounds": each} for name, each in rounds.items()})
