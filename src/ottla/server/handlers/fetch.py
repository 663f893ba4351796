"""Fetch, versions 4-18: read partitions from given offsets, waiting until there is enough (long poll).

Sessions (KIP-227), topic ids (KIP-516), leader epochs and divergence (KIP-320, 595), hints at leaders (KIP-951).
Records stay in their files: the answer holds slices, which the connection sends with sendfile. Small slices are read
here, which beats a second system call for each. A slice that is not in the page cache is read by a disk thread first,
so that other clients do not wait for this one's disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Sequence
from typing import Any
from uuid import UUID

from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol import fetch
from ottla.protocol.fetch import EpochEndOffset, FetchedPartition, FetchedTopic, FetchRequest, FetchResponse
from ottla.protocol.messages import ApiKey
from ottla.protocol.wire import LeaderIdAndEpoch
from ottla.replication.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, CachedPartition, FetchSession
from ottla.replication.partition import Partition
from ottla.replication.purgatory import DelayedFetch
from ottla.server.api import (
    RECORDS_COST_SHIFT,
    Deferred,
    EncodedResponse,
    Handling,
    RequestContext,
    Response,
    api,
)
from ottla.server.handlers.produce import LEADER_ERRORS, endpoints_of
from ottla.server.replica_manager import READ_COMMITTED, READ_UNCOMMITTED, Read
from ottla.steps import at_once
from ottla.storage.log import ColdRead

INLINE_BYTES_MAX = 32_768
"""Slices up to this are read and sent together with their headers; above, sendfile saves more than it costs."""

WARM_STEP_BYTES = 1 << 20
"""How much a disk thread reads at once to bring a range into the page cache."""

PARTITIONS_AT_ONCE = 100
"""Partitions that are read in one step; each takes some microseconds."""

READ_COST = 8

COLD_READS_MAX = 8
"""Look-ups handed to a disk thread for one request; then memory is so short that waiting for the disk is no worse."""

Entry = tuple[Any, Any, CachedPartition | None]
"""((topic name or id, partition number), FetchPartition, the session's partition)."""


def refuse(context: RequestContext, request: FetchRequest, error: KafkaError) -> Response:
    """One error for the whole request; versions before 7 have no room for it but at every partition."""
    response = FetchResponse([], error_code=error.code)
    if context.api_version < 7:
        response.topics = [
            FetchedTopic(
                topic.name, topic.topic_id, [FetchedPartition(p.partition, error.code) for p in topic.partitions]
            )
            for topic in request.topics
        ]
    return _encode(context, response)


@api(ApiKey.FETCH, versions=(4, 18), decode=fetch.decode_in_steps, on_error=refuse, cost_shift=RECORDS_COST_SHIFT)
def handle(context: RequestContext, request: FetchRequest) -> Response | Deferred | Handling:
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise KafkaError(ErrorCode.invalid_request)
    return Fetch(context, request).begin()


class _Found:
    """What was read so far."""

    __slots__ = ("reads", "size", "urgent")

    def __init__(self) -> None:
        self.reads: list[Read] = []
        self.size = 0
        """Bytes of records."""
        self.urgent = False
        """Whether something is to be answered at once."""


class Fetch:
    """One fetch request from its first read to its answer."""

    __slots__ = ("_cold_reads", "_context", "_deferred", "_delayed", "_entries", "_expired", "_max_bytes", "_min_bytes",
                 "_new_session", "_node", "_request", "_scheduled", "_session", "_timer")  # fmt: skip

    def __init__(self, context: RequestContext, request: FetchRequest) -> None:
        self._context = context
        self._node = context.node
        self._request = request
        bytes_max = self._node.config["fetch.max.bytes"]
        self._max_bytes = min(request.max_bytes, bytes_max)
        self._min_bytes = min(request.min_bytes, bytes_max)
        self._session: FetchSession | None = None
        self._new_session = False
        self._entries: Sequence[Entry] = ()
        self._deferred: Deferred | None = None
        self._delayed: DelayedFetch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._expired = False
        self._cold_reads = 0
        self._scheduled = False

    def begin(self) -> Response | Deferred | Handling:
        """The answer, a `Deferred` of it, or steps to it. Raises KafkaError for the whole request."""
        request = self._request
        if len(request.topics) + len(request.forgotten_topics) <= PARTITIONS_AT_ONCE:
            partitions = sum([len(topic.partitions) for topic in request.topics])
            if partitions + sum([len(topic.partitions) for topic in request.forgotten_topics]) <= PARTITIONS_AT_ONCE:
                at_once(self._open_session())
                if len(self._entries) <= PARTITIONS_AT_ONCE:
                    return self._attempt()
                return self._attempt_in_steps()
        return self._begin_in_steps()

    def _begin_in_steps(self) -> Handling:
        yield from self._open_session()
        return (yield from self._attempt_in_steps())

    def _open_session(self) -> Generator[int, None, None]:
        request = self._request
        sessions = self._node.sessions
        requested = []
        for topic in request.topics:
            name = topic.name if topic.topic_id is None else topic.topic_id
            for start in range(0, len(topic.partitions), PARTITIONS_AT_ONCE):
                some = topic.partitions[start : start + PARTITIONS_AT_ONCE]
                requested += [((name, asked.partition), asked) for asked in some]
                yield 4 + len(some) // 4
        if len(requested) > 1:
            # Of duplicates the last one counts.
            requested = list((yield from _dictionary(requested)).items())
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id:
                sessions.remove(request.session_id)
            self._new_session = request.session_epoch == INITIAL_EPOCH
            self._entries = [(key, asked, None) for key, asked in requested]
            return
        session = sessions.resume(
            request.session_id,
            request.session_epoch,
            self._node.clock.now_ms(),
            uses_topic_ids=self._context.api_version >= fetch.TOPIC_IDS_SINCE,
        )
        for start in range(0, len(requested), PARTITIONS_AT_ONCE):
            session.update(requested[start : start + PARTITIONS_AT_ONCE], ())
            yield PARTITIONS_AT_ONCE
        for gone in request.forgotten_topics:
            name = gone.name if gone.topic_id is None else gone.topic_id
            for start in range(0, len(gone.partitions), PARTITIONS_AT_ONCE):
                session.update((), [(name, number) for number in gone.partitions[start : start + PARTITIONS_AT_ONCE]])
                yield 2 + PARTITIONS_AT_ONCE // 4
        if session.partitions:
            self._session = session
            self._entries = [(cached.key, cached.request, cached) for cached in session.partitions.values()]
        else:
            # As if there had been none: what is both asked for and forgotten is answered once more.
            sessions.remove(session.id)
            self._entries = [(key, asked, None) for key, asked in requested]

    # Reading and waiting.

    def _attempt(self) -> Response | Deferred:
        found = _Found()
        try:
            self._read(self._entries, found)
        except ColdRead as cold:
            self._cold_reads += 1
            self._run(cold.warm, self._retry)
            return self._answer_later()
        if self._is_enough(found):
            return self._finish(found.reads)
        self._wait([each for key, _, _ in self._entries if isinstance(each := self._find(key), Partition)], found.size)
        return self._answer_later()

    def _attempt_in_steps(self) -> Handling:
        """The same for many partitions. Others append between the steps, so before it waits it looks once more."""
        while True:
            found = _Found()
            partitions: dict[Partition, int] = {}
            try:
                for start in range(0, len(self._entries), PARTITIONS_AT_ONCE):
                    some = self._entries[start : start + PARTITIONS_AT_ONCE]
                    self._read(some, found)
                    for key, _, _ in some:
                        partition = self._find(key)
                        if isinstance(partition, Partition):
                            partitions[partition] = partition.log.high_watermark
                    yield PARTITIONS_AT_ONCE * READ_COST
            except ColdRead as cold:
                self._cold_reads += 1
                yield self._node.fs.run(cold.warm)
                continue
            if self._is_enough(found):
                return (yield from self._finish_in_steps(found.reads))
            if all(each.log.high_watermark == seen for each, seen in partitions.items()):
                self._wait(list(partitions), found.size)
                return self._answer_later()

    def _is_enough(self, found: _Found) -> bool:
        return (
            found.size >= self._min_bytes
            or found.urgent
            or self._expired
            or not self._entries
            or self._request.max_wait_ms <= 0
            or self._node.stopping
        )

    def _read(self, entries: Sequence[Entry], found: _Found) -> None:
        """What every partition gives. Raises ColdRead."""
        replicas = self._node.replicas
        isolation = self._request.isolation_level
        size = found.size
        remaining = self._max_bytes - size
        reads = found.reads
        for key, asked, _ in entries:
            partition = self._find(key)
            if isinstance(partition, Partition):
                read = replicas.read(
                    partition,
                    asked[1],
                    min(remaining, asked[2]),
                    isolation=isolation,
                    leader_epoch=asked[3],
                    last_fetched_epoch=asked[4],
                    min_one_batch=not size,
                    nowait=self._cold_reads < COLD_READS_MAX,
                )
            else:
                read = Read(partition, aborted=[])
            if read.records is not None:
                length = read.records.length
                size += length
                remaining -= length
            elif read.error or read.diverging is not None:
                found.urgent = True
                if read.error:
                    self._context.count_error(read.error)
            reads.append(read)
        found.size = size

    def _find(self, key: tuple[str | UUID, int]) -> Partition | ErrorCode:
        if self._request.replica_id >= 0:
            return ErrorCode.not_leader_or_follower
        topic, number = key
        replicas = self._node.replicas
        partitions = replicas.by_name.get(topic) if isinstance(topic, str) else replicas.by_id.get(topic)
        if partitions is None:
            return ErrorCode.unknown_topic_or_partition if isinstance(topic, str) else ErrorCode.unknown_topic_id
        found = partitions.get(number)
        if found is None and replicas.missing:
            name = topic if isinstance(topic, str) else replicas.names[topic]
            if (name, number) in replicas.missing:
                return ErrorCode.kafka_storage_error
        return found or ErrorCode.unknown_topic_or_partition

    def _wait(self, partitions: Sequence[Partition], size: int) -> None:
        self._delayed = DelayedFetch(partitions, self._min_bytes - size, self._ready)
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
        if deferred is None or deferred.done or deferred.cancelled:
            return
        self._leave()
        if len(self._entries) > PARTITIONS_AT_ONCE:
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
        if outcome is not deferred:
            self._end()
            deferred.complete(outcome)
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

    # Answering.

    def _finish(self, reads: list[Read]) -> Response | Deferred:
        """Encode the answer, after a disk thread has read what is not in memory."""
        cold = _take_cached(reads)
        if not cold:
            return at_once(self._answer(reads))
        self._end()  # a second answer would update the session with what the client never gets
        deferred = self._answer_later()
        self._run(lambda: warm(cold), lambda: deferred.complete(at_once(self._answer(reads))))
        return deferred

    def _finish_in_steps(self, reads: list[Read]) -> Handling:
        self._end()
        cold = []
        for start in range(0, len(reads), PARTITIONS_AT_ONCE):
            cold += _take_cached(reads[start : start + PARTITIONS_AT_ONCE])
            yield PARTITIONS_AT_ONCE
        if cold:
            yield self._node.fs.run(lambda: warm(cold))
        return (yield from self._answer(reads))

    def _run(self, work: Any, then: Any) -> None:
        """Do `work` in a disk thread, `then` here; a failure of the disk becomes the answer."""

        async def run() -> None:
            try:
                await self._node.fs.run(work)
                then()
            except OSError as error:
                self._end()
                self._answer_later().complete(KafkaError(ErrorCode.kafka_storage_error, str(error)))
            except Exception as error:
                self._end()
                self._answer_later().complete(error)

        self._answer_later()
        self._node.spawn(run())

    def _answer(self, reads: list[Read]) -> Generator[int, None, EncodedResponse]:
        response = FetchResponse([])
        session = self._session
        rows: Iterable[tuple[Any, Read]]
        if session is not None:
            response.session_id = session.id
            rows = yield from self._news(session, reads)
        else:
            if self._new_session:
                response.session_id = yield from self._create_session(reads)
            rows = ((entry[0], read) for entry, read in zip(self._entries, reads, strict=True))
        topic: FetchedTopic | None = None
        last: object = None
        count = 0
        for (name, number), read in rows:
            if topic is None or name != last:
                by_name = isinstance(name, str)
                topic = FetchedTopic(name if by_name else None, None if by_name else name, [])
                response.topics.append(topic)
                last = name
            topic.partitions.append(_fetched(number, read))
            count += 1
            if count == PARTITIONS_AT_ONCE:
                count = 0
                yield PARTITIONS_AT_ONCE * 4
        if self._context.api_version >= 12:
            yield from self._hint_at_leaders(response)
        version = self._context.api_version
        encoded = yield from fetch.encode_response_in_steps(version, self._context.correlation_id, response)
        return EncodedResponse(*encoded)

    def _news(self, session: FetchSession, reads: list[Read]) -> Generator[int, None, list[tuple[Any, Read]]]:
        """What an incremental answer must tell; partitions that gave data go to the end of the session's order."""
        rows = []
        count = 0
        for (key, _, cached), read in zip(self._entries, reads, strict=True):
            assert cached is not None
            has_more = read.records is not None or read.diverging is not None
            if cached.is_news(read.error, read.high_watermark, read.log_start_offset, has_more):
                rows.append((key, read))
                if read.records is not None and session.partitions.get(key) is cached:
                    session.move_to_end(key)
            count += 1
            if count == PARTITIONS_AT_ONCE:
                count = 0
                yield PARTITIONS_AT_ONCE
        return rows

    def _create_session(self, reads: list[Read]) -> Generator[int, None, int]:
        session = self._node.sessions.create(
            len(self._entries),
            self._node.clock.now_ms(),
            privileged=False,
            uses_topic_ids=self._context.api_version >= fetch.TOPIC_IDS_SINCE,
        )
        if session is None:
            return fetch.NO_SESSION
        for start in range(0, len(reads), PARTITIONS_AT_ONCE):
            some = self._entries[start : start + PARTITIONS_AT_ONCE]
            session.update([(key, asked) for key, asked, _ in some], ())
            for (key, _, _), read in zip(some, reads[start : start + PARTITIONS_AT_ONCE], strict=True):
                session.partitions[key].is_news(read.error, read.high_watermark, read.log_start_offset, False)
            yield len(some) * 4
        return session.id

    def _hint_at_leaders(self, response: FetchResponse) -> Generator[int, None, None]:
        """Name the leader where a partition answered that this node is not it (KIP-951)."""
        node_ids = set()
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code in LEADER_ERRORS:
                    image = self._node.image
                    found = image.topic(topic.name) if topic.topic_id is None else image.topic_by_id(topic.topic_id)  # type: ignore[arg-type]
                    registration = None if found is None else found.partitions.get(partition.partition_index)
                    if registration is not None:
                        partition.current_leader = LeaderIdAndEpoch(registration.leader, registration.leader_epoch)
                        node_ids.add(registration.leader)
            yield 4 + len(topic.partitions) // 8
        if node_ids:
            response.node_endpoints = endpoints_of(self._context, node_ids)


def _take_cached(reads: Sequence[Read]) -> list[Any]:
    """Count what is read, and take small slices into memory; gives those that are not in the page cache."""
    cold = []
    for read in reads:
        records = read.records
        if records is None:
            continue
        if read.traffic is not None:
            read.traffic.bytes_out += records.length
        if records.length <= INLINE_BYTES_MAX:
            data = records.read_nowait()
            if data is None:
                cold.append(records)
            else:
                read.records = data
        elif not records.file.is_cached(records.length, records.position):
            cold.append(records)
    return cold


def _dictionary(items: list[tuple[Any, Any]]) -> Generator[int, None, dict[Any, Any]]:
    found: dict[Any, Any] = {}
    for start in range(0, len(items), PARTITIONS_AT_ONCE):
        found.update(items[start : start + PARTITIONS_AT_ONCE])
        yield PARTITIONS_AT_ONCE // 4
    return found


def _fetched(number: int, read: Read) -> FetchedPartition:
    answer = FetchedPartition(number, read.error, read.high_watermark, read.last_stable_offset, read.log_start_offset)
    if read.records is not None:
        answer.records = read.records
    if read.aborted is not None:
        answer.aborted_transactions = [(each.producer_id, each.first_offset) for each in read.aborted]
    if read.diverging is not None:
        answer.diverging_epoch = EpochEndOffset(*read.diverging)
    return answer


def _encode(context: RequestContext, response: FetchResponse) -> EncodedResponse:
    parts, size = fetch.encode_response(context.api_version, context.correlation_id, response)
    return EncodedResponse(parts, size)


def warm(slices: Sequence[Any]) -> None:
    """Read slices through, so that they are in the page cache. Blocks; for a disk thread."""
    for records in slices:
        end = records.position + records.length
        for position in range(records.position, end, WARM_STEP_BYTES):
            records.file.pread(min(WARM_STEP_BYTES, end - position), position)
