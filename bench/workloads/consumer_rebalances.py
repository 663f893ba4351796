"""How long rebalances of groups of KIP-848 take, and how many heartbeats a broker answers when nothing happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bench.method import compare
from bench.method.brokers import cpu_seconds
from bench.method.consumer_members import LEAVING_STATIC, ConsumerGroup, ConsumerSwarm
from bench.method.load import Client
from bench.method.steady import Rule, Window, warm_up
from bench.method.three_nodes import Topic, WarmClusters, wait_until
from bench.tables import Run, Section, table
from bench.workloads.group_requests import SETTINGS, wait_for_coordinator
from bench.workloads.rebalances import LARGE, rounds_of, wanted
from bench.workloads.throughput import preheat
from ottla.protocol.messages import ApiKey

SIZES = (10, 100, 1000, 5000)
WARM_SIZE = 100
PARTITIONS_A_MEMBER = 2
"""So that one that joins takes partitions of others, who have to give them up first."""
EVENTS = ("first join", "one joins", "one leaves", "static one restarts")
BEATS = "one heartbeat of each"
RULE = Rule(windows=3, window_s=0.0, spread_max=0.25, seconds_min=10.0, requests_min=20, seconds_max=40.0)
"""A window is a round of every event with a group of `WARM_SIZE`. The brokers had other load before."""
QUICK_RULE = Rule(windows=1, window_s=0.0, spread_max=1.0, seconds_min=0.0, requests_min=1, seconds_max=1.0)
INTERVAL_S = 1.05
"""group.consumer.assignment.interval.ms is 1 s on either side: who wants to measure a rebalance, not that, waits."""

Figures = dict[str, float]


def partitions_of(size: int) -> int:
    """Partitions of the topic of a group; a topic of 10,000 is more than a broker makes at once and has files for."""
    return PARTITIONS_A_MEMBER * size if size < LARGE else size + size // 10


def topic_of(size: int) -> str:
    return f"shared-{size}"


@dataclass(frozen=True)
class Place:
    """A broker, or a cluster and one of its ports."""

    pids: Sequence[int]
    port: int

    @property
    def cpu_s(self) -> float:
        return sum(map(cpu_seconds, self.pids))

    def coordinator_port(self, group: str) -> int:
        """The port of the broker that is the group's coordinator, once it answers."""
        client = Client(self.port)
        try:
            asked = {"key_type": 0, "coordinator_keys": [group]}
            wait_until(lambda: not client.call(ApiKey.FIND_COORDINATOR, 4, asked)["coordinators"][0]["error_code"])
            (found,) = client.call(ApiKey.FIND_COORDINATOR, 4, asked)["coordinators"]
            port: int = found["port"]
        finally:
            client.close()
        client = Client(port)
        try:
            wait_for_coordinator(client, group)
        finally:
            client.close()
        return port


class Stopwatch:
    """Milliseconds, and the CPU of a place, of events."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.found: dict[str, Figures] = {}

    def measure(self, event: str, work: Callable[[], object]) -> None:
        cpu_s, begin = self.place.cpu_s, time.perf_counter()
        work()
        took_s = time.perf_counter() - begin
        self.found[event] = {"ms": took_s * 1e3, "CPU ms": (self.place.cpu_s - cpu_s) * 1e3}


def round_of(place: Place, size: int, name: str) -> dict[str, Figures]:
    """Every event once, with a new group of `size`; each begins after a second in which nothing was assigned."""
    watch = Stopwatch(place)
    swarm = ConsumerSwarm(place.coordinator_port(name))
    group = ConsumerGroup(name, topic_of(size), partitions_of(size))

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


def _warm(side: str, place: Place, rule: Rule) -> str:
    number = 0

    def window(_: float) -> Window:
        nonlocal number
        number += 1
        begin = time.perf_counter()
        events = round_of(place, WARM_SIZE, f"new-warm-{number}")
        ms = sum(each["ms"] for event, each in events.items() if event != "first join")
        return Window(time.perf_counter() - begin, len(events), 1e3 / ms)

    return f"{side} {warm_up(window, rule)}"


def _section(run: Run, places: Mapping[str, Place], where: str, warm_up_s: float = RULE.seconds_min) -> Section:
    rule = replace(RULE, seconds_min=max(RULE.seconds_min, warm_up_s)) if run.first_warm_up_s else QUICK_RULE
    note = f"Warm-up: {', '.join(_warm(side, place, rule) for side, place in places.items())}."
    found: dict[str, dict[str, list[Figures]]] = {}
    for size in wanted(run, SIZES):
        for number in range(rounds_of(run, size)):
            for side, place in places.items():
                for event, figures in round_of(place, size, f"new-{size}-{number}").items():
                    found.setdefault(f"{event}, {size:,}", {}).setdefault(side, []).append(figures)
    rows = compare.pivot("event, members", found, ("ms",), ("ms", "CPU ms"))
    title = f"Groups of KIP-848{where}: rebalances, from the first request until every member has its share"
    kept = {name: {side: {"rounds": each} for side, each in by_side.items()} for name, by_side in found.items()}
    return Section(title, rows, note, f"{'cluster-' * bool(where)}consumer-rebalances", kept)


@table("consumer-rebalances", "rebalances of groups of KIP-848 of 10 to 5,000")
def rebalances(run: Run) -> Iterator[Section]:
    warm = run.warm(SETTINGS)
    preheat(run, warm)
    places = {side: Place([each.pid], each.port) for side, each in warm.brokers.items()}
    for place in places.values():
        client = Client(place.port)
        for size in {WARM_SIZE, *wanted(run, SIZES)}:
            client.create_topic(topic_of(size), partitions_of(size))
        client.close()
    yield _section(run, places, "")


@table("cluster-consumer-rebalances", "the same on three nodes, with three replicas of the offsets topic")
def cluster_rebalances(run: Run) -> Iterator[Section]:
    run.cool()
    warm = WarmClusters(run.sides, run.base, SETTINGS)
    try:
        for cluster in warm.clusters.values():
            for size in {WARM_SIZE, *wanted(run, SIZES)}:
                Topic(cluster, topic_of(size), [[number % 3 + 1] for number in range(partitions_of(size))], {})
        places = {side: Place(each.pids, each.ports[0]) for side, each in warm.clusters.items()}
        yield _section(run, places, " on three nodes", run.first_warm_up_s)
    finally:
        warm.stop()
