"""Real faults on a real cluster, under load from librdkafka and Java, and whether all that was acknowledged is there.

    python -m tests.cluster faults [--rounds N] [--nodes 3|5] [--seed S] [--side ottla|kafka]

A round does one thing to one node, or cuts the network, for a moment, and ends when every replica is in sync again. All
rounds of a cycle are one history, which `ottla check` judges; each record of Kafka's VerifiableProducer that was
acknowledged must be at its offset. Beside them write an idempotent librdkafka over two partitions, which may hear of
no hole (`bumped_epochs.py`), and `ottla tail` of a log that is rotated (`rotated_logs.py`). Where this user may mount,
each node has a small disk of its own, which a round fills.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.method.acknowledged import Java
from ottla.cli.check import command as check
from ottla.cli.check.load import Load, Plan
from ottla.cli.exits import CommandFailed
from ottla.histories.records import History, findings
from ottla.model import METADATA_TOPIC
from tests.cluster import bumped_epochs
from tests.cluster.admin import quorum
from tests.cluster.rotated_logs import RotatedLog
from tests.node import LOOP

T = TypeVar("T")

PARTITIONS = 4
ROUNDS_PER_CYCLE = 10
RATE = 400
"""Records a second of librdkafka's producers together."""
TOPICS = ("checked", "java")
WHOLE_S = 300.0
"""How long a cluster may take to be whole, at its start and after a fault has ended: also one of JVMs that start while
others use the machine."""


DISK = "400m"
"""What a node has to itself where it has a disk of its own."""
BUMPED_PAUSE_S = 0.02
"""Between two records of the producer over two partitions: the machine has other things to do."""


class Nodes(Protocol):
    """`ottla.testing.Cluster` or `peers.kafka.cluster.KafkaCluster`."""

    nodes: Any
    bootstrap: str
    addresses: dict[int, str]

    def kill(self, node: int) -> None: ...
    def pause(self, node: int) -> None: ...
    def resume(self, node: int) -> None: ...
    def restart(self, node: int) -> None: ...


class World:
    """A cluster and what is asked of it."""

    def __init__(self, cluster: Any, random: random.Random) -> None:
        self.cluster = cluster
        self.random = random
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self.patiently(self._create_topics)

    def _create_topics(self) -> None:
        """Raises KafkaException where a broker answers that is not registered yet, or others are not."""
        there = self._topics()
        missing = [NewTopic(each, PARTITIONS, 3) for each in TOPICS if each not in there]
        for made in (self.admin.create_topics(missing) if missing else {}).values():
            made.result(WHOLE_S)

    def any(self) -> int:
        return int(self.random.choice(list(self.cluster.nodes)))

    def leader(self, topic: str | None = None) -> int:
        """The leader of some partition."""
        found = self._topics()[topic or self.random.choice(TOPICS)].partitions
        leader: int = found[self.random.randrange(PARTITIONS)].leader
        return leader if leader > 0 else self.any()

    def controller(self) -> int:
        for address in self.cluster.addresses.values():
            with contextlib.suppress(OSError):
                leader = int(quorum(address)["leader_id"])
                if leader > 0:
                    return leader
        return self.any()

    def whole(self) -> bool:
        """Whether every replica is in sync."""
        try:
            found = self._topics()
            return all(
                len(each.isrs) == len(each.replicas) and each.leader > 0
                for topic in TOPICS
                for each in found[topic].partitions.values()
            )
        except (KafkaException, KeyError):
            return False

    def wait_whole(self) -> float:
        """Seconds until then. Raises AssertionError."""
        start = time.monotonic()
        while not self.whole():
            assert time.monotonic() < start + WHOLE_S, "replicas are out of sync, or nobody leads"
            time.sleep(0.1)
        return time.monotonic() - start

    def patiently(self, ask: Callable[[], T]) -> T:
        """What `ask` gives once the cluster can answer it. Raises KafkaException and CommandFailed."""
        start = time.monotonic()
        while True:
            try:
                return ask()
            except (KafkaException, CommandFailed):
                if time.monotonic() > start + WHOLE_S:
                    raise
            time.sleep(0.1)

    def _topics(self) -> Any:
        return self.admin.list_topics(timeout=10).topics


# Faults. Each returns what it did, when that is over but for its consequences.


