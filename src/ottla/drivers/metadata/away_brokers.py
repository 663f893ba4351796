"""Brokers that clients are still told of while they are away, as most of them come back.

Kafka lists a broker that was killed until its session ends, and again when it is unfenced. A client takes a broker that
is missing for one that was removed: librdkafka ends its thread for that broker, drops the partitions that the same
answer moves from it, and waits for ever for a coordinator that it has cached (librdkafka#5511). So a fenced broker is
listed until it is unfenced or unregistered, for as long as a client may remember it. A later answer leaves it out, as
Kafka's would: tools that ask every listed broker (Kafka's `listGroups`) fail while one of them does not answer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import BrokerRegistration, MetadataImage
    from ottla.model import NodeId

KILLED_LISTED_S: Final = 900.0
"""How long a broker is listed that was fenced without a controlled shutdown: librdkafka caches a coordinator that it
does not use for `metadata.max.age.ms`, by default 15 minutes, and finds the new one where it uses it meanwhile."""

STOPPED_LISTED_S: Final = 60.0
"""How long a broker is listed after a controlled shutdown: a restart takes less. Its clients were sent elsewhere while
it still answered."""


class AwayBrokers:
    """All methods belong to the event loop's thread."""

    def __init__(self, *, has_begun: bool = False) -> None:
        """`has_begun`: nobody was away before the first change. Else that change is all that there is."""
        self._until_s: dict[NodeId, float] = {}
        """Times of the loop. The metadata does not say when a broker was fenced: a node that starts counts from its
        start on."""
        self._begun = has_begun

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A metadata change."""
        for node_id in delta.brokers:
            now, before = image.brokers.get(node_id), delta.base.brokers.get(node_id)
            if now is None or not now.fenced:
                self._until_s.pop(node_id, None)
            elif not self._begun or self._has_gone(before, now):
                listed_s = STOPPED_LISTED_S if now.in_controlled_shutdown else KILLED_LISTED_S
                self._until_s[node_id] = asyncio.get_running_loop().time() + listed_s
        self._begun = True

    def _has_gone(self, before: BrokerRegistration | None, now: BrokerRegistration) -> bool:
        """Whether a fenced broker was there before this change. A broker that registers for the first time has yet to
        come, and a new process of one that is listed has its own time."""
        if before is None or not before.fenced:
            return before is not None
        return before.epoch != now.epoch and self.lists(now.id)

    def lists(self, node_id: NodeId) -> bool:
        """Whether clients are told of a fenced broker."""
        until_s = self._until_s.get(node_id)
        return until_s is not None and asyncio.get_running_loop().time() < until_s
