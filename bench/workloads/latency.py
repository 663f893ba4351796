"""How long one record takes from its producer to a consumer that waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

from bench.method.counters import Meter
from bench.method.load import Client, Result, batch_of, fetch_values, produce_frame
from bench.method.rounds import Load, measure, section
from bench.tables import Run, Section, table
from bench.workloads.throughput import SETTINGS, SMALL_LOG
from ottla.protocol.messages import ApiKey

TOPIC = "round-trip"


def round_trips(port: int) -> Callable[[float, Meter], Result]:
    """One 100-byte record in to the same record out of a waiting fetch, one at a time."""
    batch, records = batch_of(100)
    request = produce_frame(TOPIC, 0, batch)
    latest = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    wanted = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": TOPIC, "partitions": [latest]}]}

    def window(seconds: float, meter: Meter) -> Result:
        producer, consumer = Client(port), Client(port)
        answer = producer.call(ApiKey.LIST_OFFSETS, 7, wanted)
        offset = answer["topics"][0]["partitions"][0]["offset"]
        result = Result()
        meter.start()
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            consumer.send(ApiKey.FETCH, 12, fetch_values(TOPIC, 0, offset, 1 << 20, wait_ms=5000))
            time.sleep(0.0005)  # let the fetch reach its wait
            sent = time.perf_counter()
            producer.socket.sendall(request)
            answer_bytes = consumer.receive_frame()
            result.latencies_ms.append((time.perf_counter() - sent) * 1e3)
            producer.receive_frame()
            if len(answer_bytes) < len(batch):
                raise RuntimeError("the fetch came back without the record")
            offset += records
            result.requests += 1
        result.seconds = time.perf_counter() - start
        meter.stop()
        result.take(meter)
        producer.close()
        consumer.close()
        return result

    return window


def figures(result: Result) -> dict[str, float]:
    found = {f"p{q * 100:g} ms": result.percentile(q) for q in (0.5, 0.9, 0.99, 0.999)}
    return found | {"CPU ms per 1,000": result.cpu_ms_per_1000}


@table("latency", "one record in to the same record out")
def latency(run: Run) -> Iterator[Section]:
    warm = run.warm(SETTINGS)
    with ExitStack() as stack:
        loads = {}
        for name, broker in warm.brokers.items():
            client = Client(broker.port)
            client.create_topic(TOPIC, 1, SMALL_LOG)
            stack.callback(client.close)
            stack.callback(partial(client.delete_topic, TOPIC))
            loads[name] = Load(broker.pid, round_trips(broker.port), warm)
        measured = measure(run, loads, rate=lambda result: 1000 / result.percentile(0.5))
        yield section(
            "One record in to the same record out (a fetch that waits)", "round-trip", measured, figures, ("p50 ms",)
        )
