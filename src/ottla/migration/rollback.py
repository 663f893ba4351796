"""The way back: the image as znodes again, and the directories as brokers with ZooKeeper had them.

Each controller's host writes what its metadata log has, unless another one had more. What the quorum has committed is
in the log of one of any majority, so the controller's place is given back once a majority of the voters has been here:
those of the settings, or of the log, where the quorum has become a dynamic one since.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ottla.drivers.metadata.directories import METADATA_DIRECTORY
from ottla.filesystem import FileSystem
from ottla.migration.decision import IMPORTING, ROLLING_BACK, Decision, decision_in, keep, release
from ottla.migration.directories import Node, decision_of, is_of_import, lock_all, stray_logs, undo_directories
from ottla.migration.importing import Refused, Report
from ottla.migration.metadata_image import Loaded, load_image
from ottla.migration.trees import Client, read_tree
from ottla.znodes import cluster
from ottla.znodes.acls import LITERAL_ACLS, PREFIXED_ACLS
from ottla.znodes.findings import Findings
from ottla.znodes.passwords import IV_BYTES, SALT_BYTES, encrypted
from ottla.znodes.tree import Tree, Znode
from ottla.znodes.writing import OWNED, WriteOptions, Writer
from ottla.zookeeper.errors import NoNodeError
from ottla.zookeeper.messages import Create, Delete, SetData

OPS_MAX: Final = 100
BYTES_MAX: Final = 300_000
"""Size of one `multi`: well below the megabyte of `jute.maxbuffer`."""


@dataclass(frozen=True, slots=True)
class WayBack:
    """What a roll-back would do on this host."""

    decided: Decision | None
    """The decision in the ensemble; None where it has forgotten the import."""
    loaded: Loaded | None
    """The newest image of this host's controllers; None where they have none, or never ran."""
    tree: Tree
    wanted: dict[str, Znode]
    findings: Findings


async def way_back(client: Client, fs: FileSystem, nodes: Sequence[Node], secret: str | None) -> WayBack:
    """Raises OttlaError, ZooKeeperError."""
    tree = await read_tree(client)
    decided = decision_in(tree)
    loaded = None
    for node in nodes:
        metadata = posixpath.join(node.metadata_log_dir, METADATA_DIRECTORY)
        if decided is not None and node.is_controller and fs.exists(metadata) and is_of_import(fs, node, decided):
            found = await fs.run(partial(load_image, fs, node.metadata_log_dir, decided.cluster_id))
            if loaded is None or (found.epoch, found.end) > (loaded.epoch, loaded.end):
                loaded = found
    if decided is None or loaded is None or loaded.epoch <= decided.controller_epoch:
        return WayBack(decided, None, tree, {}, Findings())
    encrypt = (
        None if secret is None else lambda text: encrypted(text, secret, os.urandom(SALT_BYTES), os.urandom(IV_BYTES))
    )
    epoch = max(loaded.epoch + 1, decided.controller_epoch)
    writer = Writer(loaded.image, WriteOptions(decided.with_ids, epoch, encrypt))
    wanted = await asyncio.to_thread(writer.write)
    wanted[cluster.CONTROLLER_EPOCH] = Znode(str(epoch).encode())
    return WayBack(decided, loaded, tree, wanted, writer.findings)


async def roll_back(
    client: Client,
    fs: FileSystem,
    nodes: Sequence[Node],
    *,
    secret: str | None = None,
    accept_loss: bool = False,
    report: Report = lambda text: None,
) -> Decision | None:
    """Undo the import on this host. Interrupted anywhere, it goes on when it is called again. Returns the decision as
    it is now, None once the controller's place is free. Raises Refused, OttlaError, ZooKeeperError, OSError."""
    with ExitStack() as stack:
        lock_all(fs, nodes, stack)
        back = await way_back(client, fs, nodes, secret)
        refused = back.findings.refused() if accept_loss else list(back.findings)
        refused = [found for found in refused if found.severity.name != "NOTE"]
        if refused:
            raise Refused(refused)
        decided = back.decided
        if decided is not None and decided.state == IMPORTING:
            decided = await keep(client, decided, state=ROLLING_BACK)
        if decided is not None and back.loaded is not None:
            decided = await _write(client, back, decided, report)
        for node in nodes:
            local = decision_of(fs, node) or decided
            if local is not None:
                report(f"node {node.node_id}: its directories go back")
                await fs.run(partial(undo_directories, fs, node, local))
            for path in await fs.run(partial(stray_logs, fs, node)):
                report(f"{path} is kept: delete it or move it away, for Kafka 2.8 and older do not start beside it")
        return None if decided is None else await _finish(client, decided, nodes, report)


