"""One fetch request from its first read to its answer: what is read, how it waits, what the answer includes.

Records stay in their files: the answer holds slices, which the connection sends with sendfile. Small slices are read
here, which beats a second system call for each. A slice that is not in the page cache is read by a disk thread first,
so that other clients do not wait for this one's disk.

A fetch in a session looks at the partitions that may have something new (`FetchSession.to_read`). While it waits, it is
with the partitions that it has read (`Partition.waiters`), and for all others with the session. `fetch_entries.py`
has what a session is opened and rechecked with, `partition_read.py` what one partition gives, `fetch_answers.py` what
is told of it where that is not plain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode
from ottla.protocol import fetch
from ottla.protocol.fetch import FetchRequest
from ottla.protocol.fetch_plain import encode_plain
from ottla.replication.fetch_session import (
    CONSUMER,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    LEADERS_CONSUMER,
    CachedPartition,
    FetchSession,
)
from ottla.replication.partition import Partition
from ottla.replication.purgatory import DelayedFetch
from ottla.server.api import Deferred, Handling, RequestContext, Response
from ottla.server.connections.incremental_free import empty_in_steps
from ottla.server.connections.outbox import EncodedResponse
from ottla.server.fetch.fetch_answers import answer_any, answer_in_steps, rows_in_steps
from ottla.server.fetch.fetch_entries import (
    PARTITIONS_AT_ONCE,
    STRANGERS_MAX,
    Permissions,
    cost_of_check,
    create_session,
    may_cache,
    recheck,
    requested_partitions,
    update,
    without_session,
)
from ottla.server.fetch.partition_read import (
    READ_COMMITTED,
    Follower,
    Found,
    Read,
    field_of,
    has_nothing_new,
    have_undecided,
    is_news,
    is_plain,
    keeps_up,
    partition_of,
    read_as_follower,
    take_cached,
    warm,
    warm_for,
)
from ottla.server.fetch.partition_read import read as read_partition
from ottla.steps import at_once
from ottla.storage.log.log import ColdRead

READ_COST = 8
"""Cost of reading one partition. An unchanged session partition costs a twentieth of it."""

PREFERRED_REPLICA_SINCE = 11
"""The version from which on consumers may read from followers."""

COLD_READS_MAX = 8
"""Look-ups handed to a disk thread for one request; then memory is so short that waiting for the disk is no worse."""


class Fetch:
    """One fetch request from its first read to its answer.

    `begin` makes an `_attempt`. If that has enough, `_finish` answers; else it waits (`_wait`) until something is
    appended (`_ready`) or its time is over (`_expire`), and then `_retry` attempts again, or `_end` answers. Methods
    `_in_steps` do the same for many partitions.
    """

    __slots__ = (
        "_busy", "_cold_reads", "_context", "_deferred", "_delayed", "_entries", "_expired", "_follower", "_max_bytes",
        "_min_bytes", "_new_session", "_node", "_permissions", "_rack", "_reader", "_reader_epoch",
        "_reader_live_epoch", "_replicas", "_request", "_scheduled", "_session", "_timer",
    )  # fmt: skip

    def __init__(self, context: RequestContext, request: FetchRequest) -> None:
        self._context = context
        self._node = context.node
        self._replicas = context.node.replicas
        self._request = request
        bytes_max = self._node.config.fetch_max_bytes
        if self._node.quotas is not None and request.replica_id < 0:
            bytes_max = min(bytes_max, self._node.quotas.fetch_bytes_max(context))
        self._max_bytes = min(request.max_bytes, bytes_max)
        self._min_bytes = min(request.min_bytes, bytes_max)
        self._session: FetchSession | None = None
        self._new_session = False
        self._entries: list[CachedPartition] = []
        self._deferred: Deferred | None = None
        self._delayed: DelayedFetch | None = None
        self._timer: asyncio.Handle | None = None
        self._expired = False
        self._busy = False
        """Whether an attempt is under way that others run beside: it must find the entries as it has read them."""
        self._cold_reads = 0
        self._scheduled = False
        self._permissions: Permissions | None = None
        self._rack: str | None = None
        """Where the consumer is, if replicas nearer than the leader are to be told of."""
        self._follower: Follower | None = None
        self._reader = CONSUMER if context.api_version >= PREFERRED_REPLICA_SINCE else LEADERS_CONSUMER
        self._reader_epoch = self._reader_live_epoch = -1
        if request.replica_id >= 0:
            now_ms = int(asyncio.get_running_loop().time() * 1000)
            metrics = context.node.metrics
            throttle, traffic = self._replicas.leader_throttle, metrics.replication
            self._follower = Follower(request.replica_id, request.replica_epoch, now_ms, traffic, throttle)
            self._reader, self._reader_epoch = request.replica_id, request.replica_epoch
            self._reader_live_epoch = self._replicas.live_epoch(request.replica_id)
        elif self._replicas.rack_aware and request.rack_id:
            self._rack = request.rack_id
        if context.node.authorizer is not None:
            self._permissions = Permissions(context, is_replica=self._follower is not None)

    def is_long(self) -> bool:
        """Whether there are too many partitions for one step."""
        request = self._request
        rows = len(request.topics) + len(request.forgotten_topics)
        for topic in request.topics:
            rows += len(topic.partitions)
        for forgotten in request.forgotten_topics:
            rows += len(forgotten.partitions)
        if request.session_id:
            sessions = self._node.sessions
            session = sessions.get(request.session_id)
            if session is not None:
                generation = self._replicas.generation
                if not session.is_read_by(self._reader, self._reader_epoch, self._reader_live_epoch):
                    rows += len(session.partitions)
                elif self._permissions is None and session.generation == generation:
                    rows += len(session.changed)
                else:
                    rows += cost_of_check(session, generation, self._permissions)
        return rows > PARTITIONS_AT_ONCE

    def begin(self) -> Response | Deferred:
        """The answer, or a `Deferred` of it. Raises KafkaError for the whole request."""
        request = self._request
        if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            self._resume()
        else:
            if request.session_id:
                self._node.sessions.remove(request.session_id)
            self._new_session = request.session_epoch == INITIAL_EPOCH  # or a full fetch without one (KIP-227)
            self._take_requested()
        if len(self._entries) > PARTITIONS_AT_ONCE:  # of topics that the client may not read any more
            deferred = self._answer_later()
            self._busy = True
            self._node.spawn(self._retry_in_steps(deferred))
            return deferred
        return self._attempt()

    def _take_requested(self) -> None:
        """Look at what the request names, without a session. Of duplicates the last one counts."""
        entries: list[CachedPartition] = []
        for topic in self._request.topics:
            name = topic.name if topic.topic_id is None else topic.topic_id
            for asked in topic.partitions:
                entries.append(CachedPartition((name, field_of(asked, 0)), asked))  # noqa: PERF401
        if len(entries) > 1:
            entries = list({cached.key: cached for cached in entries}.values())
        self._entries = entries

    def _resume(self) -> None:
        """Like `_open_session` for a few partitions of a session."""
        request = self._request
        session = self._resumed()
        for topic in request.topics:
            name = topic.name if topic.topic_id is None else topic.topic_id
            session.update([((name, field_of(asked, 0)), asked) for asked in topic.partitions], ())
        for gone in request.forgotten_topics:
            name = gone.name if gone.topic_id is None else gone.topic_id
            session.update((), [(name, number) for number in gone.partitions])
        if not self._take_session(session):
            self._take_requested()
            return
        if session.generation != self._replicas.generation or self._permissions is not None:
            at_once(recheck(session, self._replicas.generation, self._permissions))
        self._choose_entries()

    def _resumed(self) -> FetchSession:
        """The session of the request. Raises KafkaError."""
        request, sessions = self._request, self._node.sessions
        by_id = self._context.api_version >= fetch.TOPIC_IDS_SINCE
        return sessions.resume(request.session_id, request.session_epoch, self._node.clock.now_ms(), by_id)

    def _take_session(self, session: FetchSession) -> bool:
        """Answer for the session; returns False for one that has no partition left."""
        sessions = self._node.sessions
        if not session.partitions:
            # As if there had been none: what is both asked for and forgotten is answered once more.
            sessions.remove(session.id)
            return False
        self._session = session
        session.set_reader(self._reader, self._reader_epoch, self._reader_live_epoch)
        if len(session.partitions) > STRANGERS_MAX and not may_cache(self._replicas, len(session.partitions)):
            sessions.remove(session.id)  # answered once more; then the client begins a new one, or gets none
        return True

    def begin_in_steps(self) -> Handling[Any]:
        """The same for a request that `is_long`."""
        yield from self._open_session()
        self._choose_entries()
        outcome = yield from self._attempt_in_steps()
        if not isinstance(outcome, Deferred):
            yield from empty_in_steps(self._entries)
        return outcome

    def _open_session(self) -> Generator[int, None, None]:
        request = self._request
        sessions = self._node.sessions
        requested = yield from requested_partitions(request)
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id:
                sessions.remove(request.session_id)
            self._new_session = request.session_epoch == INITIAL_EPOCH
            self._entries = yield from without_session(requested)
            yield from empty_in_steps(requested)
            return
        session = self._resumed()
        yield from update(session, requested, request)
        if self._take_session(session):
            yield from recheck(session, self._replicas.generation, self._permissions)
        else:
            self._entries = yield from without_session(requested)

    def _choose_entries(self) -> None:
        """Choose those partitions of a session that may have something new. A follower has fetched all others from
        their log end; those that it names, or that are looked at for another reason, were watched until here."""
        session = self._session
        if session is not None:
            if self._follower is not None and self._follower.now_ms > session.fetched_ms:
                session.fetched_ms = self._follower.now_ms
            self._entries = session.to_read()

    def _attempt(self) -> Response | Deferred:
        found = Found()
        try:
            self._read(self._entries, found)
        except ColdRead as cold:
            self._cold_reads += 1
            self._run(partial(warm_for, cold), self._retry)
            return self._answer_later()
        if self._is_enough(found):
            return self._finish(found.reads)
        self._wait(self._partitions(found), found.size)  # nothing ran in between: no append is missed
        return self._answer_later()

    def _attempt_in_steps(self) -> Handling[Any]:
        """The same for many partitions. Others append between the steps, so before it waits it looks once more."""
        while True:
            found = Found()
            partitions: list[Partition] = []
            seen: list[int] = []
            changes = 0 if self._session is None else self._session.changes
            cold: ColdRead | None = None
            try:
                for start in range(0, len(self._entries), PARTITIONS_AT_ONCE):
                    some = self._entries[start : start + PARTITIONS_AT_ONCE]
                    count = found.count
                    self._read(some, found)
                    for cached, read in zip(some, found.reads[start:], strict=False):
                        partition = cached.found
                        if read is not None and isinstance(partition, Partition):
                            partitions.append(partition)
                            seen.append(self._end_of(partition))
                    yield (found.count - count) * READ_COST + len(some) * READ_COST // 20
            except ColdRead as error:
                cold = error
            if cold is not None:
                self._cold_reads += 1
                yield self._node.fs.run(partial(warm_for, cold))
                self._choose_entries()
                continue
            if self._is_enough(found):
                return (yield from self._finish_in_steps(found.reads))
            if self._follower is not None:
                self._follower.is_retry = True
            if seen == [self._end_of(partition) for partition in partitions] and (
                self._session is None or changes == self._session.changes
            ):
                self._wait(partitions, found.size)
                return self._answer_later()
            self._choose_entries()

    def _end_of(self, partition: Partition) -> int:
        """The offset whose growth a fetch of the partition waits for."""
        log = partition.log
        return log.high_watermark if self._follower is None else log.log_end_offset

    def _partitions(self, found: Found) -> list[Partition]:
        """Partitions that were read; what is watched by the session is not."""
        pairs = zip(self._entries, found.reads, strict=True)
        return [each.found for each, read in pairs if read is not None and isinstance(each.found, Partition)]

    def _is_enough(self, found: Found) -> bool:
        return (
            found.size >= self._min_bytes  # `fetch.min.bytes`; the cases are those of `DelayedFetch.tryComplete`
            or found.urgent
            or self._expired
            or (not self._entries and self._session is None)  # an empty session waits: it may be told of a change
            or self._request.max_wait_ms <= 0
            or self._node.stopping
        )

    def _read(self, entries: list[CachedPartition], found: Found) -> None:
        """Read every partition. Raises ColdRead."""
        isolation = self._request.isolation_level
        generation = self._replicas.generation
        in_session = self._session is not None
        nowait = self._cold_reads < COLD_READS_MAX
        follower = self._follower
        leader_only = self._context.api_version < PREFERRED_REPLICA_SINCE
        permissions = self._permissions
        replicas = self._replicas
        size = found.size
        remaining = self._max_bytes - size
        reads = found.reads
        for cached in entries:
            if cached.generation != generation:
                cached.found = partition_of(replicas, cached.key)
                cached.generation = generation
            partition = cached.found
            if permissions is not None and permissions.denies(cached.key):
                partition = ErrorCode.topic_authorization_failed
            if isinstance(partition, Partition):
                asked = cached.request
                if follower is not None:
                    read = read_as_follower(
                        partition, asked, min(remaining, field_of(asked, 2)), follower, not size, nowait
                    )
                    if in_session and keeps_up(cached, partition, read, follower):
                        reads.append(None)
                        continue
                elif in_session and has_nothing_new(cached, partition, leader_only) and cached.watch(partition):
                    # KIP-227: left out of the answer
                    reads.append(None)
                    continue
                else:
                    read = read_partition(
                        partition, asked, min(remaining, field_of(asked, 2)), isolation, not size, nowait, leader_only
                    )
                    if self._rack is not None and not read.error:
                        self._prefer(partition, field_of(asked, 1), read)
            else:
                read = Read(partition)
                read.aborted = []
            found.count += 1
            if read.records is not None:
                length = read.records.length
                size += length
                remaining -= length
            elif read.error or read.diverging is not None or read.preferred >= 0:
                found.urgent = True  # errors, truncations and nearer replicas are answered at once (`DelayedFetch`)
                if read.error:
                    self._context.count_error(read.error)
            reads.append(read)
        found.size = size

    def _prefer(self, partition: Partition, offset: int, read: Read) -> None:
        """Send the consumer to a replica in its rack, if there is one that has what it asks for."""
        assert self._rack is not None
        read.preferred = self._replicas.preferred_replica(partition, self._rack, offset)
        if read.preferred >= 0:
            read.records = None  # the consumer asks there (KIP-392)

    def _wait(self, partitions: Sequence[Partition], size: int) -> None:
        follower = self._follower
        if follower is not None:
            follower.is_retry = True
        lacking = self._min_bytes - size
        if self._request.isolation_level == READ_COMMITTED and have_undecided(partitions):
            lacking = min(lacking, 1)  # a marker may be all that the bytes lack which are there
        session = None if self._session is None else self._session.waiting
        self._delayed = DelayedFetch(partitions, lacking, self._ready, at_end=follower is not None, session=session)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._request.max_wait_ms / 1000, self._expire)

    def _ready(self) -> None:
        # Not at once: appends of the same moment share one answer, and the producer's own answer goes first.
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._retry)

    def _expire(self) -> None:
        self._expired = True
        self._retry()

    def _retry(self) -> None:
        self._scheduled = False
        deferred = self._deferred
        if deferred is None or deferred.done or deferred.cancelled or self._busy:
            return
        self._leave()
        self._choose_entries()
        if len(self._entries) > PARTITIONS_AT_ONCE:
            self._busy = True
            self._node.spawn(self._retry_in_steps(deferred))
            return
        try:
            outcome = self._attempt()
        except Exception as error:
            self._end()
            deferred.complete(error)
            return
        if not isinstance(outcome, Deferred):
            self._end()
            deferred.complete(outcome)

    async def _retry_in_steps(self, deferred: Deferred) -> None:
        try:
            outcome = await run_yielding(self._attempt_in_steps())
        except Exception as error:
            outcome = error
        self._busy = False
        if outcome is not deferred:
            self._end()
            deferred.complete(outcome)
            await run_yielding(empty_in_steps(self._entries))
        elif deferred.cancelled:
            self._end()

    def _answer_later(self) -> Deferred:
        if self._deferred is None:
            self._deferred = Deferred(self._end)
        return self._deferred

    def _leave(self) -> None:
        if self._delayed is not None:
            self._delayed.leave()
            self._delayed = None

    def _end(self) -> None:
        self._leave()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _finish(self, reads: list[Read | None]) -> Response | Deferred:
        """Encode the answer, after a disk thread has read what is not in memory."""
        cold = take_cached(reads)
        if cold:
            return self._finish_after(cold, reads)
        if self._new_session or self._node.quotas is not None:
            return at_once(self._answer(reads))
        rows = self._rows(reads)
        session_id = fetch.NO_SESSION if self._session is None else self._session.id
        context = self._context
        if is_plain(rows):
            parts, size = encode_plain(context.api_version, context.correlation_id, session_id, rows)
            return EncodedResponse(parts, size)
        return at_once(answer_any(context, session_id, rows))

    def _finish_after(self, cold: list[Read], reads: list[Read | None]) -> Deferred:
        self._end()  # a second answer would update the session with what the client never gets
        self._busy = True
        deferred = self._answer_later()
        self._run(lambda: warm(cold), lambda: deferred.complete(at_once(self._answer(reads))))
        return deferred

    def _rows(self, reads: list[Read | None]) -> list[tuple[Any, Any]]:
        """What the answer includes."""
        session = self._session
        rows: list[tuple[Any, Any]] = []
        for number, read in enumerate(reads):
            cached = self._entries[number]
            if session is None or (read is not None and is_news(session, cached, read)):
                rows.append((cached.key, read))
        return rows

    def _finish_in_steps(self, reads: list[Read | None]) -> Handling[Any]:
        self._end()
        cold = []
        for start in range(0, len(reads), PARTITIONS_AT_ONCE):
            cold += take_cached(reads[start : start + PARTITIONS_AT_ONCE])
            yield PARTITIONS_AT_ONCE
        if cold:
            yield self._node.fs.run(lambda: warm(cold))
        return (yield from self._answer(reads))

    def _run(self, work: Any, then: Any) -> None:
        """Do `work` in a disk thread, `then` here. Neither for a client that is gone when its turn comes: a thousand
        that come and go would keep the disk from those that stay."""
        deferred = self._answer_later()

        async def run() -> None:
            try:
                await self._node.fs.run(lambda: None if deferred.cancelled else work())
                if not deferred.cancelled:
                    then()
            except Exception as error:
                self._end()
                deferred.complete(error)

        self._node.spawn(run())

    def _answer(self, reads: list[Read | None]) -> Generator[int, None, EncodedResponse]:
        session = self._session
        session_id = fetch.NO_SESSION if session is None else session.id
        if self._new_session:
            session_id = yield from create_session(
                self._context, self._entries, reads, privileged=self._follower is not None
            )
        rows = yield from rows_in_steps(session, self._entries, reads)
        answer = yield from answer_in_steps(self._context, session_id, rows)
        if self._node.quotas is not None and self._follower is None:
            from ottla.server.clients.quotas import limited_fetch  # most nodes have none

            pairs = zip(self._entries, reads, strict=True)
            answer = limited_fetch(self._context, answer, session, session_id, pairs)
        if len(reads) > PARTITIONS_AT_ONCE:
            yield from empty_in_steps(rows, reads)
        return answer
