"""How long rebalances take, and what a producer waits beside a group that rebalances all the time."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from bench.method import compare
from bench.method.brokers import Side, cpu_seconds
from bench.method.load import Client, Result
from bench.method.members import Group, Swarm
from bench.method.steady import Rule, Window, warm_up
from bench.tables import Run, Section, table
from bench.workloads.group_requests import SETTINGS, prepare
from bench.workloads.throughput import preheat

SIZES = (10, 100, 500, 1000, 5000)
LARGE = 5000
"""Groups of so many rebalance in one round only, which takes as long as all others together."""
TIMES = 3
"""New groups of each size in a round: the same event may take twice as long the next time."""
MANY = "1,000 groups of 3 join at once"
EVENTS = ("first join", "one joins", "one leaves", "static one restarts")
RULE = Rule(windows=3, window_s=0.0, spread_max=0.25, seconds_min=10.0, requests_min=20, seconds_max=30.0)
"""A window is a round of every event with a group of 100."""
QUICK_RULE = Rule(windows=1, window_s=0.0, spread_max=1.0, seconds_min=0.0, requests_min=1, seconds_max=1.0)
BESIDE_S = 4.0

Found = dict[str, dict[str, list[dict[str, float]]]]
"""Figures of each round by event, then by side."""


class Stopwatch:
    """Milliseconds and the broker's CPU of events."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.found: list[dict[str, float]] = []

    def measure(self, swarm: Swarm, start: Callable[[], object], groups: list[Group]) -> None:
        cpu, begin = cpu_seconds(self.side.pid), time.perf_counter()
        start()
        swarm.settle(groups)
        took_s = time.perf_counter() - begin
        self.found.append({"ms": took_s * 1e3, "CPU ms": (cpu_seconds(self.side.pid) - cpu) * 1e3})
        swarm.drain(groups)


def round_of(side: Side, size: int, name: str) -> dict[str, dict[str, float]]:
    """Every event once, with new groups of `size`."""
    watches = {event: Stopwatch(side) for event in EVENTS}
    swarm = Swarm(side.port)
    group = Group(name)
    members = swarm.add(group, size)
    swarm.learn_ids(members)
    watches["first join"].measure(swarm, partial(swarm.join, members), [group])
    _one_joins(swarm, group, watches["one joins"])
    _one_leaves(swarm, group, watches["one leaves"])
    swarm.close()
    swarm = Swarm(side.port)
    group = Group(f"{name}-static")
    swarm.join(swarm.add(group, size, "i-"))
    swarm.settle([group])
    swarm.drain([group])
    _one_restarts(swarm, group, watches["static one restarts"])
    swarm.close()
    return {event: watch.found[0] for event, watch in watches.items()}


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


def _many_groups(side: Side, count: int, members: int, name: str) -> dict[str, float]:
    watch = Stopwatch(side)
    swarm = Swarm(side.port)
    groups = [Group(f"{name}-{number}") for number in range(count)]
    everyone = [member for group in groups for member in swarm.add(group, members)]
    swarm.learn_ids(everyone)
    watch.measure(swarm, lambda: swarm.join(everyone), groups)
    swarm.close()
    return watch.found[0]


def _warm(side: Side, rule: Rule) -> str:
    number = 0

    def window(_: float) -> Window:
        nonlocal number
        number += 1
        begin = time.perf_counter()
        events = round_of(side, 100, f"warm-{number}")
        ms = sum(each["ms"] for each in events.values())
        return Window(time.perf_counter() - begin, len(events), 1e3 / ms)

    return f"{side.name} {warm_up(window, rule)}"


def wanted(run: Run, sizes: Sequence[int]) -> list[int]:
    """The sizes of groups that the run asks for, by "groups of 1,000 members" and the like."""
    return [size for size in sizes if run.wants(f"groups of {size:,} members")]


def rounds_of(run: Run, size: int) -> int:
    return run.rounds if size < LARGE else 1


