"""Brokers that are played by the test come and go, and a controller of Ottla and one of Apache Kafka make the same of
their partitions: every answer and, after every step, every partition that the metadata log leads to."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ottla.metadata import features
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionRegistration
from ottla.metadata.loader import MetadataLoader
from ottla.model import METADATA_TOPIC_ID, ZERO_UUID, NodeId
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import iterate_batches, iterate_records
from tests.cluster.admin import ask
from tests.cluster.processes import identity, kafka_controller, ottla_controller

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")

NODES = (1, 2, 3, 4)
LONG = {"broker.session.timeout.ms": "600000"}
"""No broker is fenced but by its own wish: a busy machine changes nothing."""


class Side:
    """One of the two controllers, and the brokers that the test plays for it."""

    def __init__(self, address: str, data: Path) -> None:
        self.address = address
        self.cluster_id = str(identity(data).cluster_id)
        self.epochs: dict[NodeId, int] = {}
        self.said: list[Any] = []
        self.healed: list[NodeId] = []
        """Brokers that were restarted between two tests."""

    def ask(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        return ask(self.address, key, version, values)

    def say(self, answer: Any) -> None:
        self.said.append(answer)

    # Brokers.

    def register(self, node: NodeId, incarnation: int = 0, *, was_clean: bool = False, version: int = 4) -> None:
        asked = {
            "broker_id": node,
            "cluster_id": self.cluster_id,
            "incarnation_id": UUID(int=1000 * node + incarnation),
            "listeners": [{"name": "PLAINTEXT", "host": "h", "port": node, "security_protocol": 0}],
            "features": [
                {"name": name, "min_supported_version": low, "max_supported_version": high}
                for name, (low, high) in features.SUPPORTED.items()
            ],
            "rack": f"r{node % 2}",
            "is_migrating_zk_broker": False,
            "log_dirs": [directory(node), directory(node, 2)],
            "previous_broker_epoch": -2 if was_clean else -1,
        }
        answer = self.ask(ApiKey.BROKER_REGISTRATION, version, asked)
        self.say(answer["error_code"])
        if not answer["error_code"]:
            self.epochs[node] = answer["broker_epoch"]

    def beat(self, node: NodeId, *, offset: int = 1 << 40, **fields: Any) -> None:
        asked = {
            "broker_id": node,
            "broker_epoch": self.epochs[node],
            "current_metadata_offset": offset,
            "want_fence": False,
            "want_shut_down": False,
            "offline_log_dirs": (),
            **fields,
        }
        answer = self.ask(ApiKey.BROKER_HEARTBEAT, 1, asked)
        self.say([answer[name] for name in ("error_code", "is_caught_up", "is_fenced", "should_shut_down")])

    def again(self, node: NodeId, incarnation: int, *, was_clean: bool = False, version: int = 4) -> None:
        """Another process with its id. Kafka lets it in only once the session of the one before is over, which would
        take too long, or when nothing is known of that. An epoch of -2 is that of one who was not there."""
        self.unregister(node)
        self.register(node, incarnation, was_clean=was_clean, version=version)

    def join(self, node: NodeId, incarnation: int = 0, **more: Any) -> None:
        self.register(node, incarnation, **more)
        self.beat(node)

    def fence(self, *nodes: NodeId) -> None:
        for node in nodes:
            self.beat(node, want_fence=True)

    # What clients ask.

    def create(self, name: str, *replicas: Sequence[NodeId], **configs: str) -> None:
        """`name` has the partitions with as many replicas as the first; those with two are in `name2`, and so on."""
        topics = []
        for count in dict.fromkeys(map(len, replicas)):
            placed = [each for each in replicas if len(each) == count]
            topics.append(
                {
                    "name": name if count == len(replicas[0]) else f"{name}{count}",
                    "num_partitions": -1,
                    "replication_factor": -1,
                    "assignments": [{"partition_index": n, "broker_ids": each} for n, each in enumerate(placed)],
                    "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
                }
            )
        answer = self.ask(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout": 9000, "validate_only": False})
        self.say([(row["error_code"], row["error_message"]) for row in answer["topics"]])

    def isr(
        self, name: str, isr: Sequence[NodeId], *, number: int = 0, leader: NodeId | None = None, **fields: Any
    ) -> None:
        """Ask for an ISR as the leader, with its current view unless `fields` say otherwise (numbers are added to the
        current ones)."""
        topic = self.image().topics_by_name[name]
        partition = topic.partitions[number]
        leader = partition.leader if leader is None else leader
        row = {
            "partition_index": number,
            "leader_epoch": partition.leader_epoch + fields.get("leader_epoch", 0),
            "partition_epoch": partition.partition_epoch + fields.get("partition_epoch", 0),
            "new_isr_with_epochs": [
                {"broker_id": each, "broker_epoch": fields.get("broker_epoch", self.epochs.get(each, 7))}
                for each in isr
            ],
            "leader_recovery_state": fields.get("leader_recovery_state", 0),
        }
        topics = [{"topic_id": topic.id, "partitions": [row]}]
        asked = {"broker_id": leader, "broker_epoch": self.epochs.get(leader, 0), "topics": topics}
        answer = self.ask(ApiKey.ALTER_PARTITION, 3, asked)
        self.say((answer["error_code"], [topic["partitions"] for topic in answer["topics"]]))

    def reassign(self, name: str, replicas: Sequence[NodeId] | None, *, number: int = 0, resize: bool = True) -> None:
        row = {"partition_index": number, "replicas": replicas}
        asked = {
            "timeout": 9000,
            "allow_replication_factor_change": resize,
            "topics": [{"name": name, "partitions": [row]}],
        }
        self.say(self.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, asked))
        self.say(self.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"timeout": 9000, "topics": None}))

    def elect(self, kind: int, name: str | None, *numbers: int) -> None:
        asked = None if name is None else [{"topic": name, "partitions": numbers}]
        answer = self.ask(ApiKey.ELECT_LEADERS, 2, {"election_type": kind, "topic_partitions": asked, "timeout": 9000})
        answer["replica_election_results"].sort(key=lambda topic: topic["topic"])
        self.say(answer)

    def configure(self, name: str, **configs: str) -> None:
        entries = [
            {"name": key.replace("_", "."), "config_operation": 0, "value": value} for key, value in configs.items()
        ]
        resource = {"resource_type": 2 if name else 4, "resource_name": name, "configs": entries}
        answer = self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})
        self.say([row["error_code"] for row in answer["responses"]])

    def level(self, name: str, level: int) -> None:
        update = {"feature": name, "max_version_level": level, "upgrade_type": 1 if level else 2}
        asked = {"timeout": 9000, "feature_updates": [update], "validate_only": False}
        self.say(self.ask(ApiKey.UPDATE_FEATURES, 2, asked)["error_code"])

    def assign(self, node: NodeId, name: str, where: UUID, *, number: int = 0) -> None:
        topic_id = self.image().topics_by_name[name].id
        topics = [{"topic_id": topic_id, "partitions": [{"partition_index": number}]}]
        asked = {
            "broker_id": node,
            "broker_epoch": self.epochs[node],
            "directories": [{"id": where, "topics": topics}],
        }
        answer = self.ask(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, asked)
        rows = [topic["partitions"] for each in answer["directories"] for topic in each["topics"]]
        self.say((answer["error_code"], rows))

    def unregister(self, node: NodeId) -> None:
        self.say(self.ask(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": node}))

    # What the metadata log leads to.

    def image(self) -> MetadataImage:
        loader = MetadataLoader(MetadataDelta(replace(EMPTY_IMAGE, cluster_id=self.cluster_id)))
        end, high_watermark, epoch, last_epoch = 0, 1, 0, 0
        while end < high_watermark:
            partition = {
                "partition": 0,
                "current_leader_epoch": epoch,
                "fetch_offset": end,
                "last_fetched_epoch": last_epoch,
                "partition_max_bytes": 1 << 20,
            }
            values = {
                "cluster_id": self.cluster_id,
                "replica_state": {"replica_id": 9},
                "max_wait": 0,
                "min_bytes": 0,
                "topics": [{"topic_id": METADATA_TOPIC_ID, "partitions": [partition]}],
            }
            row = self.ask(ApiKey.FETCH, 17, values)["responses"][0]["partitions"][0]
            if row["current_leader"]["leader_epoch"] > epoch:
                epoch = row["current_leader"]["leader_epoch"]
                continue
            assert not row["error_code"], row["error_code"]
            high_watermark, data = row["high_watermark"], row["records"] or b""
            for position, header in iterate_batches(data):
                items = [] if header.is_control else [each.value for each in iterate_records(data, position)]
                loader.add(header, items, None)
                end, last_epoch = header.next_offset, header.leader_epoch
        return loader.image()

    def partitions(self) -> dict[tuple[str, int], PartitionRegistration]:
        image = self.image()
        return {
            (name, number): partition
            for name in sorted(image.topics_by_name)
            for number, partition in image.topics_by_name[name].partitions.items()
        }

    def brokers(self) -> dict[NodeId, Any]:
        return {
            each.id: (each.fenced, each.in_controlled_shutdown, each.rack, each.log_dirs)
            for each in self.image().brokers.values()
        }


def directory(node: NodeId, number: int = 1) -> UUID:
    return UUID(int=1_000_000 + 100 * node + number)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    path = tmp_path_factory.mktemp("controllers")
    peer = kafka_controller(path / "kafka", LONG)
    try:
        peer.start()
        with ottla_controller(path / "ottla", LONG) as node:
            sides = Side(node.bootstrap, node.data), Side(peer.controllers, peer.data)
            for side in sides:
                for each in NODES:
                    side.join(each)
            yield sides
    finally:
        peer.kill()


Step = Callable[[Side], None]


def compare(both: tuple[Side, Side], *steps: Step) -> None:
    """Every step on both, once all brokers are back, whatever was before."""
    names = ("code", "said", "brokers", "partitions")
    for count, step in enumerate((heal, *steps)):
        found = []
        for side in both:
            side.said = []
            step(side)
            found.append((side.said, side.brokers(), side.partitions()))
        for name, ours, kafkas in zip(names[1:], *found, strict=True):
            if isinstance(ours, dict):
                same = {key for key in ours if ours[key] == kafkas.get(key)}
                ours, kafkas = ({key: each[key] for key in each if key not in same} for each in (ours, kafkas))
            assert ours == kafkas, f"step {count}: {name}:\n{ours}\n{kafkas}"


def heal(side: Side) -> None:
    brokers = side.image().brokers
    for node in NODES:
        if node not in brokers or not brokers[node].active:
            side.again(node, 500 + len(side.healed))
            side.healed.append(node)
        side.beat(node)
    for node in NODES:  # the offset of the one that unfences it is lost to Kafka
        side.beat(node)


def all_in_sync(*names: str) -> Step:
    def step(side: Side) -> None:
        for name in names:
            for number, partition in side.image().topics_by_name[name].partitions.items():
                side.isr(name, partition.replicas, number=number)

    return step


TWO = {"min_insync_replicas": "2"}
UNCLEAN = {"unclean_leader_election_enable": "true"}


def test_brokers_are_fenced_and_come_back(both: tuple[Side, Side]) -> None:
    compare(
        both,
        lambda side: side.create("fenced", [1, 2, 3], [2, 3, 1], [3], [1], **TWO),
        lambda side: side.create("lossy", [1, 2, 3], [1], **TWO, **UNCLEAN),
        lambda side: side.fence(1),
        lambda side: side.fence(2),
        lambda side: side.fence(3),
        lambda side: side.beat(2),
        lambda side: side.isr("fenced", [2, 3]),
        lambda side: side.beat(3),
        lambda side: side.beat(1, offset=0),
        lambda side: side.beat(1),
        all_in_sync("fenced", "lossy"),
        lambda side: side.elect(0, None),
        lambda side: side.elect(0, None),
    )


def test_unclean_and_clean_restarts(both: tuple[Side, Side]) -> None:
    compare(
        both,
        lambda side: side.create("killed", [1, 2, 3], [2], [1, 2], **TWO),
        lambda side: side.fence(2, 3),
        lambda side: side.again(2, 1),
        lambda side: side.again(3, 1, was_clean=True),
        lambda side: side.fence(1),
        lambda side: side.again(1, 1),
        lambda side: side.beat(2),
        lambda side: side.beat(1),
        lambda side: side.beat(3),
        lambda side: side.isr("killed", [3, 1]),
        lambda side: side.isr("killed1", [2]),
        lambda side: side.fence(1),
        lambda side: side.again(1, 2, version=2),  # too old to say
        lambda side: side.beat(1),
        lambda side: side.register(1, 2, version=2),  # the same again
        lambda side: side.register(3, 3),  # alive as far as anybody knows
        all_in_sync("killed"),
    )


def test_controlled_shutdown(both: tuple[Side, Side]) -> None:
    compare(
        both,
        lambda side: side.create("stopped", [1, 2, 3], [2], [2, 1, 3], [4], **TWO),
        lambda side: side.beat(2, want_shut_down=True),
        lambda side: side.beat(2, want_shut_down=True),
        lambda side: side.beat(2, want_shut_down=True),
        lambda side: side.again(2, 11, was_clean=True),
        lambda side: side.beat(1, offset=0),
        lambda side: side.beat(2),
        all_in_sync("stopped"),
        lambda side: side.beat(2, want_shut_down=True),
        lambda side: side.beat(2, want_shut_down=True),  # 1 has not heard of it
        lambda side: side.isr("stopped", [1, 2, 3]),
        lambda side: side.beat(1),
        lambda side: side.beat(2, want_shut_down=True),
        lambda side: side.beat(2, want_shut_down=True),
        lambda side: side.again(2, 12, was_clean=True),
        lambda side: side.beat(3, want_shut_down=True, want_fence=True),
        lambda side: side.beat(4, want_shut_down=True),
        lambda side: side.beat(4),
    )


def test_isr_changes(both: tuple[Side, Side]) -> None:
    compare(
        both,
        lambda side: side.create("isr", [1, 2, 3], **TWO),
        lambda side: side.isr("isr", [1, 2]),
        lambda side: side.isr("isr", [1]),
        lambda side: side.isr("isr", [1, 3]),
        lambda side: side.isr("isr", [1, 3]),
        lambda side: side.isr("isr", [3]),
        lambda side: side.isr("isr", [1, 4]),
        lambda side: side.isr("isr", [1, 1]),
        lambda side: side.isr("isr", []),
        lambda side: side.isr("isr", [1, 9]),
        lambda side: side.isr("isr", [3], leader=3),
        lambda side: side.isr("isr", [1], leader_epoch=1),
        lambda side: side.isr("isr", [1], leader_epoch=-1),
        lambda side: side.isr("isr", [1], partition_epoch=1),
        lambda side: side.isr("isr", [1], partition_epoch=-1),
        lambda side: side.isr("isr", [1], leader_epoch=-1, partition_epoch=1),
        lambda side: side.isr("isr", [1, 2], leader_recovery_state=1),
        lambda side: side.isr("isr", [1], leader_recovery_state=1),
        lambda side: side.isr("isr", [1, 2], broker_epoch=1),
        lambda side: side.isr("isr", [1, 2], broker_epoch=-1),
        lambda side: side.fence(3),
        lambda side: side.isr("isr", [1, 2, 3]),
        lambda side: side.beat(3),
        lambda side: side.isr("isr", [1, 2, 3]),
    )


def test_reassignments(both: tuple[Side, Side]) -> None:
    compare(
        both,
        lambda side: side.create("moved", [1, 2, 3], [1, 2, 3], **TWO),
        lambda side: side.reassign("moved", [2, 3, 4]),
        lambda side: side.reassign("moved", [2, 3, 4]),
        lambda side: side.isr("moved", [1, 2, 3, 4]),
        lambda side: side.reassign("moved", None),
        lambda side: side.reassign("moved", [3, 2, 4]),
        lambda side: side.reassign("moved", [4, 1, 2]),
        lambda side: side.reassign("moved", [4, 1, 2, 3], resize=False),
        lambda side: side.reassign("moved", None),
        lambda side: side.reassign("moved", [1]),
        lambda side: side.reassign("moved", [4, 1, 2]),
        lambda side: side.fence(1),
        lambda side: side.isr("moved", [1, 4]),
        lambda side: side.reassign("moved", None),
        lambda side: side.beat(1),
        lambda side: side.reassign("moved", [3, 4], number=1),
        lambda side: side.isr("moved", [2], number=1),
        lambda side: side.isr("moved", [2, 3], number=1),
        lambda side: side.isr("moved", [2, 3, 4], number=1),
        lambda side: side.reassign("moved", [3], number=1, resize=False),
        lambda side: side.reassign("moved", [9], number=1),
        lambda side: side.reassign("moved", [3, 3], number=1),
        lambda side: side.reassign("moved", [], number=1),
        lambda side: side.reassign("moved", [1], number=7),
        lambda side: side.reassign("nowhere", [1]),
        all_in_sync("moved"),
    )


def test_a_cancel_may_need_an_unclean_leader(both: tuple[Side, Side]) -> None:
    steps: list[Step] = []
    for name in ("kept", "given-up"):
        steps += [
            lambda side, name=name: side.create(name, [1]),  # type: ignore[misc]
            lambda side, name=name: side.reassign(name, [2, 3]),  # type: ignore[misc]
            lambda side, name=name: side.isr(name, [1, 2]),  # type: ignore[misc]
            lambda side: side.fence(1),
            lambda side, name=name: side.reassign(name, None),  # type: ignore[misc]
            lambda side, name=name: side.configure(name, **UNCLEAN),  # type: ignore[misc]
            lambda side: side.beat(1),
            lambda side, name=name: side.reassign(name, None),  # type: ignore[misc]
        ]
    compare(both, *steps)


def test_elections_by_request(both: tuple[Side, Side]) -> None:
    compare(
        both,
        lambda side: side.create("elected", [1, 2, 3], [2, 3], [4], **TWO),
        lambda side: side.elect(0, "elected", 0, 1, 2, 3),
        lambda side: side.fence(1),
        lambda side: side.elect(0, "elected", 0),
        lambda side: side.beat(1),
        lambda side: side.elect(0, "elected", 0),
        lambda side: side.isr("elected", [1, 2, 3]),
        lambda side: side.elect(1, "elected", 0),
        lambda side: side.elect(0, "elected", 0),
        lambda side: side.isr("elected2", [2]),
        lambda side: side.fence(2, 4),
        lambda side: side.again(2, 21),
        lambda side: side.elect(1, "elected2", 0),
        lambda side: side.elect(1, None),
        lambda side: side.elect(5, "elected", 0),
        lambda side: side.elect(0, "nowhere", 0),
        lambda side: side.beat(2),
        lambda side: side.beat(4),
    )


def test_without_eligible_leader_replicas(both: tuple[Side, Side]) -> None:
    compare(
        both,
        lambda side: side.create("older", [1, 2, 3], [1], **TWO),
        lambda side: side.isr("older", [1]),
        lambda side: side.level(features.ELR_VERSION, 0),
        lambda side: side.fence(1),
        lambda side: side.beat(1),
        lambda side: side.isr("older", [1, 2]),
        lambda side: side.fence(2, 1),
        lambda side: side.again(1, 31),
        lambda side: side.beat(2),
        lambda side: side.beat(1),
        lambda side: side.level(features.ELR_VERSION, 1),
        lambda side: side.isr("older", [1]),
        lambda side: side.configure("older", min_insync_replicas="3"),
        lambda side: side.isr("older", [1, 2]),
        lambda side: side.fence(2),
        lambda side: side.configure("older", min_insync_replicas="1"),
        lambda side: side.beat(2),
    )


def test_directories(both: tuple[Side, Side]) -> None:
    compare(
        both,
        lambda side: side.create("placed", [1, 2], [1], **TWO),
        lambda side: side.assign(1, "placed", directory(1)),
        lambda side: side.assign(1, "placed1", directory(1, 2)),
        lambda side: side.assign(1, "placed", directory(1), number=5),
        lambda side: side.assign(3, "placed", directory(3)),
        lambda side: side.beat(1, offline_log_dirs=(directory(1, 2),)),
        lambda side: side.beat(1, offline_log_dirs=(directory(1, 2),)),
        lambda side: side.assign(1, "placed", directory(1, 2)),
        lambda side: side.assign(1, "placed", directory(1)),
        lambda side: side.fence(1),
        lambda side: side.again(1, 41, was_clean=True),
        lambda side: side.beat(1),
        all_in_sync("placed"),
    )


def test_brokers_are_unregistered(both: tuple[Side, Side]) -> None:
    compare(
        both,
        lambda side: side.create("left", [4, 1, 2], [4], [1, 4], **TWO),
        lambda side: side.isr("left2", [1]),
        lambda side: side.unregister(4),
        lambda side: side.unregister(4),
        lambda side: side.create("nobody", [4]),
        lambda side: side.join(4, 51),
    )


def test_every_partition_was_compared(both: tuple[Side, Side]) -> None:
    """Last: what all of them have become."""
    ours, kafkas = (side.partitions() for side in both)
    assert ours == kafkas
    assert len(ours) >= 15
    assert ZERO_UUID not in {each for partition in ours.values() for each in partition.directories}
