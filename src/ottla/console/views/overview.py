"""The first page: whether the cluster is well, its nodes, and what needs attention."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ottla.config.units import human_bytes
from ottla.console.asking import Asking
from ottla.console.brokers import NodeAway
from ottla.console.cluster import Cluster
from ottla.console.history import Trend
from ottla.console.trends import ALL
from ottla.console.views.moves import rates_of

ATTENTION_MAX = 20
"""Topics and groups that are named; the others are counted."""


@dataclass(frozen=True)
class Node:
    id: int
    address: str
    rack: str | None
    is_controller: bool
    leads: int
    """Partitions."""
    replicas: int
    is_answering: bool
    """Clusters of Ottla list a broker that died for 15 minutes."""


@dataclass(frozen=True)
class Attention:
    """Something that somebody should look at."""

    sentence: str
    kind: str
    """topic, topics, group, moves or node: what `name` names."""
    name: str


@dataclass(frozen=True)
class Overview:
    cluster_id: str | None
    health: str
    """One sentence."""
    level: str
    """well; warn where something needs attention; bad where a partition has no leader."""
    nodes: list[Node]
    racks: list[str]
    topics: int
    partitions: int
    groups: int | None
    """None where no broker says."""
    groups_by_state: dict[str, int]
    attention: list[Attention]
    written: Trend | None
    """Records in a second, of all topics; None until it is measured."""


def overview(asking: Asking) -> Overview:
    cluster = asking.cluster()
    groups = asking.groups()
    silent = {node for node, error in groups.failures.items() if isinstance(error, NodeAway)} | asking.brokers.hung()
    health = _health(cluster, len(cluster.nodes.keys() - silent))
    nodes = [
        Node(
            each.node_id,
            address(each.host, each.port),
            each.rack,
            each.node_id == cluster.controller,
            cluster.leaders.get(each.node_id, 0),
            cluster.replicas.get(each.node_id, 0),
            each.node_id not in silent,
        )
        for each in cluster.nodes.values()
    ]
    states: dict[str, int] = {}
    for each in groups.by_name.values():
        states[each.state or "unknown"] = states.get(each.state or "unknown", 0) + 1
    is_known = bool(groups.by_name) or not groups.failures
    attention = [*_attention(cluster, silent), *_throttle(asking, cluster)]
    return Overview(
        cluster.id,
        health,
        "bad" if cluster.leaderless else "warn" if attention else "well",
        nodes,
        sorted({each.rack for each in nodes if each.rack is not None}),
        len(cluster.topics),
        cluster.partitions,
        len(groups.by_name) if is_known else None,
        dict(sorted(states.items())),
        attention,
        asking.trends.written(ALL),
    )


def address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def counted(count: int, noun: str) -> str:
    """`1 topic`, `1,200 topics`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _health(cluster: Cluster, up: int) -> str:
    nodes = f"{counted(up, 'broker')} {'is' if up == 1 else 'are'} up"
    if cluster.leaderless:
        verb = "has" if cluster.leaderless == 1 else "have"
        ill = f"{counted(cluster.leaderless, 'partition')} of {cluster.partitions:,}"
        return f"{ill} {verb} no leader and cannot be read or written; {nodes}."
    if cluster.under_replicated:
        verb = "lacks" if cluster.under_replicated == 1 else "lack"
        ill = counted(cluster.under_replicated, "partition")
        return f"All partitions can be read and written, but {ill} {verb} in-sync copies; {nodes}."
    if up < len(cluster.nodes):
        return f"All partitions can be read and written, but not every broker answers; {nodes}."
    if not cluster.topics:
        return f"All is well: {nodes}, and there is no topic yet."
    return f"All is well: {nodes}, and every copy of {counted(cluster.partitions, 'partition')} is in sync."


def _throttle(asking: Asking, cluster: Cluster) -> list[Attention]:
    rates = rates_of(asking, cluster)
    if not rates:
        return []
    size = human_bytes(min(rates.values()))
    return [Attention(f"Copies between brokers are throttled to {size} a second, until that is removed.", "moves", "")]


def _attention(cluster: Cluster, silent: Collection[int]) -> list[Attention]:
    missing = sorted(node for node in cluster.replicas if node >= 0 and node not in cluster.nodes)
    found = [
        Attention(f"Broker {node} is away; it holds {counted(cluster.replicas[node], 'replica')}.", "node", str(node))
        for node in missing[:ATTENTION_MAX]
    ]
    for node in sorted(cluster.nodes.keys() & silent)[:ATTENTION_MAX]:
        held = counted(cluster.replicas.get(node, 0), "replica")
        found.append(Attention(f"Broker {node} does not answer; it holds {held}.", "node", str(node)))
    ill = [each for each in cluster.topics.values() if each.leaderless or each.under_replicated]
    ill.sort(key=lambda each: (-each.leaderless, -each.under_replicated, each.name))
    for each in ill[:ATTENTION_MAX]:
        if each.leaderless:
            sentence = f"Topic {each.name}: {counted(each.leaderless, 'partition')} without a leader."
        else:
            sentence = f"Topic {each.name}: {counted(each.under_replicated, 'partition')} without all in-sync copies."
        found.append(Attention(sentence, "topic", each.name))
    if len(ill) > ATTENTION_MAX:
        found.append(Attention(f"And {counted(len(ill) - ATTENTION_MAX, 'more topic')}.", "topics", ""))
    return found
