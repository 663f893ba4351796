"""Sessions of brokers: what a controller knows of them that is in no record (Kafka's `BrokerHeartbeatManager`).

A new controller gives every broker a whole session before it judges.

A stopping broker may exit once all others have seen that it no longer leads partitions: until then clients may be sent
to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.metadata.image import BrokerRegistration
from ottla.model import NodeId, Offset


class _Contact(NamedTuple):
    epoch: int
    at_s: float
    was_heard: bool
    """Since this controller is the active one."""
    offset: Offset = -1
    """Offset up to which it has followed the metadata, as reported."""


class BrokerSessions:
    """Times are seconds of any clock that does not go back."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._contacts: dict[NodeId, _Contact] = {}
        self._shutdowns: dict[NodeId, Offset] = {}

    def begin(self, brokers: Iterable[BrokerRegistration], now_s: float) -> None:
        """Start all sessions: this controller has become active, or could not receive heartbeats for a while."""
        self._contacts = {broker.id: _Contact(broker.epoch, now_s, False) for broker in brokers if not broker.fenced}
        self._shutdowns = {}

    def touch(self, node_id: NodeId, epoch: int, now_s: float, offset: Offset = -1) -> None:
        """A heartbeat of a registered broker came, which has followed the metadata up to `offset`."""
        self._contacts[node_id] = _Contact(epoch, now_s, True, offset)

    def drop(self, node_id: NodeId) -> None:
        self._contacts.pop(node_id, None)
        self._shutdowns.pop(node_id, None)

    def begin_shutdown(self, node_id: NodeId, offset: Offset) -> None:
        """A broker has asked for a controlled shutdown, and leads nothing from `offset` on."""
        self._shutdowns.setdefault(node_id, offset)

    def is_shutting_down(self, node_id: NodeId) -> bool:
        """Whether it has asked this controller to."""
        return node_id in self._shutdowns

    def may_shut_down(self, node_id: NodeId, brokers: Mapping[NodeId, BrokerRegistration]) -> bool:
        """Whether all brokers have seen what became of the leaderships of one that stops. Those whose heartbeats this
        controller has not heard yet, have not."""
        offset = self._shutdowns.get(node_id, -1)
        return all(
            contact.offset >= offset
            for other, contact in self._contacts.items()
            if other in brokers and brokers[other].active and brokers[other].epoch == contact.epoch
        )

    def is_valid(self, node_id: NodeId, epoch: int, now_s: float) -> bool:
        """Whether this incarnation was heard of not long ago."""
        contact = self._contacts.get(node_id)
        return (
            contact is not None
            and contact.was_heard
            and contact.epoch == epoch
            and now_s < contact.at_s + self.timeout_s
        )

    def stale(self, now_s: float) -> list[NodeId]:
        """Brokers that were not heard of for a whole session, longest first."""
        found = [
            (each.at_s, node_id) for node_id, each in self._contacts.items() if now_s >= each.at_s + self.timeout_s
        ]
        return [node_id for _, node_id in sorted(found)]

    def all_silent(self, since_s: float) -> bool:
        """Whether none of several brokers was heard of since then: it may be this controller that could not hear."""
        return len(self._contacts) > 1 and all(each.at_s <= since_s for each in self._contacts.values())

    def next_expiry_s(self) -> float | None:
        """When `stale` may name somebody next."""
        times = [each.at_s for each in self._contacts.values()]
        return min(times) + self.timeout_s if times else None
