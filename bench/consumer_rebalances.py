"""How long rebalances of groups of KIP-848 take, and how many heartbeats a broker answers when nothing happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from bench import compare
from bench.brokers import Side, cpu_seconds
from bench.consumer_members import LEAVING_STATIC, ConsumerGroup, ConsumerSwarm
from bench.group_requests import SETTINGS as GROUP_SETTINGS
from bench.group_requests import prepare
from bench.steady import Rule, Window, warm_up
from bench.tables import Run, Section, table

SETTINGS = {
    **GROUP_SETTINGS,
    # Longer than any measurement, as SESSION_MS of the classic members.
    "group.consumer.max.session.timeout.ms": "600000",
    "group.consumer.session.timeout.ms": "600000",
}
SIZES = (10, 100, 1000)
PARTITIONS_A_MEMBER = 2
"""So that one that joins takes partitions of others, who have to give them up first."""
EVENTS = ("first join", "one joins", "one leaves", "static one restarts")
BEATS = "one heartbeat of each"
RULE = Rule(windows=3, window_s=0.0, spread_max=0.25, seconds_min=10.0, requests_min=20, seconds_max=40.0)
"""A window is a round of every event with a group of 100."""
QUICK_RULE = Rule(windows=1, window_s=0.0, spread_max=1.0, seconds_min=0.0, requests_min=1, seconds_max=1.0)
INTERVAL_S = 1.05
"""group.consumer.assignment.interval.ms is 1 s on either side: who wants to measure a rebalance, not that, waits."""

Figures = dict[str, float]


def topic_of(size: int) -> str:
    return f"shared-{size}"


class Stopwatch:
    """Milliseconds and the broker's CPU of events."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.found: dict[str, Figures] = {}

    def measure(self, event: str, work: Callable[[], object]) -> None:
        cpu, begin = cpu_seconds(self.side.pid), time.perf_counter()
        work()
        took_s = time.perf_counter() - begin
        self.found[event] = {"ms": took_s * 1e3, "CPU ms": (cpu_seconds(self.side.pid) - cpu) * 1e3}


def round_of(side: Side, size: int, name: str) -> dict[str, Figures]:
    """Every event once, with a new group of `size`; each begins after a second in which nothing was assigned."""
    watch = Stopwatch(side)
    swarm = ConsumerSwarm(side.port)
    group = ConsumerGroup(name, topic_of(size), PARTITIONS_A_MEMBER * size)

    def settle() -> None:
        swarm.settle(group)
        swarm.drain(group)

    def join(count: int) -> Callable[[], None]:
        members = swarm.add(group, count, "i-")

        def work() -> None:
            for member in members:
                member.join()
            settle()

        return work

    watch.measure("first join", join(size))
    time.sleep(INTERVAL_S)
    watch.measure("one joins", join(1))
    time.sleep(INTERVAL_S)

    def leave() -> None:
        swarm.leave(group.members[-1])
        settle()

    watch.measure("one leaves", leave)
    time.sleep(INTERVAL_S)

    def restart() -> None:
        swarm.leave(group.members[-1], LEAVING_STATIC)
        join(1)()

    watch.measure("static one restarts", restart)

    def beat() -> None:
        for member in group.members:
            member.beat()
        swarm.drain(group)

    beat()  # the first of an epoch is not like those that follow it
    watch.measure(BEATS, beat)
    swarm.close()
    return watch.found


def _warm(side: Side, rule: Rule) -> str:
    number = 0

    def window(_: float) -> Window:
        nonlocal number
        number += 1
        begin = time.perf_counter()
        events = round_of(side, 100, f"new-warm-{number}")
        ms = sum(each["ms"] for event, each in events.items() if event != "first join")
        return Window(time.perf_counter() - begin, len(events), 1e3 / ms)

    return f"{side.name} {warm_up(window, rule)}"


@table("consumer-rebalances", "rebalances of groups of KIP-848 of 10 to 1,000")
def rebalances(run: Run) -> Iterator[Section]:
    warm = run.warm(SETTINGS)
    sides = list(warm.brokers.values())
    for side in sides:
        for size in SIZES:
            prepare(side, topic_of(size), PARTITIONS_A_MEMBER * size)
    rule = RULE if run.first_warm_up_s else QUICK_RULE
    note = f"Warm-up: {', '.join(_warm(side, rule) for side in sides)}."
    found: dict[str, dict[str, list[Figures]]] = {}
    for size in SIZES:
        for number in range(run.rounds):
            for side in sides:
                for event, figures in round_of(side, size, f"new-{size}-{number}").items():
                    found.setdefault(f"{event}, {size:,}", {}).setdefault(side.name, []).append(figures)
    rows = compare.pivot("event, members", found, ("ms",), ("ms", "CPU ms"))
    title = "Groups of KIP-848: rebalances, from the first request until every member has its share"
    kept = {name: {side: {"rounds": each} for side, each in by_side.items()} for name, by_side in found.items()}
    yield Section(title, rows, note, "consumer-rebalances", kept)
