"""An ensemble and the disks of three brokers in memory, which stop at any step that changes something."""

from __future__ import annotations

import random as random_module
from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from ottla.metadata import features
from ottla.metadata.image import MetadataImage
from ottla.metadata.writer import encode, image_records
from ottla.migration.directories import Node
from ottla.model import TopicPartition
from ottla.protocol.schemas import records as r
from ottla.quorum.snapshot import SnapshotId, write_snapshot
from ottla.quorum.voters import Configuration, ReplicaKey, VoterSet, voter
from ottla.storage.checkpoints.meta_properties import MetaProperties, encode_meta_properties
from ottla.storage.checkpoints.partition_metadata import write_partition_metadata
from ottla.testing.disk import SimulatedCrash, SimulatedFileSystem
from ottla.znodes import cluster
from ottla.znodes.reading import image_of
from ottla.znodes.topics import (
    PartitionState,
    TopicZnode,
    encode_state,
    encode_topic,
    partitions_path,
    state_path,
    topic_path,
)
from ottla.znodes.tree import Tree, Znode, to_json
from ottla.znodes.writing import WriteOptions, Writer
from ottla.zookeeper.errors import BadVersionError, Code, NodeExistsError, NoNodeError, error_of
from ottla.zookeeper.messages import OPEN_ACL_UNSAFE, Create, Delete, GetData, SetData

