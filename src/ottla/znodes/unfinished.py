"""Deletions and reassignments that brokers had not finished, as Kafka's controller goes on with them.

A topic below `/admin/delete_topics` is left out, as Kafka's own migration to KRaft does (`ZkTopicMigrationClient`). A
target in `/admin/reassign_partitions` goes into the partition's assignment, as a controller with ZooKeeper does when it
starts (`processZkPartitionReassignment`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.model import NodeId
from ottla.znodes import cluster
from ottla.znodes.findings import Findings, numbers
from ottla.znodes.reading import Reader, Topic
from ottla.znodes.topics import state_path, topic_path
from ottla.znodes.tree import BadZnode, fields_of


class Target(NamedTuple):
    topic: str
    partition: int
    replicas: tuple[NodeId, ...]


def decode_reassignments(data: bytes) -> list[Target]:
    """The targets in `/admin/reassign_partitions` (`ReassignPartitionsZNode`). Raises BadZnode."""
    rows = fields_of(cluster.REASSIGNMENTS, data).objects("partitions")
    return [Target(each.text("topic"), each.integer("partition"), each.integers("replicas")) for each in rows]


def finish(reader: Reader) -> Findings:
    """Change what was read to what a controller would make of it. Returns what cannot be finished, and notes."""
    found = Findings()
    _delete(reader, found)
    if cluster.REASSIGNMENTS in reader.tree:
        try:
            _reassign(reader, decode_reassignments(reader.tree[cluster.REASSIGNMENTS].data), found)
        except BadZnode as error:
            found.bad(error)
    for topic in reader.cluster.topics:
        _note_moves(topic, found)
    return found


def _delete(reader: Reader, found: Findings) -> None:
    wanted = reader.children.of(cluster.DELETIONS)
    names = {topic.name for topic in reader.cluster.topics}
    for name in wanted:
        path = f"{cluster.DELETIONS}/{name}"
        if name in names:
            found.note(path, f"topic {name} is not carried over: its deletion is finished; nodes rename its logs")
        else:
            found.note(path, "is left out: there is no such topic")
    gone = frozenset(wanted)
    reader.cluster.deleted = [topic for topic in reader.cluster.topics if topic.name in gone]
    reader.cluster.topics = [topic for topic in reader.cluster.topics if topic.name not in gone]
    for name in wanted:
        reader.cluster.topic_configs.pop(name, None)


def _reassign(reader: Reader, targets: Sequence[Target], found: Findings) -> None:
    topics = {topic.name: topic for topic in reader.cluster.topics}
    for target in targets:
        where = f"{target.topic}-{target.partition}"
        topic = topics.get(target.topic)
        if topic is None or target.partition not in topic.assignment.replicas:
            found.note(cluster.REASSIGNMENTS, f"{where} is left out: there is no such partition")
        elif not target.replicas or len(set(target.replicas)) != len(target.replicas) or min(target.replicas) < 0:
            what = (
                f"is damaged: the replicas of {where} are to be {list(target.replicas)}; delete this znode to cancel it"
            )
            found.refuse(cluster.REASSIGNMENTS, what)
        else:
            _aim(topic, target, found)


def _aim(topic: Topic, target: Target, found: Findings) -> None:
    """`ReplicaAssignment.reassignTo`: the origin stays until all replicas of the target are in sync."""
    number, was = target.partition, topic.assignment
    origin = [each for each in was.replicas[number] if each not in was.adding.get(number, ())]
    everywhere = tuple(dict.fromkeys((*target.replicas, *origin)))
    adding = tuple(each for each in everywhere if each not in origin)
    removing = tuple(each for each in everywhere if each not in target.replicas)
    topic.assignment = was._replace(
        replicas={**was.replicas, number: everywhere},
        adding={**was.adding, number: adding},
        removing={**was.removing, number: removing},
    )
    partition = topic.partitions.get(number)
    if partition is None:
        return  # a state that is missing is a finding of its own
    in_sync = tuple(each for each in partition.state.isr if each in everywhere)
    if not in_sync:
        path = state_path(topic.name, number)
        found.refuse(
            path,
            f"its in-sync set is of brokers that {cluster.REASSIGNMENTS} takes away: start the brokers "
            "until the reassignment is done, or delete that znode to cancel it",
        )
    topic.partitions[number] = partition._replace(state=partition.state._replace(isr=in_sync))


def _note_moves(topic: Topic, found: Findings) -> None:
    """What is being moved goes on by itself; what cannot is damaged."""
    assignment, path = topic.assignment, topic_path(topic.name)
    moving = []
    for number in sorted({*assignment.adding, *assignment.removing}):
        adding, removing = set(assignment.adding.get(number, ())), set(assignment.removing.get(number, ()))
        replicas = set(assignment.replicas.get(number, ()))
        if not adding | removing <= replicas or adding & removing or removing == replicas:
            found.refuse(
                path,
                f"is damaged: the reassignment of partition {number} is to add {sorted(adding)} to "
                f"replicas {sorted(replicas)} and to remove {sorted(removing)}",
            )
        elif adding or removing:
            moving.append(number)
    if moving:
        found.note(path, f"the reassignment of partitions {numbers(moving)} goes on when Ottla's nodes run")
