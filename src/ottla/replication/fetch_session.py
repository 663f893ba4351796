"""Incremental fetch sessions (KIP-227): a consumer or a follower names its partitions once and then only what changed.

A session remembers each partition's request and what was last answered about it, so that a response leaves out what
has nothing new. Sessions live in a cache of limited size (Kafka's FetchSessionCache, one shard); a client that gets no
session simply sends full requests.

An entry that has nothing new *watches* its partition, which tells it of the next change; until then requests do not
look at it. A consumer's entry watches what consumers see, on leaders and on followers (KIP-392). A follower's watches
the log end too, and only while it is in sync and has everything: then each request of the session counts as a fetch
from the log end (`Replica.session`).
"""

from __future__ import annotations

import operator
import random as random_module
from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from ottla.errors import ErrorCode, KafkaError
from ottla.model import Millis, Offset
from ottla.replication.purgatory import EVERYBODY
from ottla.replication.replica import NEVER, Replica

if TYPE_CHECKING:
    from ottla.protocol.fetch import FetchPartition

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1

NOBODY = -3
LEADERS_CONSUMER = -2
"""A consumer of a version in which only leaders answer."""
CONSUMER = -1

EVICTION_MS = 120_000
"""A session this old, or unused for so long, may make room for another, as in Kafka."""

PartitionKey = Hashable
"""(topic name or topic id, partition number), as the request names it."""


class Watchable(Protocol):
    """A partition as a session sees it."""

    sessions: dict[CachedPartition, None]
    """Told once, of the next change that shows in a consumer's fetch (`CachedPartition.on_change`)."""
    end_sessions: dict[CachedPartition, None]
    """Told once, of the next change that shows in a fetch of a follower in sync."""
    waiters: dict[Any, None]
    end_waiters: dict[Any, None]
    traffic: Any


class CachedPartition:
    """One partition of a fetch or of a session: what to fetch, and what the client was last sent."""

    __slots__ = (
        "found", "generation", "high_watermark", "key", "log_start_offset", "looks", "order", "replica", "request",
        "session", "watched",
    )  # fmt: skip

    def __init__(self, key: PartitionKey, request: FetchPartition) -> None:
        self.key = key
        self.request = request
        """The newest fetch request of this partition: offset, epochs, max bytes."""
        self.high_watermark: Offset = -1
        self.log_start_offset: Offset = -1
        self.found: Any = None
        """The partition that `key` names, valid while `generation` equals that of the node's partitions."""
        self.generation = -1
        self.session: FetchSession | None = None
        self.order = 0
        """Its place in the round robin of the session: lower ones are read first."""
        self.watched: Watchable | None = None
        """Where it waits to be told of a change. Invariant: then it is in `watched.sessions` (a follower's in
        `watched.end_sessions`), not in `session.changed`, and a look at it would find nothing new."""
        self.replica: Replica | None = None
        """The follower, while its entry watches: the session says when it has fetched."""
        self.looks = 0
        """`session.looks` when that began."""

    @property
    def topic(self) -> Any:
        """Name or id."""
        return self.key[0]  # type: ignore[index]

    def is_news(self, error: int, high_watermark: Offset, log_start_offset: Offset, has_more: bool) -> bool:
        """Whether the client must hear about this partition, and remember that it did.

        `has_more`: records, a diverging epoch or a preferred replica to report.
        """
        news = has_more
        if high_watermark != self.high_watermark:  # without records too: consumers measure their lag by it (KIP-227)
            self.high_watermark = high_watermark
            news = True
        if log_start_offset != self.log_start_offset:  # DeleteRecords waits for followers to see it (KIP-107)
            self.log_start_offset = log_start_offset
            news = True
        if error:
            # An answer with an error is repeated until it is none, and the recovery from it is news again.
            self.high_watermark = -1
            news = True
        return news

    def must_be_answered_again(self) -> None:
        """The client does not get the answer that said this; it is news still."""
        self.high_watermark = -1

    def watch(self, partition: Watchable, replica: Replica | None = None) -> bool:
        """There is nothing new: look at it no more until the partition says that something has changed. Returns False
        where it cannot be told. `replica` is the follower that fetches."""
        session = self.session
        if session is None or not session.is_kept:
            return False
        session.changed.pop(self, None)
        self.watched = partition
        self.looks = session.looks
        if replica is None:
            partition.sessions[self] = None
        else:
            self.replica = replica
            replica.enter(session)
            partition.end_sessions[self] = None
        return True

    def on_change(self, size_bytes: int) -> None:
        """Called by the watched partition, which does not call again: `size_bytes` more can be fetched, or another
        change is to be seen. Those who wait wait for more of it now."""
        partition, session = self.watched, self.session
        assert partition is not None and session is not None
        waiters = partition.waiters if self.replica is None else partition.end_waiters
        self.look_again()
        session.changes += 1
        for waiting in list(session.waiting):
            waiting.join(waiters)
            waiting.on_bytes(size_bytes)

    def look_again(self) -> None:
        """Let the next request look at it."""
        partition, session = self.watched, self.session
        if session is None:
            return
        if partition is not None:
            if self.replica is None:
                partition.sessions.pop(self, None)
                partition.traffic.fetches += session.looks - self.looks
            else:
                partition.end_sessions.pop(self, None)
                self.replica.leave(session)
                self.replica = None
            self.watched = None
        session.changed[self] = None


