"""The life of a broker whose registration is a znode: ephemeral, so that it lives as long as the broker's session."""

from __future__ import annotations

import asyncio
import logging
import random as random_module
from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.clock import Clock
from ottla.drivers.metadata.broker_lifecycle import BrokerLifecycle, BrokerSettings
from ottla.drivers.tasks import cancelled
from ottla.drivers.zookeeper.cluster import ZooKeeperCluster
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.metadata import features
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import Endpoint, MetadataImage
from ottla.znodes import cluster as znodes
from ottla.znodes.members import Member, encode_member
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.errors import Code, ZooKeeperError
from ottla.zookeeper.watches import WatchedEvent

if TYPE_CHECKING:
    from ottla.drivers.controller.controller_channel import ControllerChannel
    from ottla.drivers.metadata.metadata_publisher import MetadataPublisher

_LOG = logging.getLogger("ottla.node")

RETRY_SECONDS = 0.5


class ZooKeeperLifecycle(BrokerLifecycle):
    """All methods belong to the event loop's thread."""

    def __init__(
        self,
        channel: ControllerChannel,
        random: random_module.Random,
        settings: BrokerSettings,
        publisher: MetadataPublisher,
        cluster: ZooKeeperCluster,
        clock: Clock,
    ) -> None:
        super().__init__(channel, random, settings, lambda: publisher.image.offset)
        self._publisher = publisher
        self._cluster = cluster
        self._clock = clock
        self._member: Member | None = None
        self._seen = asyncio.Event()
        self._registering: asyncio.Task[None] | None = None
        cluster.on_session.append(self._on_session)

    async def register(
        self, endpoints: Mapping[str, Endpoint], log_dirs: Mapping[str, UUID], *, previous_epoch: int = -1
    ) -> None:
        """Have the znode, and return once the metadata shows this incarnation. A znode of an earlier one goes with its
        session, which is waited for. Raises KafkaError."""
        self._member = Member(
            self._settings.node_id,
            self._incarnation_id,
            endpoints,
            dict(features.SUPPORTED),
            self._settings.rack,
            tuple(sorted(log_dirs.values())),
        )
        self._publisher.subscribe(self._look)
        try:
            async with asyncio.timeout(self._settings.registration_timeout_s):
                await self._make_znode(self._cluster.client)
                await self._seen.wait()
        except TimeoutError:
            raise KafkaError(
                ErrorCode.request_timed_out, "no controller has taken up this broker's registration in ZooKeeper"
            ) from None
        except ZooKeeperError as error:
            raise KafkaError(ErrorCode.broker_not_available, f"this broker cannot register: {error}") from error

    def _look(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """The epoch is that of the registration in the log, which a new controller writes again."""
        found = image.brokers.get(self._settings.node_id)
        if found is not None and found.incarnation_id == self._incarnation_id:
            self.broker_epoch = found.epoch
            self._seen.set()

    def _on_session(self, client: ZooKeeper) -> None:
        """The znode has gone with the session before this one."""
        if self._member is not None and not self._stopping:
            self._registering = asyncio.get_running_loop().create_task(self._register_again(client))

    async def _register_again(self, client: ZooKeeper) -> None:
        while self._cluster.client is client and not self._stopping:
            try:
                await self._make_znode(client)
                return
            except ZooKeeperError as error:
                _LOG.warning("this broker is not registered in ZooKeeper", extra=fields(error=str(error)))
                await asyncio.sleep(RETRY_SECONDS)

    async def _make_znode(self, client: ZooKeeper) -> None:
        assert self._member is not None
        path = znodes.broker_path(self._member.id)
        told = False
        while True:
            try:
                content = encode_member(self._member, self._clock.now_ms())
                await client.create(path, content, self._cluster.acl(path), ephemeral=True)
                return
            except ZooKeeperError as error:
                if error.code != Code.NODE_EXISTS:
                    raise
            gone = asyncio.Event()

            def look(event: WatchedEvent, gone: asyncio.Event = gone) -> None:
                gone.set()

            stat = await client.exists(path, look)
            if stat is None:
                continue
            if stat.ephemeral_owner == client.session_id:
                return
            if not told:
                told = True
                _LOG.info("waiting for the session of a broker with this id to end", extra=fields(znode=path))
            await gone.wait()

    async def close(self) -> None:
        """Register no more."""
        await cancelled(self._registering)
