"""An import and a roll-back that are killed at every step: the same command goes on, or the other one undoes it.

Finds what no run of real processes does in bounded time: each write to the ensemble and each change of a disk is a
step, and the power may be lost with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from ottla.metadata.image import NO_LEADER
from ottla.migration.decision import IMPORTING, decision_in, is_own_controller
from ottla.migration.importing import LEVELS, execute
from ottla.migration.metadata_image import load_image
from ottla.migration.rollback import roll_back
from ottla.migration.verifying import differences
from ottla.protocol.schemas import records as r
from ottla.storage.checkpoints.meta_properties import MetaProperties, encode_meta_properties
from ottla.znodes import cluster
from ottla.znodes.checking import IMPORT
from ottla.znodes.reading import Reader, image_of, made_up_id
from ottla.znodes.topics import decode_topic
from ottla.znodes.unfinished import finish
from tests.unit.migration.world import CLUSTER, DELETED, MOVED, NODES, SimulatedCrash, World, records

HOSTS = ((NODES[0],), (NODES[1], NODES[2]))
"""Two hosts, of which one has two brokers."""

Work = Callable[[World], Awaitable[None]]


async def _import(world: World) -> None:
    for nodes in HOSTS:
        await execute(world.zookeeper, world.disk, nodes, world.random, lambda: 1000)


async def _back(world: World, hosts: Iterable[Any] = HOSTS) -> None:
    for nodes in hosts:
        await roll_back(world.zookeeper, world.disk, nodes)


def _run(work: Work, world: World) -> None:
    asyncio.run(work(world))  # type: ignore[arg-type]


def _killed_at(step: int, work: Work, world: World) -> bool:
    """Whether the work was killed in that step, rather than done before."""
    world.disk.crash_after(step)
    try:
        _run(work, world)
    except SimulatedCrash:
        world.disk.restart(power_loss=step // 2 % 2 == 1)
        return True
    return False


def _assert_imported(world: World) -> None:
    tree = world.zookeeper.tree()
    decided = decision_in(tree)
    assert decided is not None
    assert (decided.state, decided.nodes, is_own_controller(tree)) == (IMPORTING, (1, 2, 3), True)
    reader = Reader(tree)
    found = reader.read()
    assert not finish(reader).refused()
    snapshots = set()
    for node in NODES:
        loaded = load_image(world.disk, node.metadata_log_dir, CLUSTER)
        assert DELETED not in loaded.image.topics_by_name
        assert {each.leader for topic in loaded.image.topics for each in topic.partitions.values()} == {NO_LEADER}
        moved = loaded.image.topics_by_name["one"].partitions[0]
        assert (moved.replicas, moved.adding, moved.removing) == ((*MOVED, 1, 3), (4,), (1, 3))
        assert list(differences(found, decided.seed, LEVELS, loaded.image)) == []
        assert loaded.epoch == decided.controller_epoch == 5
        files = world.files()
        snapshots.add(files[f"{node.metadata_log_dir}/__cluster_metadata-0/{_snapshot(files, node)}"])
        for path in node.log_dirs:
            assert f"node.id={node.node_id}\n".encode() in files[f"{path}/meta.properties"]
            assert b"version=1\n" in files[f"{path}/meta.properties"]
        assert all(f"{path}/one-{n}/partition.metadata" in files for n, path in enumerate(node.log_dirs))
    assert f"/n1/a/{DELETED}-0/partition.metadata" in _deleted_files(world), "a later topic's log it must not become"
    assert len(snapshots) == 1


def _deleted_files(world: World) -> list[str]:
    return [path for path in world.files() if f"/{DELETED}-0/" in path]


def _snapshot(files: dict[str, bytes], node: Any) -> str:
    (found,) = [path for path in files if path.startswith(f"{node.metadata_log_dir}/__cluster_metadata-0/")]
    return found.rpartition("/")[2]


def _assert_as_before(world: World, tree: dict[str, Any]) -> None:
    assert world.files() == world.before
    now = world.zookeeper.tree()
    assert IMPORT not in now
    assert cluster.CONTROLLER not in now
    assert int(now[cluster.CONTROLLER_EPOCH].data) >= 4
    assert {path: each for path, each in now.items() if path != cluster.CONTROLLER_EPOCH} == {
        path: each for path, each in tree.items() if path != cluster.CONTROLLER_EPOCH
    }


def test_an_import_goes_on_or_is_undone_after_any_step() -> None:
    """Topics have no ids: then there is most to write. A deletion and a reassignment are under way."""
    with_ids, steps = False, 0
    while True:
        world = World(steps, with_ids=with_ids, unfinished=True)
        tree = world.zookeeper.tree()
        if not _killed_at(steps, _import, world):
            break
        if steps % 2:
            _run(_import, world)
            _assert_imported(world)
        if steps % 4 != 3:
            _run(_back, world)
            _assert_as_before(world, tree)
        steps += 1
    assert steps > 60
    _assert_imported(world)
    world.disk.restart(power_loss=True)
    _run(_import, world)  # once more changes nothing
    _assert_imported(world)


def _later(world: World, with_ids: bool) -> Any:
    """The image after the import, a topic more, a topic less, another setting."""
    decided = decision_in(world.zookeeper.tree())
    assert decided is not None
    again = [each for each in records(with_ids=with_ids) if getattr(each, "name", None) != "gone"]
    gone = next(each.topic_id for each in records(with_ids=with_ids) if getattr(each, "name", None) == "gone")
    again = [each for each in again if getattr(each, "topic_id", None) != gone]
    new = made_up_id(b"later", "topic", "new")
    again += [
        r.TopicRecord("new", new),
        r.PartitionRecord(0, new, (2, 1), (2,), leader=2, leader_epoch=8, partition_epoch=1),
    ]
    again += [r.ConfigRecord(2, "new", "segment.bytes", "5000"), r.ProducerIdsRecord(-1, -1, 9000)]
    return image_of(iter(again), CLUSTER)


def test_a_roll_back_of_a_cluster_that_ran_goes_on_after_any_step() -> None:
    steps = 0
    while True:
        with_ids = steps % 3 > 0
        world = World(steps, with_ids=with_ids, unfinished=True)
        _run(_import, world)
        world.ran(_later(world, with_ids), epoch=9, nodes=NODES)
        killed = _killed_at(steps, _back, world)
        if killed:
            _run(_back, world)
        assert world.files() == world.before
        tree = world.zookeeper.tree()
        assert IMPORT not in tree and cluster.CONTROLLER not in tree
        assert int(tree[cluster.CONTROLLER_EPOCH].data) == 10
        reader = Reader(tree)
        found = reader.read()
        assert not reader.findings
        assert [topic.name for topic in found.topics] == ["new", "one", "two"]
        assert {each.state.controller_epoch for topic in found.topics for each in topic.partitions.values()} == {10}
        assert (decode_topic("", tree["/brokers/topics/new"].data).topic_id is not None) == with_ids
        assert found.next_producer_id == 9000
        assert not [path for path in tree if "gone" in path or DELETED in path or path == cluster.REASSIGNMENTS]
        assert "/kafka-acl/Topic" in tree
        if not killed:
            break
        steps += 1
    assert steps > 40


def test_a_roll_back_names_the_logs_that_were_renamed() -> None:
    """Kafka 2.8 does not start beside them."""
    world = World(1, with_ids=True)
    _run(_import, world)
    world.disk.makedirs("/n1/a/old-0.0123-stray")
    said: list[str] = []
    asyncio.run(roll_back(world.zookeeper, world.disk, HOSTS[0], report=said.append))  # type: ignore[arg-type]
    assert [line for line in said if line.startswith("/n1/a/old-0.0123-stray is kept")]


@pytest.mark.parametrize("longest_first", [False, True])
def test_the_longest_log_of_a_majority_is_written_back(longest_first: bool) -> None:
    """What a quorum has committed may be missing in the log of any one controller."""
    world = World(1, with_ids=True)
    _run(_import, world)
    later = _later(world, True)
    world.ran(replace(later, configs=later.configs.delete(next(iter(later.configs)))), epoch=8, nodes=NODES[:1])
    world.ran(later, epoch=9, nodes=NODES[1:])
    if longest_first:
        asyncio.run(_back(world, [NODES[2:]]))  # type: ignore[arg-type]
    else:
        asyncio.run(_back(world, HOSTS[:1]))  # type: ignore[arg-type]
    tree = world.zookeeper.tree()
    assert IMPORT in tree and is_own_controller(tree), "one of three may lack what is committed"
    asyncio.run(_back(world, HOSTS[: None if longest_first else 2]))  # type: ignore[arg-type]
    tree = world.zookeeper.tree()
    assert IMPORT not in tree
    found = Reader(tree).read()
    assert len(found.topic_configs) + len(found.broker_configs) == len(later.configs)


def test_a_majority_of_a_dynamic_quorum_is_that_of_its_log() -> None:
    """After the import the quorum became a dynamic one, a controller joined, and another one left: two of the three in
    the settings are no majority any more, and the log of the one that joined counts."""
    world = World(1, with_ids=True)
    _run(_import, world)
    later = _later(world, True)
    joined = replace(
        NODES[0], settings="n4.properties", node_id=4, is_broker=False, log_dirs=(), metadata_log_dir="/n4/a"
    )
    world.disk.makedirs("/n4/a/__cluster_metadata-0")
    world.disk.write_atomic("/n4/a/meta.properties", encode_meta_properties(MetaProperties(CLUSTER, 4, "d" * 22)))
    voters = (2, 3, 4)
    world.ran(replace(later, configs=later.configs.delete(next(iter(later.configs)))), 8, NODES[:2], voters)
    world.ran(later, 9, (NODES[2], joined), voters)
    files = {path: data for path, data in world.files().items() if path.startswith("/n4/")}
    asyncio.run(_back(world, [NODES[:1], NODES[1:2]]))  # type: ignore[arg-type]
    assert IMPORT in world.zookeeper.tree(), "3 and 4 alone may have what is committed"
    asyncio.run(_back(world, [(joined,)]))  # type: ignore[arg-type]
    tree = world.zookeeper.tree()
    assert IMPORT not in tree and cluster.CONTROLLER not in tree
    found = Reader(tree).read()
    assert len(found.topic_configs) + len(found.broker_configs) == len(later.configs)
    assert {path: data for path, data in world.files().items() if path.startswith("/n4/")} == files
