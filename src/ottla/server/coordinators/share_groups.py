"""What ShareFetch and ShareAcknowledge have in common: who asks, what is acknowledged, and where leaders are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from uuid import UUID

from ottla.drivers.cooperative import run_yielding
from ottla.drivers.coordinators.share_coordinator import ShareCoordinatorDriver
from ottla.drivers.coordinators.share_groups import ShareGroups
from ottla.drivers.coordinators.share_persister import Persister
from ottla.drivers.replication.share_partitions import SharePartitions
from ottla.errors import ErrorCode, KafkaError
from ottla.model import SHARE_STATE_TOPIC, ZERO_UUID, Millis, Offset
from ottla.protocol.messages import ApiKey
from ottla.replication.partition import Partition
from ottla.replication.share.acknowledgement import AcknowledgeType, as_said
from ottla.replication.share.session import SessionKey, SharedPartition
from ottla.security.acls import Operation, ResourceType
from ottla.server.api import RequestContext
from ottla.server.coordinators.groups_enabled import check_enabled
from ottla.server.fetch.offset_lookup import find_offset
from ottla.server.metadata import topic_creation
from ottla.server.metadata.leader_hints import LEADER_ERRORS, endpoints_of, known_leader
from ottla.server.security.authorization import allowed, authorize
from ottla.server.security.permissions import Refused, of_groups, of_topics

if TYPE_CHECKING:
    from ottla.drivers.replication.dead_letters import DeadLetterWriter
    from ottla.metrics.shared import ShareMetrics
    from ottla.protocol.schemas.received import (
        ShareAcknowledgeRequest,
        ShareFetchRequest,
    )
    from ottla.protocol.schemas.sent import LeaderIdAndEpoch, ShareFetchResponseNodeEndpoint
    from ottla.replication.share.dead_letters import LostLetters
    from ottla.server.ports import NodePorts, ShareStateNode

NEEDS: Final = (
    of_groups(Operation.READ, "group_id", refused=Refused.REQUEST),
    of_topics(Operation.READ, "topics.topic_id"),
)
"""What both need."""

MEMBER_ID_LENGTH_MAX: Final = 36
RENEW_SINCE: Final = 2
"""The version of both APIs from which on locks may be renewed (KIP-1222)."""

READ_UNCOMMITTED: Final = 0
T = TypeVar("T")

NO_LEADER_KNOWN: LeaderIdAndEpoch = {"leader_id": 0, "leader_epoch": 0}

Failures = dict[SharedPartition, KafkaError | None]


Closers = list[Callable[[], Coroutine[Any, Any, None]]]


def share_coordinator(node: ShareStateNode, closers: Closers) -> ShareCoordinatorDriver:
    """Create the share coordinator of a node (`Node.share_coordinator`), and register what stops it."""
    made = ShareCoordinatorDriver(node, node.metadata.publisher)
    closers.append(made.stop)
    return made


class ShareParts(NamedTuple):
    """Parts of a node that coordinates share groups, or leads partitions that they read."""

    partitions: SharePartitions
    groups: ShareGroups


def share_parts(node: NodePorts, closers: Closers) -> ShareParts:
    """Create the share parts of a node (`Node.share`), and register what stops them."""
    asking = RequestContext(node, ApiKey.LIST_OFFSETS, 11)

    async def make_topic() -> None:
        await topic_creation.create_own(node, [SHARE_STATE_TOPIC])

    async def offset_since(partition: Partition, timestamp_ms: Millis) -> Offset | None:
        _, offset, _ = await run_yielding(find_offset(asking, partition, timestamp_ms, READ_UNCOMMITTED))
        return offset if offset >= 0 else None

    def dead_letters(metrics: ShareMetrics, lost: dict[str, LostLetters]) -> DeadLetterWriter:
        from ottla.drivers.replication.dead_letters import DeadLetterWriter  # few groups have any

        return DeadLetterWriter(node, metrics, lost, partial(topic_creation.create_for_dead_letters, node))

    persister = Persister(node, make_topic)
    partitions = SharePartitions(node, node.metadata.publisher, persister, offset_since, dead_letters)
    closers.append(partitions.stop)
    return ShareParts(partitions, ShareGroups(node, persister))


def check_request(context: RequestContext, request: ShareFetchRequest | ShareAcknowledgeRequest) -> SessionKey:
    """The session of a request. Raises UNSUPPORTED_VERSION if share groups are disabled, GROUP_AUTHORIZATION_FAILED,
    INVALID_REQUEST for invalid names."""
    check_enabled(context, "share")
    if request.group_id is None:
        raise KafkaError(ErrorCode.invalid_request, "Invalid group id in the request.")
    authorize(context, Operation.READ, ResourceType.GROUP, request.group_id)
    if not request.member_id or len(request.member_id) > MEMBER_ID_LENGTH_MAX:
        raise KafkaError(ErrorCode.invalid_request, "Invalid member id in the request.")
    return SessionKey(request.group_id, request.member_id)


class Acknowledging:
    """The acknowledgements of one request, from their check to what became of them."""

    __slots__ = ("_context", "_ended", "_unknown", "failures")

    def __init__(
        self, context: RequestContext, request: ShareFetchRequest | ShareAcknowledgeRequest, key: SessionKey
    ) -> None:
        """Begins all of them; those that wait for nobody are done then."""
        self._context = context
        self.failures: Failures = {}
        """Partitions of which it is known, each with its error."""
        self._unknown = 1
        """Partitions of which it is not, and one while they are begun."""
        self._ended: asyncio.Future[None] | None = None
        may_renew = context.api_version >= RENEW_SINCE
        type_max = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
        is_renewal = may_renew and request.is_renew_ack
        image, manager = context.node.image, context.node.share.partitions
        empty: list[SharedPartition] = []
        has_some = False
        readable = allowed(context, Operation.READ)
        for topic in request.topics:
            topic_id = topic.topic_id or ZERO_UUID
            named = image.topic_by_id(topic_id)
            if named is not None and any(row.acknowledgement_batches for row in topic.partitions):
                context.node.metrics.topic(named.name).share_acknowledges += 1
            for row in topic.partitions:
                where = SharedPartition(topic_id, row.partition_index)
                if named is None:
                    self.failures[where] = KafkaError(ErrorCode.unknown_topic_id)
                elif (said := as_said(row.acknowledgement_batches, type_max, is_renewal)) is None:
                    self.failures[where] = KafkaError(ErrorCode.invalid_request)
                elif named.name not in readable:
                    self.failures[where] = KafkaError(ErrorCode.topic_authorization_failed)
                elif where.partition not in named.partitions:
                    self.failures[where] = KafkaError(ErrorCode.unknown_topic_or_partition)
                elif not said:
                    empty.append(where)
                else:
                    has_some = True
                    self._unknown += 1
                    manager.acknowledge(key.group_id, where, key.member_id, said, partial(self._settle, where))
        if has_some:
            self.failures |= dict.fromkeys(empty)
        self._count_down()

    @property
    def is_under_way(self) -> bool:
        return self._unknown > 0

    async def result(self) -> Failures:
        """When all is kept or cannot be: each partition with its error."""
        if self._unknown:
            self._ended = asyncio.get_running_loop().create_future()
            await self._ended
        return self.failures

    def _settle(self, where: SharedPartition, error: KafkaError | None) -> None:
        self.failures[where] = error
        self._count_down()

    def _count_down(self) -> None:
        self._unknown -= 1
        if self._unknown:
            return
        image = self._context.node.image
        for topic_id in {where.topic_id for where, error in self.failures.items() if error is not None}:
            topic = image.topic_by_id(topic_id)
            if topic is not None:
                self._context.node.metrics.topic(topic.name).failed_share_acknowledges += 1
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


def leaders(
    context: RequestContext, failed: Iterable[tuple[SharedPartition, int]]
) -> tuple[dict[SharedPartition, LeaderIdAndEpoch], list[ShareFetchResponseNodeEndpoint]]:
    """The leaders of the partitions that this node does not lead, and the addresses of these nodes (KIP-951)."""
    found: dict[SharedPartition, LeaderIdAndEpoch] = {}
    node_ids: set[int] = set()
    for where, error in failed:
        topic = context.node.image.topic_by_id(where.topic_id) if error in LEADER_ERRORS else None
        registration = None if topic is None else topic.partitions.get(where.partition)
        leader = known_leader(context, registration, node_ids)
        if leader is not None:
            found[where] = leader
    return found, [*endpoints_of(context, node_ids)]


def by_topic(rows: Mapping[SharedPartition, T]) -> dict[UUID, list[T]]:
    """Rows of partitions as both answers have them."""
    topics: dict[UUID, list[T]] = {}
    for where, row in rows.items():
        topics.setdefault(where.topic_id, []).append(row)
    return topics
