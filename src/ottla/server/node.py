"""The composition root: what a node is made of, and the order in which it starts and stops.

Start: see that the addresses are free, lock the directories, metadata log to image, logs, bind the sockets, register
with the controller (which elects this node for its partitions), then accept. Stop: no new requests, answer what was
begun, close groups, logs (clean marker), metadata log.
"""

from __future__ import annotations

import asyncio
import logging
import posixpath
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ottla.clock import elapsed_s
from ottla.drivers.cooperative import run_yielding
from ottla.drivers.coordinators.group_coordinator import GroupCoordinatorDriver
from ottla.drivers.logs.log_cleaner import LogCleaner
from ottla.drivers.metadata.metadata_services import MetadataServices
from ottla.drivers.tasks import Background, LongWork, Repeated
from ottla.errors import KafkaError, OttlaError
from ottla.logs import fields
from ottla.metadata.image import ConfigResourceType, Endpoint, MetadataImage, SecurityProtocol
from ottla.metrics.instruments import NodeMetrics
from ottla.replication.fetch_session import FetchSessionCache
from ottla.server.api import OF_BROKERS, OF_CONTROLLERS, ApiSet
from ottla.server.connections.receiving import Receiving
from ottla.server.listeners.listener import ConnectionLimits
from ottla.server.listeners.listening import bind, changing_quotas, check_address, limit, log_start, logged_in, over_tls
from ottla.server.node_failure import NodeFailure
from ottla.server.node_upkeep import NodeUpkeep
from ottla.server.replicas.directory_events import DirectoryEvents
from ottla.server.replicas.log_settings import LogSettings
from ottla.server.replicas.replica_manager import ReplicaManager
from ottla.storage.log_manager import LogManager

if TYPE_CHECKING:
    import random as random_module

    from ottla.clock import Clock
    from ottla.config.listeners import Listener as ListenerSpec
    from ottla.config.server import ServerConfig
    from ottla.drivers.controller.controller_channel import ControllerChannel
    from ottla.drivers.coordinators.producer_ids import ProducerIds
    from ottla.drivers.coordinators.share_coordinator import ShareCoordinatorDriver
    from ottla.drivers.coordinators.transaction_coordinator import TransactionCoordinatorDriver
    from ottla.drivers.coordinators.transaction_verifier import TransactionVerifier
    from ottla.drivers.logs.log_mover import LogMover
    from ottla.drivers.metadata.away_brokers import AwayBrokers
    from ottla.drivers.metadata.broker_lifecycle import BrokerLifecycle
    from ottla.drivers.nodes.broker_clients import BrokerClients
    from ottla.drivers.replication.replication import Replication
    from ottla.filesystem import FileSystem
    from ottla.network import Network
    from ottla.security.authorizer import Authorizer
    from ottla.server.clients.quotas import NodeQuotas
    from ottla.server.coordinators.share_groups import ShareParts
    from ottla.server.http.server import HttpServer
    from ottla.server.listeners.listener import Listener
    from ottla.server.replicas.damaged_logs import DamagedLogs
    from ottla.server.security.audit import Audit

_LOG = logging.getLogger("ottla.node")

PERIODIC_TASKS_SECONDS = 1.0
"""How often logs and groups look whether retention, flush.ms, expiry or a checkpoint is due."""
SCRUB_AFTER_SECONDS = 60.0
"""When a node that had no records begins to look whether some are due to be read for damage."""
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

COMPANIONS_SECONDS_MAX = 7.0
"""For the programs beside the node to end, before they are killed."""
DRAIN_SECONDS_MAX = 5.0
"""How long a stopping node waits for requests that were begun and clients that read slowly."""


