"""The tree as a new controller takes it over: the records that its metadata log begins with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from ottla.metadata import features
from ottla.metadata.image import NO_LEADER, ConfigResourceType
from ottla.metadata.writer import broker_record
from ottla.model import NodeId
from ottla.protocol.schemas import records as r
from ottla.znodes import cluster
from ottla.znodes.changes import CLIENT_METRICS_CONFIGS, GROUP_CONFIGS, Change, Kind
from ottla.znodes.configs import decode_config
from ottla.znodes.members import Member, decode_member, registration
from ottla.znodes.reading import Partition, Reader, ZnodeCluster, records_of
from ottla.znodes.topics import PartitionState, encode_topic, topic_path
from ottla.znodes.tree import BadZnode, Children, Tree, desanitized

UNMADE_EPOCH = -1
"""Partition epoch of a partition whose state is not there yet: the first state to be written has version 0."""


class TreeState(NamedTuple):
    records: list[Any]
    levels: Mapping[str, int]
    members: Mapping[NodeId, Member]
    """Brokers that run."""
    strangers: Sequence[NodeId]
    """Brokers that run and are no nodes of Ottla."""
    before: Sequence[Change]
    """What has to be written before anybody leads."""


def read_state(
    tree: Tree, cluster_id: str, broker_epoch: int, secrets: Sequence[str], new_id: Callable[[], UUID]
) -> TreeState:
    """What `tree` says, for a new controller. Brokers that run get the epoch `broker_epoch`. Raises BadZnode for what
    cannot be read: to lead without it would delete it."""
    reader = Reader(tree, secrets)
    found = reader.read()
    for finding in reader.findings.refused():
        raise BadZnode(finding.path, finding.text)
    levels = {**features.default_levels(features.METADATA_VERSION_4_4), **found.features}
    levels[features.ELR_VERSION] = 0  # a state has no place for those who are eligible
    if (why := features.why_unsupported(levels)) is not None:
        raise BadZnode(cluster.FEATURE, why)
    before = _identified(found, new_id)
    _complete(found)
    members, strangers = _members(tree)
    records = list(records_of(found, cluster_id.encode(), levels, keep_leaders=True))
    records += _other_configs(tree)
    records += [broker_record(registration(each, broker_epoch)) for each in members.values()]
    return TreeState(records, levels, members, strangers, before)


def _identified(found: ZnodeCluster, new_id: Callable[[], UUID]) -> list[Change]:
    """Give an id to topics without one, as Kafka's controllers since 2.8 do."""
    changes = []
    for topic in found.topics:
        if topic.assignment.topic_id is None:
            topic.assignment = topic.assignment._replace(topic_id=new_id())
            changes.append(Change(topic_path(topic.name), Kind.SET, encode_topic(topic.assignment)))
    return changes


def _complete(found: ZnodeCluster) -> None:
    """Partitions without a state, which a tool or a controller that died has left: new ones, that nobody leads yet."""
    for topic in found.topics:
        for number, replicas in topic.assignment.replicas.items():
            if number not in topic.partitions:
                topic.partitions[number] = Partition(PartitionState(NO_LEADER, -1, replicas, 0), UNMADE_EPOCH)


def _members(tree: Tree) -> tuple[dict[NodeId, Member], list[NodeId]]:
    members, strangers = {}, []
    for name in Children(tree).of(cluster.BROKER_IDS):
        path = f"{cluster.BROKER_IDS}/{name}"
        found = decode_member(path, tree[path].data)
        if found is None:
            strangers.append(int(name))
        else:
            members[found.id] = found
    return members, strangers


def _other_configs(tree: Tree) -> Iterator[Any]:
    children = Children(tree)
    for root, kind in (
        (GROUP_CONFIGS, ConfigResourceType.GROUP),
        (CLIENT_METRICS_CONFIGS, ConfigResourceType.CLIENT_METRICS),
    ):
        for name in children.of(root):
            path = f"{root}/{name}"
            for key, value in sorted(decode_config(path, tree[path].data).items()):
                yield r.ConfigRecord(kind, desanitized(path, name), key, value)