async def _write(client: Client, back: WayBack, decided: Decision, report: Report) -> Decision:
    assert back.loaded is not None
    here = back.loaded.epoch, back.loaded.end
    if here <= decided.written:
        return decided
    ops = await asyncio.to_thread(lambda: list(changes(back.tree, back.wanted)))
    report(f"writing {len(ops)} znodes")
    acls: dict[str, Any] = {}
    for batch in batches(ops):
        await client.multi([await _with_acl(client, op, acls) for op in batch])
    return await keep(client, decided, written=here, voters=back.loaded.voters)


async def _finish(client: Client, decided: Decision, nodes: Sequence[Node], report: Report) -> Decision | None:
    done = tuple(sorted({*decided.rolled_back, *(node.node_id for node in nodes)}))
    if done != decided.rolled_back:
        decided = await keep(client, decided, rolled_back=done)
    voters = frozenset(decided.voters) or frozenset().union(*(node.voters for node in nodes))
    seen = voters.intersection(done)
    began = bool(decided.digest)  # else no host has any metadata
    if began and len(seen) <= len(voters) // 2:
        report(
            f"{len(seen)} of {len(voters)} controllers are rolled back: run this on the others before any broker starts"
        )
        return decided
    await release(client)
    return None


def changes(tree: Tree, wanted: Tree) -> Iterable[Any]:
    """The operations that make the tree what is wanted: parents before children, states before the topic that names
    them, and what is gone from the leaves up."""
    gone = [path for path in tree if path not in wanted and _is_owned(path)]
    new = [path for path in wanted if path not in tree]
    for root in sorted(
        {parent for path in new for parent in _parents(path) if parent not in tree and parent not in wanted}
    ):
        yield Create(root)
    for path in sorted(new):
        yield Create(path, wanted[path].data)
    changed = [path for path in wanted if path in tree and _differs(tree[path].data, wanted[path].data)]
    for path in sorted(changed, key=lambda path: (-path.count("/"), path)):
        yield SetData(path, wanted[path].data, tree[path].version)
    for path in sorted(gone, key=lambda path: (-path.count("/"), path)):
        yield Delete(path)


def _is_owned(path: str) -> bool:
    """Whether the image says whether the znode is there. Types of resources are there without ACLs too. A wish from
    before the import is done: left there, it would delete a later topic of that name."""
    if path == cluster.REASSIGNMENTS or path.startswith(f"{cluster.DELETIONS}/"):
        return True
    return path.rpartition("/")[0] not in (LITERAL_ACLS, PREFIXED_ACLS) and any(
        path.startswith(f"{root}/") for root in OWNED
    )


def _parents(path: str) -> Iterable[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _differs(old: bytes, new: bytes) -> bool:
    return old != new and bool(new)


def batches(ops: Sequence[Any]) -> Iterable[list[Any]]:
    """The operations in order, as many in each `multi` as an ensemble takes."""
    batch: list[Any] = []
    size = 0
    for op in ops:
        cost = len(op.path) + len(getattr(op, "data", b"")) + 100
        if batch and (len(batch) >= OPS_MAX or size + cost > BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(op)
        size += cost
    if batch:
        yield batch


async def _with_acl(client: Client, op: Any, known: dict[str, Any]) -> Any:
    """A new znode is as protected as the root of its kind."""
    if not isinstance(op, Create):
        return op
    root = next((root for root in OWNED if op.path.startswith(f"{root}/")), None)
    if root is None:
        return op
    if root not in known:
        try:
            known[root] = (await client.acl(root)).acls
        except NoNodeError:  # an old release made none
            known[root] = None
    return op if known[root] is None else Create(op.path, op.data, known[root])
