"""Fetch, versions 4-18: read partitions from given offsets, waiting until there is enough (long poll).

Sessions (KIP-227), topic ids (KIP-516), leader epochs and divergence (KIP-320, 595), hints at leaders (KIP-951).
Records stay in their files: the answer holds slices, which the connection sends with sendfile. Small slices are read
here, which beats a second system call for each. A slice that is not in the page cache is read by a disk thread first,
so that other clients do not wait for this one's disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol import fetch
from ottla.protocol.fetch import EpochEndOffset, FetchedPartition, FetchedTopic, FetchRequest, FetchResponse
from ottla.protocol.messages import ApiKey
from ottla.protocol.wire import LeaderIdAndEpoch
from ottla.replication.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, CachedPartition, FetchSession
from ottla.replication.partition import Partition
from ottla.replication.purgatory import DelayedFetch
from ottla.server.api import Deferred, EncodedResponse, RequestContext, Response, api
from ottla.server.handlers.produce import LEADER_ERRORS, endpoints_of
from ottla.server.replica_manager import READ_COMMITTED, READ_UNCOMMITTED, Read
from ottla.storage.log import ColdRead

INLINE_BYTES_MAX = 32_768
"""Slices up to this are read and sent together with their headers; above, sendfile saves more than it costs."""

WARM_STEP_BYTES = 1 << 20
"""How much a disk thread reads at once to bring a range into the page cache."""

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


@api(ApiKey.FETCH, versions=(4, 18), decode=fetch.decode_request, on_error=refuse)
def handle(context: RequestContext, request: FetchRequest) -> Response | Deferred:
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise KafkaError(ErrorCode.invalid_request)
    return Fetch(context, request).begin()


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

    def begin(self) -> Response | Deferred:
        """The answer, or a `Deferred` of it. Raises KafkaError for the whole request."""
        self._open_session()
        return self._attempt()

    def _open_session(self) -> None:
        request = self._request
        sessions = self._node.sessions
        requested = [
            ((topic.name if topic.topic_id is None else topic.topic_id, asked.partition), asked)
            for topic in request.topics
            for asked in topic.partitions
        ]
        if len(requested) > 1:
            requested = list(dict(requested).items())  # of duplicates the last one counts
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
        forgotten = [
            (topic.name if topic.topic_id is None else topic.topic_id, number)
            for topic in request.forgotten_topics
            for number in topic.partitions
        ]
        session.update(requested, forgotten)
        if session.partitions:
            self._session = session
            self._entries = [(cached.key, cached.request, cached) for cached in session.partitions.values()]
        else:
            # As if there had been none: what is both asked for and forgotten is answered once more.
            sessions.remove(session.id)
            self._entries = [(key, asked, None) for key, asked in requested]

    # Reading and waiting.

    def _attempt(self) -> Response | Deferred:
        try:
            reads, size, urgent = self._read_all()
        except ColdRead as cold:
            self._cold_reads += 1
            self._run(cold.warm, self._retry)
            return self._answer_later()
        if (
            size >= self._min_bytes
            or urgent
            or self._expired
            or not self._entries
            or self._request.max_wait_ms <= 0
            or self._node.stopping
        ):
            return self._finish(reads)
        self._wait(self._min_bytes - size)
        return self._answer_later()

    def _read_all(self) -> tuple[list[Read], int, bool]:
        """What every partition gives, the bytes of all, and whether something is to be answered at once."""
        replicas = self._node.replicas
        isolation = self._request.isolation_level
        remaining = self._max_bytes
        size = 0
        urgent = False
        reads = []
        for key, asked, _ in self._entries:
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
                urgent = True
                if read.error:
                    self._context.count_error(read.error)
            reads.append(read)
        return reads, size, urgent

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

    def _wait(self, lacking: int) -> None:
        partitions = [found for key, _, _ in self._entries if isinstance(found := self._find(key), Partition)]
        self._delayed = DelayedFetch(partitions, lacking, self._ready)
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
        try:
            outcome = self._attempt()
        except Exception as error:
            self._end()
            deferred.complete(error)
            return
        if not isinstance(outcome, Deferred):
            self._end()
            deferred.complete(outcome)

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
        if not cold:
            return self._answer(reads)
        self._end()  # a second answer would update the session with what the client never gets
        deferred = self._answer_later()
        self._run(lambda: warm(cold), lambda: deferred.complete(self._answer(reads)))
        return deferred

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

    def _answer(self, reads: list[Read]) -> EncodedResponse:
        response = FetchResponse([])
        session = self._session
        rows: Iterable[tuple[Any, Read]]
        if session is not None:
            response.session_id = session.id
            rows = self._news(session, reads)
        else:
            if self._new_session:
                response.session_id = self._create_session(reads)
            rows = ((entry[0], read) for entry, read in zip(self._entries, reads, strict=True))
        topic: FetchedTopic | None = None
        last: object = None
        for (name, number), read in rows:
            if topic is None or name != last:
                by_name = isinstance(name, str)
                topic = FetchedTopic(name if by_name else None, None if by_name else name, [])
                response.topics.append(topic)
                last = name
            topic.partitions.append(_fetched(number, read))
        if self._context.api_version >= 12:
            self._hint_at_leaders(response)
        return _encode(self._context, response)

    def _news(self, session: FetchSession, reads: list[Read]) -> list[tuple[Any, Read]]:
        """The rows of an incremental answer; partitions that gave data go to the end of the session's order."""
        rows = []
        for (key, _, cached), read in zip(self._entries, reads, strict=True):
            assert cached is not None
            has_more = read.records is not None or read.diverging is not None
            if cached.is_news(read.error, read.high_watermark, read.log_start_offset, has_more):
                rows.append((key, read))
                if read.records is not None and session.partitions.get(key) is cached:
                    session.move_to_end(key)
        return rows

    def _create_session(self, reads: list[Read]) -> int:
        session = self._node.sessions.create(
            len(self._entries),
            self._node.clock.now_ms(),
            privileged=False,
            uses_topic_ids=self._context.api_version >= fetch.TOPIC_IDS_SINCE,
        )
        if session is None:
            return fetch.NO_SESSION
        session.update(((key, asked) for key, asked, _ in self._entries), ())
        for (key, _, _), read in zip(self._entries, reads, strict=True):
            session.partitions[key].is_news(read.error, read.high_watermark, read.log_start_offset, False)
        return session.id

    def _hint_at_leaders(self, response: FetchResponse) -> None:
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
        if node_ids:
            response.node_endpoints = endpoints_of(self._context, node_ids)


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
