"""The composition root: what a node is made of, and the order in which it starts and stops.

Start: see that the addresses are free, lock the directories, metadata log to image, logs, bind the sockets, register
with the controller (which elects this node for its partitions), then accept. Stop: no new requests, answer what was
begun, close groups, logs (clean marker), metadata log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import posixpath
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.clock import elapsed_s
from ottla.drivers.cleaner import CleanerSettings, LogCleaner
from ottla.drivers.controller import ControllerDriver
from ottla.drivers.cooperative import run_yielding
from ottla.drivers.coordinator import GroupCoordinatorDriver
from ottla.errors import KafkaError, OttlaError
from ottla.logs import fields
from ottla.metadata import features
from ottla.metadata.image import ConfigResourceType, Endpoint, MetadataImage, SecurityProtocol
from ottla.metrics.instruments import NodeMetrics
from ottla.replication.fetch_session import FetchSessionCache
from ottla.server.listener import ConnectionLimits, Listener, check_address, new_receive_buffer
from ottla.server.metadata_changes import log_changes
from ottla.server.replica_manager import ReplicaManager
from ottla.storage.config import LogConfig
from ottla.storage.log_manager import LogManager
from ottla.storage.room import full_disk_error

if TYPE_CHECKING:
    import random as random_module
    from uuid import UUID

    from ottla.clock import Clock
    from ottla.config.server import ServerConfig
    from ottla.filesystem import FileSystem
    from ottla.metadata.delta import MetadataDelta
    from ottla.server.http.server import HttpServer

_LOG = logging.getLogger("ottla.node")

T = TypeVar("T")

PERIODIC_TASKS_SECONDS = 1.0
"""How often logs and groups look whether retention, flush.ms, expiry or a checkpoint is due."""

DRAIN_SECONDS_MAX = 5.0
"""How long a stopping node waits for requests that were begun and clients that read slowly."""


class Node:
    """One node. Handlers reach everything through it."""

    def __init__(self, config: ServerConfig, fs: FileSystem, clock: Clock, random: random_module.Random) -> None:
        self.config = config
        self.fs = fs
        self.clock = clock
        self.random = random
        self.node_id: int = config.node_id
        self.metrics = NodeMetrics()
        self.controller = ControllerDriver(fs, clock, random, config)
        self.logs = LogManager(
            fs, config.log_dirs, self.log_config(None), clock, random,
            topic_config=lambda topic: self.log_config(topic),
            producer_id_expiration_ms=config["producer.id.expiration.ms"],
            producer_expiry_interval_ms=config["producer.id.expiration.check.interval.ms"],
            retention_check_interval_ms=config["log.retention.check.interval.ms"],
            flush_scheduler_interval_ms=config["log.flush.scheduler.interval.ms"],
            recovery_point_checkpoint_interval_ms=config["log.flush.offset.checkpoint.interval.ms"],
            log_start_checkpoint_interval_ms=config["log.flush.start.offset.checkpoint.interval.ms"],
        )  # fmt: skip
        self.logs.flush_seconds = self.metrics.flush_seconds
        self.replicas = ReplicaManager(
            self.node_id, self.logs, clock, self._topic_log_config, self._usable_directories, self.metrics
        )
        self.cleaner = LogCleaner(fs, self.logs, clock, random, self._cleaner_settings)
        self.sessions = FetchSessionCache(config["max.incremental.fetch.session.cache.slots"], random)
        self.groups: GroupCoordinatorDriver
        """Made by `start`, once the settings of the metadata log are known."""
        self.listeners: list[Listener] = []
        self.ports: dict[str, int] = {}
        """The port that each listener really has."""
        self.serving = False
        """Whether clients are accepted."""
        self.start_seconds = 0.0
        """How long `start` took."""
        self.http: HttpServer | None = None
        """Metrics and health, where `ottla.http.listener` asks for them."""
        self.stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._periodic_task: asyncio.Task[None] | None = None
        """While it is being done."""
        self._closers: list[Callable[[], Coroutine[Any, Any, None]]] = []
        """What `stop` has to do for what `start` did, in reverse order."""
        self._loaded = False
        """Whether the logs are known; until then closing them would call an unclean directory clean."""
        self._log_configs: dict[str, LogConfig] = {}
        self._default_log_config: LogConfig | None = None
        self._long_work = asyncio.Lock()
        self.on_stop: list[Callable[[], None]] = []
        """Called when the node stops taking requests: whatever waits has to answer now."""

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    @property
    def cluster_id(self) -> str:
        return self.controller.cluster_id

    # Settings of logs.

    def log_config(self, topic: str | None) -> LogConfig:
        """The effective log settings of a topic by the current image, or this node's defaults for None."""
        if topic is None:
            return LogConfig.from_properties(self.config.log_config_properties())
        return self._topic_log_config(self.image, topic)

    def _topic_log_config(self, image: MetadataImage, topic: str) -> LogConfig:
        overrides = image.topic_config(topic)
        if overrides:
            return LogConfig.from_properties(self.config.log_config_properties(overrides))
        if self._default_log_config is None:
            self._default_log_config = self.log_config(None)
        return self._default_log_config

    def _cleaner_settings(self) -> CleanerSettings:
        config = self.config
        return CleanerSettings(
            enable=config["log.cleaner.enable"],
            threads=config["log.cleaner.threads"],
            io_bytes_per_second=config["log.cleaner.io.max.bytes.per.second"],
            dedupe_buffer_bytes=config["log.cleaner.dedupe.buffer.size"],
            io_buffer_bytes=config["log.cleaner.io.buffer.size"],
            load_factor=config["log.cleaner.io.buffer.load.factor"],
            backoff_ms=config["log.cleaner.backoff.ms"],
        )

    def _apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A metadata change: dynamic settings of this node first, since new logs take their defaults from them."""
        if any(resource.type == ConfigResourceType.BROKER for resource in delta.configs):
            changed = self.config.apply_dynamic(
                image.config(ConfigResourceType.BROKER, ""),
                image.config(ConfigResourceType.BROKER, str(self.node_id)),
            )
            if changed:
                _LOG.info("settings changed", extra=fields(names=",".join(sorted(changed))))
                self._default_log_config = None
                self.logs.set_producer_expiration(self.config["producer.id.expiration.ms"])
                self.cleaner.settings_changed()
                for topic in self.replicas.by_name:
                    self.replicas.update_topic_config(image, topic)
        self.replicas.apply(delta, image)
        if self.serving:  # the first one is all that there is
            log_changes(delta, image)
        if self.controller.broker_epoch >= 0:
            self._note_directories()

    def _usable_directories(self) -> dict[str, UUID]:
        online = self.logs.online_dirs
        ids = {posixpath.normpath(path): found for path, found in self.controller.directory_ids.items()}
        return {path: ids[path] for path in online if path in ids}

    def _note_directories(self) -> None:
        """Let the metadata say in which of several log directories new partitions were put (KIP-858)."""
        placed = self.replicas.take_placed()
        if placed and features.supports_directories(self.image.features):
            self.spawn(self._assign_directories(placed))

    async def _assign_directories(self, placed: dict[tuple[UUID, int], UUID]) -> None:
        try:
            await self.controller.assign_directories(placed)
        except KafkaError as error:  # the next start finds the same
            _LOG.warning("the metadata does not name the directories of logs", extra=fields(error=str(error)))

    # Life.

    async def start(self) -> None:
        """Returns when clients are served. Raises OttlaError or OSError when that is impossible; `stop` then too."""
        began_s = elapsed_s()
        if self.config["ottla.http.listener"]:
            await self._start_http()
        for spec in self.config.listeners:  # before anything is made on disk
            await check_address(spec.host, spec.port)
        self.logs.lock()
        self._closers.append(self._close_logs)
        online = set(self.logs.online_dirs)
        metadata_dir = self.config.metadata_log_dir
        if posixpath.normpath(metadata_dir) in self.logs.offline_dirs:
            raise OttlaError(f"{metadata_dir} holds the metadata log, without which a node cannot start")
        try:
            await self.controller.start([path for path in self.config.log_dirs if posixpath.normpath(path) in online])
        except (KafkaError, OSError) as error:
            full = full_disk_error(self.fs, sorted({metadata_dir, *online}), error)
            if full is None:
                raise
            raise full from error
        metadata_s = elapsed_s()
        self._closers.append(self.controller.stop)
        self.config.apply_dynamic(
            self.image.config(ConfigResourceType.BROKER, ""),
            self.image.config(ConfigResourceType.BROKER, str(self.node_id)),
        )
        self.logs.set_producer_expiration(self.config["producer.id.expiration.ms"])
        await run_yielding(self.logs.loading())  # probes are answered meanwhile, and a signal is heard
        self.logs.start_flush_timer()
        self._loaded = True
        logs_s = elapsed_s()
        self.replicas.rename_strays(self.image)
        self.groups = GroupCoordinatorDriver(self)
        self._closers.append(self.groups.stop)
        self.controller.subscribe(self._apply, before=self.replicas.create_logs, after=self.replicas.schedule_deletions)
        placed = self.replicas.take_placed()
        if placed and features.supports_directories(self.image.features):
            await self._assign_directories(placed)
        endpoints = await self._bind()
        await self.controller.register_broker(endpoints, rack=self.config["broker.rack"])
        await self.groups.start()
        for listener in self.listeners:
            await listener.accept()
        self.spawn(self._run_periodic_tasks())
        self._closers.append(self.cleaner.stop)
        self.cleaner.start()
        self.serving = True
        self.start_seconds = elapsed_s() - began_s
        _LOG.info(
            "node started",
            extra=fields(
                node_id=self.node_id,
                cluster_id=self.cluster_id,
                listeners=",".join(f"{name}:{port}" for name, port in self.ports.items()),
                topics=len(self.image.topics_by_name),
                logs=len(self.logs),
                metadata_ms=round((metadata_s - began_s) * 1000),
                logs_ms=round((logs_s - metadata_s) * 1000),
                start_ms=round(self.start_seconds * 1000),
            ),
        )

    async def _start_http(self) -> None:
        from ottla.server.http.server import HttpServer  # what nobody asked for takes no memory

        self.http = HttpServer(self)
        self._closers.append(self.http.stop)
        await self.http.start()

    async def _bind(self) -> dict[str, Endpoint]:
        """Take the listening sockets, and say under which names and ports clients reach them."""
        config = self.config
        limits = ConnectionLimits(
            config["max.connections"],
            config["max.connections.per.ip"],
            _per_host(config["max.connections.per.ip.overrides"]),
        )
        buffer = new_receive_buffer()
        for spec in config.listeners:
            listener = Listener(
                self, spec.name, limits=limits, request_bytes_max=config["socket.request.max.bytes"],
                idle_ms_max=config["connections.max.idle.ms"], receive_buffer=buffer, metrics=self.metrics,
                slow_ms=config["ottla.log.slow.request.ms"],
            )  # fmt: skip
            self.ports[spec.name] = await listener.bind(spec.host, spec.port)
            self.listeners.append(listener)
        return {
            spec.name: Endpoint(spec.host, spec.port or self.ports[spec.name], SecurityProtocol[spec.protocol])
            for spec in config.advertised_listeners
        }

    async def stop(self) -> None:
        """Graceful: answers what was begun, and leaves the marker that saves the next start a recovery."""
        if self.stopping:
            return
        self.stopping = True
        level = logging.INFO if self.serving else logging.DEBUG  # one that could not start says why itself
        _LOG.log(
            level, "node stopping", extra=fields(connections=sum(len(each.connections) for each in self.listeners))
        )
        for listener in self.listeners:
            listener.stop_accepting()
        for callback in self.on_stop:
            callback()
        for partition in self.replicas:
            partition.wake()
        for listener in self.listeners:
            await listener.stop(drain_seconds_max=DRAIN_SECONDS_MAX)
        # What has begun is brought to an end: its thread goes on anyhow, and closing the logs would come in its way.
        if self._periodic_task is not None:
            await asyncio.wait([self._periodic_task])
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while self._closers:
            await self._closers.pop()()
        _LOG.log(level, "node stopped")

    async def _close_logs(self) -> None:
        if self._loaded:
            registration = self.image.brokers.get(self.node_id)
            await self.logs.close_logs(self.config["num.recovery.threads.per.data.dir"])
            self.logs.shutdown(broker_epoch=-1 if registration is None else registration.epoch)
        else:
            self.logs.abandon()

    async def long_work(self, work: Callable[[], T]) -> T:
        """Do work on the records of a batch in a thread. One at a time: each may take the memory of a whole batch,
        decompressed, and there are fewer processors than clients."""
        async with self._long_work:
            return await self.fs.run(work)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something in the background until the node stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run_periodic_tasks(self) -> None:
        while True:
            await asyncio.sleep(PERIODIC_TASKS_SECONDS)
            self._periodic_task = asyncio.get_running_loop().create_task(self._periodic_tasks())
            await asyncio.shield(self._periodic_task)
            self._periodic_task = None

    async def _periodic_tasks(self) -> None:
        """What is due. One failure does not keep the rest from being done. Raises nothing."""
        now_ms = self.clock.now_ms()
        with _errors_logged():
            self.replicas.open_missing(self.image)
            self._note_directories()
        with _errors_logged():
            self.logs.periodic(now_ms)
        with _errors_logged():
            await self.logs.background(now_ms)


@contextlib.contextmanager
def _errors_logged() -> Iterator[None]:
    """Log an exception and go on."""
    try:
        yield
    except Exception as error:
        _LOG.error("a periodic task failed", exc_info=error)


def _per_host(overrides: Any) -> dict[str, int]:
    """`max.connections.per.ip.overrides`: "host:count,host:count"."""
    items = overrides.split(",") if isinstance(overrides, str) else list(overrides or ())
    found = {}
    for item in filter(None, (item.strip() for item in items)):
        host, _, count = item.rpartition(":")
        found[host.strip("[]")] = int(count)
    return found
