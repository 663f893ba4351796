"""Whatever is asked of a controller, and in whatever order: what must hold of every partition after each decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import pytest

from ottla.controller import brokers, directories, isr, leader_elections, reassignments, topics
from ottla.controller.broker_sessions import BrokerSessions
from ottla.controller.decision import Decision
from ottla.controller.partition_change import is_online, topic_rules
from ottla.errors import KafkaError
from ottla.metadata import features
from ottla.metadata.image import EMPTY_IMAGE, NO_LEADER, LeaderRecoveryState, MetadataImage, PartitionRegistration
from ottla.metadata.replica_index import partitions_of
from ottla.model import NodeId
from ottla.protocol.schemas import records as r
from ottla.steps import at_once
from tests.unit.metadata.images import apply, feature_records, settings

NODES = range(1, 6)
STEPS = 150


class Walk:
    """A cluster of five brokers with two directories each, to which anything may happen."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        records = feature_records()
        if seed % 4 == 0:
            records.append(r.FeatureLevelRecord(features.ELR_VERSION, 0))
        records.append(r.ConfigRecord(4, "", "min.insync.replicas", str(1 + seed % 3)))
        self.image: MetadataImage = apply(records, replace(EMPTY_IMAGE, cluster_id="c"))
        self.sessions = BrokerSessions(9)
        self.dirs = {node: [UUID(int=1000 * node + each) for each in (1, 2)] for node in NODES}
        self.done: Counter[str] = Counter()
        self.vouched: set[NodeId] = set()
        """Replicas in sync, according to the leader that asks for a new ISR."""
        for node in NODES:
            self.register(node)
            self.beat(node)
        for name, unclean in (("clean", "false"), ("unclean", "true")):
            asked = {"name": name, "num_partitions": 4, "replication_factor": 3}
            configs = [{"name": "unclean.leader.election.enable", "value": unclean}]
            self.decide(
                topics.create_topics(
                    self.image, {"topics": [{**asked, "configs": configs}]}, settings(self.image), self.random
                )
            )

    def decide(self, decided: Decision[Any] | Generator[Any, Any, Decision[Any]]) -> Any:
        decision = decided if isinstance(decided, Decision) else at_once(decided)
        before = self.image
        self.image = apply(decision.records, before)
        check(before, self.image, self.vouched)
        return decision.response

    # What happens.

    def register(self, node: NodeId) -> None:
        before = self.image.brokers.get(node)
        was_clean = before is not None and self.random.random() < 0.5
        asked = {
            "broker_id": node,
            "cluster_id": "c",
            "incarnation_id": UUID(int=self.random.getrandbits(100)),
            "listeners": [],
            "rack": f"r{node % 2}",
            "log_dirs": self.dirs[node],
            "features": [
                {"name": name, "min_supported_version": low, "max_supported_version": high}
                for name, (low, high) in features.SUPPORTED.items()
            ],
            "previous_broker_epoch": before.epoch if before is not None and was_clean else -1,
        }
        self.sessions.drop(node)
        self.decide(brokers.register_broker(self.image, asked, "c", settings(self.image)))

    def beat(self, node: NodeId, **fields: Any) -> None:
        broker = self.image.brokers.get(node)
        if broker is None:
            return
        if broker.in_controlled_shutdown:  # who stops does not change its mind
            fields["want_shut_down"] = True
        asked = {
            "broker_id": node,
            "broker_epoch": broker.epoch,
            "want_fence": False,
            "want_shut_down": False,
            **fields,
        }
        asked.setdefault("current_metadata_offset", self.image.offset)
        self.sessions.touch(node, broker.epoch, 0, asked["current_metadata_offset"])
        self.decide(brokers.heartbeat(self.image, asked, settings(self.image), self.sessions))

    def shut_down(self, node: NodeId) -> None:
        self.beat(node, want_shut_down=True)

    def lose_a_directory(self, node: NodeId) -> None:
        self.beat(node, offline_log_dirs=[self.random.choice(self.dirs[node])])

    def fence(self, node: NodeId) -> None:
        self.sessions.drop(node)
        self.decide(brokers.fence(self.image, node, settings(self.image)))

    def unregister(self, node: NodeId) -> None:
        if self.random.random() < 0.2 and node in self.image.brokers:
            self.decide(brokers.unregister_broker(self.image, {"broker_id": node}, settings(self.image)))

    def some_partition(self) -> tuple[str, UUID, int, PartitionRegistration]:
        topic = self.image.topic(self.random.choice(["clean", "unclean"]))
        assert topic is not None
        number = self.random.randrange(4)
        return topic.name, topic.id, number, topic.partitions[number]

    def heal(self, node: NodeId) -> None:
        """All brokers are back, and all replicas that can be are in sync."""
        for each in NODES:
            broker = self.image.brokers.get(each)
            if broker is None or not broker.active or len(broker.log_dirs) < 2:
                self.register(each)
                self.beat(each)
        for topic in list(self.image.topics):
            for number in topic.partitions:
                self.ask_isr(topic.id, number, self.image.topics_by_id[topic.id].partitions[number], 1.0)

    def alter_isr(self, node: NodeId) -> None:
        _, topic_id, number, partition = self.some_partition()
        self.ask_isr(topic_id, number, partition, 0.6)

    def ask_isr(self, topic_id: UUID, number: int, partition: PartitionRegistration, share: float) -> None:
        leader = self.image.brokers.get(partition.leader)
        if leader is None:
            return
        in_sync = [each for each in partition.replicas if each == leader.id or self.random.random() < share]
        epochs = {each: broker.epoch for each, broker in self.image.brokers.items()}
        row = {
            "partition_index": number,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "leader_recovery_state": 0,
            "new_isr_with_epochs": [{"broker_id": each, "broker_epoch": epochs.get(each, 0)} for each in in_sync],
        }
        asked = {"broker_id": leader.id, "broker_epoch": leader.epoch}
        self.vouched = set(in_sync)
        self.decide(
            isr.alter_partition(
                self.image, {**asked, "topics": [{"topic_id": topic_id, "partitions": [row]}]}, settings(self.image)
            )
        )

    def reassign(self, node: NodeId) -> None:
        name, _, number, _ = self.some_partition()
        replicas = None if self.random.random() < 0.3 else self.random.sample(list(NODES), self.random.randint(1, 4))
        row = {"partition_index": number, "replicas": replicas}
        asked = {"topics": [{"name": name, "partitions": [row]}]}
        self.decide(reassignments.alter_reassignments(self.image, asked, settings(self.image)))

    def elect(self, node: NodeId) -> None:
        name, _, number, _ = self.some_partition()
        asked = [{"topic": name, "partitions": [number]}] if self.random.random() < 0.7 else None
        kind = 0 if name == "clean" or asked is None else self.random.randrange(2)
        request = {"election_type": kind, "topic_partitions": asked}
        self.decide(leader_elections.elect_leaders(self.image, request, settings(self.image)))

    def by_itself(self, node: NodeId) -> None:
        for decide in (leader_elections.balance_leaders, leader_elections.elect_unclean_leaders):
            self.decide(decide(self.image, settings(self.image)))

    def assign_directory(self, node: NodeId) -> None:
        _, topic_id, number, partition = self.some_partition()
        broker = self.image.brokers.get(node)
        if broker is not None and is_online(broker, partition.directory(node)):
            where = {(topic_id, number): self.random.choice(self.dirs[node])}
            asked = directories.assignment_request(node, broker.epoch, where)
            self.decide(directories.assign_replicas_to_dirs(self.image, asked, settings(self.image)))

    def run(self) -> None:
        acts: list[Callable[[NodeId], None]] = [
            self.register,
            self.beat,
            self.beat,
            self.shut_down,
            self.lose_a_directory,
            self.fence,
            self.unregister,
            self.alter_isr,
            self.alter_isr,
            self.alter_isr,
            self.reassign,
            self.elect,
            self.by_itself,
            self.heal,
            self.heal,
            self.assign_directory,
        ]
        for _ in range(STEPS):
            act = self.random.choice(acts)
            before = self.image
            self.vouched = set()
            try:
                act(self.random.choice(list(NODES)))
            except KafkaError:
                continue
            self.done[act.__name__] += self.image is not before and self.image.offset > before.offset