def kill(world: World, node: int) -> str:
    world.cluster.kill(node)
    time.sleep(world.random.choice((0, 0.5, 3)))
    world.cluster.restart(node)
    return f"kill {node}"


def kill_leader(world: World) -> str:
    return kill(world, world.leader())


def kill_controller(world: World) -> str:
    return "controller: " + kill(world, world.controller())


def kill_two(world: World) -> str:
    """A majority of three: nobody is acknowledged anything until one is back."""
    one, two = world.random.sample(list(world.cluster.nodes), 2)
    world.cluster.kill(one)
    world.cluster.kill(two)
    for node in (one, two):
        world.cluster.restart(node)
    return f"kill {one} and {two}"


def restart(world: World) -> str:
    node = world.any()
    world.cluster.restart(node)
    return f"restart {node}"


def pause(world: World) -> str:
    """Shorter and longer than a session and a fetch timeout."""
    node, seconds = world.random.choice((world.leader(), world.controller())), world.random.choice((0.5, 3, 12))
    world.cluster.pause(node)
    time.sleep(seconds)
    world.cluster.resume(node)
    return f"pause {node} for {seconds} s"


def isolate(world: World) -> str:
    node, seconds = world.random.choice((world.leader(), world.controller())), world.random.choice((1, 12))
    world.cluster.partition(node)
    time.sleep(seconds)
    world.cluster.heal()
    return f"isolate {node} for {seconds} s"


def cut_one_way(world: World) -> str:
    source, target = world.random.sample(list(world.cluster.nodes), 2)
    seconds = world.random.choice((1, 12))
    world.cluster.cut(source, target)
    time.sleep(seconds)
    world.cluster.heal()
    return f"cut {source} to {target} for {seconds} s"


def wipe(world: World) -> str:
    """The logs of a killed node are gone when it comes back; it still knows how it has voted."""
    node = world.any()
    world.cluster.kill(node)
    data = Path(world.cluster.directory(node))
    for each in data.iterdir():
        if each.is_dir() and not each.name.startswith(METADATA_TOPIC):
            shutil.rmtree(each)
        elif each.is_file() and "checkpoint" in each.name:
            each.unlink()
    world.cluster.restart(node)
    return f"wipe {node}"


def refuse_writes(world: World) -> str:
    """No file of a node may grow: as on a full disk, writes fail."""
    node = world.any()
    process = world.cluster.pid(node)
    _, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (4096, hard))
    time.sleep(2)
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(process, resource.RLIMIT_FSIZE, (hard, hard))
    with contextlib.suppress(Exception):  # it may have ended by itself
        world.cluster.kill(node)
    world.cluster.restart(node)
    return f"no writes for {node}"


def no_descriptors(world: World) -> str:
    """A node can open no file, as where its limit is reached, while the others have to elect a controller: its vote
    cannot be written, as on a full disk. It goes on by itself."""
    controller = world.controller()
    node = world.random.choice([each for each in world.cluster.nodes if each != controller])
    process = world.cluster.pid(node)
    soft, hard = resource.prlimit(process, resource.RLIMIT_NOFILE)
    resource.prlimit(process, resource.RLIMIT_NOFILE, (3, hard))  # those that are open stay open
    world.cluster.kill(controller)
    time.sleep(3)
    resource.prlimit(process, resource.RLIMIT_NOFILE, (soft, hard))
    world.cluster.restart(controller)
    return f"no descriptors for {node}, kill {controller}"


@contextlib.contextmanager
def full(directory: Path) -> Iterator[None]:
    """The file system of a directory is full, and kept full. Raises AssertionError where it does not get full."""
    ended = threading.Event()

    def fill() -> None:
        with (directory / ".filler").open("ab", buffering=0) as filler:
            while not ended.is_set():
                try:
                    filler.write(bytes(4096))
                except OSError:
                    ended.wait(0.002)

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        deadline = time.monotonic() + WHOLE_S
        while os.statvfs(directory).f_bavail:
            assert time.monotonic() < deadline, f"{directory} does not get full"
            time.sleep(0.01)
        yield
    finally:
        ended.set()
        thread.join()
        (directory / ".filler").unlink()


