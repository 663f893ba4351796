"""An active controller sees at once that a broker's process is gone, instead of after `broker.session.timeout.ms`.

The connection that a broker's heartbeats come over ends with its process. That is a suspicion: the broker is asked
again, at the listener that other brokers use, and fenced if its system refuses connections there (`reachability.py`).
One that is there is looked at until it sends a heartbeat: then it is not suspected any more. A new active controller
has no such connections yet: it suspects every broker, since the one before it may have died together with one.

An incarnation that was fenced so and then goes on sending heartbeats listens somewhere else than it says; it is left to
its session from then on, and does not flap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.drivers.controller.reachability import is_gone
from ottla.logs import fields
from ottla.model import NodeId
from ottla.network import Address

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig
    from ottla.drivers.controller.controller_ports import Fencing, HeartbeatConnection
    from ottla.metadata.image import BrokerRegistration
    from ottla.network import Network

_LOG = logging.getLogger("ottla.controller")

ASKED_AT_ONCE: Final = 64
"""Connections to suspects at the same time: a new controller suspects a thousand brokers."""


AGAIN_S: Final = 0.25
"""Between two looks at a suspect that is not gone, until its heartbeat comes or its session ends."""


class WatchedParts(Protocol):
    """The parts of a controller that know its watch: `MetadataServices`."""

    watch: BrokerWatch | None

    @property
    def on_active(self) -> list[Callable[[], None]]: ...


class WatchSettings(NamedTuple):
    node_id: NodeId
    """The controller's own, whose broker lives as long as it does."""
    listener: str
    """`inter.broker.listener.name`"""
    confirm_s: float
    """`ottla.failover.confirm.ms`; below zero, nobody is suspected."""
    setup_s: float
    """`socket.connection.setup.timeout.ms`"""


def watch_brokers(
    network: Network, metadata: WatchedParts, controller: Fencing, config: ServerConfig
) -> Callable[[], None]:
    """Watch the brokers of the controller in this process; returns what ends that. `network` reaches brokers."""
    settings = WatchSettings(
        config.node_id,
        config.inter_broker_listener_name,
        confirm_s=config.ottla_failover_confirm_ms / 1000,
        setup_s=config.socket_connection_setup_timeout_ms / 1000,
    )
    metadata.watch = watch = BrokerWatch(network, controller, settings)
    metadata.on_active.append(watch.activated)
    if controller.active:
        watch.activated()
    return watch.stop


class BrokerWatch:
    """All methods belong to the event loop's thread."""

    def __init__(self, network: Network, controller: Fencing, settings: WatchSettings) -> None:
        self.fenced = 0
        """Brokers taken for dead, since the start."""
        self._network = network
        self._controller = controller
        self._settings = settings
        self._sessions: dict[NodeId, HeartbeatConnection] = {}
        """Where the last heartbeat came from."""
        self._suspects: dict[NodeId, asyncio.Task[None]] = {}
        self._fenced_epochs: dict[NodeId, int] = {}
        """Epochs of broker incarnations that were considered dead."""
        self._trusted: dict[NodeId, int] = {}
        """Epochs of those that lived all the same."""
        self._asking = asyncio.Semaphore(ASKED_AT_ONCE)
        self._stopped = False

    def heard(self, node_id: NodeId, epoch: int, session: HeartbeatConnection) -> None:
        """A heartbeat of a registered broker came."""
        if self._fenced_epochs.get(node_id) == epoch:
            self._trusted[node_id] = self._fenced_epochs.pop(node_id)
        task = self._suspects.pop(node_id, None)
        if task is not None:
            task.cancel()
        if self._sessions.get(node_id) is not session:
            self._sessions[node_id] = session
            session.when_lost(lambda: self._lost(node_id, session))

    def activated(self) -> None:
        """The controller has become the active one. It may have taken heartbeats just before this is called: their
        connections stay watched, or a broker that dies before its next heartbeat would keep its leaderships until its
        session ends."""
        for broker in self._controller.image.brokers.values():
            self._suspect(broker.id)

    def stop(self) -> None:
        """Stop watching: this node's own listeners are about to close all connections."""
        self._stopped = True
        for task in self._suspects.values():
            task.cancel()
        self._suspects.clear()

    def _lost(self, node_id: NodeId, session: HeartbeatConnection) -> None:
        if self._sessions.get(node_id) is session:
            del self._sessions[node_id]
            self._suspect(node_id)

    def _suspect(self, node_id: NodeId) -> None:
        settings, broker = self._settings, self._living(node_id)
        if self._stopped or settings.confirm_s < 0 or node_id in self._suspects or broker is None:
            return
        endpoint = broker.endpoints.get(settings.listener)
        if node_id == settings.node_id or endpoint is None or self._trusted.get(node_id) == broker.epoch:
            return
        address = Address(endpoint.host, endpoint.port)
        task = asyncio.get_running_loop().create_task(self._ask_again(broker, address))
        self._suspects[node_id] = task

    def _living(self, node_id: NodeId) -> BrokerRegistration | None:
        """The registration known to an active controller."""
        broker = self._controller.image.brokers.get(node_id)
        return broker if self._controller.active and broker is not None and not broker.fenced else None

    async def _ask_again(self, broker: BrokerRegistration, address: Address) -> None:
        settings, gone = self._settings, False
        while (now := self._living(broker.id)) is not None and now.epoch == broker.epoch and not gone:
            async with self._asking:
                gone = await is_gone(self._network, address, confirm_s=settings.confirm_s, setup_s=settings.setup_s)
            if not gone:  # it may die before its next heartbeat
                await asyncio.sleep(AGAIN_S)
        self._suspects.pop(broker.id, None)
        if gone and now is not None and now.epoch == broker.epoch:
            _LOG.warning("a broker is gone: it refuses connections", extra=fields(broker=broker.id, at=str(address)))
            self.fenced += 1
            self._fenced_epochs[broker.id] = broker.epoch
            self._controller.fence(broker.id)