class FetchSession:
    """The partitions of one consumer or follower, which are read in the order of their `order`.

    A request looks only at the partitions in `changed`. All others were found to have nothing new, and wait to be told
    by their `Partition` of the next change. So a request costs what has changed, not what is in the session.
    """

    __slots__ = (
        "changed", "changes", "created_ms", "epoch", "fetched_ms", "generation", "id", "is_kept", "last_order",
        "last_used_ms", "looks", "partitions", "privileged", "reader", "reader_epoch", "reader_live_epoch", "topics",
        "uses_topic_ids", "waiting",
    )  # fmt: skip

    def __init__(self, session_id: int, now_ms: Millis, *, privileged: bool, uses_topic_ids: bool) -> None:
        self.id = session_id
        self.epoch = 1
        """The epoch that the client's next request must carry."""
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.partitions: dict[PartitionKey, CachedPartition] = {}
        self.changed: dict[CachedPartition, None] = {}
        """Partitions of `partitions` that may have something new."""
        self.fetched_ms: Millis = NEVER
        """When the latest request of a follower came: of the watched partitions it asked for what follows the log end.
        By the clock of `Partition.on_follower_fetch`."""
        self.reader = NOBODY
        """Node id of the follower that asked last, CONSUMER or LEADERS_CONSUMER. Partitions are watched for it:
        another reader looks at everything."""
        self.reader_epoch = -1
        """The broker epoch that a follower claims (KIP-903)."""
        self.reader_live_epoch = -1
        """The broker epoch that the metadata knows of it; -1 for one that is not alive."""
        self.changes = 0
        """Number of times that a watched partition has changed."""
        self.generation = -1
        """The generation of the node's partitions at the latest request: another one says that a key may name another
        partition."""
        self.is_kept = True
        """Whether it is in the cache; a session that is not watches no more partitions."""
        self.last_order = 0
        self.looks = 0
        """Number of times that requests have looked for changes."""
        self.topics: Collection[Any] | None = None
        """Names or ids of the topics of `partitions`; None if unknown."""
        self.waiting: dict[Any, None] = {}
        """Its fetches in the purgatory."""

    def update(self, requested: Iterable[tuple[PartitionKey, Any]], forgotten: Iterable[PartitionKey]) -> None:
        """Take over new and changed partitions, and drop forgotten ones."""
        for key, request in requested:
            cached = self.partitions.get(key)
            if cached is None:
                cached = self.partitions[key] = CachedPartition(key, request)
                cached.session = self
                self.last_order += 1
                cached.order = self.last_order
                self.topics = None
            else:
                cached.request = request
            cached.look_again()
        for key in forgotten:
            cached = self.partitions.pop(key, None)
            if cached is not None:
                cached.look_again()
                del self.changed[cached]
                cached.session = self.topics = None

    def move_to_end(self, cached: CachedPartition) -> None:
        """A partition that gave data goes last, so that a busy one does not starve the others."""
        self.last_order += 1
        cached.order = self.last_order

    def to_read(self) -> list[CachedPartition]:
        """The partitions to look at, in their order."""
        self.looks += 1
        changed = list(self.changed)
        if len(changed) > 1:
            changed.sort(key=_order)
        return changed

    def is_read_by(self, reader: int, epoch: int, live_epoch: int) -> bool:
        """Whether the latest request came from the same reader (`reader`, `reader_epoch`, `reader_live_epoch`)."""
        return self.reader == reader and self.reader_epoch == epoch and self.reader_live_epoch == live_epoch

    def set_reader(self, reader: int, epoch: int, live_epoch: int) -> None:
        """For another reader every partition is looked at again."""
        if not self.is_read_by(reader, epoch, live_epoch):
            self.reader, self.reader_epoch, self.reader_live_epoch = reader, epoch, live_epoch
            self.generation = -1

    def known_topics(self) -> Collection[Any]:
        """Names or ids of the topics of its partitions."""
        if self.topics is None:
            self.topics = {cached.topic: None for cached in self.partitions.values()}
        return self.topics

    def count_fetches(self) -> None:
        """Count the looks at partitions that were spared, as those of consumers that were not are counted."""
        for cached in self.partitions.values():
            if cached.watched is not None and cached.replica is None:
                cached.watched.traffic.fetches += self.looks - cached.looks
                cached.looks = self.looks


