"""What producers notice when a node of three is killed, or restarted cleanly: Ottla's and Kafka's clusters in turn."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from bench.method.acknowledged import Acknowledged, Java, Librdkafka
from bench.method.compare import OURS, THEIRS, short
from bench.method.load import Client
from bench.tables import Run, Section, table
from ottla.model import METADATA_TOPIC
from ottla.protocol.messages import ApiKey

PARTITIONS = 6
REPETITIONS = {OURS: 2, THEIRS: 1}
"""Strikes of each scenario, for each round of the run. A killed JVM takes half a minute from the kill until its
replicas are in sync again, and its gaps are all one session timeout, so that fewer say as much."""

BACK = 20
"""Acknowledged records of a partition after which it is said to be back."""

LIMIT_S = 120.0

SETTLE_S = 12.0
"""Before each strike: librdkafka doubles what it waits between connections to a broker up to 10 s, and begins again if
none was tried for so long. Nodes that are killed one after another within that time are another story."""

QUORUM = {"topics": [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]}


class Cluster(Protocol):
    """Three nodes, each broker and controller: `ottla.testing.Cluster`, `peers.kafka.cluster.KafkaCluster`."""

    bootstrap: str
    addresses: dict[int, str]

    def kill(self, node: int) -> None: ...
    def restart(self, node: int) -> None: ...


class Cooperation:
    """A cluster under load, asked about in the same way whoever's it is."""

    def __init__(self, cluster: Cluster, topics: Sequence[str]) -> None:
        self.cluster = cluster
        self.topics = topics
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for created in self._admin.create_topics([NewTopic(each, PARTITIONS, 3) for each in topics]).values():
            created.result(60)

    def controller(self) -> int:
        """The node that leads the quorum."""
        for address in self.cluster.addresses.values():
            with contextlib.suppress(OSError):
                client = Client(int(address.rpartition(":")[2]))
                try:
                    found = client.call(ApiKey.DESCRIBE_QUORUM, 0, QUORUM)
                finally:
                    client.close()
                return int(found["topics"][0]["partitions"][0]["leader_id"])
        raise RuntimeError("no node answers")

    def leaders(self, topic: str) -> dict[int, int]:
        """The leader of each partition. Raises KafkaException while nobody answers."""
        found = self._admin.list_topics(topic, timeout=10).topics[topic].partitions
        return {number: each.leader for number, each in found.items()}

    def led_by(self, node: int) -> dict[str, list[int]]:
        """The partitions of each topic."""
        return {
            topic: [number for number, leader in self.leaders(topic).items() if leader == node] for topic in self.topics
        }

    def wait_whole(self) -> None:
        """Until every replica is in sync."""

        def is_whole() -> bool:
            found = self._admin.list_topics(timeout=10).topics
            return all(len(each.isrs) == 3 for topic in self.topics for each in found[topic].partitions.values())

        wait_until(is_whole)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while True:
        with contextlib.suppress(KafkaException):
            if is_so():
                return
        if time.monotonic() > deadline:
            raise RuntimeError(f"the cluster is not what it should be after {LIMIT_S:g} s")
        time.sleep(0.05)


def strike(cluster: Cooperation, scenario: str, clients: Mapping[str, Acknowledged], number: int) -> dict[str, float]:
    """The longest time without an acknowledgement of a partition that the struck node led, in ms, by client."""
    cluster.wait_whole()
    time.sleep(SETTLE_S)
    controller = cluster.controller()
    nodes = list(cluster.cluster.addresses)
    others = [node for node in nodes if node != controller]
    most = max(others, key=lambda node: sum(map(len, cluster.led_by(node).values())))
    victim = {"leader": most, "controller": controller, "restart": nodes[number % len(nodes)]}[scenario]
    led = cluster.led_by(victim)
    if not all(led.values()):  # as after its last restart: what everybody has is looked at
        led = {topic: list(range(PARTITIONS)) for topic in cluster.topics}
    struck = time.time()
    if scenario == "restart":
        cluster.cluster.restart(victim)
    else:
        cluster.cluster.kill(victim)
    for topic, client in clients.items():
        wait_until(lambda: all(client.since(each, struck) >= BACK for each in led[topic]))  # noqa: B023 - called at once
    cluster.wait_whole() if scenario == "restart" else cluster.cluster.restart(victim)
    end = time.time()
    return {
        topic: max(client.gap_s(each, struck, end) for each in led[topic]) * 1000 for topic, client in clients.items()
    }