def check(before: MetadataImage, after: MetadataImage, vouched: set[NodeId]) -> None:
    for topic in after.topics:
        rules = topic_rules(after, topic, settings(after))
        was = before.topic_by_id(topic.id)
        for number, partition in topic.partitions.items():
            check_alone(after, partition, keeps_elr=rules.keeps_elr)
            if was is not None and was.partitions[number] != partition:
                check_step(was.partitions[number], partition, vouched, may_be_unclean=rules.unclean)
    indexed = {(node, topic.id, number) for node in NODES for topic, number, _ in partitions_of(after, node)}
    found = {
        (node, topic.id, number)
        for topic in after.topics
        for number, partition in topic.partitions.items()
        for node in partition.replicas
    }
    assert indexed == found


def check_alone(image: MetadataImage, partition: PartitionRegistration, *, keeps_elr: bool) -> None:
    replicas, in_sync, eligible = map(set, (partition.replicas, partition.isr, partition.elr))
    assert len(replicas) == len(partition.replicas) == len(partition.directories)
    assert len(in_sync) == len(partition.isr) and in_sync <= replicas
    assert eligible <= replicas and not eligible & in_sync
    assert keeps_elr or (not eligible and in_sync)
    assert {*partition.adding, *partition.removing} <= replicas
    able = {
        each
        for each in replicas
        if each in image.brokers
        and image.brokers[each].active
        and is_online(image.brokers[each], partition.directory(each))
    }
    if partition.leader == NO_LEADER:
        assert not able & (in_sync or eligible), "somebody could lead"
    else:
        assert partition.leader in in_sync & able
        assert not partition.last_known_elr
    if (partition.adding or partition.removing) and len(in_sync) > 1:  # an election to one ends it with the next change
        stay = replicas - set(partition.removing)
        assert not stay <= in_sync, "the reassignment should be over"


def check_step(
    before: PartitionRegistration, after: PartitionRegistration, vouched: set[NodeId], *, may_be_unclean: bool
) -> None:
    assert 1 <= after.partition_epoch - before.partition_epoch <= 2  # 2: assigned to a directory that is lost
    grows = after.leader != before.leader or not set(before.replicas) <= set(after.replicas)
    assert after.leader_epoch == before.leader_epoch + grows
    if after.leader not in {NO_LEADER, before.leader, *before.isr, *before.elr, *vouched}:
        assert after.isr == (after.leader,)
        assert after.recovery_state == LeaderRecoveryState.RECOVERING
        assert not after.elr
        assert may_be_unclean or before.last_known_elr == (after.leader,)


@pytest.mark.parametrize("start", range(0, 40, 10))
def test_invariants_of_partitions(start: int) -> None:
    done: Counter[str] = Counter()
    for seed in range(start, start + 10):
        walk = Walk(seed)
        walk.run()
        done += walk.done
    assert len(done) == 12, done
    assert min(done.values()) >= 3, done
    assert done.total() > 10 * STEPS / 4, done
