"""An import that begins a dynamic quorum: who votes is in the snapshot, and each controller's directory has its id.

Finds a voter whose directory has another id than the log says (it would never vote), after a kill at any step.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ottla.errors import OttlaError
from ottla.migration.decision import decision_in
from ottla.migration.directories import Node
from ottla.migration.first_voters import parse_first_voters
from ottla.migration.importing import execute
from ottla.migration.metadata_image import load_image
from ottla.migration.rollback import roll_back
from ottla.model import uuid_from_base64
from ottla.protocol.schemas.records import KRaftVersionRecord, VotersRecord
from ottla.quorum.snapshot import read_snapshot
from ottla.storage.checkpoints.meta_properties import (
    MetaProperties,
    encode_meta_properties,
    read_meta_properties,
)
from ottla.znodes import cluster
from ottla.znodes.checking import IMPORT
from tests.unit.migration.world import CLUSTER, NODES, SimulatedCrash, World

FIRST = parse_first_voters("3@host3:9093,1@host1:9093,2@[::1]:9093")
DYNAMIC = tuple(replace(node, voters=frozenset(), controller_listener="CONTROLLER") for node in NODES)
HOSTS = (DYNAMIC[:1], DYNAMIC[1:])


def _world(seed: int) -> World:
    """Node 2 has the directory id of a later release of Kafka, which no other host knows."""
    world = World(seed, with_ids=True)
    meta = MetaProperties(CLUSTER, 2, "AAAAAAAAAAAAAAAAAAAAiQ", version=0)
    world.disk.write_atomic("/n2/a/meta.properties", encode_meta_properties(meta))
    world.disk.fsync_all()
    world.before = world.files()
    return world


def _import(world: World, *nodes: Node, initial: tuple[str, ...] = FIRST) -> Any:
    done = execute(world.zookeeper, world.disk, nodes, world.random, lambda: 1000, initial=initial)
    return asyncio.run(done)


def _back(world: World, *nodes: Node) -> Any:
    return asyncio.run(roll_back(world.zookeeper, world.disk, nodes))


def _assert_voters_agree(world: World) -> None:
    for node in DYNAMIC:
        (name,) = world.disk.listdir(f"{node.metadata_log_dir}/__cluster_metadata-0")
        data = world.disk.read_bytes(f"{node.metadata_log_dir}/__cluster_metadata-0/{name}")
        head = next(items for _, items in read_snapshot(data))
        (level,) = [each.kraft_version for each in head if isinstance(each, KRaftVersionRecord)]
        (voters,) = [each.voters for each in head if isinstance(each, VotersRecord)]
        assert level == 1
        assert {v.voter_id: (v.endpoints[0].host, v.endpoints[0].port, v.endpoints[0].name) for v in voters} == {
            1: ("host1", 9093, "CONTROLLER"),
            2: ("::1", 9093, "CONTROLLER"),
            3: ("host3", 9093, "CONTROLLER"),
        }
        meta = read_meta_properties(world.disk, node.metadata_log_dir)
        assert meta is not None and meta.version == 1 and meta.directory_id is not None
        assert {v.voter_id: v.voter_directory_id for v in voters}[node.node_id] == uuid_from_base64(meta.directory_id)
        assert load_image(world.disk, node.metadata_log_dir, CLUSTER).voters == (1, 2, 3)


def test_an_import_that_begins_a_dynamic_quorum_goes_on_or_is_undone_after_any_step() -> None:
    steps = 0
    while True:
        world = _world(steps)
        world.disk.crash_after(steps)
        try:
            _import(world, *HOSTS[0])
            _import(world, *HOSTS[1], initial=())  # the first host has decided
        except SimulatedCrash:
            world.disk.restart(power_loss=steps // 2 % 2 == 1)
        else:
            break
        if steps % 2:
            _import(world, *HOSTS[0])
            _import(world, *HOSTS[1])
            _assert_voters_agree(world)
        if steps % 4 != 3:
            left = _back(world, *HOSTS[0])
            assert left is None or not left.digest or left.rolled_back == (1,), "one of three is no majority"
            if left is not None:
                left = _back(world, *HOSTS[1])
            assert left is None
            assert world.files() == world.before
            assert IMPORT not in world.zookeeper.tree() and cluster.CONTROLLER not in world.zookeeper.tree()
        steps += 1
    assert steps > 40
    _assert_voters_agree(world)


def test_a_majority_before_the_first_start_is_that_of_the_first_voters() -> None:
    """A controller that joins later (4) is imported too, but it does not count."""
    world = _world(1)
    later = replace(
        DYNAMIC[0], settings="n4.properties", node_id=4, is_broker=False, log_dirs=(), metadata_log_dir="/n4/a"
    )
    for nodes in (*HOSTS, (later,)):
        decided = _import(world, *nodes)
    assert decided.nodes == (1, 2, 3, 4)
    _assert_voters_agree(world)
    assert _back(world, later).rolled_back == (4,)
    assert _back(world, DYNAMIC[0]) is not None
    assert decision_in(world.zookeeper.tree()) is not None
    assert _back(world, DYNAMIC[1]) is None


STATIC = replace(DYNAMIC[1], voters=frozenset({1, 2, 3}))


@pytest.mark.parametrize(
    ("began", "node", "initial", "why"),
    [
        (False, DYNAMIC[0], (), "name the controllers of all hosts with which it begins: --initial-controllers"),
        (False, NODES[0], FIRST, "n1.properties has a static quorum"),
        (False, replace(DYNAMIC[0], is_controller=False), FIRST, "does not make it a controller"),
        (True, STATIC, (), "n2.properties has a static quorum"),
        (True, DYNAMIC[1], FIRST[:2], "the import began with 1@host1:9093,2@"),
        (True, replace(DYNAMIC[1], controller_listener="OTHER"), (), "not the same everywhere: CONTROLLER, OTHER"),
    ],
)
def test_what_does_not_agree_is_refused(began: bool, node: Node, initial: tuple[str, ...], why: str) -> None:
    world = _world(1)
    if began:
        _import(world, DYNAMIC[0])
    files, tree = world.files(), world.zookeeper.tree()
    with pytest.raises(OttlaError, match=why.replace("[", r"\[")):
        _import(world, node, initial=initial)
    assert (world.files(), world.zookeeper.tree()) == (files, tree)


def test_a_static_import_does_not_become_a_dynamic_one() -> None:
    world = _world(1)
    _import(world, NODES[0], initial=())
    with pytest.raises(OttlaError, match="began with a static quorum"):
        _import(world, DYNAMIC[1], initial=())
    with pytest.raises(OttlaError, match="began with a static quorum"):
        _import(world, DYNAMIC[1])


def test_directories_of_an_import_before_this_one() -> None:
    """The znodes were deleted by hand: this host's ids are of another seed than those that the snapshot names."""
    world = _world(1)
    _import(world, DYNAMIC[1])
    for path in (IMPORT, cluster.CONTROLLER):
        del world.zookeeper.nodes[path]
    _import(world, DYNAMIC[0])
    with pytest.raises(OttlaError, match="of an import before this one"):
        _import(world, DYNAMIC[1])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1@",
        "1@host",
        "1@host:0",
        "1@:9093",
        "x@host:1",
        "-1@host:1",
        "2147483648@host:1",
        "1@h:1,1@h:2",
        "1@host:9093:AAAAAAAAAAAAAAAAAAAAiQ",
        "1@h:1,",
        "1@h:65536",
        "1@::1:9093",
    ],
)
def test_controllers_that_cannot_be_read(text: str) -> None:
    with pytest.raises(OttlaError, match="--initial-controllers"):
        parse_first_voters(text)