SCENARIOS = {
    "leader": "kill -9 of a leader",
    "controller": "kill -9 of the active controller, which leads partitions too",
    "restart": "controlled restart",
}


CLIENTS: dict[str, Callable[[str, str], Librdkafka | Java]] = {
    "librdkafka": lambda bootstrap, topic: Librdkafka(bootstrap, topic, PARTITIONS),
    "java": lambda bootstrap, topic: Java(bootstrap, topic, retries=True),
}
"""Each has a topic of its name."""


@contextlib.contextmanager
def started(side: str, base: Path) -> Iterator[Cluster]:
    if side == OURS:
        from ottla.testing import Cluster as OttlaCluster

        with OttlaCluster(3) as ours:
            yield ours
    else:
        from peers.kafka.cluster import KafkaCluster

        with KafkaCluster(base / "three", 3) as theirs:
            yield theirs


class Measured(NamedTuple):
    """Results of one cluster that is under load all the time."""

    gaps: dict[str, dict[str, list[float]]]
    """Longest times without an acknowledgement, in ms, by scenario and client."""
    failed: dict[str, int]
    """Sends that failed, by client."""


def measured(side: str, base: Path, scenarios: Sequence[str], repetitions: int, warm_up_s: float) -> Measured:
    gaps: dict[str, dict[str, list[float]]] = {scenario: {name: [] for name in CLIENTS} for scenario in scenarios}
    with started(side, base) as nodes, contextlib.ExitStack() as stack:
        cluster = Cooperation(nodes, list(CLIENTS))
        clients = {name: stack.enter_context(make(nodes.bootstrap, name)) for name, make in CLIENTS.items()}
        for client in clients.values():
            wait_until(lambda: all(client.since(each, 0) >= BACK for each in range(PARTITIONS)))  # noqa: B023
        time.sleep(max(0.0, warm_up_s - SETTLE_S))  # under the load of the producers
        for number in range(repetitions):
            for scenario in scenarios:
                for name, gap in strike(cluster, scenario, clients, number).items():
                    gaps[scenario][name].append(gap)
        stack.close()
        return Measured(gaps, {name: len(client.failures) for name, client in clients.items()})


@table("failover", "what producers notice of killed and restarted nodes of three")
def failover(run: Run) -> Iterator[Section]:
    run.cool()
    wanted = [scenario for scenario, what in SCENARIOS.items() if run.wants(what)]
    every = {}
    for side in run.sides:
        base, strikes = run.base / f"failover-{side}", REPETITIONS[side] * run.rounds
        every[side] = [measured(side, base, wanted, strikes, run.first_warm_up_s)]
    rows = [
        {"what": SCENARIOS[scenario], "side": side, **_figures([each.gaps[scenario] for each in rounds])}
        for scenario in wanted
        for side, rounds in every.items()
    ]
    failed = ", ".join(f"{side} {sum(sum(each.failed.values()) for each in rounds)}" for side, rounds in every.items())
    counts = ", ".join(f"{side} {run.rounds * REPETITIONS[side]}" for side in every)
    note = (
        "The longest time without an acknowledgement in a partition that the struck node led; "
        f"strikes of each kind: {counts}; default settings, three replicas, acks=all, "
        f"min.insync.replicas=2. Sends that failed: {failed}."
    )
    data = {side: {"rounds": [each._asdict() for each in rounds]} for side, rounds in every.items()}
    yield Section("A node of three is killed or restarted under load", rows, note, "killed-nodes", data)


def _figures(rounds: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, str]:
    found = {}
    for client in CLIENTS:
        gaps = sorted(gap for each in rounds for gap in each[client])
        found[f"{client} p50 ms"] = short(statistics.median(gaps))
        found[f"{client} p99 ms"] = short(gaps[int(0.99 * len(gaps))])
    return found
