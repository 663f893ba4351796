"""What the first host decides for all: a znode, and in the directories a file, from which every host goes on.

Ids that are made up come from its seed, so all hosts make up the same. While the znode is there, `/controller` is a
persistent node of the import's: no broker with ZooKeeper becomes controller (as in KIP-866).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from ottla.errors import OttlaError
from ottla.migration.trees import Client
from ottla.model import Millis
from ottla.znodes import cluster
from ottla.znodes.checking import IMPORT
from ottla.znodes.reading import ZnodeCluster
from ottla.znodes.tree import BadZnode, Tree, fields_of, to_json
from ottla.zookeeper.messages import Create, Delete, SetData

CONTROLLER_ID: Final = 2_147_483_647
"""The id in `/controller`: no broker has it, and every release reads it."""

SEED_BYTES: Final = 16
IMPORTING, ROLLING_BACK = "importing", "rolling back"


@dataclass(frozen=True, slots=True)
class Decision:
    cluster_id: str
    seed: bytes
    timestamp_ms: Millis
    controller_epoch: int
    """The one that the import has taken: above all that brokers have seen."""
    with_ids: bool
    """Whether topics had ids before."""
    state: str = IMPORTING
    digest: str = ""
    """SHA-256 of the snapshot that every controller gets; empty before the first is written."""
    nodes: tuple[int, ...] = ()
    """Ids of the nodes whose directories are done."""
    rolled_back: tuple[int, ...] = ()
    written: tuple[int, int] = (-1, -1)
    """Epoch and end of the metadata log from which the znodes were written back."""
    voters: tuple[int, ...] = ()
    """The controllers that vote by the metadata log, if it says so itself (a dynamic quorum)."""
    controllers: tuple[str, ...] = ()
    """With which a dynamic quorum begins, each as ID@HOST:PORT; empty for a static one."""
    listener: str = ""
    """The name of the listener at those addresses."""

    def encode(self) -> bytes:
        return to_json(
            {
                "version": 1,
                "state": self.state,
                "cluster_id": self.cluster_id,
                "seed": self.seed.hex(),
                "timestamp": self.timestamp_ms,
                "controller_epoch": self.controller_epoch,
                "with_ids": self.with_ids,
                "digest": self.digest,
                "nodes": list(self.nodes),
                "rolled_back": list(self.rolled_back),
                "written": list(self.written),
                **({"voters": list(self.voters)} if self.voters else {}),
                **({"controllers": list(self.controllers), "listener": self.listener} if self.controllers else {}),
            }
        )


def decode_decision(path: str, data: bytes) -> Decision:
    """Raises BadZnode; `path` is where it was."""
    fields = fields_of(path, data)
    fields.version(1)
    try:
        seed = bytes.fromhex(fields.text("seed"))
    except ValueError:
        raise BadZnode(path, "is damaged: the seed is no hexadecimal number") from None
    written = fields.integers("written")
    state = fields.text("state")
    if state not in (IMPORTING, ROLLING_BACK) or len(written) != 2:
        raise BadZnode(path, "is damaged")
    return Decision(
        fields.text("cluster_id"),
        seed,
        fields.integer("timestamp"),
        fields.integer("controller_epoch"),
        bool(json.loads(data)["with_ids"]),
        state,
        fields.text("digest"),
        fields.integers("nodes"),
        fields.integers("rolled_back"),
        (written[0], written[1]),
        fields.integers("voters", ()),
        fields.texts("controllers") if "controllers" in fields else (),
        fields.text("listener", ""),
    )


def decision_in(tree: Tree) -> Decision | None:
    """The decision of an import that has begun. Raises BadZnode."""
    found = tree.get(IMPORT)
    return None if found is None else decode_decision(IMPORT, found.data)


def is_own_controller(tree: Tree) -> bool:
    """Whether `/controller` is the import's."""
    found = tree.get(cluster.CONTROLLER)
    if found is None:
        return False
    try:
        return fields_of(cluster.CONTROLLER, found.data).text("ottla", "") == IMPORTING
    except BadZnode:
        return False


async def take_over(client: Client, tree: Tree, found: ZnodeCluster, seed: bytes, now: Millis, **more: Any) -> Decision:
    """Take the controller's place, in one `multi`. `more` are fields of the decision. Raises ZooKeeperError where a
    broker was faster."""
    with_ids = not found.topics or any(topic.assignment.topic_id is not None for topic in found.topics)
    decided = Decision(found.cluster_id, seed, now, found.controller_epoch + 1, with_ids, **more)
    epoch = tree.get(cluster.CONTROLLER_EPOCH)
    text = str(decided.controller_epoch).encode()
    path = cluster.CONTROLLER_EPOCH
    controller = cluster.encode_controller(cluster.Controller(CONTROLLER_ID), now, {"ottla": IMPORTING})
    await client.multi(
        [
            Create(path, text) if epoch is None else SetData(path, text, epoch.version),
            Create(cluster.CONTROLLER, controller),
            Create(IMPORT, decided.encode()),
        ]
    )
    return decided


async def keep(client: Client, decided: Decision, *more: Any, **changes: Any) -> Decision:
    """Change the znode, with `more` operations in the same `multi`. Raises OttlaError where another host changed it
    meanwhile."""
    data, stat = await client.get(IMPORT)
    if decode_decision(IMPORT, data) != decided:
        raise OttlaError(f"{IMPORT} was changed by another host just now: run the same command again")
    after = replace(decided, **changes)
    await client.multi([SetData(IMPORT, after.encode(), stat.version), *more])
    return after


async def release(client: Client) -> None:
    """Give the controller's place back: the next broker that starts takes it."""
    await client.multi([Delete(cluster.CONTROLLER), Delete(IMPORT)])
