"""What the drivers of brokers need of the node that they run on, and of each other; `ottla.server.node.Node` gives it.

Types only: nothing here is imported while a node runs. `quorum_ports.py` has those of the metadata log,
`controller_ports.py` those of the controller.
"""

from __future__ import annotations

import asyncio
import random as random_module
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from ottla.clock import Clock
from ottla.config.server import ServerConfig
from ottla.coordinator.effects import InitializeShares, Marker, Now
from ottla.coordinator.group.requests import GroupRequest
from ottla.coordinator.group.state import GroupState
from ottla.coordinator.share.requests import StateRequest
from ottla.coordinator.transaction.effects import SendMarkers
from ottla.drivers.controller.controller_channel import ControllerChannel
from ottla.drivers.metadata.broker_lifecycle import BrokerLifecycle
from ottla.drivers.nodes.node_client import NodeClient
from ottla.errors import ErrorCode, KafkaError
from ottla.filesystem import FileSystem
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metrics.instruments import NodeMetrics
from ottla.model import LeaderEpoch, Millis, NodeId, Offset, ProducerEpoch, ProducerId, TopicPartition
from ottla.network import Network
from ottla.replication.partition import Partition
from ottla.replication.replica_log import Slice
from ottla.replication.throttle import Throttle
from ottla.storage.log_manager import LogManager

T = TypeVar("T")


class Waiter(Protocol):
    """Gets one result, or the KafkaError that it failed with (the server's `Deferred`)."""

    def complete(self, result: Any) -> None: ...


# Parts of a node.


class PublishedMetadata(Protocol):
    """Tells of every change that is committed."""

    def subscribe(self, callback: Callable[[MetadataDelta, MetadataImage], None], /) -> None: ...


class Logs(Protocol):
    """Cuts logs in batches: `LogManager`."""

    async def truncate(self, offsets: Mapping[Any, Offset]) -> Mapping[Any, KafkaError]: ...
    async def start_over(self, offsets: Mapping[Any, Offset]) -> Mapping[Any, KafkaError]: ...


class Partitions(Protocol):
    """The partitions of the node: `ReplicaManager`."""

    on_leadership: list[Callable[[Partition], None]]
    """Called with each partition whose leadership or leader epoch changed."""
    ask_isr: Callable[[Partition, tuple[NodeId, ...]], None] | None
    leader_throttle: Throttle | None

    @property
    def missing(self) -> Collection[TopicPartition]:
        """Partitions that should be here, whose logs cannot be used."""

    def __iter__(self) -> Iterator[Partition]: ...
    def get(self, topic: str, partition: int, /) -> Partition | None: ...


class Clients(Protocol):
    """Clients of other brokers: `BrokerClients`."""

    def new(self, client_id: str, /, *, request_timeout_ms: int | None = None) -> NodeClient: ...


class LoadedCore(Protocol):
    """A coordinator's state machine while it is loaded."""

    def replay(self, record: Any, offset: Offset = ..., producer_id: ProducerId = ...) -> None: ...
    def replay_transaction_end(self, producer_id: ProducerId, committed: bool) -> None: ...


class ReadableLog(Protocol):
    """The log of a coordinator's partition: `Partition.log`."""

    @property
    def log_start_offset(self) -> Offset: ...
    @property
    def log_end_offset(self) -> Offset: ...
    def read(self, offset: Offset, max_bytes: int, *, up_to: Offset) -> Slice | None: ...


class Core(LoadedCore, Protocol):
    """A coordinator's state machine for one partition (`ottla.coordinator`)."""

    def take(self) -> list[Any]: ...
    def next_deadline(self) -> Millis | None: ...
    def advance(self, now: Now) -> None: ...
    def on_loaded(self, now: Now) -> None: ...
    def unload(self, now: Now) -> None: ...


class Sending(Protocol):
    """One partition of the coordinator that has markers sent."""

    @property
    def is_serving(self) -> bool:
        """False once the node has given it up: its markers are another node's business."""

    @property
    def coordinator_epoch(self) -> LeaderEpoch: ...

    def written(self, markers: SendMarkers, partitions: Iterable[TopicPartition], /) -> None: ...


class Groups(Protocol):
    """The group coordinator: `GroupCoordinatorDriver`."""

    initialize_shares: Callable[[InitializeShares], None] | None

    def ask(self, waiter: Waiter, request: GroupRequest, /) -> None: ...
    def partition_of(self, group_id: str, /) -> int: ...
    def read_committed(self, look: Callable[[GroupState, str], T], group_id: str, /) -> T: ...
    def complete_transaction(self, number: int, marker: Marker, done: Callable[[ErrorCode], None], /) -> None:
        """Write a marker to a partition of `__consumer_offsets`. Raises KafkaError where that cannot begin."""


