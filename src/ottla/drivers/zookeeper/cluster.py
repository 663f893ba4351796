"""A node in a cluster that lives in ZooKeeper: its session, who is the controller, and its own part as controller.

`/controller` is ephemeral: who creates it leads, in the epoch that the same `multi` writes into `/controller_epoch`
(`KafkaZkClient.registerControllerAndIncrementControllerEpoch`). Whoever leads reads the whole tree, begins the epoch of
the metadata log with it, and decides from then on as any active controller does. What it decides counts when it is
written as znodes, each time with a check of the version of `/controller_epoch`: a deposed controller writes nothing.
Where it cannot be known whether something was written, the controller gives up its epoch, and the next one reads.
"""

from __future__ import annotations

import asyncio
import logging
import random as random_module
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ottla.clock import Clock
from ottla.drivers.cooperative import run_yielding
from ottla.drivers.tasks import cancelled
from ottla.drivers.zookeeper.access import EnsembleAccess
from ottla.drivers.zookeeper.controller_part import ControllerPart
from ottla.drivers.zookeeper.elected_node import ElectedNode
from ottla.drivers.zookeeper.ensemble_client import ZooKeeperSettings, client_of, prepare, unusable
from ottla.drivers.zookeeper.tree import Deposed, TreeWriter, ensure, read_tree
from ottla.errors import KafkaError
from ottla.logs import fields
from ottla.metadata import features
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import Endpoint, MetadataImage
from ottla.model import LeaderEpoch, Offset, random_uuid, uuid_to_base64
from ottla.network import Address
from ottla.quorum.elected import first_snapshot
from ottla.znodes import changes, cluster
from ottla.znodes.members import ControllerAddress, decode_controller, encode_controller
from ottla.znodes.state import TreeState, read_state
from ottla.znodes.tree import BadZnode
from ottla.zookeeper.client import ZooKeeper
from ottla.zookeeper.errors import (
    AuthFailedError,
    Code,
    ConnectionLossError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeperError,
)
from ottla.zookeeper.messages import Create, CreateFlag, SetData
from ottla.zookeeper.watches import State, WatchedEvent

_LOG = logging.getLogger("ottla.controller")

RETRY_SECONDS = 1.0
"""Before another attempt of what failed for a reason that may pass."""

DAMAGED_SECONDS = 10.0
"""How long a node that cannot read the tree leaves it to others to lead."""

DECISIONS_AT_ONCE = 500
"""Decisions that are written in one go, at most."""


class _Decision(NamedTuple):
    delta: MetadataDelta
    image: MetadataImage
    end: Offset


