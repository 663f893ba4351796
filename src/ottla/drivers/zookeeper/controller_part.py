"""What the controller of a cluster in ZooKeeper does beside deciding: it follows which brokers run.

A broker that runs has a znode below `/brokers/ids`. One that comes is registered as by its own request, one that is
gone is fenced and unregistered; what became of it before this epoch is made good when the epoch begins
(`KafkaController.onBrokerStartup`, `onBrokerFailure`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any

from ottla.controller import broker_partitions
from ottla.controller.decision import Decision
from ottla.drivers.controller.active_controller import ActiveController
from ottla.drivers.tasks import cancelled
from ottla.errors import KafkaError
from ottla.logs import fields
from ottla.metadata.image import MetadataImage
from ottla.model import NodeId
from ottla.protocol.messages import ApiKey
from ottla.znodes import cluster
from ottla.znodes.members import Member, decode_member, registration_request
from ottla.znodes.state import TreeState
from ottla.znodes.tree import BadZnode
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.errors import NoNodeError, ZooKeeperError
from ottla.zookeeper.watches import WatchedEvent

_LOG = logging.getLogger("ottla.controller")

RETRY_SECONDS = 1.0


class ControllerPart:
    """All methods belong to the event loop's thread."""

    def __init__(self, controller: ActiveController, cluster_id: Callable[[], str]) -> None:
        self._controller = controller
        self._cluster_id = cluster_id
        self._tasks: list[asyncio.Task[None]] = []
        self._active = asyncio.Event()
        self.watches: Callable[[ZooKeeper], Sequence[Coroutine[Any, Any, None]]] = lambda client: ()
        """Gives what runs in each epoch that this node leads, until it is over."""

    def activated(self) -> None:
        """The controller of this node has become the active one."""
        self._active.set()

    def begin(self, client: ZooKeeper, state: TreeState) -> None:
        """An epoch of this node begins, with `state`."""
        for stranger in state.strangers:
            _LOG.error("a broker is no node of Ottla, and is left out", extra=fields(broker=stranger))
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run(client))]

    def end(self) -> None:
        """The epoch is over."""
        self._active.clear()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()

    async def stop(self) -> None:
        for task in self._tasks:
            await cancelled(task)

    async def _run(self, client: ZooKeeper) -> None:
        await self._active.wait()
        try:
            await self._controller.submit(lambda image, now: self._made_good(image))
        except KafkaError as error:  # the epoch is over
            _LOG.info("no longer the controller", extra=fields(error=str(error)))
            return
        loop = asyncio.get_running_loop()
        self._tasks += [loop.create_task(watch) for watch in self.watches(client)]
        await self._follow_brokers(client)

    def _made_good(self, image: MetadataImage) -> Generator[None, None, Decision[None]]:
        """Brokers that have gone lead nothing, and those that run lead what nobody else may."""
        records = yield from broker_partitions.made_good(image, self._controller.config(image))
        return Decision(None, records, atomic=False)

    async def _follow_brokers(self, client: ZooKeeper) -> None:
        changed = asyncio.Event()

        def look(event: WatchedEvent) -> None:
            changed.set()

        while True:
            changed.clear()
            try:
                names = (await client.children(cluster.BROKER_IDS, look)).names
                found: dict[NodeId, Member] = {}
                for name in sorted(names):
                    member = await self._member(client, f"{cluster.BROKER_IDS}/{name}")
                    if member is not None:
                        found[member.id] = member
                await self._compare(found)
            except (KafkaError, ZooKeeperError, BadZnode) as error:
                if not self._controller.active:
                    return
                _LOG.warning("the brokers could not be followed", extra=fields(error=str(error)))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            await changed.wait()

    async def _member(self, client: ZooKeeper, path: str) -> Member | None:
        try:
            return decode_member(path, (await client.get(path)).data)
        except NoNodeError:
            return None

    async def _compare(self, found: dict[NodeId, Member]) -> None:
        controller = self._controller
        for broker in list(controller.image.brokers.values()):
            if broker.id not in found:
                _LOG.info("a broker is gone", extra=fields(broker=broker.id))
                await controller.request(ApiKey.UNREGISTER_BROKER, {"broker_id": broker.id})
        for member in found.values():
            known = controller.image.brokers.get(member.id)
            if known is not None and known.incarnation_id == member.incarnation_id:
                continue
            if known is not None:
                await controller.request(ApiKey.UNREGISTER_BROKER, {"broker_id": member.id})
            controller.drop_session(member.id)
            await controller.request(ApiKey.BROKER_REGISTRATION, registration_request(member, self._cluster_id()))
