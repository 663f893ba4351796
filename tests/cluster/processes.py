"""The smallest real clusters, one process for each role: Ottla's own, and mixed with Apache Kafka's.

`python -m tests.cluster pair` starts one and prints its address until it is interrupted.
"""

from __future__ import annotations

import contextlib
import random
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from ottla.metadata.features import METADATA_VERSION_4_3, default_levels
from ottla.metadata.writer import encode
from ottla.protocol.schemas.records import FeatureLevelRecord
from ottla.quorum.snapshot import write_snapshot
from ottla.storage.checkpoints.meta_properties import MetaProperties, decode_meta_properties, random_directory_id
from ottla.testing.process import reserve
from peers.kafka import KafkaPeer, start_fast
from tests.node import FOR_EVER, LOOP, NodeProcess

CONTROLLER_ID = 100
BROKER_ID = 1
BROKERS = (1, 2, 3)

QUICK = {"broker.heartbeat.interval.ms": "100", "broker.session.timeout.ms": "3000"}
"""Fenced soon, so that no test waits for Kafka's nine seconds, but longer than a second, after which a connection that
was lost is tried again."""

ONE_REPLICA = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

PATIENT = {"broker.session.timeout.ms": "120000"}
"""For the controller of a broker that nobody kills: one that a loaded machine keeps from its heartbeats is not fenced,
and tests of other things do not see it come and go."""


def ottla_controller(data: Path, settings: Mapping[str, str] | None = None) -> NodeProcess:
    """A node that is only a controller, not started; it listens at its `bootstrap`."""
    node = NodeProcess(data)
    node.settings = {
        "process.roles": "controller",
        "node.id": str(CONTROLLER_ID),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://{node.bootstrap}",
        "controller.quorum.voters": f"{CONTROLLER_ID}@{node.bootstrap}",
        **ONE_REPLICA,
        **FOR_EVER,
        **(settings or {}),
    }
    return node


def loop_of(node_id: int) -> str:
    """The event loop of a node: one of three is on asyncio's, whose timers are not those of uvloop."""
    return LOOP or ("asyncio" if node_id % 3 == 2 else "uvloop")


class Voter(NodeProcess):
    """A node that is a controller, and maybe a broker. `controller` is where its controller listens."""

    def __init__(self, data: Path, *, is_broker: bool) -> None:
        super().__init__(data)
        self.controller = self.bootstrap
        self.listeners = f"CONTROLLER://{self.controller}"
        if is_broker:
            held = reserve(0)
            weakref.finalize(self, held.close)
            self.controller = f"127.0.0.1:{held.getsockname()[1]}"
            self.listeners = f"PLAINTEXT://{self.bootstrap},CONTROLLER://{self.controller}"


def ottla_quorum(
    directory: Path, roles: str = "broker,controller", settings: Mapping[str, str] | None = None, *, count: int = 3
) -> list[NodeProcess]:
    """Controllers, or nodes that are both, which vote together: ids from 1 on, not started."""
    nodes = [Voter(directory / f"node-{number}", is_broker="broker" in roles) for number in range(1, count + 1)]
    for number, node in enumerate(nodes, start=1):
        node.settings = {
            "process.roles": roles,
            "node.id": str(number),
            "controller.listener.names": "CONTROLLER",
            "listeners": node.listeners,
            "controller.quorum.voters": ",".join(f"{n}@{each.controller}" for n, each in enumerate(nodes, start=1)),
            "ottla.cluster.id": "a-quorum-of-three-000A",
            "ottla.event.loop": loop_of(number),
            **ONE_REPLICA,
            **FOR_EVER,
            **(settings or {}),
        }
    return nodes


def start_together(nodes: Iterable[NodeProcess]) -> None:
    """A quorum has no leader before most of it runs."""
    starting = list(nodes)
    for each in starting:
        each.begin()
    for each in starting:
        each.wait_ready()


def ottla_broker(
    data: Path, controllers: str, settings: Mapping[str, str] | None = None, *, node_id: int = BROKER_ID
) -> NodeProcess:
    """A node that is only a broker, not started. `controllers`: their addresses."""
    return NodeProcess(
        data,
        {
            "process.roles": "broker",
            "node.id": str(node_id),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": controllers,
            "ottla.event.loop": loop_of(node_id),
            **ONE_REPLICA,
            **(settings or {}),
        },
    )


@contextlib.contextmanager
def three_brokers(
    directory: Path, settings_of: Callable[[int, Path], Mapping[str, str]]
) -> Iterator[dict[int, NodeProcess]]:
    """Brokers 1 to 3 and a controller, started, by node id. `settings_of` is given a broker's id and its directory."""
    with (
        ottla_controller(directory / "controller", QUICK) as controller,
        brokers_of(controller, directory, settings_of) as nodes,
    ):
        yield nodes


