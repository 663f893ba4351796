"""Where the controllers are, and which of them leads, as far as a broker has heard.

Kafka's brokers learn that from the answers to their metadata fetches (KIP-595): every controller says who leads, and
since Fetch 17 also where. Before the first answer there are the addresses of the settings to ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ottla.model import LeaderEpoch, MeantNode, NodeId
from ottla.network import Address


class ControllerNodes:
    """All methods belong to the event loop's thread."""

    def __init__(self, voters: Mapping[NodeId, Address], bootstrap: Sequence[Address] = (), me: NodeId = -1) -> None:
        """`voters` come from `controller.quorum.voters`, `bootstrap` from `controller.quorum.bootstrap.servers`; `me`
        is the node itself, which it does not ask."""
        self.cluster_id = ""
        """Empty until this node knows it."""
        self._me = me
        self._known = dict(voters)
        self._bootstrap = tuple(bootstrap)
        self._to_ask: list[Address] = []
        self._choose()
        self._next = 0
        self._waiting: list[asyncio.Future[Address]] = []
        self.leader_id: NodeId = -1
        self.epoch: LeaderEpoch = -1
        self.leader: Address | None = None
        """None while nobody is known to lead, or the one that was is out of reach."""

    def _choose(self) -> None:
        others = (address for node_id, address in self._known.items() if node_id != self._me)
        self._to_ask = list(dict.fromkeys((*self._bootstrap, *others)))

    def know(self, voters: Mapping[NodeId, Address]) -> None:
        """Take over the voters that the log names."""
        self._known.update(voters)
        self._choose()

    def address_of(self, node_id: NodeId) -> Address | None:
        """Where a controller is, as far as is known."""
        return self._known.get(node_id)

    def node_at(self, address: Address) -> NodeId:
        """The controller that is reached there, -1 if none is known to be."""
        return next((node_id for node_id, each in self._known.items() if each == address), -1)

    def whom(self, address: Address) -> MeantNode | None:
        """The controller that is meant at an address; None if none is known to be there, or several are."""
        found = [node_id for node_id, each in self._known.items() if each == address]
        return MeantNode(self.cluster_id, found[0]) if self.cluster_id and len(found) == 1 else None

    def to_ask(self) -> Address | None:
        """The leader; while there is none, one controller after the other. None if no other controller is known."""
        if self.leader is not None:
            return self.leader
        if not self._to_ask:
            return None
        address = self._to_ask[self._next % len(self._to_ask)]
        self._next += 1
        return address

    def found(self, leader_id: NodeId, epoch: LeaderEpoch, endpoints: Mapping[NodeId, Address]) -> bool:
        """Take over an answer about the leader (-1: none). Returns whether that is news."""
        if epoch < self.epoch:
            return False
        self._known.update(endpoints)
        before = (self.leader_id, self.epoch, self.leader)
        self.leader_id, self.epoch = leader_id, epoch
        self.leader = None if leader_id == self._me else self._known.get(leader_id)
        if self.leader is not None:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                if not each.done():
                    each.set_result(self.leader)
        return before != (self.leader_id, self.epoch, self.leader)

    def lost(self, address: Address) -> None:
        """Called when nobody answers at `address`, or it does not lead: it is no longer the leader's address."""
        if self.leader == address:
            self.leader = None

    async def wait_leader(self) -> Address:
        """The leader's address, once there is one."""
        if self.leader is not None:
            return self.leader
        future: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            return await future
        finally:
            if future in self._waiting:
                self._waiting.remove(future)
