"""Kafka Streams with `processing.guarantee=exactly_once_v2`: it counts exactly while it is killed, and while nodes are.

Every update of a count is written: a word's counts are 1, 2, 3, ... for read_committed readers, none twice, none left
out. The first run has 2 threads and 2 partitions, a repartition topic and changelogs.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.protocol.messages import ApiKey
from ottla.testing import Broker, Cluster
from tests.conformance.clients import build
from tests.conformance.pair import Wire

PREFIX = "eos"
WORDS = ("to", "be", "or", "not", "to", "be")
ACCOUNTS = ("ada", "bob", "cy")
LINES = 200
"""In one part of the input."""
PARTITIONS = 2
LIMIT_S = 240
INPUTS = (f"{PREFIX}-lines", f"{PREFIX}-payments", f"{PREFIX}-accounts")
OUTPUTS = (f"{PREFIX}-counts", f"{PREFIX}-sums", f"{PREFIX}-joined")
TOPICS = dict.fromkeys((*INPUTS, *OUTPUTS), PARTITIONS)
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}


KIP_1071 = {
    **SETTINGS, "group.streams.min.session.timeout.ms": "6000", "group.streams.session.timeout.ms": "6000",
    "group.streams.min.heartbeat.interval.ms": "500", "group.streams.heartbeat.interval.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "0",
}  # fmt: skip
"""A member that was killed is missed for 6 s."""


class Streams:
    """The process; killed and started again it has its files, or none of them."""

    def __init__(self, bootstrap: str, folder: Path, protocol: str = "classic") -> None:
        built = build.build("java")
        self._folder = folder
        self._protocol = protocol
        self._state = 0
        self._command = [
            "java",
            "-XX:TieredStopAtLevel=1",
            "-Xmx384m",
            "-cp",
            f"{built}/classes:{built}/libs/*",
            "ExactlyOnce",
            bootstrap,
            PREFIX,
        ]
        self.version = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self, *, without_files: bool = False) -> None:
        self._state += without_files
        with open(self._folder / "streams.log", "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [*self._command, str(self._folder / f"state-{self._state}"), self._protocol],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        self.version = self.process.stdout.readline().strip()
        assert self.version, self.said()

    def said(self) -> str:
        return (self._folder / "streams.log").read_text(encoding="utf-8")[-4000:]

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)


class World:
    """Input and output so far."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "log_level": 0})
        self._consumer.assign([TopicPartition(topic, number, 0) for topic in OUTPUTS for number in range(PARTITIONS)])
        self.parts = 0
        self.counts: dict[str, list[int]] = {}
        self.sums: dict[str, list[int]] = {}
        self.joined: list[str] = []
        for name in ACCOUNTS:
            self._producer.produce(f"{PREFIX}-accounts", name.upper(), name)
        assert self._producer.flush(LIMIT_S) == 0

    def put(self) -> None:
        """Another part of the input."""
        for number in range(LINES):
            self._producer.produce(f"{PREFIX}-lines", " ".join(WORDS), str(number))
            for name in ACCOUNTS:
                self._producer.produce(f"{PREFIX}-payments", str(self.parts * LINES + number), name)
        assert self._producer.flush(LIMIT_S) == 0
        self.parts += 1

    def look(self) -> None:
        """Take what has come out, as a reader of committed records."""
        for message in self._consumer.consume(1000, 0.2):
            if message.error():
                assert message.error().retriable() or message.error().code() < 0, message.error()
                continue
            key, value, topic = message.key().decode(), message.value(), message.topic()
            if topic == OUTPUTS[2]:
                self.joined.append(value.decode())
            else:
                found = self.counts if topic == OUTPUTS[0] else self.sums
                found.setdefault(key, []).append(int.from_bytes(value, "big"))

    def size(self) -> int:
        return sum(map(len, self.counts.values())) + sum(map(len, self.sums.values())) + len(self.joined)

    def wanted(self) -> int:
        return self.parts * LINES * (len(WORDS) + 2 * len(ACCOUNTS))

    def until(self, condition: Callable[[], bool], streams: Streams) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, (self.size(), self.wanted(), streams.said())
            self.look()

    def ensure_exact(self) -> None:
        """All came out, once, in its order."""
        lines = self.parts * LINES
        assert self.counts == {word: [*range(1, lines * count + 1)] for word, count in Counter(WORDS).items()}
        sums = [sum(range(number + 1)) for number in range(lines)]
        assert self.sums == dict.fromkeys(ACCOUNTS, sums)
        assert sorted(self.joined) == sorted(f"{name.upper()} {number}" for name in ACCOUNTS for number in range(lines))

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture(autouse=True)
def _java() -> None:
    if reason := build.missing("java"):
        pytest.skip(reason)


