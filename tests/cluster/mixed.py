"""One JVM of Kafka 4.4 among three nodes, in each role, under load with rolling changes: nothing may be lost.

    python -m tests.cluster mixed [combined|broker|controller ...] [--seed S]

The nodes restart one by one, leaders and the active controller move to the JVM and back, the feature levels go from
4.3 to 4.4, and nodes change their software on their directory, both ways. The load is that of `faults.py`, with
transactions and a share group beside it. No node may log an error that `ALLOWED` does not name.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from ottla.cli.check import transactions_run
from ottla.cli.check.transactions_load import Load, Plan
from ottla.histories.transactions import History, findings
from ottla.protocol.messages import ApiKey
from peers.kafka import KafkaPeer, start_fast, voters_addresses
from tests.cluster import faults
from tests.cluster.admin import ask, quorum
from tests.cluster.processes import format_directory, loop_of
from tests.cluster.share_workers import Seen, ShareWriter, Worker, backlog
from tests.conformance.groups.share_consumers import JAVA, configure, program
from tests.node import NodeProcess

CLUSTER_ID = "one-jvm-of-three-0000A"
JVM = 3
"""The node that is Kafka's at first."""
BROKER_ONLY, CONTROLLER_ONLY, COMBINED = "broker", "controller", "broker,controller"
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "18000",  # a busy machine starts a JVM in ten seconds
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    **{
        f"{topic}.{name}": value
        for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        for name, value in (("replication.factor", "3"), ("min.isr", "2"))
        if (topic, name) != ("offsets.topic", "min.isr")
    },
}
TRANSACTIONS_PER_S = 60
TRANSACTIONAL, SHARED, GROUP = "transactional", "shared", "workers"
PARTITIONS = 2
SETTLED_S = 300.0


class Node:
    """A place in a cluster: a directory, a settings file and ports; `kind` says whose software serves it."""

    def __init__(self, directory: Path, node_id: int, roles: str, kind: str) -> None:
        self.peer = KafkaPeer(
            directory,
            roles=roles,
            node_id=node_id,
            heap="384m",
            release="4.4",
            flags=start_fast("4.4"),
            cluster_id=CLUSTER_ID,
            settings=SETTINGS,
        )
        format_directory(self.peer.data, node_id, CLUSTER_ID)
        port = self.peer.port if "broker" in roles else self.peer.controller_port
        self.ottla = NodeProcess(self.peer.data, config=self.peer.properties, port=port)
        self.ottla.settings["ottla.event.loop"] = loop_of(node_id)
        self.roles, self.kind = roles, kind

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        return self.peer.process if self.kind == "kafka" else self.ottla.process

    def begin(self) -> None:
        if self.kind == "kafka":
            self.peer.launch()
        else:
            self.peer.write_properties()
            self.ottla.begin()

    def wait_ready(self) -> None:
        if self.kind == "kafka":
            self.peer.wait_ready()
        else:
            self.ottla.wait_ready()

    def end(self, number: int) -> None:
        """By a signal: SIGTERM as an operator stops it, or SIGKILL. Raises AssertionError where it does not stop
        cleanly."""
        process = self.process
        assert process is not None
        process.send_signal(number)
        status = process.wait(300)
        assert number == signal.SIGKILL or status in (0, 143), f"node {self.peer.node_id} ended with status {status}"
        self.peer.process = self.ottla.process = None

    def printed(self) -> str:
        """Everything that both kinds have logged here."""
        logs = (self.peer.directory / "server.log", self.ottla.output)
        return "".join(each.read_text(errors="replace") for each in logs if each.exists())


