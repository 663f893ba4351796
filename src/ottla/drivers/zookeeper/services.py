"""The metadata of a node whose cluster lives in ZooKeeper (`MetadataServices`, put together differently)."""

from __future__ import annotations

import random as random_module
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.clock import Clock
from ottla.config.secret import revealed
from ottla.drivers.metadata.broker_lifecycle import BrokerLifecycle
from ottla.drivers.metadata.directories import Identity, identify, known_cluster_id
from ottla.drivers.metadata.metadata_services import MetadataServices, broker_settings, quorum_settings
from ottla.drivers.quorum.quorum_node import QuorumNode
from ottla.drivers.zookeeper.access import ensemble_access
from ottla.drivers.zookeeper.cluster import ZooKeeperCluster
from ottla.drivers.zookeeper.controller_part import ControllerPart
from ottla.drivers.zookeeper.elected_node import ElectedNode
from ottla.drivers.zookeeper.ensemble_client import zookeeper_settings
from ottla.drivers.zookeeper.lifecycle import ZooKeeperLifecycle
from ottla.drivers.zookeeper.tool_requests import ToolRequests
from ottla.errors import OttlaError
from ottla.filesystem import FileSystem
from ottla.metadata.image import Endpoint
from ottla.network import Network
from ottla.quorum.voters import ReplicaKey
from ottla.znodes.changes import Encrypt

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig


class ZooKeeperServices(MetadataServices):
    """`start` is to be called once, then `catch_up`."""

    quorum: ElectedNode
    cluster: ZooKeeperCluster

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        random: random_module.Random,
        config: ServerConfig,
        network: Network,
        ensemble: Network,
    ) -> None:
        """`ensemble` reaches ZooKeeper, `network` other nodes. Raises OttlaError for settings of the way to ZooKeeper
        that cannot be, before anything is written."""
        super().__init__(fs, clock, random, config, network)
        self._access = ensemble_access(ensemble, config.static, fs.read_bytes)

    def _new_quorum(self) -> QuorumNode:
        settings = quorum_settings(self.config)._replace(can_vote=False, addresses={}, bootstrap=())
        return ElectedNode(self._fs, self._clock, self._random, settings, self._network)

    async def start(
        self, log_dirs: Sequence[str] | None = None, controller_endpoints: Mapping[str, Endpoint] | None = None
    ) -> None:
        config = self.config
        assert self._network is not None
        self.cluster = ZooKeeperCluster(
            self._access, self._clock, self._random, zookeeper_settings(config), self.quorum, self._encrypt()
        )
        await self.cluster.connect()
        await super().start(log_dirs, controller_endpoints)
        assert self.controller is not None
        self.controller.keeper = self.cluster
        part = ControllerPart(self.controller, lambda: self.cluster_id)
        controller, clock, secrets = self.controller, self._clock, self.cluster.settings.secrets
        part.watches = lambda client: ToolRequests(client, controller, clock, secrets, self.cluster_id).watches()
        self.on_active.append(part.activated)
        endpoint = (controller_endpoints or {})[config.controller_protocol[0]]
        self.cluster.begin(endpoint, part)

    def _encrypt(self) -> Encrypt | None:
        """Encrypts passwords among dynamic settings; None without `password.encoder.secret`."""
        secret = self.config.password_encoder_secret
        if not secret:
            return None
        from ottla.znodes.passwords import IV_BYTES, SALT_BYTES, encrypted  # few clusters have any

        key, random = revealed(secret), self._random
        return lambda text: encrypted(revealed(text), key, random.randbytes(SALT_BYTES), random.randbytes(IV_BYTES))

    async def _identify(self, paths: Sequence[str], endpoints: Mapping[str, Endpoint]) -> Identity:
        config, cluster_id = self.config, self.cluster.cluster_id
        known = known_cluster_id(self._fs, [*paths, config.metadata_log_dir])
        if known and known != cluster_id:
            raise OttlaError(
                f"{paths[0]} belongs to cluster {known}, but the cluster in {self.cluster.settings.connect} is "
                f"{cluster_id}: correct zookeeper.connect, or give another directory"
            )
        return identify(
            self._fs,
            paths,
            config.metadata_log_dir,
            self.node_id,
            self._random,
            self._clock.now_ms(),
            new_cluster=None,
            followed_cluster=cluster_id,
        )

    def _static_voters(self, me: ReplicaKey, endpoints: Mapping[str, Endpoint]) -> list[ReplicaKey]:
        return []

    def _new_lifecycle(self) -> BrokerLifecycle:
        settings = broker_settings(self.config, self.cluster_id)
        return ZooKeeperLifecycle(self.channel, self._random, settings, self.publisher, self.cluster, self._clock)

    @property
    def cut_off(self) -> str | None:
        if self.cluster.healthy:
            return None
        return "ZooKeeper cannot be reached: the node serves with the metadata that it has, and nothing can be changed"

    async def leave(self) -> None:
        if self._is_made:
            await self.lifecycle.stop()

    async def stop(self) -> None:
        if hasattr(self, "cluster"):
            if self._is_made and isinstance(self.lifecycle, ZooKeeperLifecycle):
                await self.lifecycle.close()
            await self.cluster.stop()
        await super().stop()
        self._access.close()
