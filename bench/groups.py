"""Consumer groups: commits, offset fetches and heartbeats per second; how long rebalances and restarts take.

Each workload takes a started broker and gives what was measured by name; `pivot` sets the two sides beside each other.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from bench.brokers import Kafka, Ottla, cpu_seconds
from bench.load import Client, Result, frame, same_answers
from bench.members import Group, Member, Swarm
from bench.uniform_load import uniform_load
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey

Side = Ottla | Kafka
Row = dict[str, Any]
Measured = dict[str, Row]

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "socket.listen.backlog.size": "4096",  # thousands connect at once
}
COMMIT_VERSION, FETCH_VERSION, HEARTBEAT_VERSION = 9, 8, 4
GROUPS = 50
IN_FLIGHT = 5
TURNS = 16
"""Requests of a member that differ in their offsets."""
SIZES = (10, 100, 500, 1000)


def pivot(label: str, by_side: Mapping[str, Measured], ratios: Iterable[str]) -> list[Row]:
    """A row per name with the columns of both sides, and Ottla / Kafka for the columns in `ratios`."""
    rows = []
    for name in next(iter(by_side.values())):
        row: Row = {label: name}
        columns = next(iter(by_side.values()))[name]
        for column in columns:
            values = {side: measured[name][column] for side, measured in by_side.items()}
            row |= {f"{side} {column}": _rounded(value) for side, value in values.items()}
            if column in ratios and values.keys() >= {"ottla", "kafka"} and values["kafka"]:
                row[f"x {column}"] = f"{values['ottla'] / values['kafka']:.2f} x"
        rows.append(row)
    return rows


def _rounded(value: float) -> float | int:
    return round(value) if value >= 1000 else float(f"{value:.3g}")


def prepare(side: Side, topic: str = "topic0", partitions: int = 100) -> None:
    """A topic to commit offsets of, and a coordinator that answers."""
    client = Client(side.port)
    client.create_topic(topic, partitions)
    wait_for_coordinator(client)
    client.close()


def wait_for_coordinator(client: Client, group: str = "any") -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        client.call(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [group]})
        answer = client.call(ApiKey.OFFSET_FETCH, FETCH_VERSION, {"groups": [{"group_id": group, "topics": None}]})
        if answer["groups"][0]["error_code"] == 0:
            return
        time.sleep(0.002)
    raise RuntimeError("no coordinator")


# Requests per second


def commit_values(member: Member, partitions: int, turn: int = 0) -> Row:
    start = 1000 * turn
    each = [
        {"partition_index": p, "committed_offset": start + p, "committed_leader_epoch": 0, "committed_metadata": ""}
        for p in range(partitions)
    ]
    return {
        "group_id": member.group.name, "generation_id_or_member_epoch": member.generation,
        "member_id": member.member_id, "group_instance_id": None, "topics": [{"name": "topic0", "partitions": each}],
    }  # fmt: skip


def offset_fetch_values(member: Member, partitions: int, _: int = 0) -> Row:
    topics = [{"name": "topic0", "partition_indexes": list(range(partitions))}]
    return {"groups": [{"group_id": member.group.name, "topics": topics}], "require_stable": True}


def heartbeat_values(member: Member, _: int = 0, __: int = 0) -> Row:
    return {
        "group_id": member.group.name, "generation_id": member.generation, "member_id": member.member_id,
        "group_instance_id": None,
    }  # fmt: skip


COMMIT = (ApiKey.OFFSET_COMMIT, COMMIT_VERSION, commit_values)
OFFSET_FETCH = (ApiKey.OFFSET_FETCH, FETCH_VERSION, offset_fetch_values)
HEARTBEAT = (ApiKey.HEARTBEAT, HEARTBEAT_VERSION, heartbeat_values)
LOADS: dict[str, tuple[tuple[ApiKey, int, Callable[[Member, int, int], Row]], int, int, int]] = {
    "commit of 1 partition, 1 group, one at a time": (COMMIT, 1, 1, 1),
    "commit of 1 partition, 50 groups x 5 in flight": (COMMIT, 1, GROUPS, IN_FLIGHT),
    "commit of 20 partitions, 1 group, one at a time": (COMMIT, 20, 1, 1),
    "commit of 20 partitions, 50 groups x 5 in flight": (COMMIT, 20, GROUPS, IN_FLIGHT),
    "commit of 100 partitions, 50 groups x 5 in flight": (COMMIT, 100, GROUPS, IN_FLIGHT),
    "offset fetch of 1 partition, 50 groups x 5 in flight": (OFFSET_FETCH, 1, GROUPS, IN_FLIGHT),
    "offset fetch of 20 partitions, 50 groups x 5 in flight": (OFFSET_FETCH, 20, GROUPS, IN_FLIGHT),
    "heartbeat, 50 groups x 5 in flight": (HEARTBEAT, 0, GROUPS, IN_FLIGHT),
}
"""Request, partitions in it, groups of one member with a connection each, requests in flight of each."""


def requests(side: Side, seconds: float) -> Measured:
    """Requests of members of 50 groups, after one round of everything to warm up."""
    prepare(side)
    swarm = Swarm(side.port)
    members = [swarm.add(Group(f"load-{number}"), 1)[0] for number in range(GROUPS)]
    swarm.join(members)
    swarm.settle([member.group for member in members])
    swarm.drain([member.group for member in members])
    load(side, members, "commit of 20 partitions, 50 groups x 5 in flight", 1.0)
    found = {}
    for name in LOADS:
        result = load(side, members, name, seconds)
        found[name] = {
            "req/s": result.requests_per_s,
            "CPU ms per 1,000": result.cpu_seconds / result.requests * 1e6,
        }
    swarm.close()
    return found


def load(side: Side, members: list[Member], name: str, seconds: float) -> Result:
    (api, version, values), partitions, groups, in_flight = LOADS[name]
    frames = [
        [
            frame(messages.encode_request(api, version, 1, "bench", values(member, partitions, turn)))
            for turn in range(TURNS)
        ]
        for member in members[:groups]
    ]
    return uniform_load(
        side.port, frames, api, version, in_flight=in_flight, seconds=seconds, warmup_s=min(0.5, seconds),
        pid=side.pid, same_answers=api != ApiKey.OFFSET_FETCH,
    )  # fmt: skip


# Rebalances


class Stopwatch:
    """Milliseconds and the broker's CPU, of several rounds."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.whole: list[float] = []
        self.cpu_ms = 0.0

    def measure(self, swarm: Swarm, start: Callable[[], object], groups: list[Group]) -> None:
        cpu, begin = cpu_seconds(self.side.pid), time.perf_counter()
        start()
        swarm.settle(groups)
        end = time.perf_counter()
        self.whole.append((end - begin) * 1e3)
        self.cpu_ms += (cpu_seconds(self.side.pid) - cpu) * 1e3
        swarm.drain(groups)

    def row(self) -> Row:
        return {
            "ms": statistics.median(self.whole),
            "CPU ms": self.cpu_ms / len(self.whole),
        }


