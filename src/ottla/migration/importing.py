"""Imports a cluster from ZooKeeper: what the tree says becomes the snapshot with which all controllers begin."""

from __future__ import annotations

import asyncio
import hashlib
import random as random_module
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from ottla.errors import OttlaError
from ottla.filesystem import FileSystem
from ottla.metadata import features
from ottla.metadata.writer import encode
from ottla.migration.decision import (
    ROLLING_BACK,
    SEED_BYTES,
    Decision,
    decision_in,
    is_own_controller,
    keep,
    release,
    take_over,
)
from ottla.migration.directories import (
    Node,
    Snapshot,
    check_directories,
    check_topic_ids,
    lock_all,
    write_directories,
)
from ottla.migration.first_voters import check_first_voters, directory_ids, first_records, voter_ids
from ottla.migration.trees import Client, TreeChanged, read_tree, refuse_change, stable_tree
from ottla.model import Millis
from ottla.quorum.snapshot import SnapshotId, write_snapshot
from ottla.znodes import cluster
from ottla.znodes.checking import IMPORT, checked
from ottla.znodes.findings import Finding, Findings
from ottla.znodes.reading import Reader, ZnodeCluster, records_of, topic_id_of
from ottla.znodes.tree import Tree

LEVELS = {features.METADATA_VERSION: features.METADATA_VERSION_4_4}
"""Feature levels of an imported cluster. All features but the metadata's are off: what they write into the logs, no
broker with ZooKeeper reads. `ottla features upgrade` switches them on when no way back is needed."""

_OWN = frozenset({cluster.CONTROLLER, cluster.CONTROLLER_EPOCH, IMPORT})

Report = Callable[[str], None]