class ZooKeeperCluster:
    """All methods belong to the event loop's thread."""

    def __init__(
        self,
        access: EnsembleAccess,
        clock: Clock,
        random: random_module.Random,
        settings: ZooKeeperSettings,
        node: ElectedNode,
        encrypt: changes.Encrypt | None = None,
    ) -> None:
        self.node = node
        self.cluster_id = ""
        self.settings = settings
        self.client: ZooKeeper
        self.on_session: list[Callable[[ZooKeeper], None]] = []
        """Called with each new session, the first one excepted."""
        self.part: ControllerPart | None = None
        """What this node does as the controller beside deciding; None before `begin`."""
        self._access = access
        self.acl = access.acl
        self._clock = clock
        self._random = random
        self._encrypt = encrypt
        self._endpoint = Endpoint("", 0)
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._writer: TreeWriter | None = None
        """While this node leads."""
        self._queue: deque[_Decision] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._giving_up: asyncio.Task[None] | None = None
        self._disconnected_s: float | None = None
        self._stopping = False
        self.healthy = False
        """Whether the ensemble is connected."""

    # Start and stop.

    async def connect(self) -> None:
        """Begin a session, and have what every cluster has. Raises OttlaError where no server answers in time, and for
        a chroot that is missing or a tree that does not let itself be written."""
        settings = self.settings
        self.client = self._new_client()
        try:
            await prepare(self.client, settings, self._access, self._random)
            self.cluster_id = await self._cluster_id()
        except ZooKeeperError as error:
            await self.client.close()
            raise unusable(settings, error) from error

    def _new_client(self) -> ZooKeeper:
        client = client_of(self.settings, self._access, self._random)
        client.on_state(lambda state: self._on_state(client, state))
        client.start()
        return client

    async def _cluster_id(self) -> str:
        try:
            return cluster.decode_cluster_id((await self.client.get(cluster.CLUSTER_ID)).data)
        except NoNodeError:
            made = uuid_to_base64(random_uuid(self._random))
        await ensure(self.client, "/cluster", self.acl)
        try:
            await self.client.create(cluster.CLUSTER_ID, cluster.encode_cluster_id(made), self.acl(cluster.CLUSTER_ID))
        except ZooKeeperError as error:
            if error.code != Code.NODE_EXISTS:
                raise
            return cluster.decode_cluster_id((await self.client.get(cluster.CLUSTER_ID)).data)
        return made

    def begin(self, endpoint: Endpoint, part: ControllerPart) -> None:
        """Follow the election, and stand for it; others follow this node's log at `endpoint`."""
        self._endpoint, self.part = endpoint, part
        self.node.on_leader_change.append(lambda leader_id, epoch: self._changed.set())
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Give up the session, and with it what is ephemeral: others need not wait for it to expire."""
        self._stopping = True
        await cancelled(self._task)
        self._resign()
        await self.client.close()

    # Following the election.

    def _on_state(self, client: ZooKeeper, state: State) -> None:
        if client is not getattr(self, "client", client):
            return
        self.healthy = state is State.CONNECTED
        loop = asyncio.get_running_loop()
        if state is State.CONNECTED:
            self._disconnected_s = None
        elif self._disconnected_s is None:
            self._disconnected_s = loop.time()
            loop.call_later(client.session_timeout_ms / 1000, self._changed.set)
        if state >= State.EXPIRED:
            self._resign()
        self._changed.set()

    def _is_cut_off(self) -> bool:
        """Whether the ensemble has ended the session by now, though nobody could say so to this node."""
        since_s, now_s = self._disconnected_s, asyncio.get_running_loop().time()
        return since_s is not None and now_s - since_s >= self.client.session_timeout_ms / 1000

    async def _run(self) -> None:
        while not self._stopping:
            try:
                await self._follow()
            except SessionExpiredError:
                self._begin_session()
            except AuthFailedError as error:  # it may be that only one server of the ensemble is not in order
                _LOG.error("ZooKeeper does not accept this broker's login", extra=fields(error=str(error)))
                await asyncio.sleep(RETRY_SECONDS)
                self._begin_session()
            except ConnectionLossError:
                if self._is_cut_off():
                    self._resign()
            except Exception as error:  # the node goes on with what it knows
                _LOG.error("the election in ZooKeeper cannot be followed", exc_info=error)
                self._resign()
                await asyncio.sleep(RETRY_SECONDS)

    def _begin_session(self) -> None:
        """The one before has ended."""
        self._resign()
        self.client.abort()
        self.client = client = self._new_client()
        for callback in list(self.on_session):
            callback(client)

    async def _follow(self) -> None:
        client = self.client
        while True:
            self._changed.clear()
            if self._is_cut_off():
                self._resign()
            try:
                data, stat = await client.get(cluster.CONTROLLER, self._look)
            except NoNodeError:
                self._resign()
                if await client.exists(cluster.CONTROLLER, self._look) is None:
                    await self._stand(client)
                    continue
                continue
            if stat.ephemeral_owner == client.session_id:
                if self._writer is None:
                    await self._lead(client)
                    continue
                if not self.node.is_leader:  # its disk is full: whoever has room leads
                    await self._give_up(client)
                    continue
            else:
                self._resign()
                self._heed(data)
            await self._changed.wait()

    def _look(self, event: WatchedEvent) -> None:
        self._changed.set()

    def _heed(self, data: bytes) -> None:
        """Another node is the controller, says `/controller`."""
        try:
            found = decode_controller(data)
        except BadZnode as error:
            _LOG.error("the controller cannot be followed", extra=fields(error=str(error)))
            return
        if found is None:
            _LOG.error("the controller is no node of Ottla, and cannot be followed", extra=fields(znode="/controller"))
        elif found.node_id != self.settings.node_id:
            self.node.led(found.node_id, found.epoch, Address(found.host, found.port))

    async def _stand(self, client: ZooKeeper) -> None:
        try:
            data, stat = await client.get(cluster.CONTROLLER_EPOCH)
        except NoNodeError:
            try:
                await client.create(cluster.CONTROLLER_EPOCH, b"0", self.acl(cluster.CONTROLLER_EPOCH))
            except ZooKeeperError as error:
                if error.code != Code.NODE_EXISTS:
                    raise
            return
        epoch = max(cluster.decode_controller_epoch(data), self.node.epoch) + 1
        own = ControllerAddress(self.settings.node_id, epoch, self._endpoint.host, self._endpoint.port)
        content = encode_controller(own, self._clock.now_ms())
        controller = Create(cluster.CONTROLLER, content, tuple(self.acl(cluster.CONTROLLER)), CreateFlag.EPHEMERAL)
        try:
            await client.multi([controller, SetData(cluster.CONTROLLER_EPOCH, b"%d" % epoch, stat.version)])
        except ZooKeeperError as error:
            if error.code not in (Code.NODE_EXISTS, Code.BAD_VERSION, Code.NO_NODE):
                raise

    # As the controller.

    async def _lead(self, client: ZooKeeper) -> None:
        """`/controller` is this session's: the epoch that was written with it is this node's."""
        data, stat = await client.get(cluster.CONTROLLER_EPOCH)
        epoch = cluster.decode_controller_epoch(data)
        if epoch <= self.node.epoch:  # this node gave it up, and the ensemble has not ended the session after all
            await self._give_up(client)
            return
        writer = TreeWriter(client, stat.version, self.acl)
        try:
            state = await self._read(client, epoch)
            await writer.write(state.before)
            await self.node.lead(epoch, state.records, features.metadata_version(state.levels))
        except (BadZnode, KafkaError, OSError) as error:
            _LOG.critical("this node cannot be the controller", extra=fields(epoch=epoch, error=str(error)))
            await self._give_up(client)
            await asyncio.sleep(DAMAGED_SECONDS if isinstance(error, BadZnode) else RETRY_SECONDS)
            return
        if self.client is not client or client.state >= State.EXPIRED:
            self._resign()
            return
        self._writer = writer
        assert self.part is not None
        self.part.begin(client, state)

    async def _read(self, client: ZooKeeper, epoch: LeaderEpoch) -> TreeState:
        await client.sync("/")
        tree = await read_tree(client)
        broker_epoch = first_snapshot(epoch).end_offset - 1
        return await self.node.fs.run(
            lambda: read_state(
                tree, self.cluster_id, broker_epoch, self.settings.secrets, lambda: random_uuid(self._random)
            )
        )

    async def _give_up(self, client: ZooKeeper) -> None:
        """Let another node be the controller."""
        self._resign()
        try:
            stat = await client.exists(cluster.CONTROLLER)
            if stat is not None and stat.ephemeral_owner == client.session_id:
                await client.delete(cluster.CONTROLLER, stat.version)
        except ZooKeeperError as error:
            _LOG.warning("/controller could not be given up", extra=fields(error=str(error)))

    def _resign(self) -> None:
        if self._writer is None:
            return
        self._writer = None
        self._queue.clear()
        if self._writing is not None:
            self._writing.cancel()
        if self.part is not None:
            self.part.end()
        self.node.resign()

    def check(self, delta: MetadataDelta) -> None:
        """Called before a decision is appended. Raises KafkaError for what ZooKeeper cannot keep."""
        changes.check(delta, can_encrypt=self._encrypt is not None)

    def appended(self, delta: MetadataDelta, image: MetadataImage, end: Offset) -> None:
        """A decision is in the log of this node, up to `end`: write it."""
        self._queue.append(_Decision(delta, image, end))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write_on())

    async def _write_on(self) -> None:
        client = self.client
        try:
            while self._queue and (writer := self._writer) is not None:
                taken = [self._queue.popleft() for _ in range(min(len(self._queue), DECISIONS_AT_ONCE))]
                epoch = self.node.epoch
                found: list[changes.Change] = []
                for delta, image, _ in taken:
                    found += await run_yielding(changes.changes_of(delta, image, epoch, self._encrypt))
                await writer.write(found)
                if self._writer is writer:
                    self.node.written(taken[-1].end)
        except (Deposed, ZooKeeperError) as error:
            _LOG.warning("this node gives up its epoch as controller", extra=fields(error=str(error)))
            self._begin_give_up(client)
        except Exception as error:
            _LOG.critical("a decision could not be written to ZooKeeper", exc_info=error)
            self._begin_give_up(client)

    def _begin_give_up(self, client: ZooKeeper) -> None:
        self._giving_up = asyncio.get_running_loop().create_task(self._give_up(client))
