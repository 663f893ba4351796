"""Commits, offset fetches and heartbeats per second, of members in groups of one with a connection each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from bench.method import compare
from bench.method.brokers import Side
from bench.method.counters import EVENTS, Meter
from bench.method.load import Client, Result, frame
from bench.method.members import Group, Member, Swarm
from bench.method.rounds import Load, Measured, busy, data, generator_share, measure, warmth
from bench.method.uniform_load import uniform_load
from bench.tables import Run, Section, table
from bench.workloads.throughput import SETTINGS as WARM_SETTINGS
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey

Row = dict[str, Any]

SETTINGS = {
    **WARM_SETTINGS,
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "socket.listen.backlog.size": "4096",  # thousands connect at once
    # Longer than any measurement, as SESSION_MS of the classic members.
    "group.consumer.max.session.timeout.ms": "600000",
    "group.consumer.session.timeout.ms": "600000",
}
COMMIT_VERSION, FETCH_VERSION, HEARTBEAT_VERSION = 9, 8, 4
GROUPS = 50
IN_FLIGHT = 5
TURNS = 16
"""Requests of a member that differ in their offsets."""


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


def commit_values(member: Member, partitions: int, turn: int = 0) -> Row:
    start = 1000 * turn
    each = [
        {"partition_index": p, "committed_offset": start + p, "committed_leader_epoch": 0, "committed_metadata": ""}
        for p in range(partitions)
    ]
    return {
        "group_id": member.group.name,
        "generation_id_or_member_epoch": member.generation,
        "member_id": member.member_id,
        "group_instance_id": None,
        "topics": [{"name": "topic0", "partitions": each}],
    }


def offset_fetch_values(member: Member, partitions: int, _: int = 0) -> Row:
    topics = [{"name": "topic0", "partition_indexes": list(range(partitions))}]
    return {"groups": [{"group_id": member.group.name, "topics": topics}], "require_stable": True}


def heartbeat_values(member: Member, _: int = 0, __: int = 0) -> Row:
    return {
        "group_id": member.group.name,
        "generation_id": member.generation,
        "member_id": member.member_id,
        "group_instance_id": None,
    }


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


def offset_fetch_answer(answer: bytes) -> list[int]:
    """The bytes that must repeat: size, correlation id, and the group's error code, which is followed by two tags."""
    return [2, 3, 7, len(answer) - 4, len(answer) - 3]


def window(port: int, members: list[Member], name: str) -> Callable[[float, Meter], Result]:
    (api, version, values), partitions, groups, in_flight = LOADS[name]
    frames = [
        [
            frame(messages.encode_request(api, version, 1, "bench", values(member, partitions, turn)))
            for turn in range(TURNS)
        ]
        for member in members[:groups]
    ]
    fixed = offset_fetch_answer if api == ApiKey.OFFSET_FETCH else None

    def load(seconds: float, meter: Meter) -> Result:
        return uniform_load(port, frames, api, version, in_flight=in_flight, seconds=seconds, meter=meter, fixed=fixed)

    return load


def figures(result: Result) -> dict[str, float]:
    return {"req/s": result.requests_per_s, "CPU ms per 1,000": result.cpu_ms_per_1000}


@table("groups", "commits, offset fetches and heartbeats per second")
def requests(run: Run) -> Iterator[Section]:
    warm = run.warm(SETTINGS)
    found: dict[str, dict[str, Measured]] = {}
    with ExitStack() as stack:
        members: dict[str, list[Member]] = {}
        for side, broker in warm.brokers.items():
            prepare(broker)
            swarm = Swarm(broker.port)
            stack.callback(swarm.close)
            members[side] = [swarm.add(Group(f"load-{number}"), 1)[0] for number in range(GROUPS)]
            groups = [member.group for member in members[side]]
            swarm.join(members[side])
            swarm.settle(groups)
            swarm.drain(groups)
            fill = window(broker.port, members[side], "commit of 20 partitions, 50 groups x 5 in flight")
            fill(1.0, Meter(broker.pid))  # what offset fetches will find
        for name in filter(run.wants, LOADS):
            loads = {
                side: Load(broker.pid, window(broker.port, members[side], name), warm)
                for side, broker in warm.brokers.items()
            }
            found[name] = measure(run, loads)
    rounds = {
        name: {side: [figures(each) for each in measured.rounds] for side, measured in by_side.items()}
        for name, by_side in found.items()
    }
    names = ("req/s", "CPU ms per 1,000")
    rows = compare.pivot("load", rounds, names, names)
    for row, by_side in zip(rows, found.values(), strict=True):
        for side, measured in by_side.items():
            row |= _beside(side, measured)
    kept = {name: data(by_side, figures) for name, by_side in found.items()}
    note = busy([measured for by_side in found.values() for measured in by_side.values()])
    yield Section("Groups: requests per second", rows, note, "group-requests", kept)


def _beside(side: str, measured: Measured) -> Row:
    """Columns of one side in a row of both sides, beside its figures."""
    found: Row = {}
    if measured.counted is not None:
        for event, count in measured.counted.counts.items():
            found[f"{side} {EVENTS[event]} per request"] = compare.short(count / measured.counted.requests)
    return found | {f"{side} generator": generator_share(measured.rounds), f"{side} warm-up": warmth(measured)}
