"""The cluster's metadata at one offset of the metadata log, as a value that never changes.

A reader takes `driver.image` once and sees one consistent state for as long as it likes. Topics are in persistent maps,
so an image that differs by one topic shares the rest with its predecessor (Kafka's `MetadataImage`, with pcollections).
"""

from __future__ import annotations

import enum
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from immutables import Map

from ottla.model import LeaderEpoch, NodeId, Offset, ProducerId, TopicId

ACLS_PER_STEP = 500
"""ACLs that are gone through between two yields: each costs about a microsecond."""

NO_LEADER = -1
NO_LEADER_CHANGE = -2

DIRECTORY_MIGRATING = UUID(int=0)
DIRECTORY_UNASSIGNED = UUID(int=1)
DIRECTORY_LOST = UUID(int=2)
DIRECTORIES_RESERVED = frozenset({DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, DIRECTORY_LOST})
"""Ids that stand for no directory in particular."""
"""Directory ids with a meaning of their own (KIP-858); real ids never are among the first hundred."""


class ConfigResourceType(enum.IntEnum):
    """Kinds of things that have settings, numbered as on the wire and in ConfigRecords."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class SecurityProtocol(enum.IntEnum):
    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


class LeaderRecoveryState(enum.IntEnum):
    RECOVERED = 0
    RECOVERING = 1


class Endpoint(NamedTuple):
    """Where one listener of a node is reached by others; `security_protocol` as numbered in registrations."""

    host: str
    port: int
    security_protocol: int = SecurityProtocol.PLAINTEXT


class ConfigResource(NamedTuple):
    """A thing with settings. The empty name with type BROKER stands for all brokers (cluster-wide dynamic settings)."""

    type: int
    name: str


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """One broker as it registered itself. `epoch` is the offset of its registration, so it grows with each restart."""

    id: NodeId
    epoch: int
    incarnation_id: UUID
    endpoints: Mapping[str, Endpoint]
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Name to (lowest, highest) supported level."""
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[UUID, ...] = ()
    """Ids of its online log directories, sorted."""
    cordoned_log_dirs: tuple[UUID, ...] = ()
    """Directories that take no new partitions (KIP-1066)."""

    @property
    def active(self) -> bool:
        """Whether the broker may lead partitions."""
        return not self.fenced and not self.in_controlled_shutdown


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    id: NodeId
    incarnation_id: UUID
    endpoints: Mapping[str, Endpoint]
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)


class PartitionRegistration(NamedTuple):
    """The controller's view of one partition."""

    replicas: tuple[NodeId, ...]
    """In order of preference: the first is the preferred leader."""
    isr: tuple[NodeId, ...]
    leader: NodeId
    """NO_LEADER (-1) while no replica may lead; otherwise a member of `isr`, except right after an unclean election."""
    leader_epoch: LeaderEpoch
    """Grows with every change of leadership, also with one that elects the same leader again."""
    partition_epoch: int
    """Grows with every change of this record."""
    directories: tuple[UUID, ...]
    """The log directory of each replica, in the order of `replicas`."""
    removing: tuple[NodeId, ...] = ()
    adding: tuple[NodeId, ...] = ()
    elr: tuple[NodeId, ...] = ()
    """Eligible leader replicas (KIP-966): out of the ISR, but known to have everything below the high watermark."""
    last_known_elr: tuple[NodeId, ...] = ()
    recovery_state: int = LeaderRecoveryState.RECOVERED

    def directory(self, replica: NodeId) -> UUID:
        """The directory id of a replica; DIRECTORY_MIGRATING if it is not one of ours."""
        try:
            return self.directories[self.replicas.index(replica)]
        except (ValueError, IndexError):
            return DIRECTORY_MIGRATING


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    id: TopicId
    partitions: Mapping[int, PartitionRegistration]
    """Keyed by partition number, in ascending order, without gaps. Not to be changed."""


@lru_cache(maxsize=4096)
def shared(value: tuple[Any, ...]) -> tuple[Any, ...]:
    """The first tuple seen of those that are equal: thousands of partitions have few sets of replicas."""
    return value


ReplicaIndex = Map[NodeId, Map[TopicId, tuple[int, ...]]]
"""Broker to topic to the numbers of the partitions that have a replica there."""

Configs = Mapping[str, str]
_NO_CONFIGS: Configs = MappingProxyType({})


AclContent = tuple[int, str, int, str, str, int, int]


