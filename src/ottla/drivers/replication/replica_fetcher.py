"""Fetches the partitions that this node follows from one leader (Kafka's `ReplicaFetcherThread`).

One request at a time asks for all of them, in an incremental session; the leader holds it back until it has records.
What came is appended as it is, and with the next request the leader learns how far this node has come. Records that a
topic wants fsynced are on disk before that. Logs that diverge are cut together, in one piece of work for the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from ottla.clock import Clock
from ottla.drivers.cooperative import run_yielding
from ottla.drivers.nodes.node_client import NodeClient
from ottla.drivers.nodes.node_connection import NodeConnection
from ottla.drivers.tasks import cancelled
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.metrics.instruments import TopicTraffic
from ottla.model import Millis, NodeId, Offset, TopicPartition
from ottla.network import Address
from ottla.protocol import fetch, fetch_responses
from ottla.protocol.fetch import FetchedPartition, FetchRequest, FetchResponse
from ottla.protocol.fetch_stream import ROW_COST, FetchStream
from ottla.protocol.messages import ApiKey, MalformedRequest
from ottla.replication.follower import Followed, Next, new_start
from ottla.replication.session_request import PartitionKey, SessionRequest
from ottla.replication.throttle import Throttle

if TYPE_CHECKING:
    from ottla.drivers.ports import Logs
    from ottla.protocol.schemas import sent

_LOG = logging.getLogger("ottla.replication")

FETCH_VERSIONS = (13, 17)
"""Topic ids; every broker with KRaft has them, and says where logs diverge. 18 is of interest to the quorum only."""
LIST_OFFSETS_VERSIONS = (4, 10)
LATEST, EARLIEST = -1, -2
COMPLAINT_VERSIONS = (3, 4)
"""Version of OffsetForLeaderEpoch, from the first that says which replica asks."""

INTERRUPT_AFTER_S = 0.01
"""Partitions get a new leader by the hundred in one change of the metadata, and topics come in a row."""
INTERRUPTED_MAX = 1000
"""A request that is interrupted is followed by one that names all partitions; some tens of kilobytes."""

THROTTLED_MS = 50
"""How long a throttled partition is left out before it is looked at again: a rate changes by its bytes and by time."""

KILOBYTE_COST_SHIFT = 10
"""Checking and writing a kilobyte takes a microsecond."""

_SESSION_ERRORS = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)


class FetcherSettings(NamedTuple):
    """Settings in milliseconds and bytes, by Kafka's names."""

    node_id: NodeId
    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    """Limit of one partition."""
    response_bytes_max: int
    backoff_ms: int
    socket_timeout_ms: int


class FetcherHost(NamedTuple):
    """Parts that all fetchers of a node share."""

    logs: Logs
    clock: Clock
    settings: Callable[[], FetcherSettings]
    broker_epoch: Callable[[], int]
    traffic: TopicTraffic
    throttle: Throttle
    """Throttle of fetched bytes."""
    on_lost: Callable[[NodeId], None]
    """Called with the leader whose connection was lost."""


