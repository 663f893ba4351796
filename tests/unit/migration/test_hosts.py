"""An ensemble that changes under an import, and hosts that do not see the same: refused, and nothing is left behind."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ottla.drivers.zookeeper.access import EnsembleAccess
from ottla.errors import OttlaError
from ottla.migration.importing import execute
from ottla.migration.permissions import Protected
from ottla.migration.trees import TreeChanged
from ottla.network import SystemNetwork
from ottla.znodes import cluster
from ottla.znodes.checking import IMPORT
from ottla.zookeeper.messages import ACL, CREATOR_ALL_ACL, READ_ACL_UNSAFE, Create
from tests.unit.migration.world import DELETED, NODES, World

CONFIG = "/config/topics/one"


def _import(world: World, *nodes: Any) -> Any:
    return asyncio.run(execute(world.zookeeper, world.disk, nodes, world.random, lambda: 1000))  # type: ignore[arg-type]


def _set(world: World, path: str, data: bytes) -> None:
    world.zookeeper.nodes[path] = data, world.zookeeper.nodes[path][1] + 1


def test_a_tree_that_changes_while_the_controllers_place_is_taken() -> None:
    """A tool wrote between the two readings: the place is given back."""
    world = World(1, with_ids=True)
    original = world.zookeeper.multi

    async def multi(ops: Any) -> Any:
        _set(world, CONFIG, b'{"version":1,"config":{"retention.ms":"6"}}')
        world.zookeeper.multi = original  # type: ignore[method-assign]
        return await original(ops)

    world.zookeeper.multi = multi  # type: ignore[method-assign]
    with pytest.raises(TreeChanged, match=CONFIG):
        _import(world, NODES[0])
    tree = world.zookeeper.tree()
    assert IMPORT not in tree and cluster.CONTROLLER not in tree
    assert world.files() == world.before
    assert _import(world, NODES[0]).nodes == (1,)


def test_znodes_that_only_brokers_may_change() -> None:
    """`zookeeper.set.acl` holds for what a migration makes: who could remove /controller could start a controller."""
    world = World(1, with_ids=True)
    made: dict[str, tuple[ACL, ...]] = {}
    original = world.zookeeper.multi

    async def multi(ops: Any) -> Any:
        ops = list(ops)
        made.update((op.path, op.acl) for op in ops if isinstance(op, Create))
        return await original(ops)

    world.zookeeper.multi = multi  # type: ignore[method-assign]
    access = EnsembleAccess(SystemNetwork(), sets_acls=True)
    client = Protected(world.zookeeper, access.acl)
    asyncio.run(execute(client, world.disk, [NODES[0]], world.random, lambda: 1000))
    assert {cluster.CONTROLLER, IMPORT} <= set(made)
    assert set(made.values()) == {(*CREATOR_ALL_ACL, *READ_ACL_UNSAFE)}


def test_a_tree_that_changed_since_the_first_host() -> None:
    world = World(2, with_ids=False)
    _import(world, NODES[0])
    _set(world, CONFIG, b'{"version":1,"config":{"retention.ms":"6"}}')
    before = {path for path in world.files() if path.startswith("/n2/")}
    with pytest.raises(OttlaError, match="no longer what the first host imported"):
        _import(world, NODES[1])
    assert {path for path in world.files() if path.startswith("/n2/")} == before


def test_a_topic_that_may_not_be_deleted() -> None:
    """Without `delete.topic.enable` Kafka drops the wish; whether to keep the topic is for a person to say."""
    world = World(3, with_ids=True, unfinished=True)
    with pytest.raises(OttlaError, match=f"{cluster.DELETIONS}/{DELETED}: n1.properties has delete.topic.enable=false"):
        _import(world, replace(NODES[0], may_delete=False))
    assert IMPORT not in world.zookeeper.tree()
    assert world.files() == world.before
