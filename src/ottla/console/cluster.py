"""The cluster as its metadata shows it, and the offsets of its partitions: few requests, whatever there is of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.console.brokers import Brokers, Node, ensure_none
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID, TopicPartition
from ottla.protocol.messages import ApiKey

LATEST: Final = -1
EARLIEST: Final = -2
"""Given in place of a timestamp to `offsets`."""
ROWS_PER_REQUEST: Final = 20_000
"""Partitions, groups or settings that are asked for in one request."""


class Partition(NamedTuple):
    number: int
    leader: int
    """-1 for none."""
    epoch: int
    replicas: Sequence[int]
    in_sync: Sequence[int]
    offline: Sequence[int]


@dataclass(slots=True)
class Topic:
    name: str
    id: UUID
    is_internal: bool
    partitions: list[Partition]
    under_replicated: int = 0
    leaderless: int = 0

    @property
    def copies(self) -> int:
        """Copies of the partition that has fewest."""
        return min((len(each.replicas) for each in self.partitions), default=0)


@dataclass(slots=True)
class Cluster:
    id: str | None
    controller: int
    nodes: dict[int, Node]
    topics: dict[str, Topic]
    """Topics that the user may see, by name."""
    partitions: int = 0
    under_replicated: int = 0
    leaderless: int = 0
    leaders: dict[int, int] = field(default_factory=dict)
    """Partitions that each node leads."""
    replicas: dict[int, int] = field(default_factory=dict)


def read_cluster(brokers: Brokers, topics: Sequence[str] | None = None) -> Cluster:
    """What one Metadata request tells, of all topics or of some. Raises OSError, KafkaError."""
    wanted = None if topics is None else [{"topic_id": ZERO_UUID, "name": name} for name in topics]
    answer = brokers.ask_any(ApiKey.METADATA, {"topics": wanted, "allow_auto_topic_creation": False})
    nodes = {
        row["node_id"]: Node(row["node_id"], row["host"], row["port"], row.get("rack"))
        for row in sorted(answer["brokers"], key=lambda row: row["node_id"])
    }
    brokers.learn(nodes.values(), answer.get("cluster_id"))
    found = Cluster(answer.get("cluster_id"), answer["controller_id"], nodes, {})
    found.leaders, found.replicas = dict.fromkeys(nodes, 0), dict.fromkeys(nodes, 0)
    for row in sorted(answer["topics"], key=lambda row: row["name"] or ""):
        if row["name"] and row["error_code"] in (0, ErrorCode.leader_not_available):
            found.topics[row["name"]] = _topic(found, row)
    return found


def _topic(cluster: Cluster, row: Mapping[str, Any]) -> Topic:
    partitions = [
        Partition(
            each["partition_index"],
            each["leader_id"],
            each.get("leader_epoch", -1),
            each["replica_nodes"],
            each["isr_nodes"],
            each.get("offline_replicas") or (),
        )
        for each in row["partitions"]
    ]
    partitions.sort()
    topic = Topic(row["name"], row.get("topic_id") or ZERO_UUID, row["is_internal"], partitions)
    leaders, replicas = cluster.leaders, cluster.replicas
    for each in partitions:
        if each.leader < 0:
            topic.leaderless += 1
        leaders[each.leader] = leaders.get(each.leader, 0) + 1
        if len(each.in_sync) < len(each.replicas):
            topic.under_replicated += 1
        for node in each.replicas:
            replicas[node] = replicas.get(node, 0) + 1
    cluster.partitions += len(partitions)
    cluster.under_replicated += topic.under_replicated
    cluster.leaderless += topic.leaderless
    return topic


class Offsets(NamedTuple):
    """Answers of ListOffsets: what was found, and why the rest was not."""

    found: dict[TopicPartition, int]
    failures: dict[TopicPartition, KafkaError | OSError]


def read_offsets(brokers: Brokers, cluster: Cluster, wanted: Mapping[TopicPartition, int]) -> Offsets:
    """The offset at a timestamp (ms), LATEST or EARLIEST of each partition: one request to each leader, all at once.
    Partitions without a leader, or that are not there, are failures."""
    by_node: dict[int, dict[str, list[dict[str, int]]]] = {}
    found = Offsets({}, {})
    for at, timestamp in wanted.items():
        leader = leader_of(cluster, at)
        if leader < 0:
            found.failures[at] = KafkaError(ErrorCode.leader_not_available, f"{at.topic}-{at.partition} has no leader")
            continue
        topics = by_node.setdefault(leader, {})
        topics.setdefault(at.topic, []).append(
            {"partition_index": at.partition, "timestamp": timestamp, "current_leader_epoch": -1}
        )

    def asking(node: int, topics: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
        rows = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
        values = {"replica_id": -1, "isolation_level": 0, "topics": rows}
        return lambda: brokers.ask(node, ApiKey.LIST_OFFSETS, values)

    asked = [(topics, asking(node, topics)) for node, topics in by_node.items()]
    for (topics, _), answer in zip(asked, brokers.gather([call for _, call in asked]), strict=True):
        if isinstance(answer, Exception):
            found.failures.update(
                {TopicPartition(name, row["partition_index"]): answer for name, rows in topics.items() for row in rows}
            )
            continue
        for topic in answer["topics"]:
            for row in topic["partitions"]:
                at = TopicPartition(topic["name"], row["partition_index"])
                try:
                    ensure_none(ApiKey.LIST_OFFSETS, row, topic["name"])
                except KafkaError as error:
                    found.failures[at] = error
                else:
                    found.found[at] = row["offset"]
    return found


def leader_of(cluster: Cluster, at: TopicPartition) -> int:
    """The node that leads a partition, -1 for none."""
    topic = cluster.topics.get(at.topic)
    if topic is None:
        return -1
    partitions = topic.partitions
    if 0 <= at.partition < len(partitions) and partitions[at.partition].number == at.partition:
        return partitions[at.partition].leader
    return next((each.leader for each in partitions if each.number == at.partition), -1)


def places(topics: Iterable[Topic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, each.number) for topic in topics for each in topic.partitions]


def on_every_node(
    brokers: Brokers, cluster: Cluster, key: ApiKey, values: Mapping[str, Any], nodes: Iterable[int] | None = None
) -> dict[int, dict[str, Any] | KafkaError | OSError]:
    """The same request to every node, all at once."""
    asked = list(cluster.nodes if nodes is None else nodes)

    def asking(node: int) -> Callable[[], dict[str, Any]]:
        return lambda: brokers.ask(node, key, values)

    return dict(zip(asked, brokers.gather([asking(node) for node in asked]), strict=True))
