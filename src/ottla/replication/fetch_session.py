"""Incremental fetch sessions (KIP-227): a consumer names its partitions once and then only what changed.

A session remembers each partition's request and what was last answered about it, so that a response leaves out what
has nothing new. Sessions live in a cache of limited size (Kafka's FetchSessionCache, one shard); a client that gets no
session simply sends full requests.
"""

from __future__ import annotations

import random as random_module
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from ottla.errors import ErrorCode, KafkaError
from ottla.model import Millis, Offset

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1

EVICTION_MS = 120_000
"""A session this old, or unused for so long, may make room for another, as in Kafka."""

PartitionKey = Hashable
"""(topic name or topic id, partition number), as the request names it."""


class CachedPartition:
    """One partition of a fetch or of a session: what to fetch, and what the client was last sent."""

    __slots__ = ("found", "generation", "high_watermark", "key", "log_start_offset", "request")

    def __init__(self, key: PartitionKey, request: Any) -> None:
        self.key = key
        self.request = request
        """The newest fetch request of this partition: offset, epochs, max bytes."""
        self.high_watermark: Offset = -1
        self.log_start_offset: Offset = -1
        self.found: Any = None
        """The partition that `key` names, valid while `generation` equals that of the node's partitions."""
        self.generation = -1

    def is_news(self, error: int, high_watermark: Offset, log_start_offset: Offset, has_more: bool) -> bool:
        """Whether the client must hear about this partition, and remember that it did.

        `has_more`: records, a diverging epoch or a preferred replica to report.
        """
        news = has_more
        if high_watermark != self.high_watermark:
            self.high_watermark = high_watermark
            news = True
        if log_start_offset != self.log_start_offset:
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


class FetchSession:
    """The partitions of one consumer, in the order in which they are to be read."""

    __slots__ = ("created_ms", "epoch", "id", "last_used_ms", "partitions", "privileged", "uses_topic_ids")

    def __init__(self, session_id: int, now_ms: Millis, *, privileged: bool, uses_topic_ids: bool) -> None:
        self.id = session_id
        self.epoch = 1
        """The epoch that the client's next request must carry."""
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.partitions: dict[PartitionKey, CachedPartition] = {}

    def update(self, requested: Iterable[tuple[PartitionKey, Any]], forgotten: Iterable[PartitionKey]) -> None:
        """Take over new and changed partitions, and drop forgotten ones."""
        for key, request in requested:
            cached = self.partitions.get(key)
            if cached is None:
                self.partitions[key] = CachedPartition(key, request)
            else:
                cached.request = request
        for key in forgotten:
            self.partitions.pop(key, None)

    def move_to_end(self, key: PartitionKey) -> None:
        """A partition that gave data goes last, so that a busy one does not starve the others."""
        self.partitions[key] = self.partitions.pop(key)


class FetchSessionCache:
    """All sessions of a node, at most `slots` (`max.incremental.fetch.session.cache.slots`)."""

    def __init__(self, slots: int, random: random_module.Random) -> None:
        self._slots = slots
        self._random = random
        self._sessions: dict[int, FetchSession] = {}
        """Keyed by id, least recently used first."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    def remove(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

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

    def resume(self, session_id: int, epoch: int, now_ms: Millis, *, uses_topic_ids: bool) -> FetchSession:
        """The session of an incremental request, whose epoch thereby is used up. Raises KafkaError."""
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.invalid_fetch_session_epoch)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.fetch_session_topic_id_error)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.last_used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def _evict(self, size: int, now_ms: Millis, *, privileged: bool) -> bool:
        """Make room by KIP-227: the one unused for long, else an old one that is smaller or less privileged."""
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            del self._sessions[oldest.id]
            return True
        evictable = [session for session in self._sessions.values() if now_ms - session.created_ms > EVICTION_MS]
        if privileged:
            evictable += [session for session in self._sessions.values() if not session.privileged]
        else:
            evictable = [session for session in evictable if not session.privileged]
        if not evictable:
            return False
        victim = min(evictable, key=lambda session: (session.privileged, len(session.partitions)))
        if len(victim.partitions) >= size and victim.privileged >= privileged:
            return False
        del self._sessions[victim.id]
        return True
