"""Produce and fetch requests per second: small and large batches, with an fsync each, from 1,000 connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

from bench.method import bare_loop
from bench.method.bare_loop import bare_loop as start_bare_loop
from bench.method.brokers import WarmBrokers
from bench.method.counters import Meter
from bench.method.fetch_load import fetch_load
from bench.method.load import PRODUCE_VERSION, Client, Result, batch_of, fetch_frame, produce_frame
from bench.method.rounds import Load, measure, section
from bench.method.uniform_load import uniform_load
from bench.tables import Run, Section, table
from ottla.protocol.messages import ApiKey

SETTINGS = {"log.retention.check.interval.ms": "2000", "log.segment.delete.delay.ms": "1000"}
"""Settings of every warm broker: the gigabytes of a minute do not stay on the disk."""
SMALL_LOG = {"retention.bytes": str(256 << 20), "segment.bytes": str(256 << 20), "file.delete.delay.ms": "1000"}
CONNECTIONS, IN_FLIGHT = 6, 5
FETCHES_IN_FLIGHT = 2
CACHED_MB = 192


def produce_answer(answer: bytes) -> list[int]:
    """The bytes of an answer to a produce request that must repeat: its size, its correlation id, its error code."""
    name_length = answer[10]  # of the topic, behind the length of the array
    error_at = 4 + 6 + name_length + 1 + 4
    return [2, 3, 7, error_at, error_at + 1]


def produce_frames(topic: str, connections: int, partitions: int, batch: bytes) -> list[list[bytes]]:
    return [[produce_frame(topic, index % partitions, batch)] for index in range(connections)]


def produce_window(
    port: int,
    topic: str,
    batch: bytes,
    connections: int = CONNECTIONS,
    in_flight: int = IN_FLIGHT,
    is_broker: bool = True,
    settle_s: float = 0.3,
) -> Callable[[float, Meter], Result]:
    """acks=all, a partition per connection up to eight."""
    frames = produce_frames(topic, connections, min(connections, 8), batch)
    api = ApiKey.PRODUCE if is_broker else None
    fixed = produce_answer if is_broker else None

    def window(seconds: float, meter: Meter) -> Result:
        return uniform_load(
            port,
            frames,
            api,
            PRODUCE_VERSION,
            in_flight=in_flight,
            seconds=seconds,
            meter=meter,
            payload_bytes=len(batch),
            fixed=fixed,
            settle_s=settle_s,
        )

    return window


def preheat(run: Run, warm: WarmBrokers) -> None:
    """Have each broker under produce load for the rest of `run.first_warm_up_s`: for tables whose own load comes in
    pieces too small to warm up a JVM."""
    batch, _ = batch_of(1 << 10)
    for name, broker in warm.brokers.items():
        missing_s = run.first_warm_up_s - warm.loaded_s[name]
        if missing_s > 0:
            client = Client(broker.port)
            client.create_topic("preheat", 6, SMALL_LOG)
            produce_window(broker.port, "preheat", batch)(missing_s, Meter(broker.pid))
            client.delete_topic("preheat")
            client.close()
            warm.loaded_s[name] += missing_s


def produce_section(
    run: Run,
    title: str,
    key: str,
    batch_bytes: int,
    *,
    config: dict[str, str] | None = None,
    connections: int = CONNECTIONS,
    in_flight: int = IN_FLIGHT,
    with_bare: bool = True,
    record_size: int = 100,
) -> Section:
    warm, topic = run.warm(SETTINGS), key
    batch, _ = batch_of(batch_bytes, record_size)
    with ExitStack() as stack:
        loads = {}
        for name, broker in warm.brokers.items():
            client = Client(broker.port)
            client.create_topic(topic, min(connections, 8), {**SMALL_LOG, **(config or {})})
            stack.callback(client.close)
            stack.callback(partial(client.delete_topic, topic))
            window = produce_window(broker.port, topic, batch, connections, in_flight)
            # A deletion would give memory back to the host, which the next write asks for again.
            loads[name] = Load(broker.pid, window, warm, warmed=partial(client.keep_all, topic))
        if with_bare and run.with_bare:
            port, pid = stack.enter_context(start_bare_loop(run.base))
            loads[bare_loop.NAME] = Load(pid, produce_window(port, topic, batch, is_broker=False))
        return section(title, key, measure(run, loads))


@table("small", "produce, one record a request")
def small(run: Run) -> Iterator[Section]:
    yield produce_section(
        run, "Produce, one 100-byte record per request, 6 connections x 5 in flight", "produce-one-record", 1
    )


@table("produce", "produce, batches of 16 KB, 64 KB and 1 MB")
def produce(run: Run) -> Iterator[Section]:
    batches = (
        ("16 KB batches", "produce-16k", 16 << 10, 100),
        ("64 KB batches of 1 KB records", "produce-64k", 64 << 10, 1000),
        ("1 MB batches", "produce-1m", 1000 << 10, 100),
    )
    for label, key, size, record_size in batches:
        title = f"Produce, {label}, acks=all, 6 connections x 5 in flight"
        if run.wants(title):
            yield produce_section(run, title, key, size, record_size=record_size)


@table("durable", "produce with an fsync before each answer")
def durable(run: Run) -> Iterator[Section]:
    yield produce_section(
        run,
        "Produce, 16 KB batches, fsync before the answer (flush.messages=1)",
        "produce-fsync",
        16 << 10,
        config={"flush.messages": "1"},
        with_bare=False,
    )


@table("connections", "produce from 1,000 connections")
def connections(run: Run) -> Iterator[Section]:
    yield produce_section(
        run,
        "Produce, 1 KB batches, 1,000 connections x 1 in flight",
        "produce-1000-connections",
        1 << 10,
        connections=1000,
        in_flight=1,
        with_bare=False,
    )


@table("fetch", "fetch of cached data")
def fetch(run: Run) -> Iterator[Section]:
    for label, key, size in (("64 KB", "fetch-64k", 64 << 10), ("1 MB", "fetch-1m", 1 << 20)):
        title = f"Fetch of cached data, {label} answers, 6 connections x 2 in flight"
        if run.wants(title):
            yield _fetch_section(run, title, key, size)


def _fetch_section(run: Run, title: str, key: str, answer_bytes: int) -> Section:
    warm = run.warm(SETTINGS)
    with ExitStack() as stack:
        loads = {}
        for name, broker in warm.brokers.items():
            client = Client(broker.port)
            frames, fetch_bytes = fetch_frames(client, key, answer_bytes)
            stack.callback(client.close)
            stack.callback(partial(client.delete_topic, key))
            loads[name] = Load(broker.pid, fetch_window(broker.port, frames), warm)
        if run.with_bare:
            path = run.base / "bare"
            path.write_bytes(bytes(64 << 20))
            port, pid = stack.enter_context(start_bare_loop(run.base, str(fetch_bytes)))
            bare = [[fetch_frame("x", p, 0, fetch_bytes)] for p in range(CONNECTIONS)]
            loads[bare_loop.NAME] = Load(pid, fetch_window(port, bare))
        return section(title, key, measure(run, loads))


def fetch_frames(client: Client, topic: str, answer_bytes: int) -> tuple[list[list[bytes]], int]:
    """Create and fill a topic; requests that read all of it for each connection, and the bytes of an answer.

    An answer holds whole batches, so that both sides answer with the same bytes.
    """
    batch, count = batch_of(60 << 10)
    step = max(1, answer_bytes // len(batch))
    fetch_bytes = step * len(batch)
    per_partition = CACHED_MB * (1 << 20) // len(batch) // CONNECTIONS
    client.create_topic(topic, CONNECTIONS)
    _fill(client, topic, batch, per_partition)
    frames = [
        [fetch_frame(topic, p, index * count, fetch_bytes) for index in range(0, per_partition - step, step)]
        for p in range(CONNECTIONS)
    ]
    return frames, fetch_bytes


def fetch_window(port: int, frames: list[list[bytes]]) -> Callable[[float, Meter], Result]:
    def window(seconds: float, meter: Meter) -> Result:
        return fetch_load(port, frames, in_flight=FETCHES_IN_FLIGHT, seconds=seconds, meter=meter)

    return window


def _fill(client: Client, topic: str, batch: bytes, batches: int) -> None:
    for partition in range(CONNECTIONS):
        request = produce_frame(topic, partition, batch)
        for _ in range(batches):
            client.socket.sendall(request)
            client.receive_frame()
