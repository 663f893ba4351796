"""The partitions that a fetch asks for: each of them once, which of them its client may read, and their session."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ottla.protocol import fetch
from ottla.replication.fetch_session import CachedPartition, FetchSession
from ottla.security.acls import Operation, ResourceType
from ottla.server.security.authorization import is_allowed, is_allowed_on_cluster
from ottla.server.security.permissions import Need, of_topics

if TYPE_CHECKING:
    from ottla.protocol.fetch import FetchRequest
    from ottla.server.api import RequestContext
    from ottla.server.fetch.partition_read import Read
    from ottla.server.replicas.replica_manager import ReplicaManager

PARTITIONS_AT_ONCE: Final = 100
"""Partitions that are read in one step; each takes some microseconds."""

STRANGERS_MAX: Final = 1000
"""Partitions that are not here and that a session may have all the same: topics come and go."""

NEEDS: Final = (
    of_topics(Operation.READ, "topics.topic", when="of consumers"),
    Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, when="of replicas, which name their node"),
)


class Permissions:
    """What the client of one fetch may read. Decided at its first read and valid until its answer, as in Kafka; the
    next fetch of a session is decided again."""

    __slots__ = ("_context", "_denied", "_is_replica")

    def __init__(self, context: RequestContext, *, is_replica: bool) -> None:
        self._context = context
        self._is_replica = is_replica
        self._denied: dict[str | UUID, bool] = {}

    def denies(self, key: Any) -> bool:
        """Whether a (topic, partition), by name or id, is not to be read. That an id is nobody's is no secret."""
        topic: str | UUID = key[0]
        known = self._denied.get(topic)
        if known is None:
            known = self._denied[topic] = self._decide(topic)
        return known

    def _decide(self, topic: str | UUID) -> bool:
        """A replica may read all topics or none."""
        context = self._context
        if self._is_replica:
            return not is_allowed_on_cluster(context, Operation.CLUSTER_ACTION)
        node = context.node
        name = topic if isinstance(topic, str) else node.replicas.name_of(topic, node.image)
        return name is not None and not is_allowed(context, Operation.READ, ResourceType.TOPIC, name)


def requested_partitions(request: FetchRequest) -> Generator[int, None, list[tuple[Any, Any]]]:
    """What a request names, each partition once: of duplicates the last one counts."""
    requested: list[tuple[Any, Any]] = []
    for topic in request.topics:
        name = topic.name if topic.topic_id is None else topic.topic_id
        for start in range(0, len(topic.partitions), PARTITIONS_AT_ONCE):
            some = topic.partitions[start : start + PARTITIONS_AT_ONCE]
            requested += [((name, asked.partition), asked) for asked in some]
            yield 4 + len(some) // 2
    if len(requested) > 1:
        requested = yield from _distinct(requested)
    return requested


def update(
    session: FetchSession, requested: Sequence[tuple[Any, Any]], request: FetchRequest
) -> Generator[int, None, None]:
    """Add to a session what a request names, `requested`, and remove what it forgets."""
    for start in range(0, len(requested), PARTITIONS_AT_ONCE):
        session.update(requested[start : start + PARTITIONS_AT_ONCE], ())
        yield PARTITIONS_AT_ONCE
    for gone in request.forgotten_topics:
        name = gone.name if gone.topic_id is None else gone.topic_id
        for start in range(0, len(gone.partitions), PARTITIONS_AT_ONCE):
            session.update((), [(name, number) for number in gone.partitions[start : start + PARTITIONS_AT_ONCE]])
            yield 2 + PARTITIONS_AT_ONCE // 4


def _distinct(items: list[tuple[Any, Any]]) -> Generator[int, None, list[tuple[Any, Any]]]:
    found: dict[Any, Any] = {}
    for start in range(0, len(items), PARTITIONS_AT_ONCE):
        found.update(items[start : start + PARTITIONS_AT_ONCE])
        yield PARTITIONS_AT_ONCE // 4
    if len(found) == len(items):
        return items
    return list(found.items())


def without_session(requested: Sequence[tuple[Any, Any]]) -> Generator[int, None, list[CachedPartition]]:
    entries: list[CachedPartition] = []
    for start in range(0, len(requested), PARTITIONS_AT_ONCE):
        entries += [CachedPartition(key, asked) for key, asked in requested[start : start + PARTITIONS_AT_ONCE]]
        yield PARTITIONS_AT_ONCE // 4
    return entries


def cost_of_check(session: FetchSession, generation: int, permissions: Permissions | None) -> int:
    """The partitions and topics that a request of the session has to look at without being asked to."""
    if session.generation != generation:
        return len(session.partitions)
    return len(session.changed) + (0 if permissions is None else len(session.known_topics()))


def recheck(session: FetchSession, generation: int, permissions: Permissions | None) -> Generator[int, None, None]:
    """Find the partitions of a session that may have something new though no partition has said so: all, where others
    were created or deleted, and those of a topic that the client may not read (any more)."""
    again: list[CachedPartition] = []
    if session.generation != generation:
        session.generation = generation
        again = list(session.partitions.values())
    elif permissions is not None:
        denied = set()
        for count, topic in enumerate(session.known_topics()):
            if permissions.denies((topic, 0)):
                denied.add(topic)
            if count % PARTITIONS_AT_ONCE == PARTITIONS_AT_ONCE - 1:
                yield PARTITIONS_AT_ONCE
        if denied:
            again = [cached for cached in session.partitions.values() if cached.topic in denied]
    for start in range(0, len(again), PARTITIONS_AT_ONCE):
        for cached in again[start : start + PARTITIONS_AT_ONCE]:
            cached.look_again()
        yield PARTITIONS_AT_ONCE // 4


def may_cache(replicas: ReplicaManager, count: int) -> bool:
    """Whether a session may have so many partitions. It lasts, and its memory with it: so not many more than there are
    here. A client without a session sends full requests."""
    return count <= STRANGERS_MAX or count <= STRANGERS_MAX + sum(map(len, replicas.by_name.values()))


def create_session(
    context: RequestContext, entries: list[CachedPartition], reads: list[Read | None], *, privileged: bool
) -> Generator[int, None, int]:
    """The id of a new session with what was read; NO_SESSION where there is no room for it."""
    node = context.node
    if not may_cache(node.replicas, len(entries)):
        return fetch.NO_SESSION
    session = node.sessions.create(
        len(entries),
        node.clock.now_ms(),
        privileged=privileged,
        uses_topic_ids=context.api_version >= fetch.TOPIC_IDS_SINCE,
    )
    if session is None:
        return fetch.NO_SESSION
    for start in range(0, len(reads), PARTITIONS_AT_ONCE):
        some = entries[start : start + PARTITIONS_AT_ONCE]
        session.update([(cached.key, cached.request) for cached in some], ())
        node.sessions.unwatch(2 * len(some))
        for cached, read in zip(some, reads[start : start + PARTITIONS_AT_ONCE], strict=True):
            assert read is not None  # there was no session yet
            known = session.partitions[cached.key]
            known.is_news(read.error, read.high_watermark, read.log_start_offset, False)
        yield len(some) * 4
    return session.id
