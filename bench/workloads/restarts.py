"""Restarts with much: many partitions, many segments, a million commits; what they cost in time and memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from bench.method import compare
from bench.method.brokers import Side, cpu_seconds, make, resident_mb
from bench.method.counters import Meter
from bench.method.load import Client, batch_of, fetch_values, frame, produce_frame, same_answers
from bench.method.members import Group, Swarm
from bench.tables import Run, Section, table
from bench.workloads.group_requests import (
    COMMIT_VERSION,
    HEARTBEAT_VERSION,
    commit_values,
    heartbeat_values,
    prepare,
    wait_for_coordinator,
)
from bench.workloads.group_requests import SETTINGS as GROUP_SETTINGS
from bench.workloads.throughput import SETTINGS, SMALL_LOG, produce_window
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey

PARTITIONS = (1_000, 10_000)
SEGMENTS = 100


def many_partitions(side: Side, count: int) -> dict[str, float]:
    """Create, restart with, and produce beside `count` partitions."""
    client = Client(side.port)
    start = time.perf_counter()
    for index in range(0, count, 500):
        client.create_topic(f"many-{index}", min(500, count - index))
    created = time.perf_counter() - start
    client.close()
    stop = side.stop()
    started = side.start()
    client = Client(side.port)
    client.wait_for_leaders("many-0", min(500, count))
    idle = resident_mb(side.pid)
    client.create_topic("beside", 6, SMALL_LOG)
    client.close()
    result = produce_window(side.port, "beside", batch_of(16 << 10)[0])(3.0, Meter(side.pid))
    return {
        "create s": created,
        "stop s": stop,
        "start s": started,
        "RSS MB": idle,
        "p99 ms of produce, first seconds": result.percentile(0.99),
    }


def many_segments(side: Side, count: int) -> dict[str, float]:
    """A log of `count` segments of 1 MB: restart, and fetch at random places."""
    client = Client(side.port)
    client.create_topic("segments", 1, {"segment.bytes": str(1 << 20)})
    batch, records = batch_of(256 << 10)
    request = produce_frame("segments", 0, batch)
    batches = count * 4
    for _ in range(batches):
        client.socket.sendall(request)
        client.receive_frame()
    client.close()
    side.stop()
    started = side.start()
    client = Client(side.port)
    client.wait_for_leaders("segments", 1)
    latencies = []
    for index in range(500):
        offset = (index * 7919) % batches * records
        begin = time.perf_counter()
        client.call(ApiKey.FETCH, 12, fetch_values("segments", 0, offset, 16 << 10))
        latencies.append((time.perf_counter() - begin) * 1e3)
    client.close()
    latencies.sort()
    return {"start s": started, "RSS MB": resident_mb(side.pid), "p99 ms of fetch, first 500": latencies[494]}


def failover(side: Side, commits: int = 1_000_000, partitions: int = 100, members: int = 1000) -> dict[str, float]:
    """Restart with `commits` offsets in one partition of `__consumer_offsets` and a group of `members` in the same."""
    prepare(side)
    swarm = Swarm(side.port)
    group = Group("failover")
    swarm.join(swarm.add(group, members))
    swarm.settle([group])
    swarm.drain([group])
    member = group.members[0]
    commit = frame(
        messages.encode_request(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, 1, "bench", commit_values(member, partitions))
    )
    client = Client(side.port)
    check = same_answers(ApiKey.OFFSET_COMMIT, COMMIT_VERSION)
    for _ in range(commits // partitions):
        client.socket.sendall(commit)
        answer = bytearray(client.receive_frame())
        check(answer, 0, len(answer))
    client.close()
    swarm.close()
    side.stop()
    begin = time.perf_counter()
    side.start()
    started = time.perf_counter()
    cpu = cpu_seconds(side.pid)
    client = Client(side.port)
    wait_for_coordinator(client, group.name)
    loaded = time.perf_counter()
    used = cpu_seconds(side.pid) - cpu
    beats = frame(messages.encode_request(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, 1, "bench", heartbeat_values(member, 0)))
    client.socket.sendall(beats)
    answer = bytearray(client.receive_frame())
    same_answers(ApiKey.HEARTBEAT, HEARTBEAT_VERSION)(answer, 0, len(answer))
    client.close()
    return {
        "start s": started - begin,
        "to the first offset fetch s": loaded - begin,
        "loading s": loaded - started,
        "CPU s of loading": used,
    }


def _each(
    run: Run, measure: Callable[[Side], dict[str, float]], settings: Mapping[str, str] = SETTINGS
) -> dict[str, list[dict[str, float]]]:
    """Once for each side, on a broker of its own: a restart is a cold start."""
    run.cool()
    found = {}
    for name in run.sides:
        broker = make(name, run.base, dict(settings))
        broker.start()
        try:
            found[name] = [measure(broker)]
        finally:
            broker.stop_and_delete()
    return found


def _once(title: str, key: str, found: dict[str, list[dict[str, float]]]) -> Section:
    return Section(title, compare.rows(found), "", key, {name: {"rounds": each} for name, each in found.items()})


@table("partitions", "1,000 and 10,000 partitions")
def partitions(run: Run) -> Iterator[Section]:
    for count in PARTITIONS:
        found = _each(run, lambda side, count=count: many_partitions(side, count))  # type: ignore[misc]
        yield _once(f"{count:,} partitions, once", f"partitions-{count}", found)


@table("segments", "a log of 100 segments")
def segments(run: Run) -> Iterator[Section]:
    found = _each(run, lambda side: many_segments(side, SEGMENTS))
    title = f"Restart with a log of {SEGMENTS} segments, then fetches at random places, once"
    yield _once(title, "segments", found)


@table("coordinator", "restart of a coordinator with 1,000,000 commits")
def coordinator(run: Run) -> Iterator[Section]:
    found = _each(run, failover, GROUP_SETTINGS)
    title = "Restart with 1,000,000 commits in one partition of __consumer_offsets and a group of 1,000 in it, once"
    yield _once(title, "failover", found)