class Mixed:
    """The nodes of one role, started. `nodes` are all ids; the addresses are those of brokers."""

    def __init__(self, directory: Path, roles: Mapping[int, str]) -> None:
        self.all = {
            node_id: Node(directory / f"node-{node_id}", node_id, role, "kafka" if node_id == JVM else "ottla")
            for node_id, role in roles.items()
        }
        self.nodes = [*self.all]
        voters = ",".join(
            f"{node_id}@127.0.0.1:{node.peer.controller_port}"
            for node_id, node in self.all.items()
            if "controller" in node.roles
        )
        for node in self.all.values():
            node.peer.voters, node.peer.controllers = voters, voters_addresses(voters)
        self.brokers = [node_id for node_id, node in self.all.items() if "broker" in node.roles]
        self.controllers = [node_id for node_id, node in self.all.items() if "controller" in node.roles]
        self.addresses = {node_id: self.all[node_id].peer.bootstrap for node_id in self.brokers}
        self.bootstrap = ",".join(self.addresses.values())

    def __enter__(self) -> Mixed:
        try:
            for node in self.all.values():
                node.begin()
            for node in self.all.values():
                node.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for node in self.all.values():
            if node.process is not None:
                node.process.send_signal(signal.SIGCONT)
                node.end(signal.SIGKILL)

    def kill(self, node: int) -> None:
        self.all[node].end(signal.SIGKILL)

    def pause(self, node: int) -> None:
        process = self.all[node].process
        assert process is not None
        process.send_signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        process = self.all[node].process
        assert process is not None
        process.send_signal(signal.SIGCONT)

    def restart(self, node: int) -> None:
        """Stop it if it runs, cleanly, and start it again."""
        if self.all[node].process is not None:
            self.all[node].end(signal.SIGTERM)
        self.all[node].begin()
        self.all[node].wait_ready()

    def change(self, node: int) -> None:
        """The other software serves its directory."""
        place = self.all[node]
        place.end(signal.SIGTERM)
        place.kind = "ottla" if place.kind == "kafka" else "kafka"
        self.restart(node)

    def any_address(self) -> str:
        """The address of a broker that runs."""
        return next(self.addresses[each] for each in self.brokers if self.all[each].process is not None)


# What is known of a cluster


def topics(world: faults.World) -> dict[str, Any]:
    return dict(world.admin.list_topics(timeout=10).topics)


def settle(world: faults.World) -> None:
    """Until every replica of every topic is in sync, and every controller has what is committed. Raises
    AssertionError."""
    deadline = time.monotonic() + SETTLED_S
    missing: list[str] = ["nothing is known"]
    while missing:
        assert time.monotonic() < deadline, missing
        try:
            missing = _missing(world)
        except Exception as error:  # a node that is away, or on its way
            missing = [repr(error)]
        time.sleep(0.1)


def _missing(world: faults.World) -> list[str]:
    found = [
        f"{name}-{number}: {len(each.isrs)} of {len(each.replicas)} in sync, leader {each.leader}"
        for name, topic in topics(world).items()
        for number, each in topic.partitions.items()
        if len(each.isrs) < len(each.replicas) or each.leader < 0
    ]
    state = quorum(world.cluster.any_address())
    ends = {each["replica_id"]: each["log_end_offset"] for each in state["current_voters"]}
    committed = state["high_watermark"]
    found += [f"controller {each} has {end} of {committed}" for each, end in ends.items() if end < committed]
    if set(ends) != set(world.cluster.controllers) or committed <= 0:
        found.append(f"controllers {sorted(ends)}, committed {committed}")
    return found


def wait(is_so: Callable[[], bool]) -> None:
    """Until it is so; what cannot be asked now is not. Raises AssertionError."""
    deadline = time.monotonic() + SETTLED_S
    while True:
        with contextlib.suppress(OSError, LookupError, KafkaException):
            if is_so():
                return
        assert time.monotonic() < deadline, "it does not come to that"
        time.sleep(0.1)


# What is done. Each returns what it did.


def restart_each(world: faults.World) -> str:
    for node in world.cluster.nodes:
        settle(world)
        world.cluster.restart(node)
    return "restarted each"


def kill(world: faults.World, node: int) -> str:
    settle(world)
    return faults.kill(world, node)


def change(world: faults.World, node: int) -> str:
    settle(world)
    world.cluster.change(node)
    return f"{node} is {world.cluster.all[node].kind}"


def lead(world: faults.World, node: int) -> str:
    """All partitions, those of the coordinators too, are led by this node."""
    settle(world)
    others = [each for each in world.cluster.brokers if each != node]
    address = world.cluster.any_address()
    rows = [
        {
            "name": name,
            "partitions": [{"partition_index": number, "replicas": [node, *others]} for number in topic.partitions],
        }
        for name, topic in topics(world).items()
    ]
    asked = {"timeout_ms": 30_000, "allow_replication_factor_change": True, "topics": rows}
    answer = ask(address, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, asked)
    assert answer["error_code"] == 0, answer

    def elected() -> list[int]:
        everything = {"election_type": 0, "topic_partitions": None, "timeout_ms": 30_000}
        assert ask(address, ApiKey.ELECT_LEADERS, 2, everything)["error_code"] == 0
        time.sleep(0.1)
        return [each.leader for topic in topics(world).values() for each in topic.partitions.values()]

    wait(lambda: {*elected()} == {node})
    return f"{node} leads"