class ReplicaFetcher:
    """All methods belong to the event loop's thread."""

    def __init__(self, host: FetcherHost, leader_id: NodeId, address: Address, client: NodeClient) -> None:
        """`client` is this fetcher's own: its fetches wait at the leader."""
        self.leader_id = leader_id
        self.address = address
        self.partitions: dict[PartitionKey, Followed] = {}
        self._host = host
        self._client = client
        self._session = SessionRequest()
        self._ready: dict[PartitionKey, Followed] = {}
        """Partitions to ask for that the session does not know yet."""
        self._delayed: dict[PartitionKey, Followed] = {}
        """Partitions not to ask for before their time."""
        self._news = asyncio.Event()
        self._waiting: NodeConnection | None = None
        """The connection on which a request waits for its answer."""
        self._interrupting: asyncio.Handle | None = None
        self._interrupted = False
        self._task: asyncio.Task[None] | None = None
        self._unreached = False
        """Whether it was already logged that the leader does not answer."""
        self._stream: FetchStream | None = None
        self._stream_version = -1
        self._found: dict[Next, dict[PartitionKey, tuple[Followed, Offset]]] = {}
        """Further steps that an answer requires, with the offset to truncate at."""
        self._unsafe: list[Followed] = []
        """Partitions with appended records that must be on disk before the next fetch."""
        self._suspicious: list[Followed] = []
        """Partitions for which the leader sent invalid data."""

    # What is followed.

    def add(self, followed: Followed) -> None:
        key = key_of(followed)
        self.partitions[key] = self._ready[key] = followed
        self._delayed.pop(key, None)
        self._news.set()
        if self._waiting is not None and self._interrupting is None and len(self._session) <= INTERRUPTED_MAX:
            loop = asyncio.get_running_loop()
            self._interrupting = loop.call_later(INTERRUPT_AFTER_S, self._interrupt, self._waiting)

    def _interrupt(self, connection: NodeConnection) -> None:
        """A leader that is new to some partitions commits nothing before it hears of its followers, and the request
        that it holds back does not name these: ask again over another connection. There is no way to recall it."""
        self._interrupting = None
        if self._waiting is connection and self._ready:
            self._interrupted = True
            connection.fail(KafkaError(ErrorCode.network_exception, "more is to be fetched"))

    def leader_ended(self) -> None:
        """Ask again over another connection: the one there is may never tell that its other end is gone."""
        if self._client.drop(self.address, "the leader was fenced or started again"):
            self._interrupted = True

    def remove(self, key: PartitionKey) -> None:
        self.partitions.pop(key, None)
        self._ready.pop(key, None)
        self._delayed.pop(key, None)
        self._session.drop(key)

    # The loop.

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._interrupting is not None:
            self._interrupting.cancel()
        await cancelled(self._task)
        await self._client.close()

    async def _run(self) -> None:
        while True:
            try:
                self._take_due()
                if len(self._session) or self._ready:
                    await self._round()
                else:
                    await self._wait_for_work()
                self._unreached = self._interrupted = False
            except KafkaError as error:  # the client waits before it connects again
                self._session.lost()
                if self._interrupted:
                    self._interrupted = False
                elif not self._unreached:
                    self._unreached = True
                    found = fields(leader=self.leader_id, address=str(self.address), error=str(error))
                    _LOG.warning("the leader cannot be followed", extra=found)
                    self._host.on_lost(self.leader_id)
            except Exception as error:  # a bug must not end the following of all other partitions
                _LOG.error("replicas cannot be fetched", exc_info=error, extra=fields(leader=self.leader_id))
                self._session.lost()
                await asyncio.sleep(self._host.settings().backoff_ms / 1000)

    def _take_due(self) -> None:
        if self._delayed:
            now_ms = self._now_ms()
            for key in [key for key, each in self._delayed.items() if each.retry_at_ms <= now_ms]:
                self._ready[key] = self._delayed.pop(key)

    async def _wait_for_work(self) -> None:
        self._news.clear()
        next_ms = min((each.retry_at_ms for each in self._delayed.values()), default=None)
        wait_s = None if next_ms is None else max(next_ms - self._now_ms(), 1) / 1000
        try:
            async with asyncio.timeout(wait_s):
                await self._news.wait()
        except TimeoutError:
            pass

    def _now_ms(self) -> Millis:
        return int(asyncio.get_running_loop().time() * 1000)

    async def _round(self) -> None:
        """Ask once, and do what the answer says. Raises KafkaError if there is no answer."""
        settings = self._host.settings()
        self._hold_back()
        if not self._ready and not len(self._session):
            return  # nothing may be fetched just now
        unsafe = [each for each in self._ready.values() if each.log.safe_end_offset < each.log.log_end_offset]
        await self._flush(unsafe)
        connection = await self._client.connection(self.address)
        version = connection.version_of(ApiKey.FETCH, FETCH_VERSIONS)
        for key, followed in self._ready.items():
            self._session.ask(key, followed.request(settings.bytes_max))
        self._ready.clear()
        request = FetchRequest(
            self._wait_ms(settings),
            settings.bytes_min,
            settings.response_bytes_max,
            [],
            replica_id=settings.node_id,
            replica_epoch=self._host.broker_epoch(),
        )
        self._session.fill(request)
        timeout_s = (request.max_wait_ms + settings.socket_timeout_ms) / 1000
        stream = self._stream_of(version)
        self._found, self._unsafe = {}, []
        self._waiting = connection
        try:
            request_frame = fetch.encode_request(version, 0, connection.client_id, request)
            frame = await connection.send(request_frame, timeout_s, stream)
            if frame:
                stream.trim()
            response = fetch_responses.decode_response(version, frame)[1] if frame else stream.response
        except MalformedRequest as error:
            why = f"{self.address} sent an answer that cannot be read: {error}"
            refused = KafkaError(ErrorCode.network_exception, why)
            connection.fail(refused)
            raise refused from error
        finally:
            self._waiting = None
        if response.error_code:
            await self._on_refusal(ErrorCode(response.error_code), settings)
            return
        self._session.answered(response.session_id)
        if response.topics:
            await run_yielding(self._take_rows(response))
        await self._do_found()

    def _stream_of(self, version: int) -> FetchStream:
        if self._stream is None or self._stream_version != version:
            self._stream = FetchStream(version, self._take_early)
            self._stream_version = version
        return self._stream

    def _hold_back(self) -> None:
        """Leave out for a moment what is throttled and lags, while the quota is used up (KIP-73)."""
        throttle = self._host.throttle
        if not throttle.is_used_up():
            return
        retry_at_ms = self._now_ms() + THROTTLED_MS
        for key, followed in self.partitions.items():
            if key in self._delayed or followed.has_all or not throttle.covers(followed.topic_partition):
                continue
            if self._ready.pop(key, None) is not None or self._session.get(key) is not None:
                followed.retry_at_ms = retry_at_ms
                self._session.drop(key)
                self._delayed[key] = followed

    def _wait_ms(self, settings: FetcherSettings) -> Millis:
        """How long the leader may hold the answer back: not beyond the time of those that wait for theirs."""
        if not self._delayed:
            return settings.wait_ms_max
        due_ms = min(each.retry_at_ms for each in self._delayed.values()) - self._now_ms()
        return max(0, min(settings.wait_ms_max, due_ms))

    async def _on_refusal(self, code: ErrorCode, settings: FetcherSettings) -> None:
        """The leader refuses the request as a whole."""
        if code is ErrorCode.fetch_session_id_not_found:
            self._session.gone()
        else:
            self._session.lost()
        if code not in _SESSION_ERRORS:
            found = fields(leader=self.leader_id, error=code.name.upper())
            _LOG.warning("the leader refuses fetches", extra=found)
            await asyncio.sleep(settings.backoff_ms / 1000)

    # Answers.

    def _take_early(self, topic_id: UUID, answered: FetchedPartition) -> int:
        """A partition, or a piece of one, of an answer whose rest has not arrived yet."""
        self._waiting = None  # what is to be fetched besides is asked for soon
        if self._stream is None or self._stream.response.error_code:
            return 0
        return self._take(topic_id, answered)

    def _take_rows(self, response: FetchResponse) -> Generator[int, None, None]:
        for topic in response.topics:
            assert topic.topic_id is not None
            for answered in topic.partitions:
                yield ROW_COST + self._take(topic.topic_id, answered)

    def _take(self, topic_id: UUID, answered: FetchedPartition) -> int:
        """Apply an answer about one partition, or note it; returns its cost."""
        key = topic_id, answered.partition_index
        followed = self.partitions.get(key)
        if followed is None or followed.asked is None or followed.asked is not self._session.get(key):
            return 0  # not asked for any more, or in another epoch
        outcome = followed.take(answered, self._host.clock.now_ms())
        appended = outcome.appended
        if appended is not None:
            self._host.traffic.bytes_in += appended.size_bytes
            if self._host.throttle.covers(followed.topic_partition):
                self._host.throttle.record(appended.size_bytes)
            if appended.needs_flush:
                self._unsafe.append(followed)
        if outcome.error is not None:
            self._log(followed, outcome.error)
            if outcome.is_suspicious:
                self._suspicious.append(followed)
        if outcome.next is Next.FETCH:
            self._ready[key] = followed
        elif outcome.next is Next.BACK_OFF:
            self._back_off(followed)
        else:
            self._found.setdefault(outcome.next, {})[key] = followed, outcome.offset
        return fetch.records_length(answered.records) >> KILOBYTE_COST_SHIFT

    async def _do_found(self) -> None:
        found = self._found
        for followed, _ in found.get(Next.GIVE_UP, {}).values():
            if self.partitions.get(key_of(followed)) is followed:
                self._session.drop(key_of(followed))
        if Next.TRUNCATE in found:
            await self._truncate(found[Next.TRUNCATE].values())
        if Next.FIND_OFFSETS in found:
            await self._find_offsets([followed for followed, _ in found[Next.FIND_OFFSETS].values()])
        await self._flush(self._unsafe)
        if self._suspicious:
            await self._complain()

    async def _complain(self) -> None:
        """Ask where the leader's epochs end, which a follower has no other reason to: an Ottla has its log checked
        then, and gives it up where it is damaged. Kafka answers, and that is all."""
        suspicious, self._suspicious = self._suspicious, []
        topics: dict[str, list[sent.OffsetForLeaderPartition]] = {}
        for followed in suspicious:
            topic, number = followed.topic_partition
            epoch = followed.leader_epoch
            row: sent.OffsetForLeaderPartition = {
                "partition": number,
                "current_leader_epoch": epoch,
                "leader_epoch": epoch,
            }
            topics.setdefault(topic, []).append(row)
        request: sent.OffsetForLeaderEpochRequest = {
            "replica_id": self._host.settings().node_id,
            "topics": [{"topic": name, "partitions": rows} for name, rows in topics.items()],
        }
        key = ApiKey.OFFSET_FOR_LEADER_EPOCH
        with contextlib.suppress(KafkaError):  # the next error says it again
            await self._client.ask(self.address, key, request, versions=COMPLAINT_VERSIONS)

    def _back_off(self, followed: Followed) -> None:
        key = key_of(followed)
        if self.partitions.get(key) is followed:
            followed.retry_at_ms = self._now_ms() + followed.backoff_ms(self._host.settings().backoff_ms)
            self._session.drop(key)
            self._ready.pop(key, None)
            self._delayed[key] = followed

    def _fetch_on(self, followed: Followed) -> None:
        key = key_of(followed)
        if self.partitions.get(key) is followed:
            self._ready[key] = followed

    async def _flush(self, unsafe: Iterable[Followed]) -> None:
        """Wait until what the topics want on disk is there. A log whose disk fails is offline."""
        flushes = [each.log.flush_async(each.log.log_end_offset) for each in unsafe]
        if flushes:
            await asyncio.gather(*flushes, return_exceptions=True)

    async def _truncate(self, cuts: Iterable[tuple[Followed, Offset]]) -> None:
        """Cut logs where the leader's goes another way."""
        offsets = {followed.log: offset for followed, offset in cuts if followed.is_current}
        for log, offset in offsets.items():
            level = logging.WARNING if offset < log.high_watermark else logging.INFO
            found = fields(log=str(log), offset=offset, high_watermark=log.high_watermark)
            _LOG.log(level, "log truncated as the leader's", extra=found)
        failed = await self._host.logs.truncate(offsets)
        for followed, _ in cuts:
            if followed.log not in failed:
                self._fetch_on(followed)
            else:
                self._log(followed, failed[followed.log])
                self._back_off(followed)

    async def _find_offsets(self, lost: list[Followed]) -> None:
        """Find new fetch offsets for partitions whose offset the leader does not have."""
        ends = await self._ask_offsets(lost, LATEST)
        starts = await self._ask_offsets(lost, EARLIEST)
        cut: dict[Any, Offset] = {}
        over: dict[Any, Offset] = {}
        for followed in lost:
            key = followed.topic_partition
            if key not in ends or key not in starts or not followed.is_current:
                self._back_off(followed)
                continue
            log = followed.log
            start = new_start(log.log_end_offset, starts[key], ends[key])
            if start.starts_over or start.offset < log.log_end_offset:
                (over if start.starts_over else cut)[log] = start.offset
                found = fields(log=str(log), offset=start.offset, leader_start=starts[key], leader_end=ends[key])
                _LOG.warning("the log is outside its leader's range", extra=found)
            else:  # it is in there, and the leader said that it is not: by epochs that one of the two has wrong
                log.health.report(log.log_end_offset)
                self._suspicious.append(followed)
        failed = {**await self._host.logs.truncate(cut), **await self._host.logs.start_over(over)}
        for followed in lost:
            if followed.log in failed:
                self._log(followed, failed[followed.log])
                self._back_off(followed)
            elif key_of(followed) not in self._delayed:
                self._fetch_on(followed)

    async def _ask_offsets(self, lost: list[Followed], timestamp: int) -> dict[TopicPartition, Offset]:
        """The offsets that the leader knew. Raises KafkaError."""
        topics: dict[str, list[sent.ListOffsetsPartition]] = {}
        for followed in lost:
            topic, number = followed.topic_partition
            asked: sent.ListOffsetsPartition = {
                "partition_index": number,
                "current_leader_epoch": followed.leader_epoch,
                "timestamp": timestamp,
            }
            topics.setdefault(topic, []).append(asked)
        request: sent.ListOffsetsRequest = {
            "replica_id": self._host.settings().node_id,
            "isolation_level": 0,
            "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
        }
        answer = await self._client.ask(self.address, ApiKey.LIST_OFFSETS, request, versions=LIST_OFFSETS_VERSIONS)
        return {
            TopicPartition(topic.name, row.partition_index): row.offset
            for topic in answer.response.topics
            for row in topic.partitions
            if not row.error_code
        }

    def _log(self, followed: Followed, error: KafkaError) -> None:
        """The first of a row of errors; a leader that has not heard of its leadership yet is nothing to speak of."""
        if followed.failures == 3:
            found = fields(partition=followed.topic_partition, leader=self.leader_id, error=str(error))
            _LOG.warning("a partition cannot be followed", extra=found)


def key_of(followed: Followed) -> PartitionKey:
    partition = followed.partition
    return partition.topic_id, partition.topic_partition.partition
