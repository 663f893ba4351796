"""Leaders whose connection to this broker has just ended: clients hear at once that their partitions have no leader.

The controller decides who leads instead, a moment later. A client that asks before would be sent to the leader that is
gone, and some (librdkafka) ask again a second later only, but soon where there is no leader. So a leader counts as lost
from the end of the connection on; if its process turns out to be alive, until that is known.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.drivers.controller.reachability import is_gone
from ottla.network import Address

if TYPE_CHECKING:
    from ottla.metadata.image import BrokerRegistration
    from ottla.network import Network

ANSWER_S: Final = 0.3
"""How long one that does not refuse may take to answer before it counts as alive: somebody else decides on it then."""

LOST_S_MAX: Final = 15.0
"""A controller that knows nothing of closed connections has fenced a broker by then."""


class LostBrokers:
    """All methods belong to the event loop's thread."""

    def __init__(self, network: Network, listener: str, confirm_s: float) -> None:
        """`listener` is that of the brokers among themselves; `confirm_s` as of `ottla.failover.confirm.ms`."""
        self.epochs: dict[int, int] = {}
        """Broker ids and the epochs of the incarnations that are lost."""
        self._network = network
        self._listener = listener
        self._confirm_s = confirm_s
        self._tasks: dict[asyncio.Task[None], None] = {}

    def suspect(self, broker: BrokerRegistration | None) -> None:
        """Called when a broker's connection has ended."""
        endpoint = None if broker is None else broker.endpoints.get(self._listener)
        if broker is None or endpoint is None or self._confirm_s < 0 or self.epochs.get(broker.id) == broker.epoch:
            return
        self.epochs[broker.id] = broker.epoch
        task = asyncio.get_running_loop().create_task(self._judge(broker, Address(endpoint.host, endpoint.port)))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _judge(self, broker: BrokerRegistration, address: Address) -> None:
        if await is_gone(self._network, address, confirm_s=self._confirm_s, setup_s=ANSWER_S):
            await asyncio.sleep(LOST_S_MAX)
        if self.epochs.get(broker.id) == broker.epoch:
            del self.epochs[broker.id]

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
