"""A cluster that lives in ZooKeeper: after any decisions the tree says what the controller's image says, also where a
tool had its hand in it, where a change is cut in two by a crash, and where a deposed controller goes on writing."""

from __future__ import annotations

import asyncio
import random as random_module
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from ottla.config.secret import revealed
from ottla.config.server import ServerConfig
from ottla.drivers.zookeeper import tree as zookeeper_tree
from ottla.drivers.zookeeper.services import ZooKeeperServices
from ottla.drivers.zookeeper.tree import Deposed, TreeWriter
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata import features
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, MetadataImage, acl_content
from ottla.metadata.replay import replay
from ottla.model import random_uuid
from ottla.protocol.schemas import records as r
from ottla.steps import at_once
from ottla.testing.disk import SimulatedFileSystem
from ottla.znodes import cluster
from ottla.znodes.changes import changes_of, check
from ottla.znodes.reading import image_of
from ottla.znodes.state import UNMADE_EPOCH, read_state
from ottla.znodes.tree import Znode
from ottla.zookeeper.errors import Code, NoNodeError, ZooKeeperError, error_of
from ottla.zookeeper.messages import OPEN_ACL_UNSAFE, Check, Create, SetData
from tests.unit.drivers.parts import Clock, new_disk
from tests.unit.migration.world import FakeZooKeeper

EPOCH = 7
STEPS = 60
NAMES = ("a", "b", "a b", "ü", "long.name")


