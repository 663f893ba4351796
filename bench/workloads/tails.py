"""Consumers that keep up: one whose session has many partitions, and a thousand that wait for the same record."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

from bench.method.counters import Meter
from bench.method.load import Client, Result, batch_of, frame, produce_frame
from bench.method.rounds import Load, measure, section
from bench.tables import Run, Section, table
from bench.workloads.latency import figures
from bench.workloads.throughput import SETTINGS, SMALL_LOG
from ottla.protocol import fetch, fetch_responses
from ottla.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages import ApiKey

FETCH_VERSION = 12
SIZES = (1, 20, 2000)
"""Partitions of a session."""
CONSUMERS = 1000
SETTLE_S = 0.0005
"""Until a fetch has reached its wait."""
CROWD_SETTLE_S = 0.05
"""Until those of the crowd have."""


def fetch_frame(topic: str, rows: list[FetchPartition], session: tuple[int, int] = (0, fetch.FINAL_EPOCH)) -> bytes:
    """A fetch that waits for 10 seconds for one byte; `session` is its id and epoch."""
    topics = [FetchTopic(topic, None, rows)] if rows else []
    request = FetchRequest(10_000, 1, 50 << 20, topics, session_id=session[0], session_epoch=session[1])
    return frame(bytes(fetch.encode_request(FETCH_VERSION, 1, "bench", request)))


class Tail:
    """A consumer at the end of all partitions of a topic, in a session. Only the first partition gets records."""

    def __init__(self, port: int, topic: str, partitions: int) -> None:
        self.client, self.topic = Client(port), topic
        self.offset = end_of(self.client, topic)
        rows = [FetchPartition(number, self.offset if number == 0 else 0, 1 << 20) for number in range(partitions)]
        no_wait = FetchRequest(0, 0, 50 << 20, [FetchTopic(topic, None, rows)], session_epoch=0)
        self.client.socket.sendall(frame(bytes(fetch.encode_request(FETCH_VERSION, 1, "bench", no_wait))))
        _, answer = fetch_responses.decode_response(FETCH_VERSION, self.client.receive_frame())
        if not answer.session_id:
            raise RuntimeError("the broker gave no session")
        self.session_id, self.epoch = answer.session_id, 1

    def ask(self) -> None:
        """Wait for the next record; names the partition that has moved."""
        rows = [FetchPartition(0, self.offset, 1 << 20)]
        self.client.socket.sendall(fetch_frame(self.topic, rows, (self.session_id, self.epoch)))
        self.epoch += 1


def end_of(client: Client, topic: str) -> int:
    """The log end of the first partition."""
    latest = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    values = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [latest]}]}
    return int(client.call(ApiKey.LIST_OFFSETS, 7, values)["topics"][0]["partitions"][0]["offset"])


def tail_window(port: int, topic: str, partitions: int) -> Callable[[float, Meter], Result]:
    """One 100-byte record in to the same record out of a session of so many partitions, one at a time."""
    batch, records = batch_of(100)
    request = produce_frame(topic, 0, batch)

    def window(seconds: float, meter: Meter) -> Result:
        producer, tail = Client(port), Tail(port, topic, partitions)
        result = Result()
        meter.start()
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            tail.ask()
            time.sleep(SETTLE_S)
            sent = time.perf_counter()
            producer.socket.sendall(request)
            answer = tail.client.receive_frame()
            result.latencies_ms.append((time.perf_counter() - sent) * 1e3)
            producer.receive_frame()
            if len(answer) < len(batch):
                raise RuntimeError("the fetch came back without the record")
            tail.offset += records
            result.requests += 1
        result.seconds = time.perf_counter() - start
        meter.stop()
        result.take(meter)
        producer.close()
        tail.client.close()
        return result

    return window


def crowd_window(port: int, topic: str, consumers: int = CONSUMERS) -> Callable[[float, Meter], Result]:
    """One 100-byte record in until the last of so many consumers that wait has it."""
    batch, records = batch_of(100)
    request = produce_frame(topic, 0, batch)

    def window(seconds: float, meter: Meter) -> Result:
        producer, crowd = Client(port), [Client(port) for _ in range(consumers)]
        offset = end_of(producer, topic)
        result = Result()
        with selectors.DefaultSelector() as selector:
            for each in crowd:
                selector.register(each.socket, selectors.EVENT_READ, each)
            meter.start()
            start = time.perf_counter()
            while time.perf_counter() - start < seconds:
                wanted = fetch_frame(topic, [FetchPartition(0, offset, 1 << 20)])
                for each in crowd:
                    each.socket.sendall(wanted)
                time.sleep(CROWD_SETTLE_S)
                sent = time.perf_counter()
                producer.socket.sendall(request)
                left = consumers
                while left:
                    for key, _ in selector.select(60):
                        if len(key.data.receive_frame()) < len(batch):
                            raise RuntimeError("a fetch came back without the record")
                        left -= 1
                result.latencies_ms.append((time.perf_counter() - sent) * 1e3)
                producer.receive_frame()
                offset += records
                result.requests += 1
            result.seconds = time.perf_counter() - start
            meter.stop()
        result.take(meter)
        for each in (producer, *crowd):
            each.close()
        return result

    return window


def _section(
    run: Run, title: str, key: str, partitions: int, window: Callable[[int], Callable[[float, Meter], Result]]
) -> Section:
    warm = run.warm(SETTINGS)
    with ExitStack() as stack:
        loads = {}
        for name, broker in warm.brokers.items():
            client = Client(broker.port)
            client.create_topic(key, partitions, SMALL_LOG)
            stack.callback(client.close)
            stack.callback(partial(client.delete_topic, key))
            loads[name] = Load(broker.pid, window(broker.port), warm)
        measured = measure(run, loads, rate=lambda result: 1000 / result.percentile(0.5))
        return section(title, key, measured, figures, ("p50 ms",))


@table("tails", "one record to a consumer of 1, 20 and 2,000 partitions, and to 1,000 consumers")
def tails(run: Run) -> Iterator[Section]:
    for partitions in SIZES:
        key = f"tail-{partitions}"
        title = f"One record in to the same record out of a session of {partitions:,} partition{'s' * (partitions > 1)}"
        if run.wants(title):
            yield _section(run, title, key, partitions, partial(tail_window, topic=key, partitions=partitions))
    title = f"One record in until the last of {CONSUMERS:,} waiting consumers has it"
    if run.wants(title):
        yield _section(run, title, "tail-crowd", 1, partial(crowd_window, topic="tail-crowd"))
