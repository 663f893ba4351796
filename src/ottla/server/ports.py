"""What the parts of the server need of each other, where they cannot name the class: it lies above them.

`Node` gives `NodePorts`, the sum of a few ports by subject. Only what makes the context of a request takes the sum;
everything else asks for the ports that it needs. Nothing here is imported while a node runs.
"""

from __future__ import annotations

import asyncio
import random as random_module
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from uuid import UUID

from ottla.clock import Clock
from ottla.drivers.controller.controller_channel import ControllerChannel
from ottla.drivers.coordinators.group_coordinator import GroupCoordinatorDriver
from ottla.drivers.coordinators.producer_ids import ProducerIds
from ottla.drivers.coordinators.share_coordinator import ShareCoordinatorDriver
from ottla.drivers.coordinators.share_groups import ShareGroups
from ottla.drivers.coordinators.transaction_coordinator import TransactionCoordinatorDriver
from ottla.drivers.coordinators.transaction_verifier import TransactionVerifier
from ottla.drivers.logs.log_mover import LogMover
from ottla.drivers.metadata.away_brokers import AwayBrokers
from ottla.drivers.metadata.broker_lifecycle import BrokerLifecycle
from ottla.drivers.metadata.metadata_services import MetadataServices
from ottla.drivers.ports import Directories, Reaching, Settled
from ottla.drivers.replication.replication import Replication
from ottla.drivers.replication.share_partitions import SharePartitions
from ottla.errors import KafkaError
from ottla.filesystem import FileSystem
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import Endpoint, MetadataImage
from ottla.metrics.instruments import NodeMetrics
from ottla.model import ProducerId, TopicPartition
from ottla.quotas.limits import AddressLimits
from ottla.replication.fetch_session import FetchSessionCache
from ottla.security.authorizer import Authorizer
from ottla.server.replicas.log_settings import LogSettings
from ottla.server.replicas.replica_manager import ReplicaManager
from ottla.server.security.login_settings import Counts, LoginSettings, Mechanism
from ottla.storage.log_manager import LogManager
from ottla.tls_handshakes import Failure
from ottla.tls_network import TlsNetwork

T = TypeVar("T")


class ClientFacts(Protocol):
    """What a node notes of a connection: `listener.ClientFacts`."""

    connected_s: float
    client_id: str | None
    software_name: str
    software_version: str
    instance_id: UUID | None
    producer_id: ProducerId
    when_lost: Callable[[], None] | None


class Authentication(Protocol):
    """Logs the clients of a listener in: `authentication.Authentication`."""

    settings: LoginSettings
    mechanisms: Mapping[str, Mechanism]

    @property
    def counts(self) -> Counts: ...


class ConnectionRates(Protocol):
    """Limits new connections: `connection_rates.ConnectionRates`."""

    def admit(self, name: str, address: str, /) -> tuple[float, bool]: ...
    def throttle_times(self, name: str, /) -> tuple[float, float]: ...


class NodeQuotas(Protocol):
    """The quotas of a node's clients: `quotas.NodeQuotas`."""

    @property
    def addresses(self) -> AddressLimits: ...
    def applying(self, delta: MetadataDelta, /) -> Iterator[None]: ...
    def fetch_bytes_max(self, asked: Asking, /) -> int: ...


class NodeListener(Protocol):
    """A listener of a node, as handlers see it: `listener.Listener`."""

    @property
    def quotas(self) -> NodeQuotas | None: ...
    @property
    def rates(self) -> ConnectionRates | None: ...
    @property
    def name(self) -> str: ...
    @property
    def protocol(self) -> str: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def connections(self) -> Mapping[Any, ClientFacts]: ...
    @property
    def authentication(self) -> Authentication | None: ...


class Tls(Protocol):
    """The TLS of a node: `node_tls.NodeTls`."""

    on_failed: Callable[[str, Failure], None] | None

    def network_of(self, name: str, /) -> TlsNetwork: ...
    async def refusals(
        self, image: MetadataImage, asked: Mapping[str, Any], node_id: int, *, incremental: bool
    ) -> dict[int, KafkaError]: ...


class Audit(Protocol):
    """The audit log of a node: `audit.Audit`."""

    @property
    def hears_of_data(self) -> bool: ...

    def logged_in(self, principal: str, host: str, listener: str, mechanism: str, *, again: bool = False) -> None: ...
    def login_failed(
        self, host: str, listener: str, mechanism: str | None, reason: str, claimed: str | None = None
    ) -> None: ...
    def administered(
        self, asked: Asking, /, kind: str, name: str, error: int = 0, changes: Sequence[tuple[str, Any, Any]] = ()
    ) -> None: ...


class Share(Protocol):
    """The parts of a node for share groups: `share_groups.ShareParts`."""

    @property
    def partitions(self) -> SharePartitions: ...
    @property
    def groups(self) -> ShareGroups: ...