class Ensemble(FakeZooKeeper):
    """With what a controller needs beside what an import does."""

    async def exists(self, path: str) -> Any:
        try:
            return (await self.get(path))[1]
        except NoNodeError:
            return None

    left: int | None = None
    """How many more requests it takes."""

    async def multi(self, ops: Sequence[Any]) -> list[Any]:
        if self.left is not None:
            if not self.left:
                raise error_of(Code.CONNECTION_LOSS, "", maybe_applied=False)
            self.left -= 1
        for number, op in enumerate(ops):
            if isinstance(op, Check) and self.nodes.get(op.path, (b"", None))[1] != op.version:
                results = [error_of(Code.RUNTIME_INCONSISTENCY, each.path) for each in ops]
                results[number] = error_of(Code.BAD_VERSION, op.path)
                raise error_of(Code.BAD_VERSION, op.path, results=results)
        if any(not isinstance(op, Create | Check) and op.path not in self.nodes for op in ops):
            made = {op.path for op in ops if isinstance(op, Create)}
            gone = next(op.path for op in ops if op.path not in self.nodes and op.path not in made)
            raise error_of(Code.NO_NODE, gone)
        return await super().multi([op for op in ops if not isinstance(op, Check)])


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = random_module.Random(seed)
        roots = {path: Znode() for path in zookeeper_tree.ROOTS}
        roots[cluster.FEATURE] = Znode(b'{"version":2,"status":1,"features":{}}')
        roots |= {"/kafka-acl-extended/prefixed": Znode(), "/admin/delete_topics": Znode()}
        roots[cluster.CONTROLLER_EPOCH] = Znode(b"7", 3)
        roots[cluster.CLUSTER_ID] = Znode(cluster.encode_cluster_id("c"))
        self.ensemble = Ensemble(roots, SimulatedFileSystem(self.random))
        self.writer = TreeWriter(self.ensemble, 3, lambda path: OPEN_ACL_UNSAFE)  # type: ignore[arg-type]
        self.image = self.read()
        self.offset = 0

    def read(self) -> MetadataImage:
        """As a controller would that is elected now."""
        state = read_state(self.ensemble.tree(), "c", 1, (), lambda: random_uuid(self.random))
        return image_of(iter(state.records), "c")

    def changed(self, records: Sequence[Any]) -> tuple[MetadataDelta, MetadataImage]:
        delta = MetadataDelta(self.image)
        for record in records:
            replay(record, delta)
        self.offset += len(records)
        return delta, delta.apply(self.offset, EPOCH, 0)

    def decide(self, records: Sequence[Any]) -> None:
        delta, self.image = self.changed(records)
        asyncio.run(self.writer.write(at_once(changes_of(delta, self.image, EPOCH, None))))

    # What may be decided.

    def create(self) -> list[Any]:
        name = self.random.choice(NAMES)
        if name in self.image.topics_by_name:
            return []
        topic_id = random_uuid(self.random)
        return [r.TopicRecord(name, topic_id), *self.new_partitions(topic_id, 0), *self.settings(name)]

    def new_partitions(self, topic_id: UUID, first: int) -> list[Any]:
        replicas = tuple(self.random.sample(range(1, 5), 2))
        count = self.random.randint(1, 3)
        return [
            r.PartitionRecord(n, topic_id, replicas, replicas, leader=replicas[0], leader_epoch=0, partition_epoch=0)
            for n in range(first, first + count)
        ]

    def settings(self, name: str) -> list[Any]:
        keys = self.random.sample(("retention.ms", "segment.bytes"), self.random.randint(0, 2))
        return [r.ConfigRecord(2, name, key, self.random.choice((None, "1", "2"))) for key in keys]

    def extend(self) -> list[Any]:
        topic = self.some_topic()
        return [] if topic is None else self.new_partitions(topic.id, len(topic.partitions))

    def delete(self) -> list[Any]:
        topic = self.some_topic()
        return [] if topic is None else [r.RemoveTopicRecord(topic.id)]

    def recreate(self) -> list[Any]:
        topic = self.some_topic()
        if topic is None:
            return []
        topic_id = random_uuid(self.random)
        return [r.RemoveTopicRecord(topic.id), r.TopicRecord(topic.name, topic_id), *self.new_partitions(topic_id, 0)]

    def some_topic(self) -> Any:
        topics = sorted(self.image.topics, key=lambda each: each.name)
        return self.random.choice(topics) if topics else None

    def change(self) -> list[Any]:
        topic = self.some_topic()
        if topic is None:
            return []
        found: list[Any] = []
        for _ in range(self.random.randint(1, 3)):  # one partition may change twice in a decision
            number = self.random.randrange(len(topic.partitions))
            replicas = topic.partitions[number].replicas
            change = r.PartitionChangeRecord(number, topic.id)
            kind = self.random.randrange(4)
            if kind == 0:
                change.isr = tuple(self.random.sample(replicas, self.random.randint(1, len(replicas))))
            elif kind == 1:
                change.leader = self.random.choice((-1, *replicas))
            elif kind == 2:
                change.replicas = tuple(self.random.sample(range(1, 5), 3))
                change.adding_replicas, change.removing_replicas = change.replicas[:1], ()
            else:
                change.leader_recovery_state = self.random.randrange(2)
            found.append(change)
        return found

    def configure(self) -> list[Any]:
        topic = self.some_topic()
        found = [] if topic is None else self.settings(topic.name)
        kind, name = self.random.choice(((4, ""), (4, "3"), (32, "a group"), (16, "metrics")))
        return [*found, r.ConfigRecord(kind, name, "key", self.random.choice((None, "x", "ü")))]

    def entity(self) -> list[Any]:
        names = self.random.choice(
            (
                (("user", "ü b"),),
                (("user", None),),
                (("client-id", "c/d"),),
                (("client-id", "c/d"), ("user", "ü b")),
                (("client-id", None), ("user", None)),
                (("ip", "10.0.0.1"),),
            )
        )
        rows = tuple(r.QuotaEntityData(kind, name) for kind, name in names)
        key = self.random.choice(("producer_byte_rate", "request_percentage"))
        return [r.ClientQuotaRecord(rows, key, float(self.random.randint(1, 9)), remove=self.random.random() < 0.3)]

    def credential(self) -> list[Any]:
        user, mechanism = self.random.choice(("ü b", "other")), self.random.randint(1, 2)
        if (user, mechanism) in self.image.scram_credentials:
            return [r.RemoveUserScramCredentialRecord(user, mechanism)]
        return [r.UserScramCredentialRecord(user, mechanism, b"salt", b"stored", b"server", 4096)]

    def acl(self) -> list[Any]:
        if self.image.acls and self.random.random() < 0.4:
            return [r.RemoveAccessControlEntryRecord(self.random.choice(sorted(self.image.acls)))]
        name = self.random.choice(("t", "t/u", "*", "ü"))
        found = r.AccessControlEntryRecord(
            random_uuid(self.random),
            2,
            name,
            self.random.choice((3, 4)),
            f"User:{self.random.randint(1, 3)}",
            "*",
            3,
            3,
        )
        known = {acl_content(each) for each in self.image.acls.values()}
        return [] if acl_content(found) in known else [found]

    def token(self) -> list[Any]:
        token_id = f"t{self.random.randint(1, 3)}"
        if token_id in self.image.delegation_tokens and self.random.random() < 0.5:
            return [r.RemoveDelegationTokenRecord(token_id)]
        times = self.random.randint(1, 99)
        return [r.DelegationTokenRecord("User:a", "User:b", ("User:ü",), times, times + 9, times + 5, token_id)]

    def others(self) -> list[Any]:
        level = self.random.randint(0, 1)
        return [
            r.ProducerIdsRecord(1, 1, self.image.next_producer_id + 1000),
            r.FeatureLevelRecord(features.GROUP_VERSION, level),
        ]

    def any(self) -> list[Any]:
        kinds = (
            self.create,
            self.extend,
            self.delete,
            self.recreate,
            self.change,
            self.change,
            self.configure,
            self.entity,
            self.credential,
            self.acl,
            self.token,
            self.others,
        )
        return self.random.choice(kinds)()