class Transactions(Protocol):
    """The transaction coordinator: `TransactionCoordinatorDriver`."""

    def add_partitions(
        self,
        waiter: Waiter,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Collection[TopicPartition],
        verify_only: bool,
        /,
    ) -> None:
        """Completes `waiter` with the error of each partition."""


class ShareStates(Protocol):
    """The share coordinator: `ShareCoordinatorDriver`."""

    def ask(self, waiter: Waiter, request: StateRequest, /) -> None: ...


class Directories(Protocol):
    """The log directories: `DirectoryEvents`."""

    def note_placed(self) -> None:
        """Let the metadata say in which of several log directories new partitions were put."""

    def take_offline(self, directory: str, error: OSError, /) -> None:
        """A log directory failed: what is in it refuses everything from now on."""

    async def assign(self, partition: Partition, directory: str, /) -> bool:
        """Tell the controller where a replica is about to be. False where it could not be told yet."""

    def stays(self, partition: Partition, directory: str, /) -> None:
        """Report that the log stays in this directory, not in the one told to the controller."""

    def moved(self, partition: Partition, /) -> None:
        """The log of a partition is another one, in another directory."""


class ProducerIdSource(Protocol):
    async def next(self) -> ProducerId: ...


# What each driver needs of the node.


class Settled(Protocol):
    """What a node is: its id, its settings, its metadata."""

    @property
    def node_id(self) -> NodeId: ...
    @property
    def config(self) -> ServerConfig: ...
    @property
    def image(self) -> MetadataImage: ...


class Reaching(Settled, Protocol):
    """For what asks other brokers."""

    @property
    def random(self) -> random_module.Random: ...
    @property
    def network(self) -> Network: ...
    @property
    def inter_broker_listener(self) -> str: ...
    @property
    def broker_clients(self) -> Clients: ...


class CoordinatorHost(Settled, Protocol):
    @property
    def random(self) -> random_module.Random: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def fs(self) -> FileSystem: ...
    @property
    def metrics(self) -> NodeMetrics: ...
    @property
    def replicas(self) -> Partitions: ...
    @property
    def lost(self) -> Mapping[NodeId, int]:
        """Brokers whose process seems to be gone, with the epochs of these incarnations."""

    @property
    def on_stop(self) -> list[Callable[[], None]]:
        """Called when the node begins to stop."""


class MarkerHost(Protocol):
    @property
    def config(self) -> ServerConfig: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def replicas(self) -> Partitions: ...
    @property
    def groups(self) -> Groups: ...


class SenderHost(MarkerHost, Reaching, Protocol):
    """For what has markers written, here or by other brokers."""


class TransactionHost(CoordinatorHost, SenderHost, Protocol):
    @property
    def producer_ids(self) -> ProducerIdSource: ...


class VerifierHost(Reaching, Protocol):
    @property
    def transactions(self) -> Transactions: ...


class PersisterHost(Reaching, Protocol):
    @property
    def share_coordinator(self) -> ShareStates: ...
    def spawn(self, work: Coroutine[Any, Any, None], /) -> asyncio.Task[None]: ...


class ShareHost(Settled, Protocol):
    """For share groups on their coordinator, and for share-partitions on their leader."""

    @property
    def random(self) -> random_module.Random: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def replicas(self) -> Partitions: ...
    @property
    def groups(self) -> Groups: ...
    def spawn(self, work: Coroutine[Any, Any, None], /) -> asyncio.Task[None]: ...


class WritingHost(Reaching, Protocol):
    """For what writes records to topics of its own: audit events, dead letters."""

    @property
    def fs(self) -> FileSystem: ...
    @property
    def clock(self) -> Clock: ...


class LogHost(Protocol):
    """For what moves or fetches logs."""

    @property
    def config(self) -> ServerConfig: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def logs(self) -> LogManager: ...
    @property
    def replicas(self) -> Partitions: ...
    @property
    def directories(self) -> Directories: ...


class MoverHost(LogHost, Protocol):
    @property
    def fs(self) -> FileSystem: ...


class ReplicationHost(LogHost, Reaching, Protocol):
    @property
    def metrics(self) -> NodeMetrics: ...
    @property
    def channel(self) -> ControllerChannel: ...
    @property
    def lifecycle(self) -> BrokerLifecycle: ...