_order = operator.attrgetter("order")


def tell(sessions: dict[CachedPartition, None], size_bytes: int) -> None:
    """`size_bytes` more of a partition can be fetched, or another change is to be seen. Called after `notify`: a fetch
    that waits for the session becomes one of the partition's waiters here."""
    for cached in list(sessions):
        cached.on_change(size_bytes)


class FetchSessionCache:
    """All sessions of a node, at most `slots` (`max.incremental.fetch.session.cache.slots`)."""

    __slots__ = ("_dropped", "_random", "_sessions", "_slots")

    def __init__(self, slots: int, random: random_module.Random) -> None:
        self._slots = slots
        self._random = random
        self._sessions: dict[int, FetchSession] = {}
        """Keyed by id, least recently used first."""
        self._dropped: list[FetchSession] = []
        """Sessions that still watch partitions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.is_kept = False
            self._dropped.append(session)

    def unwatch(self, count: int) -> None:
        """Let so many partitions of dropped sessions be watched no more. Filling a session calls it as often, so
        that what dropped ones still hold stays below what the cache has held."""
        while count > 0 and self._dropped:
            partitions = self._dropped[-1].partitions
            while count > 0 and partitions:
                _, cached = partitions.popitem()
                if cached.watched is not None:
                    cached.on_change(EVERYBODY)  # a fetch that still waits reads it
                count -= 1
            if not partitions:
                self._dropped.pop()

    def create(self, size: int, now_ms: Millis, *, privileged: bool, uses_topic_ids: bool) -> FetchSession | None:
        """A new session for `size` partitions, or None when the cache is full of sessions that may stay."""
        if len(self._sessions) >= self._slots and not self._evict(size, now_ms, privileged=privileged):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.randrange(1, 2**31)
        session = FetchSession(session_id, now_ms, privileged=privileged, uses_topic_ids=uses_topic_ids)
        self._sessions[session_id] = session
        return session

    def resume(self, session_id: int, epoch: int, now_ms: Millis, uses_topic_ids: bool) -> FetchSession:
        """The session of an incremental request, whose epoch thereby is used up. Raises KafkaError."""
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.fetch_session_id_not_found)  # evicted: the client sends a full fetch (KIP-227)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.invalid_fetch_session_epoch)  # a request was lost or came twice (KIP-227)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.fetch_session_topic_id_error)  # no session mixes names and ids (KIP-516)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1  # 0 asks for a new session, -1 for its end
        session.last_used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def _evict(self, size: int, now_ms: Millis, *, privileged: bool) -> bool:
        """Make room by KIP-227: the one unused for long, else an old one that is smaller or less privileged."""
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > EVICTION_MS:  # whoever it is of
            self.remove(oldest.id)
            return True
        evictable = [session for session in self._sessions.values() if now_ms - session.created_ms > EVICTION_MS]
        if privileged:
            evictable += [session for session in self._sessions.values() if not session.privileged]  # followers first
        else:
            evictable = [session for session in evictable if not session.privileged]
        if not evictable:
            return False
        victim = min(evictable, key=lambda session: (session.privileged, len(session.partitions)))
        if len(victim.partitions) >= size and victim.privileged >= privileged:  # the larger one saves more
            return False
        self.remove(victim.id)
        return True
