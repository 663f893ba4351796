"""What the drivers of a controller need of each other and of what lies above them.

Types only: nothing here is imported while a node runs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, Protocol

from ottla.controller.decision import Decision
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model import NodeId, Offset


class Keeper(Protocol):
    """Keeps the metadata beside the log of this node: `ZooKeeperCluster`."""

    def check(self, delta: MetadataDelta) -> None:
        """Called before the records of a decision are appended. Raises KafkaError for what cannot be kept."""

    def appended(self, delta: MetadataDelta, image: MetadataImage, end: Offset) -> None:
        """The records of a decision are in the log up to `end`."""


class Watch(Protocol):
    """Hears what becomes of a request (`ottla.server.security.audited_changes.Watched`)."""

    def heard(self, image: MetadataImage, decision: Decision[Any]) -> None: ...

    def answering(self, response: Mapping[str, Any]) -> Generator[int, None, None]: ...

    def failed(self, error: BaseException) -> None: ...


class HeartbeatConnection(Protocol):
    """A connection that heartbeats come over."""

    def when_lost(self, callback: Callable[[], None]) -> None: ...


class Fencing(Protocol):
    """The part that fences brokers: `ActiveController`."""

    @property
    def active(self) -> bool: ...
    @property
    def image(self) -> MetadataImage: ...
    def fence(self, node_id: NodeId) -> None: ...