def rebalances(side: Side, sizes: Iterable[int] = SIZES) -> Measured:
    prepare(side)
    found: Measured = {}
    for number in range(5):  # for a compiler that learns
        _rounds(side, 100, f"warm-{number}", 3)
    for size in sizes:
        rounds = _rounds(side, size, f"group-{size}", 5 if size <= 100 else 3)
        found |= {f"{event}, {size:,}": watch.row() for event, watch in rounds.items()}
    found["1,000 groups of 3 join at once"] = _many_groups(side, 1000, 3).row()
    return found


def _rounds(side: Side, size: int, name: str, rounds: int) -> dict[str, Stopwatch]:
    watches = {event: Stopwatch(side) for event in ("first join", "one joins", "one leaves", "static one restarts")}
    for number in range(rounds):
        swarm = Swarm(side.port)
        group = Group(f"{name}-{number}")
        members = swarm.add(group, size)
        swarm.learn_ids(members)
        watches["first join"].measure(swarm, partial(swarm.join, members), [group])
        _one_joins(swarm, group, watches["one joins"])
        _one_leaves(swarm, group, watches["one leaves"])
        swarm.close()
        swarm = Swarm(side.port)
        group = Group(f"{name}-static-{number}")
        swarm.join(swarm.add(group, size, "i-"))
        swarm.settle([group])
        swarm.drain([group])
        _one_restarts(swarm, group, watches["static one restarts"])
        swarm.close()
    return watches


def _one_joins(swarm: Swarm, group: Group, watch: Stopwatch) -> None:
    (newcomer,) = swarm.add(group, 1)
    swarm.learn_ids([newcomer])
    watch.measure(swarm, newcomer.join, [group])


def _one_leaves(swarm: Swarm, group: Group, watch: Stopwatch) -> None:
    def start() -> None:
        leaving = group.members[-1]
        leaving.leave()
        swarm.until(lambda: leaving.asked is None)
        swarm.drop(leaving)

    watch.measure(swarm, start, [group])


def _one_restarts(swarm: Swarm, group: Group, watch: Stopwatch) -> None:
    def start() -> None:
        old = group.members[-1]
        swarm.drop(old)
        group.settled -= 1
        (new,) = swarm.add(group, 1)
        new.instance_id = old.instance_id
        swarm.join([new])

    watch.measure(swarm, start, [group])


def _many_groups(side: Side, count: int, members: int) -> Stopwatch:
    watch = Stopwatch(side)
    swarm = Swarm(side.port)
    groups = [Group(f"many-{number}") for number in range(count)]
    everyone = [member for group in groups for member in swarm.add(group, members)]
    swarm.learn_ids(everyone)
    watch.measure(swarm, lambda: swarm.join(everyone), groups)
    swarm.close()
    return watch


