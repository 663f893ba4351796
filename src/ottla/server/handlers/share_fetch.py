"""ShareFetch, versions 1-2: a member of a share group gets records that nobody else has, waiting until there are some
(KIP-932), and says what became of those before.

Which records are whose is decided by `replication/share/`; here a share-partition is read from where it goes on to
where its window could end. Version 2 brought limits on records (KIP-1206) and renewed locks (KIP-1222).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.clock import elapsed_s
from ottla.drivers.share_partitions import LedSharePartition
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID, Buffer, Offset
from ottla.protocol.messages import ApiKey
from ottla.protocol.record_batch import ABORT_KEY, BatchHeader, iterate_batches, iterate_records
from ottla.replication.purgatory import DelayedFetch
from ottla.replication.share.aborted import ReadBatch, aborted_ranges
from ottla.replication.share.acquisition import Acquired, Wanted
from ottla.replication.share.session import FINAL_EPOCH, SessionKey, SharedPartition, ShareSession
from ottla.security.acls import Operation
from ottla.server.api import RECORDS_COST_SHIFT, RequestContext, api
from ottla.server.authorization import allowed
from ottla.server.share_groups import (
    NEEDS,
    NO_LEADER_KNOWN,
    RENEW_SINCE,
    Acknowledging,
    Failures,
    by_topic,
    check_request,
    leaders,
)
from ottla.storage.log import ColdRead
from ottla.storage.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ShareFetchRequest
    from ottla.protocol.schemas.sent import ShareFetchResponse, ShareFetchResponsePartitionData

READ_BYTES: Final = 65_536
"""Bytes read first of a partition; more if that does not cover what may be acquired."""
GROWTH: Final = 4

RECORD_LIMIT: Final = 1
"""ShareAcquireMode."""


def _on_error(context: RequestContext, request: ShareFetchRequest, error: KafkaError) -> ShareFetchResponse:
    return {"error_code": error.code}


@api(ApiKey.SHARE_FETCH, versions=(1, 2), needs=NEEDS, on_error=_on_error, cost_shift=RECORDS_COST_SHIFT)
async def handle(context: RequestContext, request: ShareFetchRequest) -> ShareFetchResponse:
    key = check_request(context, request)
    manager = context.node.share.partitions
    renews = context.api_version >= RENEW_SINCE and request.is_renew_ack
    if renews and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait):
        raise KafkaError(ErrorCode.invalid_request, "a renewal must not fetch")
    acknowledges = any(row.acknowledgement_batches for topic in request.topics for row in topic.partitions)
    session = await _session(context, request, key, acknowledges)
    acknowledging = Acknowledging(context, request, key) if acknowledges else None
    found: dict[SharedPartition, Found] = {}
    if session is not None and not renews:
        found = await _ShareFetch(context, request, key, session).run()
    failures = {} if acknowledging is None else await acknowledging.result()
    rows = _rows(context, request, session, found, failures)
    if request.share_session_epoch == FINAL_EPOCH:
        manager.end_session(key)
    known, endpoints = leaders(context, ((where, row["error_code"]) for where, row in rows.items()))
    for where, leader in known.items():
        rows[where]["current_leader"] = leader
    return {
        "error_code": ErrorCode.none,
        "acquisition_lock_timeout": manager.config_of(key.group_id).record_lock_duration_ms,
        "responses": [{"topic_id": topic_id, "partitions": some} for topic_id, some in by_topic(rows).items()],
        "node_endpoints": endpoints,
    }


async def _session(
    context: RequestContext, request: ShareFetchRequest, key: SessionKey, acknowledges: bool
) -> ShareSession | None:
    """The session as it is with this request; None if that is its last. Raises KafkaError."""
    manager, connection = context.node.share.partitions, context.session
    named = (
        SharedPartition(topic.topic_id or ZERO_UUID, row.partition_index)
        for topic in request.topics
        for row in topic.partitions
    )
    forgotten = (
        SharedPartition(topic.topic_id or ZERO_UUID, number)
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    )
    try:
        session = manager.sessions.fetch(
            key, request.share_session_epoch, named, forgotten, id(connection), acknowledges=acknowledges
        )
    except KafkaError as error:
        if error.code is ErrorCode.share_session_limit_reached:  # as long as a fetch would: the client asks again
            await asyncio.sleep(max(0, request.max_wait / 1000))
        raise
    if connection is not None and session is not None:
        connection.when_lost(lambda: manager.disconnected(id(connection)))
    return session


class Found:
    """The result for a member in one partition."""

    __slots__ = ("acquired", "error", "records")

    def __init__(self, error: ErrorCode = ErrorCode.none) -> None:
        self.error = error
        self.records: Buffer = b""
        self.acquired: list[Acquired] = []


class _Reading:
    """One partition that is being read for a fetch."""

    __slots__ = ("aborted", "data", "error", "headers", "led", "offset", "up_to")

    def __init__(self, led: LedSharePartition, offset: Offset) -> None:
        self.led = led
        self.offset = offset
        """Where the share-partition goes on."""
        self.up_to: Offset = -1
        """End of the readable records."""
        self.error: KafkaError | None = None
        self.data = memoryview(b"")
        self.headers: list[tuple[int, BatchHeader]] = []
        self.aborted: Sequence[AbortedTransaction] = ()


class _ShareFetch:
    """One fetch from its first look to what it found."""

    def __init__(
        self, context: RequestContext, request: ShareFetchRequest, key: SessionKey, session: ShareSession
    ) -> None:
        self._node = context.node
        self._readable = allowed(context, Operation.READ)
        self._manager = context.node.share.partitions
        self._request = request
        self._key = key
        self._is_first = request.share_session_epoch == 0
        self._partitions = _rotated([*session], request.share_session_epoch)
        bytes_max = self._node.config.fetch_max_bytes
        self._max_bytes = min(request.max_bytes, bytes_max)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._committed_only = self._manager.setting(key.group_id, "share.isolation.level") == "read_committed"
        self._found: dict[SharedPartition, Found] = {}
        """Partitions of which it is known."""
        self._led: dict[SharedPartition, LedSharePartition] = {}
        self._woken = asyncio.Event()
        """Set when something has changed since the last check."""
        self._is_over = False
        """The time is over, as the timer said: by the loop's clock, which is rounded, it may be just not yet."""

    async def run(self) -> dict[SharedPartition, Found]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._request.max_wait / 1000
        self._is_over = self._request.max_wait <= 0
        self._find()
        if not self._led or self._max_bytes <= 0 or self._request.max_records <= 0:
            return self._found
        leds, wake = [*self._led.values()], self._woken.set
        timer = loop.call_at(deadline, self._time_is_over)
        self._node.on_stop.append(wake)
        for led in leds:
            led.waiters[wake] = None
        try:
            return await self._look()
        finally:
            timer.cancel()
            self._node.on_stop.remove(wake)
            for led in leds:
                led.waiters.pop(wake, None)

    def _time_is_over(self) -> None:
        self._is_over = True
        self._woken.set()

    async def _look(self) -> dict[SharedPartition, Found]:
        """Until there is enough, or the time is over."""
        while True:
            self._woken.clear()
            began_s = elapsed_s()
            expired = self._node.stopping or self._is_over
            readings = self._begin()
            try:
                await self._read(readings)
                size = sum(len(each.data) for each in readings)
                failed = any(each.error is not None for each in readings)
                if readings and (failed or expired or size >= self._min_bytes):
                    self._acquire(readings)
                    took_s = elapsed_s() - began_s
                    self._manager.metrics.fetched(self._key.group_id, len(readings), len(self._partitions), took_s)
                    return self._found
            finally:
                for each in readings:
                    each.led.read_is_over()
            self._note_lost()
            if expired or not self._led:
                self._manager.metrics.fetched(self._key.group_id, 0, len(self._partitions), 0.0)
                return self._found
            if all(each.up_to == self._end(each) for each in readings):
                delayed = DelayedFetch(
                    (each.led.partition for each in readings), max(1, self._min_bytes - size), self._woken.set
                )
                try:
                    await self._woken.wait()
                finally:
                    delayed.leave()

    def _find(self) -> None:
        node = self._node
        topics = set()
        for where in self._partitions:
            topic = node.image.topic_by_id(where.topic_id)
            try:
                if topic is None and not self._is_first:
                    raise KafkaError(ErrorCode.unknown_topic_id)
                if topic is not None and topic.name not in self._readable:
                    raise KafkaError(ErrorCode.topic_authorization_failed)
                if topic is None or where.partition not in topic.partitions:
                    raise KafkaError(ErrorCode.unknown_topic_or_partition)
                partition = node.replicas.find_by_id(where.topic_id, where.partition)
                if not partition.is_leader:
                    raise KafkaError(ErrorCode.not_leader_or_follower)
                partition.traffic.fetches += 1
                topics.add(partition.traffic)
                self._led[where] = self._manager.get_or_load(self._key.group_id, partition)
            except KafkaError as error:
                self._found[where] = Found(error.code)
        for traffic in topics:
            traffic.share_fetches += 1

    def _note_lost(self) -> None:
        """Share-partitions that could not be loaded, or that are not this node's any more."""
        for where, led in [*self._led.items()]:
            if led.error is not None:
                led.partition.traffic.failed_share_fetches += 1
                self._found[where] = Found(led.error)
                del self._led[where]

    def _begin(self) -> list[_Reading]:
        """Begin reads of the partitions that may have records for this member, each reserved for this fetch until its
        read is over."""
        readings = []
        for led in self._led.values():
            led.is_wanted |= led.is_read
            if led.core is None or led.is_read:
                continue
            led.core.use(self._manager.config_of(self._key.group_id))
            if led.core.can_acquire():
                led.read_begins()
                readings.append(_Reading(led, led.core.next_fetch_offset()))
        return readings

    # Reading

    async def _read(self, readings: list[_Reading]) -> None:
        left = self._max_bytes
        each_max = max(1, self._max_bytes // max(1, len(readings)))
        for position, reading in enumerate(readings, start=1):
            try:
                await self._read_one(reading, min(left, each_max), min_one_batch=left == self._max_bytes)
            except KafkaError as error:
                reading.error = error
            left -= len(reading.data)
            if self._has_all(reading):
                for other in readings[position:]:
                    other.led.read_is_over()
                del readings[position:]
                return

    async def _read_one(self, reading: _Reading, max_bytes: int, *, min_one_batch: bool) -> None:
        led, fs = reading.led, self._node.fs
        log = led.partition.log
        led.partition.check_leader()
        up_to = reading.up_to = self._end(reading)
        part = None
        while max_bytes > 0:
            try:
                part = log.read(reading.offset, max_bytes, up_to=up_to, min_one_batch=min_one_batch, nowait=True)
                break
            except ColdRead as cold:
                await fs.run(cold.warm)
        if part is None or led.core is None:
            return
        # Whatever is acquired lies before: in the window, or behind it no more than is wanted.
        until = max(reading.offset, led.core.window.end_offset + 1) + self._request.max_records
        size = 0
        while size < part.length and (not reading.headers or reading.headers[-1][1].last_offset < until):
            size = min(part.length, _next_size(reading, size, until))
            data = part.file.pread_nowait(size, part.position)
            if data is None:
                data = await fs.run(partial(part.file.pread, size, part.position))
            reading.headers = [*iterate_batches(data)]
        while len(reading.headers) > 1 and reading.headers[-2][1].last_offset >= until:
            reading.headers.pop()
        if reading.headers:
            position, last = reading.headers[-1]
            reading.data = memoryview(data)[: position + last.size]
            if self._committed_only:
                reading.aborted = log.aborted_transactions(reading.offset, up_to, part)

    def _has_all(self, reading: _Reading) -> bool:
        """Whether one partition has all records that are wanted, none of which anybody else has."""
        core, wanted = reading.led.core, self._request.max_records
        if core is None or not reading.headers or len(reading.data) < self._min_bytes or self._committed_only:
            return False
        window, found = core.window, reading.headers[-1][1].last_offset + 1 - reading.offset
        is_new = reading.offset > window.end_offset or not window.batches
        return is_new and found >= wanted and window.count + wanted <= core.config.partition_max_record_locks

    def _end(self, reading: _Reading) -> Offset:
        log = reading.led.partition.log
        return log.last_stable_offset if self._committed_only else log.high_watermark

    # Acquiring

    def _acquire(self, readings: list[_Reading]) -> None:
        """Give the member what was read, as far as others have not got it."""
        left = self._request.max_records
        for reading in readings:
            led = reading.led
            where = SharedPartition(led.key.topic_id, led.key.partition)
            self._found[where] = found = Found()
            if led.core is None:
                continue
            if reading.error is not None:
                led.partition.traffic.failed_fetches += 1
                led.partition.traffic.failed_share_fetches += 1
                if reading.error.code is ErrorCode.offset_out_of_range:  # the log begins later now
                    led.core.move_start(led.partition.log.log_start_offset)
                else:
                    found.error = ErrorCode(reading.error.code)
                continue
            batches = [_read_batch(header, reading.data, position) for position, header in reading.headers]
            transactions = [(each.producer_id, each.first_offset) for each in reading.aborted]
            aborted = aborted_ranges(batches, transactions) if transactions else ()
            mode = self._request.share_acquire_mode
            wanted = Wanted(self._key.member_id, left, max(1, self._request.batch_size), mode == RECORD_LIMIT)
            now_ms = self._manager.now_ms()
            found.acquired = led.core.acquire(wanted, reading.offset, batches, now_ms, aborted)
            self._manager.acquired(led, found.acquired)
            if found.acquired:
                left -= sum(last - first + 1 for first, last, _ in found.acquired)
                found.records = _sliced(reading, found.acquired)
                led.partition.traffic.bytes_out += len(found.records)


def _next_size(reading: _Reading, size: int, until: Offset) -> int:
    """How many bytes to read, when in `size` of them there were not all offsets up to `until`."""
    if not reading.headers:
        return max(READ_BYTES, size * GROWTH)
    position, last = reading.headers[-1]
    each = (position + last.size) / (last.last_offset + 1 - reading.headers[0][1].base_offset)
    likely = int((until - reading.headers[0][1].base_offset + 1) * each) + last.size
    return min(max(likely, size + READ_BYTES // GROWTH), size * GROWTH)


def _rotated(partitions: list[SharedPartition], epoch: int) -> list[SharedPartition]:
    """Rotate the partitions, so that another one comes first in each fetch of a session."""
    start = epoch % len(partitions) if partitions and epoch > 0 else 0
    return partitions[start:] + partitions[:start]


def _read_batch(header: BatchHeader, data: memoryview, position: int) -> ReadBatch:
    aborts = False
    if header.is_control:
        aborts = any(record.key == ABORT_KEY for record in iterate_records(data, position))
    return ReadBatch(header.base_offset, header.last_offset, header.producer_id, header.is_transactional, aborts)


def _sliced(reading: _Reading, acquired: list[Acquired]) -> memoryview:
    """The batches that have what was acquired."""
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    inside = [
        (position, header) for position, header in reading.headers
        if header.last_offset >= first and header.base_offset <= last
    ]  # fmt: skip
    if not inside:
        return memoryview(b"")
    position, header = inside[-1]
    return reading.data[inside[0][0] : position + header.size]


def _rows(
    context: RequestContext, request: ShareFetchRequest, session: ShareSession | None,
    found: dict[SharedPartition, Found], failures: Failures,
) -> dict[SharedPartition, ShareFetchResponsePartitionData]:  # fmt: skip
    """The rows of the answer: a session names, but for its first, only what is new."""
    rows: dict[SharedPartition, ShareFetchResponsePartitionData] = {}
    is_first = request.share_session_epoch == 0
    for where, each in found.items():
        assert session is not None
        has_error = bool(each.error)
        if session.must_name(where, has_records=bool(len(each.records)), has_error=has_error) or is_first:
            rows[where] = _row(where, each.error, each.records, each.acquired)
    for where, error in failures.items():
        row = rows.setdefault(where, _row(where))
        if error is not None:
            row["acknowledge_error_code"], row["acknowledge_error_message"] = error.code, error.message or None
    return rows


def _row(
    where: SharedPartition, error: ErrorCode = ErrorCode.none, records: Buffer = b"", acquired: Iterable[Acquired] = ()
) -> ShareFetchResponsePartitionData:
    return {
        "partition_index": where.partition,
        "error_code": error,
        "acknowledge_error_code": ErrorCode.none,
        "current_leader": NO_LEADER_KNOWN,
        "records": bytes(records),
        "acquired_records": [
            {"first_offset": first, "last_offset": last, "delivery_count": count} for first, last, count in acquired
        ],
    }
