"""What a cluster says of itself before its nodes are exchanged, as plain values that `findings.py` judges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Key = tuple[str, int]
"""A topic and the number of a partition."""

KAFKA, OTTLA = "kafka", "ottla"
BEHIND_MAX = 1000
"""Records of the metadata log that a voter may be behind: it fetches several times a second."""
SILENT_MS = 3000
"""A voter that has not fetched for so long is away: each fetches at least twice a second."""


class Entry(NamedTuple):
    """A setting of a node that is not at its default."""

    value: str | None
    """None where the node hides it: a secret, or a name that Kafka does not know."""
    is_static: bool
    is_sensitive: bool = False


@dataclass(frozen=True)
class Node:
    """A broker, a controller, or both."""

    id: int
    is_broker: bool
    is_voter: bool
    address: str
    """Where clients reach it; of a node that is only a controller, its controller listener."""
    rack: str | None = None
    fenced: bool = False
    kind: str | None = None
    """KAFKA or OTTLA; None where the node did not answer."""
    settings: Mapping[str, Entry] | None = None
    """None where the node did not answer."""
    offline_directories: tuple[str, ...] = ()

    @property
    def role(self) -> str:
        return (
            "broker and controller"
            if self.is_broker and self.is_voter
            else "broker"
            if self.is_broker
            else "controller"
        )


@dataclass(frozen=True)
class Partition:
    topic: str
    number: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    leader: int

    @property
    def key(self) -> Key:
        return self.topic, self.number


@dataclass(frozen=True)
class Voter:
    id: int
    end: int
    """The end of its metadata log, as the leader knows it."""
    fetched_ms: int
    """When it last fetched, and when it last had all that there was, by the leader's clock; -1 for not yet."""
    caught_up_ms: int


@dataclass(frozen=True)
class Quorum:
    leader: int
    high_watermark: int
    voters: tuple[Voter, ...]
    observers: tuple[int, ...] = ()
    is_dynamic: bool = False

    @property
    def now_ms(self) -> int:
        """The leader's clock, which also dates the fetches of the others."""
        return max((each.fetched_ms for each in self.voters), default=-1)

    def late(self) -> list[int]:
        """Voters that are behind, or that have not fetched for a while: the end of one that died stays known."""
        return [
            each.id
            for each in self.voters
            if self.high_watermark - each.end > BEHIND_MAX or self.now_ms - each.fetched_ms > SILENT_MS
        ]


@dataclass(frozen=True)
class Records:
    """What was read of the internal topics."""

    read: int = 0
    unknown: Mapping[str, int] = field(default_factory=dict)
    """What Ottla does not know, to how often it was seen."""
    partitions_left: int = 0
    """Partitions that were not read to their end."""
    failure: str | None = None


@dataclass(frozen=True)
class Survey:
    cluster_id: str
    nodes: tuple[Node, ...]
    quorum: Quorum | None
    """None for a cluster without one: its state is in ZooKeeper."""
    features: Mapping[str, int]
    partitions: tuple[Partition, ...] = ()
    topics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The settings of each topic itself."""
    min_in_sync: Mapping[str, int] = field(default_factory=dict)
    """`min.insync.replicas` in effect."""
    reassignments: tuple[Key, ...] = ()
    tokens: int | None = None
    """None where the cluster did not say."""
    records: Records | None = None

    def node(self, node_id: int) -> Node | None:
        return next((each for each in self.nodes if each.id == node_id), None)