# What others notice

_BYSTANDER = """
import sys, time
from bench.load import Client, batch_of, fetch_values, produce_frame
from ottla.protocol.messages import ApiKey
client, (batch, records), took = Client(int(sys.argv[1])), batch_of(1 << 10), []
request, offset, end = produce_frame("bystander", 0, batch), 0, time.monotonic() + float(sys.argv[2])
print("ready", flush=True)
while time.monotonic() < end:
    begin = time.perf_counter()
    client.socket.sendall(request)
    client.receive_frame()
    client.send(ApiKey.FETCH, 12, fetch_values("bystander", 0, offset, 1 << 16))
    client.receive_frame()
    took.append((time.perf_counter() - begin) * 1e3)
    offset += records
    time.sleep(0.001)
print(" ".join(f"{each:.3f}" for each in took))
"""


def bystander(side: Side, members: int, seconds: float) -> Row:
    """Produce and fetch of 1 KB while a group of `members` rebalances again and again."""
    prepare(side)
    client = Client(side.port)
    client.create_topic("bystander")
    client.close()
    swarm = Swarm(side.port)
    group = Group("noisy")
    watch = Stopwatch(side)
    swarm.join(swarm.add(group, members))
    swarm.settle([group])
    swarm.drain([group])
    for _ in range(3):
        _one_joins(swarm, group, watch)
        _one_leaves(swarm, group, watch)
    watch = Stopwatch(side)
    process = subprocess.Popen(
        [sys.executable, "-c", _BYSTANDER, str(side.port), str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    while process.poll() is None and len(watch.whole) < 1000:
        _one_joins(swarm, group, watch)
        _one_leaves(swarm, group, watch)
    out, _ = process.communicate(timeout=60)
    swarm.close()
    took = Result(latencies_ms=[float(each) for each in out.split()])
    return {
        "rebalances": len(watch.whole), "rebalance ms": statistics.median(watch.whole),
        "p50 ms": took.percentile(0.5), "p99 ms": took.percentile(0.99), "worst ms": max(took.latencies_ms),
    }  # fmt: skip


# A coordinator's start


def failover(side: Side, commits: int = 1_000_000, partitions: int = 100, members: int = 1000) -> Row:
    """Restart with `commits` offsets in one partition of `__consumer_offsets` and a group of `members` in the same."""
    prepare(side)
    swarm = Swarm(side.port)
    group = Group("failover")
    swarm.join(swarm.add(group, members))
    swarm.settle([group])
    swarm.drain([group])
    member = group.members[0]
    commit = frame(messages.encode_request(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, 1, "bench",
                                           commit_values(member, partitions)))  # fmt: skip
    client = Client(side.port)
    check = same_answers(ApiKey.OFFSET_COMMIT, COMMIT_VERSION)
    for index in range(commits // partitions):
        client.socket.sendall(commit)
        answer = bytearray(client.receive_frame())
        check(answer, 0, len(answer))
        if index % 2000 == 0:  # its session
            for each in group.members:
                each.beat()
            swarm.drain([group])
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
    return {"start s": started - begin, "to the first offset fetch s": loaded - begin, "loading s": loaded - started,
            "CPU s of loading": used}  # fmt: skip


# A real client


def librdkafka(side: Side, strategy: str, consumers: int = 8, partitions: int = 16) -> Row:
    """Consumers of confluent-kafka from their start until every partition is assigned and shared out evenly.

    librdkafka begins a join at most once a second. Where the first member has a generation to itself, some that join
    the second have to join the third, and wait out their second: that, on either side, is what most of the time is.
    """
    from confluent_kafka import Consumer

    prepare(side)
    client = Client(side.port)
    client.create_topic("shared", partitions)
    client.close()
    times = []
    for number in range(11):
        conf = {
            "bootstrap.servers": f"127.0.0.1:{side.port}", "group.id": f"{strategy}-{number}",
            "partition.assignment.strategy": strategy, "heartbeat.interval.ms": 100, "session.timeout.ms": 10_000,
        }  # fmt: skip
        begin = time.perf_counter()
        members = [Consumer(conf) for _ in range(consumers)]
        for member in members:
            member.subscribe(["shared"])
        while True:
            for member in members:
                member.poll(0.001)
            owned = [len(member.assignment()) for member in members]
            if sum(owned) == partitions and max(owned) == partitions // consumers:
                break
            if time.perf_counter() - begin > 60:
                raise RuntimeError(f"not assigned: {owned}")
        if number:  # the first warms up
            times.append(time.perf_counter() - begin)
        for member in members:
            member.close()
    quick = [seconds for seconds in times if seconds < 0.9]
    return {
        "median s": round(statistics.median(times), 3), "best s": round(min(times), 3),
        "within 0.9 s": f"{len(quick)} of {len(times)}",
    }  # fmt: skip