def command(world: faults.World, node: int) -> str:
    """This node becomes the active controller: the third one is stopped until it misses what is committed, and then
    the active one ends, so that only this one can win."""
    settle(world)
    cluster = world.cluster
    active = quorum(cluster.any_address())["leader_id"]
    if active == node:
        return f"{node} commands already"
    (third,) = {*cluster.controllers} - {active, node}
    asked = next(address for each, address in cluster.addresses.items() if each != third)
    cluster.pause(third)
    wait(lambda: _behind(_decided_more(asked), third) >= 3)
    cluster.all[active].end(signal.SIGTERM)
    cluster.resume(third)
    wait(lambda: quorum(cluster.any_address())["leader_id"] == node)
    cluster.restart(active)
    return f"{node} commands"


def _decided_more(address: str) -> dict[str, Any]:
    """The state of the quorum, once there is one more decision: Ottla writes nothing of its own accord."""
    change = {"name": "retention.ms", "config_operation": 0, "value": "-1"}
    resources = [{"resource_type": 2, "resource_name": faults.TOPICS[0], "configs": [change]}]
    ask(address, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources, "validate_only": False})
    return quorum(address)


def _behind(state: Mapping[str, Any], node: int) -> int:
    ends = {each["replica_id"]: each["log_end_offset"] for each in state["current_voters"]}
    return int(state["high_watermark"] - ends[node])


def level(world: faults.World, verb: str, levels: Sequence[str], refused: str = "") -> str:
    """What `ottla features upgrade` or `downgrade` does. `refused`: the error that Kafka's controllers answer."""
    settle(world)
    asked = [sys.executable, "-m", "ottla.cli.main", "features", verb, *levels, "--bootstrap", world.cluster.bootstrap]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert (refused in done.stderr and done.returncode) if refused else not done.returncode, done.stdout + done.stderr
    return " ".join((verb, *levels, *(["refused"] if refused else [])))


UPGRADE = partial(level, verb="upgrade", levels=("--release", "4.4"))
NO_WAY_BACK = partial(level, verb="downgrade", levels=("--release", "4.3"), refused="INVALID_UPDATE_VERSION")
"""Records of 4.4-IV1 and IV2 would be lost: Kafka refuses it too."""
SHARE_BACK = partial(level, verb="downgrade", levels=("--feature", "share.version=1"))


class Shape(NamedTuple):
    """The nodes of a role, and what is done to them."""

    roles: Mapping[int, str]
    steps: Sequence[Callable[[faults.World], str]]