@pytest.fixture
def streams_of(tmp_path: Path) -> Iterator[Callable[..., Streams]]:
    """Makes an instance of the application, which has files of its own."""
    started: list[Streams] = []

    def begin(bootstrap: str, protocol: str = "classic") -> Streams:
        folder = tmp_path / f"instance-{len(started)}"
        folder.mkdir()
        started.append(Streams(bootstrap, folder, protocol))
        return started[-1]

    yield begin
    for each in started:
        each.kill()


def run(bootstrap: str, streams: Streams, *strikes: Callable[[], None]) -> None:
    """At each strike somebody dies in the middle of a part of the input."""
    world = World(bootstrap)
    streams.start()
    try:
        for strike in strikes:
            world.put()
            before = world.size()
            world.until(lambda before=before: world.size() > before, streams)  # type: ignore[misc]
            strike()
        world.put()
        world.until(lambda: world.size() >= world.wanted(), streams)
        for _ in range(5):
            world.look()  # what comes twice would come now
        world.ensure_exact()
    finally:
        world.close()


@pytest.mark.client("Kafka Streams", "counts, aggregates and joins exactly once while it is killed")
@pytest.mark.matrix
def test_streams_is_killed(streams_of: Callable[[str], Streams]) -> None:
    with Broker(topics=TOPICS, settings=SETTINGS) as broker:
        streams = streams_of(broker.bootstrap)

        def strike(*, without_files: bool) -> None:
            streams.kill()
            streams.start(without_files=without_files)

        run(
            broker.bootstrap,
            streams,
            lambda: strike(without_files=False),
            lambda: strike(without_files=True),
            lambda: strike(without_files=False),
        )


@pytest.mark.client("Kafka Streams", "counts, aggregates and joins exactly once while the node is killed")
@pytest.mark.matrix
def test_the_node_is_killed(streams_of: Callable[[str], Streams]) -> None:
    with Broker(topics=TOPICS, settings=SETTINGS) as broker:

        def strike() -> None:
            broker.kill()
            broker.restart()

        run(broker.bootstrap, streams_of(broker.bootstrap), strike, strike)


@pytest.mark.client(
    "Kafka Streams", "counts, aggregates and joins exactly once while leaders and coordinators are killed"
)
@pytest.mark.matrix
def test_leaders_and_coordinators_are_killed(streams_of: Callable[[str], Streams]) -> None:
    with Cluster(3, SETTINGS, topics=TOPICS) as cluster:

        def killed(topic: str) -> Callable[[], None]:
            def strike() -> None:
                leader = cluster.leader(topic)
                cluster.kill(leader)
                cluster.restart(leader)

            return strike

        topics = ("__transaction_state", f"{PREFIX}-counts", "__consumer_offsets")
        run(cluster.bootstrap, streams_of(cluster.bootstrap), *map(killed, topics))


@pytest.mark.client(
    "Kafka Streams", "with group.protocol=streams counts, aggregates and joins exactly once while instances come and go"
)
@pytest.mark.matrix
def test_an_application_of_kip_1071_grows_and_is_killed(streams_of: Callable[..., Streams]) -> None:
    with Broker(topics=TOPICS, settings=KIP_1071) as broker:
        first, second = (streams_of(broker.bootstrap, "streams") for _ in range(2))

        def grow() -> None:
            second.start()
            until_tasks_of(broker.bootstrap, members=4)

        def strike() -> None:
            first.kill()
            until_tasks_of(broker.bootstrap, members=2)

        def restart() -> None:
            second.kill()
            second.start()

        run(broker.bootstrap, first, grow, strike, restart)


def until_tasks_of(bootstrap: str, members: int) -> None:
    """Until so many threads share all tasks of the application, none of which is on its way."""
    wire = Wire(bootstrap)
    asked = {"group_ids": [PREFIX], "include_authorized_operations": False}
    deadline = time.monotonic() + LIMIT_S
    while True:
        (group,) = wire.ask(ApiKey.STREAMS_GROUP_DESCRIBE, 0, asked)["groups"]
        having = [member for member in group["members"] if member["assignment"]["active_tasks"]]
        if group["group_state"] == "Stable" and len(group["members"]) == len(having) == members:
            break
        assert time.monotonic() < deadline, group
        time.sleep(0.1)
    wire.socket.close()