def comparable(image: MetadataImage) -> dict[str, Any]:
    """What a tree says of an image: not where replicas lie, nor the ids of ACLs."""
    topics = {
        topic.name: (topic.id, {n: each._replace(directories=()) for n, each in topic.partitions.items()})
        for topic in image.topics
    }
    quotas = {entity: dict(each) for entity, each in image.client_quotas.items() if each}
    return {
        "topics": topics,
        "configs": {resource: dict(each) for resource, each in image.configs.items() if each},
        "quotas": quotas,
        "credentials": dict(image.scram_credentials),
        "acls": sorted(acl_content(each) for each in image.acls.values()),
        "tokens": dict(image.delegation_tokens),
        "producer ids": image.next_producer_id,
        "features": {name: level for name, level in image.features.items() if level},
    }


@pytest.mark.parametrize("seed", range(12))
def test_a_new_controller_reads_what_was_decided(seed: int) -> None:
    walk = Walk(seed)
    for step in range(STEPS):
        records = walk.any()
        walk.decide(records)
        assert comparable(walk.read()) == comparable(walk.image), f"seed {seed}, step {step}: {records}"


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_tool_has_left_there(seed: int) -> None:
    """Znodes that are there though nobody decided on them, or are gone: written nevertheless."""
    walk = Walk(seed)
    for name in NAMES:
        walk.ensemble.nodes[f"/config/topics/{name}"] = b"", 4
    for _ in range(STEPS):
        walk.decide(walk.any())
        if walk.random.random() < 0.1:
            gone = [
                each
                for each in walk.ensemble.nodes
                if each.startswith(("/config/users/", "/config/brokers/"))
                and "/clients" not in each
                and f"{each}/clients" not in walk.ensemble.nodes
            ]
            for each in gone:
                del walk.ensemble.nodes[each]
    topic = replace(EMPTY_IMAGE) if walk.some_topic() is None else walk.image
    assert comparable(walk.read())["topics"] == (comparable(topic)["topics"])