CLUSTER = "a cluster of old"
WITH_ID = UUID("6d0bd0f8-bbd5-4b0b-9bb0-0a9ae83de2f0")
TOPICS = ("one", "gone", "two")
DELETED = "deleted"
"""Its deletion waits for a broker."""
DELETED_ID = UUID("0f2b8e0a-3c5d-4b5e-8a27-4c1d8f3e9b71")
MOVED = (2, 4)
"""Where a tool has asked for partition 0 of `one`; the last broker that was up is 3."""
NODES = tuple(
    Node(f"n{number}.properties", number, True, True, tuple(f"/n{number}/{name}" for name in "ab"[: number // 3 + 1]),
         f"/n{number}/a", frozenset({1, 2, 3}))
    for number in (1, 2, 3)
)  # fmt: skip


class FakeZooKeeper:
    """Znodes with versions; a `multi` is applied whole or not at all. `disk` counts its writes among its steps."""

    def __init__(self, tree: Tree, disk: SimulatedFileSystem) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self.disk = disk
        self.writes = 0
        for path, znode in sorted(tree.items()):
            for parent in _parents(path):
                self.nodes.setdefault(parent, (b"", 0))
            self.nodes[path] = znode.data, znode.version

    async def sync(self, path: str = "/") -> None:
        self.disk.check_running()

    async def get(self, path: str) -> Any:
        self.disk.check_running()
        if path not in self.nodes:
            raise error_of(Code.NO_NODE, path)
        data, version = self.nodes[path]
        return data, SimpleNamespace(version=version, num_children=len(self._below(path)))

    async def children(self, path: str) -> Any:
        self.disk.check_running()
        if path not in self.nodes:
            raise error_of(Code.NO_NODE, path)
        return self._below(path), None

    async def read_many(self, requests: Iterable[Any]) -> list[Any]:
        found: list[Any] = []
        for each in requests:
            try:
                found.append(await (self.get if isinstance(each, GetData) else self.children)(each.path))
            except NoNodeError as error:
                found.append(error)
        return found

    async def acl(self, path: str) -> Any:
        if path not in self.nodes:
            raise error_of(Code.NO_NODE, path)
        return SimpleNamespace(acls=OPEN_ACL_UNSAFE)

    def _below(self, path: str) -> list[str]:
        return [each.rpartition("/")[2] for each in self.nodes if each.rpartition("/")[0] == path]

    async def multi(self, ops: Iterable[Any]) -> list[Any]:
        self.disk.check_running()
        after = dict(self.nodes)
        for op in ops:
            if isinstance(op, Create):
                if op.path in after:
                    raise NodeExistsError(Code.NODE_EXISTS, op.path)
                if op.path.rpartition("/")[0] not in {*after, ""}:
                    raise NoNodeError(Code.NO_NODE, op.path)
                after[op.path] = op.data, 0
                continue
            if op.path not in after:
                raise NoNodeError(Code.NO_NODE, op.path)
            if op.version not in (-1, after[op.path][1]):
                raise BadVersionError(Code.BAD_VERSION, op.path)
            if isinstance(op, SetData):
                after[op.path] = op.data, after[op.path][1] + 1
            elif isinstance(op, Delete):
                assert not any(each.startswith(f"{op.path}/") for each in after), f"{op.path} is not empty"
                del after[op.path]
        self.writes += 1
        self.disk.step(lambda: setattr(self, "nodes", after), f"multi of {len(list(ops))}")
        return []

    def tree(self) -> dict[str, Znode]:
        return {path: Znode(*content) for path, content in self.nodes.items()}


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def records(*, with_ids: bool) -> list[Any]:
    found: list[Any] = [r.FeatureLevelRecord(features.METADATA_VERSION, features.METADATA_VERSION_4_4)]
    for number, name in enumerate(TOPICS):
        topic_id = UUID(int=WITH_ID.int + number)
        found.append(r.TopicRecord(name, topic_id))
        found += [
            r.PartitionRecord(n, topic_id, (1, 2, 3), (3,), leader=3, leader_epoch=5 + n, partition_epoch=9)
            for n in range(2)
        ]
    found.append(r.ConfigRecord(2, "one", "retention.ms", "5"))
    found.append(r.ConfigRecord(4, "", "log.cleaner.threads", "2"))
    found.append(r.ClientQuotaRecord((r.QuotaEntityData("user", "ü"),), "request_percentage", 5.0))
    found.append(r.UserScramCredentialRecord("ü", 1, b"salt", b"stored", b"server", 4096))
    found.append(r.AccessControlEntryRecord(UUID(int=500), 2, "one", 4, "User:ü", "*", 3, 3))
    found.append(r.ProducerIdsRecord(-1, -1, 4000))
    return found


def tree(*, with_ids: bool) -> dict[str, Znode]:
    """As brokers left it that have all been stopped."""
    image = image_of(iter(records(with_ids=with_ids)), CLUSTER)
    found = Writer(image, WriteOptions(with_ids, controller_epoch=4)).write()
    found[cluster.CONTROLLER_EPOCH] = Znode(b"4", 3)
    for path in ("/config/clients", "/config/ips", "/config/changes", "/kafka-acl/Topic", cluster.BROKER_IDS):
        found[path] = Znode()
    found["/kafka-acl-extended/prefixed"] = Znode()
    found[cluster.DELETIONS] = Znode()
    return found


def under_way(*, with_ids: bool) -> dict[str, Znode]:
    """A deletion and a reassignment that brokers had not finished."""
    topic = TopicZnode(DELETED_ID if with_ids else None, {0: (1, 2)})
    return {
        topic_path(DELETED): Znode(encode_topic(topic)),
        partitions_path(DELETED): Znode(),
        f"{partitions_path(DELETED)}/0": Znode(),
        state_path(DELETED, 0): Znode(encode_state(PartitionState(-1, 7, (2,), 4)), 3),
        f"{cluster.DELETIONS}/{DELETED}": Znode(),
        cluster.REASSIGNMENTS: Znode(
            to_json(
                {
                    "version": 1,
                    "partitions": [{"topic": "one", "partition": 0, "replicas": list(MOVED)}],
                }
            )
        ),
    }


class World:
    """`files` are those of all three brokers."""

    def __init__(self, seed: int, *, with_ids: bool, unfinished: bool = False) -> None:
        self.random = random_module.Random(seed)
        self.disk = SimulatedFileSystem(random_module.Random(seed))
        for node in NODES:
            for number, path in enumerate(node.log_dirs):
                self.disk.makedirs(path)
                meta = encode_meta_properties(MetaProperties(CLUSTER, node.node_id, version=0))
                self.disk.write_atomic(f"{path}/meta.properties", meta)
                for at, topic in enumerate(TOPICS[: 3 - number]):
                    key = TopicPartition(topic, number)
                    self.disk.makedirs(f"{path}/{key}")
                    self.disk.write_atomic(f"{path}/{key}/00000000000000000000.log", b"records")
                    if with_ids:
                        write_partition_metadata(self.disk, f"{path}/{key}", UUID(int=WITH_ID.int + at))
        if unfinished:
            self.disk.makedirs(f"/n1/a/{DELETED}-0")
            self.disk.write_atomic(f"/n1/a/{DELETED}-0/00000000000000000000.log", b"old records")
            if with_ids:
                write_partition_metadata(self.disk, f"/n1/a/{DELETED}-0", DELETED_ID)
        self.disk.fsync_all()
        more = under_way(with_ids=with_ids) if unfinished else {}
        self.zookeeper = FakeZooKeeper({**tree(with_ids=with_ids), **more}, self.disk)
        self.before = self.files()
        self.disk.steps = 0

    def files(self) -> dict[str, bytes]:
        found = self.disk.files()
        return {path: data for path, data in found.items() if not path.endswith((".lock", ".tmp"))}

    def ran(self, image: MetadataImage, epoch: int, nodes: Sequence[Node] = NODES, voters: Sequence[int] = ()) -> None:
        """As if the imported nodes had run since, and now had this image. With `voters` the quorum is a dynamic one."""
        level = features.METADATA_VERSION_4_4
        values = [encode(record, level) for record in image_records(image)]
        snapshot = SnapshotId(1000 + len(values), epoch)
        chosen = VoterSet(voter(ReplicaKey(each, UUID(int=each))) for each in voters)
        control = Configuration(0, 1, chosen).records() if voters else ()
        data = b"".join(write_snapshot(values, epoch=epoch, last_timestamp=1, now=1, voters=control))
        for node in nodes:
            self.disk.write_atomic(f"{node.metadata_log_dir}/__cluster_metadata-0/{snapshot.filename}", data)
        self.disk.fsync_all()


__all__ = ["CLUSTER", "DELETED", "MOVED", "NODES", "FakeZooKeeper", "SimulatedCrash", "World", "records", "tree"]