def acl_content(acl: Any) -> AclContent:
    """What makes two ACLs the same: everything but the id."""
    return (
        acl.resource_type,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


class Acls(Mapping[UUID, Any]):
    """The ACLs, each the record that created it, by id. Never changes but for the index by content, which is made when
    it is first asked for and kept up in what `changed` gives."""

    __slots__ = ("_by_content", "_by_id")

    def __init__(self, by_id: Map[UUID, Any] | None = None, by_content: Map[AclContent, UUID] | None = None) -> None:
        self._by_id = Map() if by_id is None else by_id
        self._by_content = by_content

    def __getitem__(self, acl_id: UUID) -> Any:
        return self._by_id[acl_id]

    def __iter__(self) -> Iterator[UUID]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Acls) and self._by_id == other._by_id

    __hash__ = None  # type: ignore[assignment]

    def values(self) -> Any:
        return self._by_id.values()

    def items(self) -> Any:
        return self._by_id.items()

    def changed(self, changes: Mapping[UUID, Any]) -> Acls:
        """These with the changes, None for an ACL that is gone. An id is never given to another ACL."""
        if not changes:
            return self
        by_id = self._by_id.mutate()
        by_content = None if self._by_content is None else self._by_content.mutate()
        for acl_id, acl in changes.items():
            if acl is not None:
                by_id[acl_id] = acl
                if by_content is not None:
                    by_content[acl_content(acl)] = acl_id
            elif (gone := by_id.pop(acl_id, None)) is not None and by_content is not None:
                by_content.pop(acl_content(gone), None)
        return Acls(by_id.finish(), None if by_content is None else by_content.finish())

    def by_content(self) -> Generator[None, None, Mapping[AclContent, UUID]]:
        """The ids by content; the first time in steps, as there may be many."""
        known = self._by_content
        if known is None:
            index = Map[AclContent, UUID]().mutate()
            for number, (acl_id, acl) in enumerate(self._by_id.items(), start=1):
                index[acl_content(acl)] = acl_id
                if number % ACLS_PER_STEP == 0:
                    yield
            known = self._by_content = index.finish()
        return known


@dataclass(frozen=True)
class MetadataImage:
    """Everything that the metadata log says up to and including `offset`."""

    offset: Offset = -1
    """The last record that is part of this image; -1 for the empty image."""
    epoch: LeaderEpoch = -1
    """The controller epoch of that record."""
    timestamp_ms: int = -1
    """Append time of the batch of that record."""
    cluster_id: str = ""
    features: Mapping[str, int] = field(default_factory=dict)
    """Finalized feature levels, `metadata.version` among them."""
    brokers: Mapping[NodeId, BrokerRegistration] = field(default_factory=dict)
    controllers: Mapping[NodeId, ControllerRegistration] = field(default_factory=dict)
    topics_by_name: Map[str, TopicImage] = field(default_factory=Map)
    topics_by_id: Map[TopicId, TopicImage] = field(default_factory=Map)
    configs: Map[ConfigResource, Configs] = field(default_factory=Map)
    """Dynamic settings by resource; a resource without settings has no entry."""
    next_producer_id: ProducerId = 0
    client_quotas: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float]] = field(default_factory=dict)
    """Keyed by sorted (entity type, entity name or None for the default)."""
    scram_credentials: Mapping[tuple[str, int], Any] = field(default_factory=dict)
    """Keyed by (user, mechanism): the record."""
    acls: Acls = field(default_factory=Acls)
    delegation_tokens: Mapping[str, Any] = field(default_factory=dict)
    """Keyed by token id: the record."""
    replica_index: ReplicaIndex | None = field(default=None, compare=False, repr=False)
    """See `replica_index.py`; None where nobody needs it."""

    @property
    def topics(self) -> Iterable[TopicImage]:
        """All, in an order that is the same in every process: the hash of an id, unlike that of a name, has no seed."""
        return self.topics_by_id.values()

    def topic(self, name: str) -> TopicImage | None:
        return self.topics_by_name.get(name)

    def topic_by_id(self, topic_id: TopicId) -> TopicImage | None:
        return self.topics_by_id.get(topic_id)

    def partition(self, topic: str, partition: int) -> PartitionRegistration | None:
        image = self.topics_by_name.get(topic)
        return None if image is None else image.partitions.get(partition)

    def config(self, resource_type: int, name: str) -> Configs:
        """The dynamic settings of a resource itself, without defaults."""
        return self.configs.get(ConfigResource(resource_type, name), _NO_CONFIGS)

    def topic_config(self, topic: str) -> Configs:
        return self.config(ConfigResourceType.TOPIC, topic)

    @cached_property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics)


EMPTY_IMAGE = MetadataImage()
