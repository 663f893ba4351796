"""The active controller of this node: decides on the newest image, writes to the metadata log, publishes images.

(Signatures published first; the body follows.)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from ottla.clock import Clock
from ottla.controller.decision import Decide
from ottla.filesystem import FileSystem
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, Endpoint, MetadataImage
from ottla.model import LeaderEpoch, NodeId, Offset

R = TypeVar("R")

Subscriber = Callable[[MetadataDelta, MetadataImage], None]
"""Called on the event loop after each committed change, in the order of subscription, before the writer gets its answer.
The first call has everything in its delta, whose base is the empty image."""


class ReplicaState(NamedTuple):
    """One replica of the metadata log, for DescribeQuorum."""

    node_id: NodeId
    directory_id: UUID
    log_end_offset: Offset
    last_fetch_timestamp_ms: int
    last_caught_up_timestamp_ms: int


class QuorumInfo(NamedTuple):
    leader_id: NodeId
    leader_epoch: LeaderEpoch
    high_watermark: Offset
    voters: Sequence[ReplicaState]
    observers: Sequence[ReplicaState]
    endpoints: Mapping[NodeId, Mapping[str, Endpoint]]


class ControllerDriver:
    """Owns `__cluster_metadata-0`. All methods belong to the event loop's thread."""

    image: MetadataImage = EMPTY_IMAGE

    def __init__(self, fs: FileSystem, clock: Clock, random: random.Random, config: Any) -> None:
        """`config` is the node's ServerConfig (or any mapping of setting names to typed values)."""
        raise NotImplementedError

    cluster_id: str
    node_id: NodeId
    directory_ids: Mapping[str, UUID]
    """Id of every log directory, by path, from its meta.properties (written on first start)."""

    async def start(self) -> None:
        """Format the directories if they are empty, load the newest snapshot and the log, become leader, publish."""

    async def stop(self) -> None:
        """Let writes finish, then close the log."""

    def subscribe(self, callback: Subscriber) -> None:
        """Call `callback` for every later change; with the whole current image at once if there is one already."""

    async def submit(self, decide: Decide[R]) -> R:
        """Run `decide` on the newest image; write, fsync and replay its records; return its response.

        Raises KafkaError from `decide`, NOT_CONTROLLER after `stop`, KAFKA_STORAGE_ERROR once the log failed.
        """
        raise NotImplementedError

    async def register_broker(self, endpoints: Mapping[str, Endpoint], *, rack: str | None = None) -> None:
        """Register this node under its real endpoints (listener name -> endpoint), unfence it and give it the
        leadership of its partitions in a new leader epoch. Call once the listeners are bound, before answering."""

    async def create_topics(self, request: Mapping[str, Any], *, principal: str = "User:ANONYMOUS") -> dict[str, Any]:
        """CreateTopics as a mapping with the newest version's field names: request to response. Also for auto-creation."""
        raise NotImplementedError

    async def allocate_producer_id(self) -> int:
        """The next unused producer id, from blocks of 1,000 that the metadata log hands out."""
        raise NotImplementedError

    def quorum_info(self) -> QuorumInfo:
        raise NotImplementedError