@contextlib.contextmanager
def brokers_of(
    controller: NodeProcess, directory: Path, settings_of: Callable[[int, Path], Mapping[str, str]]
) -> Iterator[dict[int, NodeProcess]]:
    """Brokers 1 to 3 of a controller that runs, started, by node id."""
    nodes = {}
    for node_id in BROKERS:
        data = directory / f"broker-{node_id}"
        settings = {**QUICK, **settings_of(node_id, data)}
        nodes[node_id] = ottla_broker(data, controller.bootstrap, settings, node_id=node_id)
    try:
        for node in nodes.values():
            node.start()
        yield nodes
    finally:
        for node in nodes.values():
            if node.process is not None:
                node.stop()


def addresses(nodes: Mapping[int, NodeProcess]) -> str:
    """The bootstrap addresses of all nodes."""
    return ",".join(node.bootstrap for node in nodes.values())


def kafka_controller(directory: Path, settings: Mapping[str, str] | None = None) -> KafkaPeer:
    """A Kafka that is only a controller, formatted and not started; it listens at its `controllers`."""
    peer = KafkaPeer(
        directory,
        roles="controller",
        node_id=CONTROLLER_ID,
        heap="256m",
        release="4.4",
        flags=start_fast("4.4"),
        settings=settings,
    )
    peer.format()
    return peer


def kafka_broker(directory: Path, controllers: str, cluster_id: str, *, node_id: int = BROKER_ID) -> KafkaPeer:
    """A Kafka that is only a broker, formatted and not started. `controllers`: the address of the one there is."""
    peer = KafkaPeer(
        directory,
        roles="broker",
        node_id=node_id,
        heap="512m",
        release="4.4",
        flags=start_fast("4.4"),
        voters=f"{CONTROLLER_ID}@{controllers}",
        cluster_id=cluster_id,
        settings={"auto.create.topics.enable": "true"},
    )
    peer.format()
    return peer


def format_directory(directory: Path, node_id: int, cluster_id: str, level: int = METADATA_VERSION_4_3) -> None:
    """What `kafka-storage.sh format --release-version` writes, without a JVM for each."""
    directory.mkdir(parents=True)
    lines = {
        "version": "1",
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        "directory.id": random_directory_id(random.Random(node_id)),
    }
    (directory / "meta.properties").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    values = [encode(FeatureLevelRecord(name, each), level) for name, each in default_levels(level).items()]
    checkpoint = write_snapshot(values, epoch=0, last_timestamp=0, now=0)
    (directory / "bootstrap.checkpoint").write_bytes(b"".join(checkpoint))


def identity(data: Path) -> MetaProperties:
    """The identity of a log directory."""
    path = data / "meta.properties"
    return decode_meta_properties(str(path), path.read_bytes())


def cluster_id(controller: NodeProcess) -> str:
    """The cluster id of a controller that has been started."""
    return str(identity(controller.data).cluster_id)


@contextlib.contextmanager
def pair(directory: Path) -> Iterator[str]:
    """An Ottla controller and an Ottla broker; gives the broker's address."""
    with (
        ottla_controller(directory / "controller", PATIENT) as controller,
        ottla_broker(directory / "broker", controller.bootstrap) as broker,
    ):
        yield broker.bootstrap


@contextlib.contextmanager
def under_kafka(directory: Path) -> Iterator[str]:
    """A Kafka controller and an Ottla broker."""
    peer = kafka_controller(directory / "controller", PATIENT)
    try:
        peer.start()
        with ottla_broker(directory / "broker", peer.controllers) as broker:
            yield broker.bootstrap
    finally:
        peer.stop()


@contextlib.contextmanager
def over_kafka(directory: Path) -> Iterator[str]:
    """An Ottla controller and a Kafka broker."""
    with ottla_controller(directory / "controller", PATIENT) as controller:
        peer = kafka_broker(directory / "broker", controller.bootstrap, cluster_id(controller))
        try:
            peer.start()
            yield peer.bootstrap
        finally:
            peer.stop()


@contextlib.contextmanager
def kafka(directory: Path) -> Iterator[str]:
    """A Kafka controller and a Kafka broker: what the others are compared with."""
    peer = kafka_controller(directory / "controller", PATIENT)
    with contextlib.ExitStack() as stack:
        stack.callback(peer.kill)  # nobody reads their files any more
        peer.start()
        broker = kafka_broker(directory / "broker", peer.controllers, peer.cluster_id)
        stack.callback(broker.kill)
        broker.start()
        yield broker.bootstrap


CLUSTERS: Mapping[str, Callable[[Path], contextlib.AbstractContextManager[str]]] = {
    "pair": pair,
    "under-kafka": under_kafka,
    "over-kafka": over_kafka,
    "kafka": kafka,
}