@table("rebalances", "rebalances of groups of 10 to 5,000")
def rebalances(run: Run) -> Iterator[Section]:
    warm = run.warm(SETTINGS)
    sides = list(warm.brokers.values())
    for side in sides:
        prepare(side)
    preheat(run, warm)
    rule = RULE if run.first_warm_up_s else QUICK_RULE
    note = f"Warm-up: {', '.join(_warm(side, rule) for side in sides)}."
    found: Found = {}
    for size in wanted(run, SIZES):
        for number in range(rounds_of(run, size) * TIMES):
            for side in sides:
                for event, figures in round_of(side, size, f"group-{size}-{number}").items():
                    _add(found, f"{event}, {size:,}", side, figures)
    for number in range(run.rounds if run.wants(MANY) else 0):
        for side in sides:
            _add(found, MANY, side, _many_groups(side, 1000, 3, f"many-{number}"))
    rows = compare.pivot("event, members", found, ("ms",), ("ms", "CPU ms"))
    title = "Groups: rebalances, from the first request to the last assignment"
    kept = {name: {side: {"rounds": each} for side, each in by_side.items()} for name, by_side in found.items()}
    yield Section(title, rows, note, "rebalances", kept)


def _add(found: Found, name: str, side: Side, figures: dict[str, float]) -> None:
    found.setdefault(name, {}).setdefault(side.name, []).append(figures)


_BYSTANDER = """
import sys, time
from bench.method.load import Client, batch_of, fetch_values, produce_frame
from ottla.protocol.messages import ApiKey
client, (batch, records), took = Client(int(sys.argv[1])), batch_of(1 << 10), []
request, offset, end = produce_frame(sys.argv[3], 0, batch), 0, time.monotonic() + float(sys.argv[2])
print("ready", flush=True)
while time.monotonic() < end:
    begin = time.perf_counter()
    client.socket.sendall(request)
    client.receive_frame()
    client.send(ApiKey.FETCH, 12, fetch_values(sys.argv[3], 0, offset, 1 << 16))
    client.receive_frame()
    took.append((time.perf_counter() - begin) * 1e3)
    offset += records
    time.sleep(0.001)
print(" ".join(f"{each:.3f}" for each in took))
"""


def bystander(side: Side, members: int, seconds: float, name: str) -> dict[str, float]:
    """Produce and fetch of 1 KB while a group of `members` rebalances again and again."""
    client = Client(side.port)
    client.create_topic(f"bystander-{name}")
    client.close()
    swarm = Swarm(side.port)
    group = Group(name)
    watch = Stopwatch(side)
    swarm.join(swarm.add(group, members))
    swarm.settle([group])
    swarm.drain([group])
    process = subprocess.Popen(
        [sys.executable, "-c", _BYSTANDER, str(side.port), str(seconds), f"bystander-{name}"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    while process.poll() is None and len(watch.found) < 1000:
        _one_joins(swarm, group, watch)
        _one_leaves(swarm, group, watch)
    out, _ = process.communicate(timeout=60)
    swarm.close()
    took = Result(latencies_ms=[float(each) for each in out.split()])
    return {
        "rebalances": len(watch.found),
        "rebalance ms": statistics.median(each["ms"] for each in watch.found),
        "p50 ms": took.percentile(0.5),
        "p99 ms": took.percentile(0.99),
        "worst ms": max(took.latencies_ms),
    }


@table("bystander", "produce and fetch beside a group that rebalances all the time")
def beside(run: Run) -> Iterator[Section]:
    warm = run.warm(SETTINGS)
    preheat(run, warm)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in warm.brokers}
    for side in warm.brokers.values():
        prepare(side)
        bystander(side, 1000, BESIDE_S, "warm")
    for number in range(run.rounds):
        for name, side in warm.brokers.items():
            found[name].append(bystander(side, 1000, BESIDE_S, f"noisy-{number}"))
    rows = compare.rows(found, ("rebalance ms", "p99 ms"))
    title = "Produce and fetch of 1 KB beside a group of 1,000 that rebalances all the time"
    yield Section(title, rows, "", "bystander", {name: {"rounds": each} for name, each in found.items()})