class Refused(OttlaError):
    """The cluster cannot be imported as it is."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = findings
        super().__init__("; ".join(f"{each.path} {each.text}" for each in findings[:5]))


@dataclass(frozen=True, slots=True)
class Plan:
    """What an import would do."""

    cluster: ZnodeCluster
    findings: Findings
    decided: Decision | None
    """The decision of an import that has begun."""
    tree: Tree

    @property
    def is_possible(self) -> bool:
        return not self.findings.refused()


async def plan(client: Client, secrets: Sequence[str] = ()) -> Plan:
    """Read the tree twice. Raises TreeChanged, BadZnode, ZooKeeperError.

    What takes seconds for a large cluster runs in a thread, so that the session with the ensemble lives on.
    """
    return await asyncio.to_thread(_planned, await stable_tree(client), secrets)


def _planned(tree: Tree, secrets: Sequence[str]) -> Plan:
    reader = Reader(tree, secrets)
    found = reader.read()
    decided = decision_in(tree)
    findings = checked(reader, own_controller=decided is not None and is_own_controller(tree))
    if decided is not None and decided.state == ROLLING_BACK:
        findings.refuse(IMPORT, "a roll-back has begun: finish it with --rollback on every host")
    elif decided is not None and not is_own_controller(tree):
        findings.refuse(cluster.CONTROLLER, "is not the import's, which has begun: a broker or a person deleted it")
    return Plan(found, findings, decided, tree)


def check_nodes(fs: FileSystem, nodes: Sequence[Node], planned: Plan, initial: Sequence[str] = ()) -> list[str]:
    """Raises OttlaError where the directories are not those of the cluster, or settings disagree about the quorum.
    Returns notes."""
    notes = []
    for node in nodes:
        if planned.cluster.deleted and not node.may_delete:
            path = f"{cluster.DELETIONS}/{planned.cluster.deleted[0].name}"
            raise OttlaError(
                f"{path}: {node.settings} has delete.topic.enable=false; delete this znode to keep the topic, or set "
                "it to true"
            )
        notes += check_directories(fs, node, planned.cluster.cluster_id, planned.decided)
    brokers = {each for topic in planned.cluster.topics for row in topic.assignment.replicas.values() for each in row}
    here = {node.node_id for node in nodes}
    if len(brokers) > 1:
        for node in nodes:
            if node.is_controller and node.is_broker and node.voters == {node.node_id} and len(brokers - here) > 0:
                raise OttlaError(
                    f"{node.settings} makes node {node.node_id} the only controller of itself, and the cluster has "
                    f"brokers {', '.join(map(str, sorted(brokers)))}: set process.roles and controller.quorum.voters "
                    "in all of their settings files"
                )
    quorums = {node.voters for node in nodes if node.is_controller or node.voters}
    if len(quorums) > 1:
        raise OttlaError("the settings files disagree about controller.quorum.voters")
    check_first_voters(nodes, initial, planned.decided)
    return notes


async def execute(
    client: Client,
    fs: FileSystem,
    nodes: Sequence[Node],
    random: random_module.Random,
    now: Callable[[], Millis],
    *,
    secrets: Sequence[str] = (),
    initial: Sequence[str] = (),
    report: Report = lambda text: None,
) -> Decision:
    """Import the cluster into the directories of this host's nodes. `initial` are the controllers with which a dynamic
    quorum begins. Interrupted anywhere, it goes on when it is called again. Raises Refused, TreeChanged, OttlaError,
    ZooKeeperError, OSError."""
    planned = await asyncio.to_thread(_planned, await read_tree(client), secrets)  # the second time in `_begin`
    if not planned.is_possible:
        raise Refused(planned.findings.refused())
    with ExitStack() as stack:
        lock_all(fs, nodes, stack)
        await fs.run(lambda: _check_all(fs, nodes, planned, initial))
        decided = planned.decided
        if decided is None:
            dynamic = {
                "controllers": tuple(initial),
                "voters": voter_ids(initial),
                "listener": nodes[0].controller_listener,
            }
            seed = random.randbytes(SEED_BYTES)
            decided = await _begin(client, planned, seed, now(), report, dynamic if initial else {})
        snapshot = await asyncio.to_thread(snapshot_of, planned.cluster, decided)
        decided = await _agree(client, decided, snapshot)
        for node in nodes:
            report(f"node {node.node_id}: writing its directories")
            await fs.run(partial(write_directories, fs, node, decided, snapshot, random))
        done = tuple(sorted({*decided.nodes, *(node.node_id for node in nodes)}))
        return decided if done == decided.nodes else await keep(client, decided, nodes=done)


def _check_all(fs: FileSystem, nodes: Sequence[Node], planned: Plan, initial: Sequence[str]) -> None:
    check_nodes(fs, nodes, planned, initial)
    known = {topic.name: topic.assignment.topic_id for topic in planned.cluster.topics}
    for node in nodes:
        check_topic_ids(fs, node, {name: each for name, each in known.items() if each is not None})


async def _begin(
    client: Client, planned: Plan, seed: bytes, now: Millis, report: Report, dynamic: Mapping[str, Any]
) -> Decision:
    """Take the controller's place, and read the tree again: nobody may have changed it before that."""
    report("taking the controller's place")
    decided = await take_over(client, planned.tree, planned.cluster, seed, now, **dynamic)
    try:
        refuse_change(planned.tree, await read_tree(client), apart_from=_OWN)
    except TreeChanged:
        await release(client)
        raise
    return decided


async def _agree(client: Client, decided: Decision, snapshot: Snapshot) -> Decision:
    """All hosts write the same metadata, or nothing. Raises OttlaError."""
    digest = hashlib.sha256(snapshot.data).hexdigest()
    if not decided.digest:
        return await keep(client, decided, digest=digest)
    if digest != decided.digest:
        raise OttlaError(
            "the tree is no longer what the first host imported: something wrote to the ensemble since; use --rollback "
            "on the hosts that are done, and begin again"
        )
    return decided


def snapshot_of(found: ZnodeCluster, decided: Decision) -> Snapshot:
    """The same bytes on every host."""
    level = LEVELS[features.METADATA_VERSION]
    records: Iterable[Any] = records_of(found, decided.seed, LEVELS, keep_leaders=False)
    values = [encode(record, level) for record in records]
    snapshot = SnapshotId(len(values), decided.controller_epoch)
    now = decided.timestamp_ms
    voters = first_records(decided)
    data = b"".join(write_snapshot(values, epoch=snapshot.epoch, last_timestamp=now, now=now, voters=voters))
    named = (*found.topics, *found.deleted)  # a log that keeps its old id is no log of a later topic of that name
    topic_ids = {topic.name: topic_id_of(topic, decided.seed) for topic in named}
    return Snapshot(snapshot, data, topic_ids, directory_ids(decided))