def steps(first: int, *, leads: bool, commands: bool) -> list[Callable[[faults.World], str]]:
    """`first` is a node of Ottla in the JVM's role, which `leads` partitions, `commands` the controllers, or both."""
    to = [partial(each, node=node) for node in (JVM, first) for each in (lead,) * leads + (command,) * commands]
    there, back = to[: len(to) // 2], to[len(to) // 2 :]
    return [
        *there,
        UPGRADE,
        restart_each,
        partial(kill, node=JVM),
        *back,
        partial(change, node=JVM),  # a directory of Kafka's is Ottla's
        partial(change, node=first),  # and one of Ottla's is Kafka's
        partial(kill, node=first),
        partial(change, node=first),
        NO_WAY_BACK,
        SHARE_BACK,
        partial(change, node=JVM),
        *there,
        NO_WAY_BACK,
        UPGRADE,
        restart_each,
    ]


SHAPES = {
    "combined": Shape(dict.fromkeys((1, 2, 3), COMBINED), steps(1, leads=True, commands=True)),
    "broker": Shape(
        {**dict.fromkeys((1, 2, 3), BROKER_ONLY), 4: CONTROLLER_ONLY}, steps(1, leads=True, commands=False)
    ),
    "controller": Shape(
        {**dict.fromkeys((1, 2, 3), CONTROLLER_ONLY), **dict.fromkeys((11, 12, 13), BROKER_ONLY)},
        steps(1, leads=False, commands=True),
    ),
}
SHORT = [partial(lead, node=JVM), UPGRADE, partial(change, node=JVM), partial(change, node=1), NO_WAY_BACK]
"""What a test does in the combined role: no JVM is waited for but two."""


# The load beside that of `faults.py`, and what is wrong with it


@contextlib.contextmanager
def transactions_and_jobs(world: faults.World) -> Iterator[list[Callable[[], list[str]]]]:
    bootstrap = world.cluster.bootstrap
    for name in (TRANSACTIONAL, SHARED):
        world.admin.create_topics([NewTopic(name, PARTITIONS, 3)])[name].result(faults.WHOLE_S)
    configure(world.cluster.any_address(), GROUP, auto_offset_reset="earliest", delivery_count_limit="10")
    plan = Plan(
        {"log_level": 0, "bootstrap.servers": bootstrap},
        TRANSACTIONAL,
        PARTITIONS,
        os.urandom(4).hex(),
        TRANSACTIONS_PER_S,
    )
    history, seen = History(), Seen()
    load = Load(plan, history)
    java = program(JAVA, "4.3")  # 4.4.0 asks a leader that is gone until it is back: test_share_groups.py
    workers = [Worker(java, bootstrap, GROUP, SHARED, seen, 1)]
    writer = ShareWriter(bootstrap, SHARED, PARTITIONS)
    load.start()
    for thread in (writer, *workers):
        thread.start()
    try:
        yield [lambda: _transactions(load), lambda: _jobs(writer, workers, seen)]
    finally:
        load.end_writing(transactions_run.END_S)
        transactions_run._read_log(plan, history)
        load.end_reading()
        writer.stop()
        deadline = time.monotonic() + SETTLED_S
        while not _done(world.cluster) and time.monotonic() < deadline:
            time.sleep(0.2)
        for worker in workers:
            worker.stop()
        java.close()


def _done(cluster: Mixed) -> bool:
    """Whether the coordinator of the share group says that no record waits for an acknowledgement."""
    return any(backlog(each, GROUP, PARTITIONS) == 0 for each in cluster.addresses.values())


def _transactions(load: Load) -> list[str]:
    wrong = [f"{each.kind.name}: {each.text}" for each in findings(load.history) if not each.kind.is_allowed]
    if load.tally.committed < 10 or load.tally.consumed < 10:
        wrong.append(f"too few transactions: {load.tally}")
    return wrong


def _jobs(writer: ShareWriter, workers: Sequence[Worker], seen: Seen) -> list[str]:
    wrong = [f"a worker ended: {each.crashed!r}" for each in workers if each.crashed]
    if lost := writer.written - seen.delivered.keys():
        wrong.append(f"{len(lost)} of {len(writer.written)} records came to no worker: {sorted(lost)[:5]}")
    if seen.late:
        wrong.append(f"accepted, and delivered again: {seen.late[:5]}")
    if len(seen.accepted) < 10:
        wrong.append(f"too few jobs: {len(seen.accepted)}, {seen.failures}")
    return wrong


# What the nodes have logged

_ERRORS = re.compile(r"^.*(?:\b(?:ERROR|FATAL|CRITICAL)\b|Traceback).*$", re.MULTILINE)
ALLOWED: Mapping[str, str] = {
    "Error processing append operation on partition": "Kafka's, for a partition below its min.insync.replicas",
    "Exceptionally slow controller event": "Kafka's, on a busy machine",
    "Unexpected error handling request": "Kafka's, for a request to a controller that is not yet active",
}
"""Errors that a sound run may log, and why."""


def errors(cluster: Mixed) -> list[str]:
    return [
        f"node {node_id} logged: {line[:400]}"
        for node_id, node in cluster.all.items()
        for line in dict.fromkeys(_ERRORS.findall(node.printed()))
        if not any(each in line for each in ALLOWED)
    ]


def play(role: str, chosen: Sequence[Callable[[faults.World], str]], seed: int) -> tuple[faults.Cycle, list[str]]:
    """What became of the load, and errors that nodes have logged."""
    with tempfile.TemporaryDirectory() as directory, Mixed(Path(directory), SHAPES[role].roles) as cluster:
        told = [_told(each) for each in chosen]
        try:
            cycle = faults.play(cluster, told, seed, others=transactions_and_jobs)
        except BaseException:
            for node_id, node in cluster.all.items():
                print(f"--- node {node_id}, {node.kind}\n{node.printed()[-1000:]}", file=sys.stderr)
            raise
        return cycle, errors(cluster)


def _told(step: Callable[[faults.World], str]) -> Callable[[faults.World], str]:
    def told(world: faults.World) -> str:
        began = time.monotonic()
        did = step(world)
        print(f"  {did} ({time.monotonic() - began:.0f} s)", flush=True)
        return did

    return told


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster mixed")
    parser.add_argument("roles", nargs="*", default=[*SHAPES], help=", ".join(SHAPES))
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    unsound = 0
    for role in asked.roles:
        print(f"{role}:", flush=True)
        cycle, logged = play(role, SHAPES[role].steps, asked.seed)
        unsound += not cycle.sound or bool(logged)
        print(f"{role}: {cycle}", *logged, sep="\n  ", flush=True)
    return min(unsound, 1)
