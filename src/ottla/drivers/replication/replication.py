"""Replication on one node: follows the leaders of its replicas, and keeps the in-sync sets of what it leads.

Made with the first partition that has other replicas: a node that is alone never imports this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.config.server import ServerConfig
from ottla.drivers.nodes.node_client import NodeClient, Timing
from ottla.drivers.replication.isr_updater import IsrUpdater
from ottla.drivers.replication.replica_fetcher import FetcherHost, FetcherSettings
from ottla.drivers.replication.replica_fetchers import ReplicaFetchers
from ottla.metadata import features
from ottla.metadata.image import MetadataImage
from ottla.model import MeantNode, NodeId
from ottla.network import Address
from ottla.replication.partition import Partition
from ottla.replication.throttle import Rate, Throttle

if TYPE_CHECKING:
    from ottla.drivers.ports import ReplicationHost
    from ottla.metadata.delta import MetadataDelta

RECONNECT_BACKOFF_MS = 50
"""First backoff to a leader that is gone; doubles up to `replica.fetch.backoff.ms`."""


def receive_buffer_bytes(config: ServerConfig) -> int:
    """Receive buffer of the connections to leaders; -1, the default, leaves it to the system, which grows it."""
    return config.replica_socket_receive_buffer_bytes if "replica.socket.receive.buffer.bytes" in config.static else -1


class Replication:
    """All methods belong to the event loop's thread."""

    def __init__(self, node: ReplicationHost) -> None:
        self._node = node
        self.on_peer_lost: list[Callable[[NodeId], None]] = []
        """Called with a leader whose connection was lost, or to which there is none."""
        self.leader_throttle, self.follower_throttle = self._throttle("leader"), self._throttle("follower")
        node.replicas.leader_throttle = self.leader_throttle
        traffic = node.metrics.replication
        host = FetcherHost(
            node.logs, node.clock, self._settings, self._broker_epoch, traffic, self.follower_throttle, self._lost
        )
        self.fetchers = ReplicaFetchers(host, self._client, lambda: node.config.num_replica_fetchers)
        self.isr = IsrUpdater(node.channel, node.node_id, self._broker_epoch, node.metrics)
        self._changed: dict[Partition, None] = dict.fromkeys(node.replicas)
        """Partitions whose leadership changed and has not been acted on yet."""
        self._unreachable: dict[Partition, None] = {}
        """Followers whose leader's address is not known."""
        node.replicas.on_leadership.append(self._note)
        node.replicas.ask_isr = self.isr.ask
        node.logs.on_log_failed = self._log_failed
        self._timer: asyncio.Handle | None = None
        self._stopped = False
        self._watch_lag()

    def _note(self, partition: Partition) -> None:
        self._changed[partition] = None

    def apply(self, delta: MetadataDelta | None, image: MetadataImage) -> None:
        """After partitions have changed their leader, and what else changed, if anything."""
        if self._stopped:
            return
        if delta is not None:
            for broker in delta.ended_brokers():
                self.fetchers.ended(broker.id)
            for node_id in delta.brokers:
                address = self._address(image, node_id)
                if address is not None:
                    self.fetchers.moved(node_id, address)
        changed, self._changed = {**self._unreachable, **self._changed}, {}
        self._unreachable = {}
        lag_ms_max = self._node.config.replica_lag_time_max_ms
        for partition in changed:
            partition.lag_ms_max = lag_ms_max
            leader_id = partition.leader_id
            follows = leader_id >= 0 and not partition.is_leader and not partition.is_offline
            address = self._address(image, leader_id) if follows else None
            if address is None:
                self.fetchers.leave(partition)
                if follows:
                    self._unreachable[partition] = None
            else:
                self.fetchers.follow(partition, address)
        if changed:
            self.fetchers.stop_idle()

    def _address(self, image: MetadataImage, node_id: NodeId) -> Address | None:
        broker = image.brokers.get(node_id)
        endpoint = None if broker is None else broker.endpoints.get(self._node.inter_broker_listener)
        return None if endpoint is None else Address(endpoint.host, endpoint.port)

    def _watch_lag(self) -> None:
        """Look twice in `replica.lag.time.max.ms` whether followers lag for too long."""
        loop = asyncio.get_running_loop()
        now_ms = int(loop.time() * 1000)
        lag_ms_max = self._node.config.replica_lag_time_max_ms
        for partition in self._node.replicas:
            partition.lag_ms_max = lag_ms_max
            if partition.is_leader and not partition.is_offline:
                isr = partition.shrunk_isr(now_ms)
                if isr is not None:
                    self.isr.ask(partition, isr)
        self._timer = loop.call_later(max(lag_ms_max, 2) / 2000, self._watch_lag)

    def log_moved(self, partition: Partition, image: MetadataImage) -> None:
        """The partition has another log now, into which to fetch."""
        self._note(partition)
        self.apply(None, image)

    def _log_failed(self, directory: str, error: OSError) -> None:
        """The controller can be told of directories only, so the whole directory counts as failed (KIP-112, 858)."""
        asyncio.get_running_loop().call_soon(self._directory_failed, directory, error)

    def _directory_failed(self, directory: str, error: OSError) -> None:
        """Others are to lead what was led from there, and nobody is to believe that it is still followed."""
        node = self._node
        if self._stopped:
            return
        if features.supports_directories(node.image.features):
            if directory in node.logs.offline_dirs:
                return
            node.directories.take_offline(directory, error)
        for partition in node.replicas:
            if partition.is_offline:
                self.fetchers.leave(partition)
        self.fetchers.stop_idle()

    def _broker_epoch(self) -> int:
        return self._node.lifecycle.broker_epoch

    def _settings(self) -> FetcherSettings:
        config = self._node.config
        return FetcherSettings(
            self._node.node_id,
            config.replica_fetch_wait_max_ms,
            config.replica_fetch_min_bytes,
            config.replica_fetch_max_bytes,
            config.replica_fetch_response_max_bytes,
            config.replica_fetch_backoff_ms,
            config.replica_socket_timeout_ms,
        )

    def _throttle(self, side: str) -> Throttle:
        node, config = self._node, self._node.config
        window_ms = config.replication_quota_window_size_seconds * 1000
        return Throttle(
            side,
            node.node_id,
            lambda name: node.config.dynamic_text(name),
            lambda topic: node.image.topic_config(topic),
            lambda: int(asyncio.get_running_loop().time() * 1000),
            node.metrics.replication,
            Rate(window_ms, config.replication_quota_window_num),
        )

    def _client(self, leader_id: NodeId, number: int) -> NodeClient:
        config = self._node.config
        timing = Timing(
            config.replica_socket_timeout_ms,
            RECONNECT_BACKOFF_MS,
            max(config.replica_fetch_backoff_ms, RECONNECT_BACKOFF_MS),
            config.socket_connection_setup_timeout_ms,
        )
        name = f"broker-{self._node.node_id}-fetcher-{number}"
        return NodeClient(
            self._node.network,
            name,
            self._node.random,
            timing,
            receive_buffer_bytes=receive_buffer_bytes(config),
            whom=lambda _: MeantNode(self._node.image.cluster_id, leader_id),
        )

    def _lost(self, leader_id: NodeId) -> None:
        for callback in self.on_peer_lost:
            callback(leader_id)

    async def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        await self.fetchers.stop()
        await self.isr.stop()
