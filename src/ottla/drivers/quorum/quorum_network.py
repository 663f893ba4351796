"""What a replica of the metadata log has to do with other nodes; one that is alone does not even import it."""

from __future__ import annotations

import random as random_module
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.drivers.quorum.metadata_follower import MetadataFollower
from ottla.drivers.quorum.quorum_membership import QuorumMembership
from ottla.drivers.quorum.quorum_peers import QuorumPeers
from ottla.errors import KafkaError
from ottla.model import NodeId, Offset
from ottla.quorum.state import Request

if TYPE_CHECKING:
    from ottla.drivers.quorum.quorum_ports import Replica
    from ottla.network import Network


class QuorumNetwork:
    """Links to other nodes, from the constructor to `stop`. All methods belong to the event loop's thread."""

    def __init__(self, node: Replica, network: Network, random: random_module.Random) -> None:
        self._peers = QuorumPeers(node, network, random)
        self._follower = MetadataFollower(node, node.controllers, network, random)
        self._follower.start()
        self._membership: QuorumMembership | None = None
        if node.core.own is not None:
            self._membership = QuorumMembership(node, network, random)
            node.on_append.append(self._membership.wake)

    def begin(self) -> None:
        """Begin, once the node knows these links."""
        if self._membership is not None:
            self._membership.start()

    @property
    def busy(self) -> Mapping[NodeId, Any]:
        """Voters that are being asked something, or were without success a moment ago."""
        return self._peers.busy

    @property
    def refused(self) -> KafkaError | None:
        """Why no controller lets this node follow; None while one does or none was reached."""
        return self._follower.refused

    def send(self, wanted: Sequence[Request]) -> None:
        """Ask other voters what the core wants asked now."""
        self._peers.send(wanted)

    def wake(self) -> None:
        """Called when the leader has changed."""
        self._follower.wake()

    async def caught_up(self) -> Offset:
        """See `MetadataFollower`."""
        return await self._follower.caught_up()

    async def committed_end(self) -> Offset:
        """See `MetadataFollower`. Raises KafkaError."""
        return await self._follower.committed_end()

    async def stop(self, farewell: Sequence[Request]) -> None:
        """Send the last requests once, and stop."""
        if farewell:
            await self._peers.say_farewell(farewell)
        if self._membership is not None:
            await self._membership.stop()
        await self._follower.stop()
        await self._peers.stop()