@pytest.mark.parametrize("seed", range(4))
def test_a_change_in_two_parts_leaves_what_can_be_completed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change too large for one request stops behind any part: the next controller finds each partition as it was, as
    it is to be, or new and without a state."""
    monkeypatch.setattr(zookeeper_tree, "MULTI_OPERATIONS_MAX", 3)
    walk = Walk(seed)
    for _ in range(STEPS):
        records = walk.any()
        delta, after = walk.changed(records)
        changes = at_once(changes_of(delta, after, EPOCH, None))
        before = dict(walk.ensemble.nodes)
        for stop in range(1, 5 + 3 * len(changes)):
            walk.ensemble.nodes = dict(before)
            walk.ensemble.left = stop
            try:
                asyncio.run(walk.writer.write(changes))
            except ZooKeeperError:
                _is_between(comparable(walk.image), comparable(walk.read()), comparable(after))
            else:
                break
        walk.image = after
        assert comparable(walk.read()) == comparable(walk.image)


def _is_between(before: dict[str, Any], found: dict[str, Any], after: dict[str, Any]) -> None:
    for name, (topic_id, partitions) in found["topics"].items():
        old, new = before["topics"].get(name), after["topics"].get(name)
        assert topic_id in {each[0] for each in (old, new) if each is not None}
        for number, partition in partitions.items():
            if partition.partition_epoch == UNMADE_EPOCH:
                continue
            known = [each[1][number] for each in (old, new) if each is not None and number in each[1]]
            assert partition.leader_epoch in {each.leader_epoch for each in known}


def test_a_deposed_controller_writes_nothing() -> None:
    walk = Walk(1)
    walk.decide(walk.create())
    _, version = walk.ensemble.nodes[cluster.CONTROLLER_EPOCH]
    asyncio.run(walk.ensemble.multi([SetData(cluster.CONTROLLER_EPOCH, b"8", version)]))
    before = dict(walk.ensemble.nodes)
    for records in (walk.create(), walk.delete(), walk.configure()):
        delta, after = walk.changed(records)
        with pytest.raises(Deposed):
            asyncio.run(walk.writer.write(at_once(changes_of(delta, after, EPOCH, None))))
        assert walk.ensemble.nodes == before


def test_a_large_topic_that_is_deleted_in_part_stays_deleted() -> None:
    """The wish is written before the first part goes, and a new controller goes on with it."""
    walk = Walk(1)
    topic_id = random_uuid(walk.random)
    rows = [
        r.PartitionRecord(n, topic_id, (1,), (1,), leader=1, leader_epoch=0, partition_epoch=0) for n in range(1200)
    ]
    walk.decide([r.TopicRecord("large", topic_id), *rows])
    walk.ensemble.left = 2
    with pytest.raises(ZooKeeperError):
        walk.decide([r.RemoveTopicRecord(topic_id)])
    assert "large" in walk.read().topics_by_name and "/admin/delete_topics/large" in walk.ensemble.nodes


def test_passwords_are_encrypted_and_refused_without_a_secret() -> None:
    settings = {
        "zookeeper.connect": "zk:2181",
        "broker.id": "1",
        "password.encoder.secret": "opens it",
        "listeners": "PLAINTEXT://127.0.0.1:0",
    }
    services: Any = ZooKeeperServices(
        new_disk(), Clock(), random_module.Random(1), ServerConfig.load(None, settings), None, None
    )  # type: ignore[arg-type]
    walk = Walk(1)
    delta, image = walk.changed([r.ConfigRecord(4, "1", "listener.name.ssl.ssl.key.password", "hidden")])
    with pytest.raises(KafkaError) as caught:
        check(delta, can_encrypt=False)
    assert caught.value.code == ErrorCode.invalid_config
    check(delta, can_encrypt=True)
    asyncio.run(walk.writer.write(at_once(changes_of(delta, image, EPOCH, services._encrypt()))))
    assert b"hidden" not in b"".join(data for data, _ in walk.ensemble.nodes.values())
    found = read_state(walk.ensemble.tree(), "c", 1, ("opens it",), lambda: random_uuid(walk.random))
    settings_now = image_of(iter(found.records), "c").config(4, "1")
    assert revealed(settings_now["listener.name.ssl.ssl.key.password"]) == "hidden"