class Failing(Protocol):
    """Ends a node that cannot go on: `node_failure.NodeFailure`."""

    def give_up(self, why: str, /) -> None: ...
    def halt(self, why: str, error: BaseException, /) -> None: ...


class DamagedLogs(Protocol):
    """`damaged_logs.DamagedLogs`."""

    def damaged(self) -> Mapping[TopicPartition, str]: ...


# What is asked of a node, by subject; `NodePorts` is the sum.


class Member(Settled, Protocol):
    """A node in its cluster."""

    @property
    def cluster_id(self) -> str: ...
    @property
    def inter_broker_listener(self) -> str: ...


class Guarded(Protocol):
    """Decides who may do what on a node, and reports it."""

    @property
    def authorizer(self) -> Authorizer | None: ...
    @property
    def audit(self) -> Audit | None: ...


class Deciding(Settled, Guarded, Protocol):
    """A node that is asked for permissions."""


class Asking(Protocol):
    """A request that asks for permission: `api.RequestContext`."""

    @property
    def node(self) -> Deciding: ...
    @property
    def principal(self) -> str: ...
    @property
    def client_host(self) -> str: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def api_key(self) -> int: ...
    @property
    def api_version(self) -> int: ...


class Running(Settled, Protocol):
    """The process of a node: its time, its disk, its threads and tasks."""

    @property
    def clock(self) -> Clock: ...
    @property
    def random(self) -> random_module.Random: ...
    @property
    def fs(self) -> FileSystem: ...
    @property
    def metrics(self) -> NodeMetrics: ...
    @property
    def stopping(self) -> bool: ...
    @property
    def on_stop(self) -> list[Callable[[], None]]: ...
    async def long_work(self, work: Callable[[], T], /) -> T: ...
    def spawn(self, work: Coroutine[Any, Any, None], /) -> asyncio.Task[None]: ...


class Listening(Member, Guarded, Protocol):
    """The clients of a node."""

    @property
    def quotas(self) -> NodeQuotas | None: ...
    @property
    def listeners(self) -> Sequence[NodeListener]: ...
    @property
    def tls(self) -> Tls | None: ...


class Storing(Running, Protocol):
    """The partitions of a node."""

    @property
    def logs(self) -> LogManager: ...
    @property
    def replicas(self) -> ReplicaManager: ...
    @property
    def sessions(self) -> FetchSessionCache: ...
    @property
    def log_settings(self) -> LogSettings: ...
    @property
    def directories(self) -> Directories: ...
    @property
    def damaged_logs(self) -> DamagedLogs: ...
    @property
    def replication(self) -> Replication | None: ...
    def log_mover(self) -> LogMover: ...


class Peering(Reaching, Protocol):
    """The other brokers."""

    @property
    def lost(self) -> Mapping[int, int]:
        """Brokers whose process seems to be gone, with the epochs of these incarnations."""

    @property
    def away(self) -> AwayBrokers | None: ...


class Coordinating(Protocol):
    """The coordinators of a node."""

    @property
    def groups(self) -> GroupCoordinatorDriver: ...
    @property
    def transactions(self) -> TransactionCoordinatorDriver: ...
    @property
    def transaction_verifier(self) -> TransactionVerifier: ...
    @property
    def producer_ids(self) -> ProducerIds: ...
    @property
    def share_coordinator(self) -> ShareCoordinatorDriver: ...
    @property
    def share(self) -> Share: ...


class Controlled(Settled, Protocol):
    """A node's way to the controller, and the controller of this process."""

    @property
    def metadata(self) -> MetadataServices: ...
    @property
    def channel(self) -> ControllerChannel: ...
    @property
    def lifecycle(self) -> BrokerLifecycle: ...
    @property
    def controller_endpoints(self) -> Mapping[str, Endpoint]: ...


class NodePorts(Listening, Storing, Peering, Coordinating, Controlled, Protocol):
    """All of a node that handlers reach."""


# What needs more than one of them.


class WorkingNode(Running, Controlled, Protocol):
    """For work of a node's own that its metadata asks for."""


class ReplicaNode(Storing, WorkingNode, Protocol):
    """For what becomes of a damaged replica."""


class DirectoryNode(ReplicaNode, Protocol):
    """A node whose log directories the controller knows."""

    @property
    def failure(self) -> Failing: ...


class ShareStateNode(Storing, Peering, Controlled, Protocol):
    """For the share coordinator."""


class MeteredNode(Listening, Controlled, Protocol):
    """A node whose clients have quotas."""


class LoginNode(Listening, Reaching, Protocol):
    """A node that logs its clients in, and itself at others."""


class AuditedNode(Listening, WorkingNode, Reaching, Protocol):
    """A node with an audit log."""