def full_disk(world: World) -> str:
    """The disk of a controller is full while the others have to elect one. Then there is room, and another one is lost:
    its vote is needed, and nobody has started it again. A write that fails instead where it has no disk of its own."""
    controller = world.controller()
    node = world.random.choice([each for each in world.cluster.nodes if each != controller])
    if not os.path.ismount(world.cluster.directory(node)):
        return refuse_writes(world)
    process = world.cluster.pid(node)
    with full(world.cluster.directory(node)):
        world.cluster.kill(controller)
        time.sleep(3)
        world.cluster.restart(controller)
    world.wait_whole()
    lost = world.controller()
    if lost == node:
        lost = controller
    kill(world, lost)
    assert world.cluster.pid(node) == process, "it was started again"
    return f"full disk of {node}, kill {controller}, then {lost}"


OF_ALL: tuple[Callable[[World], str], ...] = (kill_leader, kill_controller, kill_two, restart, pause)
OF_OTTLA: tuple[Callable[[World], str], ...] = (
    *OF_ALL,
    isolate,
    cut_one_way,
    wipe,
    refuse_writes,
    no_descriptors,
    full_disk,
)


class Cycle(NamedTuple):
    """The result of one history."""

    did: list[str]
    whole_s: list[float]
    """How long after each round until all was in sync."""
    report: dict[str, Any]
    """As `ottla check --json` prints it."""
    of_java: int
    """Acknowledged records of Kafka's producer."""
    lost_of_java: list[str]
    wrong: list[str]
    """Faults found in other records."""

    @property
    def sound(self) -> bool:
        return bool(self.report["sound"]) and not self.lost_of_java and not self.wrong

    def __str__(self) -> str:
        report = self.report
        found = {kind: number for kind, number in report["found"].items() if number}
        return (
            f"{'sound' if self.sound else 'NOT SOUND'}; {report['acknowledged']:,} and {self.of_java:,} acknowledged, "
            f"longest gap {report['longest_gap_seconds']} s, whole again in at most {max(self.whole_s):.1f} s; "
            f"{'; '.join(self.did)}; found {found} {report['examples'][:3]} {self.lost_of_java[:3]} {self.wrong}"
        )


Others = Callable[[World], contextlib.AbstractContextManager[list[Callable[[], list[str]]]]]
"""Further load: writes and reads while it is entered, and gives functions that say afterwards what is wrong."""


def play(cluster: Nodes, faults: Sequence[Callable[[World], str]], seed: int, *, others: Others | None = None) -> Cycle:
    """Do these to a cluster under load, then judge. Raises AssertionError if it does not recover."""
    world = World(cluster, random.Random(seed))
    did, whole_s = [], []
    run = os.urandom(4).hex()
    history = History(groups=(f"{run}-1", f"{run}-2"))
    plan = Plan(
        {"log_level": 0, "bootstrap.servers": cluster.bootstrap}, TOPICS[0], PARTITIONS, run, RATE, "all", 4, 2, 2
    )
    load = Load(plan, history)
    with Java(cluster.bootstrap, TOPICS[1]) as java, contextlib.ExitStack() as stack:
        judges = stack.enter_context(others(world)) if others else []
        world.patiently(lambda: check._stand_at_the_end(load, history))
        load.start()
        try:
            world.patiently(lambda: wait_written(cluster.bootstrap))
            for fault in faults:
                did.append(fault(world))
                whole_s.append(world.wait_whole())
        finally:
            load.end_writing()
            check._read_log(plan, history)
            check._wait_for_groups(load, history)
            load.end_reading()
    report = check._report(plan, load, history, findings(history), 3)
    lost = world.patiently(lambda: [*lost_records(cluster.bootstrap, java)])
    return Cycle(did, whole_s, report, java.count(), lost, [each for judge in judges for each in judge()])


@contextlib.contextmanager
def bumps_and_logs(world: World) -> Iterator[list[Callable[[], list[str]]]]:
    """An idempotent producer over two partitions, and a log that is rotated."""
    bootstrap = world.cluster.bootstrap
    bumped_epochs.create(world.admin)
    writer = bumped_epochs.Writer(bootstrap, BUMPED_PAUSE_S)

    def bumped() -> list[str]:
        return writer.failed[:3] + writer.log.bumps[:3] + bumped_epochs.wrong(world.cluster, writer)

    with RotatedLog(bootstrap) as log:
        try:
            yield [bumped, log.wrong]
        finally:
            writer.stop()