class Node:
    """One node. Handlers reach everything through it."""

    companions: Sequence[asyncio.Task[None]] = ()
    """Programs beside the node that are its clients: they end before it stops serving."""
    start_seconds = 0.0
    """How long `start` took."""
    _loaded = False
    """Whether the logs are known; until then closing them would call an unclean directory clean."""

    def __init__(
        self, config: ServerConfig, fs: FileSystem, clock: Clock, random: random_module.Random, network: Network
    ) -> None:
        self.config = config
        self.fs = fs
        self.plain_network = network
        self.tls, brokers, controllers = over_tls(config, fs, clock, network)
        self.network, controllers = logged_in(config, fs, random, brokers, controllers)
        """By which other brokers are reached."""
        self.clock = clock
        self.random = random
        self.node_id: int = config.node_id
        self.metrics = NodeMetrics()
        self.metadata = self._metadata(controllers)
        self.log_settings = LogSettings(config)
        self.logs = self._log_manager()
        self.logs.flush_seconds = self.metrics.flush_seconds
        self.directories = DirectoryEvents(self)
        self.replicas = ReplicaManager(
            self.node_id, self.logs, clock, self.log_settings.of_topic, self.directories.usable, self.metrics
        )
        self.replicas.rack_aware = config.replica_selector_class == RACK_AWARE
        self.quotas: NodeQuotas | None = None
        self.authorizer: Authorizer | None = None
        """Decides who may do what; None without `authorizer.class.name`, which allows everyone everything."""
        self.audit: Audit | None = None
        self.replication: Replication | None = None
        """Made with the first partition that has other replicas."""
        self.cleaner = LogCleaner(fs, self.logs, clock, random, self.log_settings.of_cleaner)
        self.logs.on_log_suspected = lambda log, offset: self.damaged_logs.scrubber.suspect(log, offset)
        self.sessions = FetchSessionCache(config.max_incremental_fetch_session_cache_slots, random)
        self.groups: GroupCoordinatorDriver
        """Made by `start`, once the settings of the metadata log are known."""
        self.listeners: list[Listener] = []
        self.ports: dict[str, int] = {}
        """The port that each listener really has."""
        self.controller_endpoints: dict[str, Endpoint] = {}
        """Where others reach the controller of this node, by listener."""
        self._limits = ConnectionLimits.from_settings(config)
        self._receiving: Receiving | None = None
        self.serving = False
        """Whether clients are accepted."""
        self.http: HttpServer | None = None
        """Metrics and health, where `ottla.http.listener` asks for them."""
        self.lost: Mapping[int, int] = {}
        """Brokers whose process seems to be gone, with the epochs of these incarnations."""
        self.away: AwayBrokers | None = None  # made with the first other broker
        self.leaving = False
        """Whether `stop` was called; until others lead what this node led, it serves."""
        self.stopping = False
        self.failure = NodeFailure(lambda: self.stopping)
        self._tasks = Background()
        self.spawn = self._tasks.spawn
        self.long_work = LongWork(fs).run
        self._closers: list[Callable[[], Coroutine[Any, Any, None]]] = []
        """Undo functions of `start` for `stop`, run in reverse order."""
        self._upkeep = NodeUpkeep(self, self._closers)
        self._periodic = Repeated(PERIODIC_TASKS_SECONDS, self._upkeep.periodic)
        self._mover: LogMover | None = None
        self.on_stop: list[Callable[[], None]] = []
        """Called when the node stops taking requests: whatever waits has to answer now."""
        self.metadata.quorum.on_failure.append(lambda failure: self.failure.halt(str(failure.message), failure))

    def _metadata(self, controllers: Network) -> MetadataServices:
        if not self.config.ottla_zookeeper_mode:
            return MetadataServices(self.fs, self.clock, self.random, self.config, controllers)
        from ottla.drivers.zookeeper.services import ZooKeeperServices  # few clusters live there

        return ZooKeeperServices(self.fs, self.clock, self.random, self.config, controllers, self.plain_network)

    def _log_manager(self) -> LogManager:
        config = self.config
        return LogManager(
            self.fs,
            config.log_dirs,
            self.log_settings.defaults,
            self.clock,
            self.random,
            topic_config=lambda topic: self.log_settings.of_topic(self.image, topic),
            producers=self.log_settings.producers,
            producer_expiry_interval_ms=config.producer_id_expiration_check_interval_ms,
            retention_check_interval_ms=config.log_retention_check_interval_ms,
            recovery_point_checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
            high_watermark_checkpoint_interval_ms=config.replica_high_watermark_checkpoint_interval_ms,
            log_start_checkpoint_interval_ms=config.log_flush_start_offset_checkpoint_interval_ms,
        )

    @property
    def image(self) -> MetadataImage:
        return self.metadata.publisher.image

    @property
    def cluster_id(self) -> str:
        return self.metadata.cluster_id

    @property
    def channel(self) -> ControllerChannel:
        """The way to the active controller."""
        return self.metadata.channel

    @property
    def lifecycle(self) -> BrokerLifecycle:
        return self.metadata.lifecycle

    @property
    def inter_broker_listener(self) -> str:
        return self.config.inter_broker_listener_name

    @property
    def producer_ids(self) -> ProducerIds:
        return self.metadata.producer_ids

    @cached_property
    def broker_clients(self) -> BrokerClients:
        """Made with the first part that asks other brokers."""
        from ottla.drivers.nodes.broker_clients import BrokerClients

        clients = BrokerClients(self)
        self.metadata.publisher.subscribe(clients.on_metadata)
        return clients

    @cached_property
    def damaged_logs(self) -> DamagedLogs:
        """Made when there are records that could be damaged."""
        from ottla.server.replicas.damaged_logs import DamagedLogs

        return DamagedLogs(self, self._closers)

    @cached_property
    def transaction_verifier(self) -> TransactionVerifier:
        """Made with the first transaction whose batches come here."""
        from ottla.drivers.coordinators.transaction_verifier import TransactionVerifier

        verifier = TransactionVerifier(self)
        self._closers.append(verifier.stop)
        return verifier

    @cached_property
    def transactions(self) -> TransactionCoordinatorDriver:
        """Made when it is first needed: most nodes never have a transaction."""
        from ottla.drivers.coordinators.transaction_coordinator import TransactionCoordinatorDriver

        transactions = TransactionCoordinatorDriver(self, self.metadata.publisher)
        self._closers.append(transactions.stop)
        return transactions

    @cached_property
    def share_coordinator(self) -> ShareCoordinatorDriver:
        """Made when it is first needed, as that of transactions."""
        from ottla.server.coordinators.share_groups import share_coordinator

        return share_coordinator(self, self._closers)

    @cached_property
    def share(self) -> ShareParts:
        """Made with the first share group that is coordinated or reads here."""
        from ottla.server.coordinators.share_groups import share_parts

        return share_parts(self, self._closers)

    def log_mover(self) -> LogMover:
        """Made with the first move of a replica between log directories."""
        if self._mover is None:
            from ottla.drivers.logs.log_mover import LogMover  # few nodes ever need it

            self._mover = LogMover(self, self.spawn)
            self._closers.append(self._mover.stop)
        return self._mover

    # Life.

    async def start(self) -> None:
        """Returns when clients are served. Raises OttlaError or OSError when that is impossible; `stop` then too."""
        from ottla.server.listeners.listening import guard

        began_s = elapsed_s()
        if self.tls is not None:
            self.tls.start(self._closers)
        if self.config.ottla_http_listener:
            await self._start_http()
        for spec in self.config.listeners:  # before anything is made on disk
            await check_address(self.plain_network, spec.host, spec.port)
        config = self.config
        self.controller_endpoints = await self._bind(
            config.controller_listeners, config.advertised_controller_listeners, OF_CONTROLLERS
        )
        self.logs.lock()
        self._closers.append(self._close_logs)
        online = set(self.logs.online_dirs)
        if posixpath.normpath(config.metadata_log_dir) in self.logs.offline_dirs:
            raise OttlaError(f"{config.metadata_log_dir} holds the metadata log, without which a node cannot start")
        self._closers.append(self.metadata.stop)
        self.metadata.publisher.on_failure = lambda failure: self.failure.give_up(str(failure))
        try:
            usable = [path for path in self.config.log_dirs if posixpath.normpath(path) in online]
            await self.metadata.start(usable, self.controller_endpoints)
            early = await guard(self, self._closers)  # other nodes may have to elect this one before its broker runs
            if self.controller_endpoints and self.metadata.controller is not None:
                from ottla.drivers.controller.broker_watch import watch_brokers  # a node alone has no use for it

                self.on_stop.append(watch_brokers(self.network, self.metadata, self.metadata.controller, config))
            for listener in early:
                await listener.accept()
            if config.is_broker:
                await self.metadata.catch_up()
        except (KafkaError, OSError) as error:
            from ottla.storage.recovery.disk_space import full_disk_error

            full = full_disk_error(self.fs, sorted({config.metadata_log_dir, *online}), error)
            if full is None:
                raise
            raise full from error
        metadata_s = elapsed_s()
        self.metadata.publisher.after_each(lambda delta, _: changing_quotas(self, delta))
        if config.is_broker:
            logs_s = await self._start_broker()
        else:
            logs_s = metadata_s
            self.metadata.publisher.subscribe(self._upkeep.apply_settings)
        self.serving = True
        self.start_seconds = elapsed_s() - began_s
        log_start(self, metadata_s - began_s, logs_s - metadata_s)

    async def _start_broker(self) -> float:
        """Open the logs and serve clients; returns when the logs were open (`elapsed_s`)."""
        self.config.apply_dynamic(
            self.image.config(ConfigResourceType.BROKER, ""),
            self.image.config(ConfigResourceType.BROKER, str(self.node_id)),
        )
        self.directories.note_cordoned()
        self.lifecycle.cordoned = self.directories.cordoned_ids
        self.lifecycle.on_unreported = self.directories.not_reported
        self.log_settings.changed()
        await run_yielding(self.logs.loading())  # probes are answered meanwhile, and a signal is heard
        self.logs.start_flush_timer()
        self._loaded = True
        logs_s = elapsed_s()
        self.replicas.rename_strays(self.image)
        self.groups = GroupCoordinatorDriver(self)
        self._closers.append(self.groups.stop)
        self.metadata.publisher.subscribe(
            self._upkeep.apply, before=self.replicas.prepare, after=self.replicas.schedule_deletions
        )
        bound = len(self.listeners)
        await self._join_cluster()
        self.groups.start(self.metadata.publisher)
        self.replicas.on_leadership.append(self._upkeep.coordinate)
        for partition in self.replicas:
            self._upkeep.coordinate(partition)
        for listener in self.listeners[bound:]:
            await listener.accept()
        if self.logs.futures.unfinished:
            self.log_mover().resume()
        self.spawn(self._periodic.run())
        self._closers.append(self.cleaner.stop)
        self.cleaner.start()
        if self.logs.offline_logs or any(log.size_bytes for log in self.logs):
            self.damaged_logs.scrubber.scrub_all()
        asyncio.get_running_loop().call_later(SCRUB_AFTER_SECONDS, lambda: self.stopping or self.damaged_logs)
        return logs_s

    async def _join_cluster(self) -> None:
        """Bind the sockets, register under their addresses, and have this node elected for its partitions."""
        lifecycle = self.metadata.lifecycle
        apis = OF_BROKERS
        if self.config.ottla_legacy_protocol_versions_enable:
            from ottla.server.legacy.apis import legacy_apis  # most nodes do without

            apis = legacy_apis()
        endpoints = await self._bind(self.config.listeners, self.config.advertised_listeners, apis)
        await lifecycle.register(endpoints, self.directories.usable(), previous_epoch=self.logs.previous_broker_epoch)
        await self.directories.register()
        await lifecycle.unfence()
        await self.metadata.wait_unfenced()

    async def _start_http(self) -> None:
        from ottla.server.http.server import HttpServer  # what nobody asked for takes no memory

        self.http = HttpServer(self)
        self._closers.append(self.http.stop)
        await self.http.start()

    async def _bind(
        self, listeners: Sequence[ListenerSpec], advertised: Sequence[ListenerSpec], apis: ApiSet
    ) -> dict[str, Endpoint]:
        """Take listening sockets, and say under which names and ports others reach them."""
        self._receiving = self._receiving or Receiving.from_settings(self.config)
        for spec in listeners:
            self.ports[spec.name] = await bind(self, spec, apis, self._limits, self._receiving)
        limit(self)
        return {
            spec.name: Endpoint(spec.host, spec.port or self.ports[spec.name], SecurityProtocol[spec.protocol])
            for spec in advertised
        }

    async def stop(self) -> None:
        """Graceful: others lead first what this node led, what was begun is answered, the logs are marked clean."""
        if self.leaving:
            return
        self.leaving = True
        if self.companions:
            await asyncio.wait(self.companions, timeout=COMPANIONS_SECONDS_MAX)
        await self.metadata.leave()
        self.stopping = True
        level = logging.INFO if self.serving else logging.DEBUG  # one that could not start says why itself
        connections = sum(len(each.connections) for each in self.listeners)
        _LOG.log(level, "node stopping", extra=fields(connections=connections))
        for listener in self.listeners:
            listener.stop_accepting()
        for callback in self.on_stop:
            callback()
        for partition in self.replicas:
            partition.stop()
        if self.config.is_controller:
            self.metadata.quorum.wake()
        for listener in self.listeners:
            await listener.stop(drain_seconds_max=DRAIN_SECONDS_MAX)
        # What has begun is brought to an end: its thread goes on anyhow, and closing the logs would come in its way.
        await self._periodic.wait_current()
        await self._tasks.end()
        while self._closers:
            await self._closers.pop()()
        _LOG.log(level, "node stopped")

    async def _close_logs(self) -> None:
        if self._loaded:
            registration = self.image.brokers.get(self.node_id)
            await self.logs.close_logs(self.config.num_recovery_threads_per_data_dir)
            self.logs.shutdown(broker_epoch=-1 if registration is None else registration.epoch)
        else:
            self.logs.abandon()