Ends = Mapping[tuple[str, int], int]
"""Topic and partition to the offset after its last record."""


def reader(bootstrap: str) -> Any:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": f"ends-{os.getpid()}", "log_level": 0})


def ends(consumer: Any, topics: Sequence[str] = TOPICS) -> Ends:
    """Where the partitions end. Raises KafkaException."""
    places = [(topic, number) for topic in topics for number in range(PARTITIONS)]
    return {each: consumer.get_watermark_offsets(TopicPartition(*each), timeout=30)[1] for each in places}


def wait_written(bootstrap: str, topics: Sequence[str] = TOPICS, before: Ends = MappingProxyType({})) -> None:
    """Until the load writes to all partitions, which ended there `before`. Raises KafkaException, AssertionError."""
    consumer = reader(bootstrap)
    start = time.monotonic()
    while not all(end > before.get(place, 0) for place, end in ends(consumer, topics).items()):
        assert time.monotonic() < start + WHOLE_S, "nothing is written"
        time.sleep(0.1)
    consumer.close()


def lost_records(bootstrap: str, java: Java) -> Iterator[str]:
    """Acknowledged records that are not at their offset."""
    consumer = reader(bootstrap)
    found: dict[tuple[int, int], str] = {}
    written = {number: end for (_, number), end in ends(consumer, TOPICS[1:]).items() if end}
    consumer.assign([TopicPartition(TOPICS[1], each, 0) for each in written])
    waiting = {*written}
    deadline = time.monotonic() + WHOLE_S
    while waiting and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None or message.error():
            continue
        found[message.partition(), message.offset()] = message.value().decode()
        if message.offset() >= written[message.partition()] - 1:
            waiting.discard(message.partition())
    consumer.close()
    for place, value in java.values.items():
        if found.get(place) != value:
            yield f"partition {place[0]}, offset {place[1]}: {value!r} was acknowledged, {found.get(place)!r} is there"


@contextlib.contextmanager
def started(side: str, nodes: int) -> Iterator[Any]:
    if side == "kafka":
        from peers.kafka import START_FAST
        from peers.kafka.cluster import KafkaCluster

        with tempfile.TemporaryDirectory() as directory, KafkaCluster(Path(directory), nodes, flags=START_FAST) as peer:
            yield peer
    else:
        from ottla.testing import Cluster

        settings = {"ottla.event.loop": LOOP} if LOOP else {}
        with disks(nodes) as keep, Cluster(nodes, settings, keep=keep) as cluster:
            yield cluster


@contextlib.contextmanager
def disks(nodes: int) -> Iterator[Path | None]:
    """A directory with a file system of its own for each node; None where this user may not mount."""
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        for node in range(1, nodes + 1):
            path = Path(directory, f"node-{node}")
            path.mkdir()
            mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "ottla-test", str(path)]
            if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
                yield None
                return
            stack.callback(subprocess.run, ["umount", "--lazy", str(path)], check=False)
        yield Path(directory)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster faults")
    parser.add_argument("--rounds", type=int, default=ROUNDS_PER_CYCLE)
    parser.add_argument("--nodes", type=int, default=3, choices=(3, 5))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--side", choices=("ottla", "kafka"), default="ottla")
    by_name = {each.__name__: each for each in OF_OTTLA}
    parser.add_argument("--fault", choices=sorted(by_name), help="nothing but this one")
    asked = parser.parse_args(arguments)
    unsound, rounds, kinds = 0, 0, Counter[str]()
    while rounds < asked.rounds:
        seed = asked.seed + rounds
        count = min(ROUNDS_PER_CYCLE, asked.rounds - rounds)
        among = OF_ALL if asked.side == "kafka" else OF_OTTLA
        chosen = random.Random(seed).choices((by_name[asked.fault],) if asked.fault else among, k=count)
        with started(asked.side, asked.nodes) as cluster:
            cycle = play(cluster, chosen, seed, others=bumps_and_logs if asked.side == "ottla" else None)
        rounds += count
        kinds.update(each.__name__ for each in chosen)
        unsound += not cycle.sound
        print(f"seed {seed}: {cycle}", flush=True)
    print(f"{rounds} rounds, {unsound} cycles not sound; {dict(sorted(kinds.items()))}")
    return min(unsound, 1)
