"""ShareFetch, versions 1-2: a member of a share group gets records that nobody else has, waiting until there are some
(KIP-932), and says what became of those before.

Which records are whose is decided by `replication/share/`; here a share-partition is read from where it goes on to
where its window could end. What waits neither for records nor for the disk is answered without a task. Version 2
brought limits on records (KIP-1206) and renewed locks (KIP-1222).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.clock import elapsed_s
from ottla.drivers.replication.share_partitions import LedSharePartition
from ottla.errors import ErrorCode, KafkaError
from ottla.metrics.instruments import TopicTraffic
from ottla.model import ZERO_UUID, Buffer, Offset
from ottla.protocol import share_fetch
from ottla.protocol.messages import ApiKey
from ottla.replication.purgatory import DelayedFetch
from ottla.replication.share.acquisition import Acquired, Wanted
from ottla.replication.share.ranges import count_records
from ottla.replication.share.session import FINAL_EPOCH, SessionKey, SharedPartition, ShareSession
from ottla.security.acls import Operation
from ottla.server.api import RECORDS_COST_SHIFT, EncodedResponse, RequestContext, Response, api
from ottla.server.coordinators.share_groups import (
    NEEDS,
    NO_LEADER_KNOWN,
    RENEW_SINCE,
    Acknowledging,
    Failures,
    by_topic,
    check_request,
    leaders,
)
from ottla.server.fetch.share_reading import Reading, Work, in_order, read_parts, sliced
from ottla.server.security.authorization import EVERYTHING, allowed

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ShareFetchRequest
    from ottla.protocol.schemas.sent import ShareFetchResponse, ShareFetchResponsePartitionData
    from ottla.replication.share.share_partition import SharePartition

RECORD_LIMIT: Final = 1
"""ShareAcquireMode."""

FILLS_MAX: Final = 8
"""Reads of a partition behind the first, in one look."""

ROWS_AT_ONCE: Final = 100
"""Partitions of a session, or ranges of records in an answer, up to which a fetch that has to wait for nobody is
answered without a task; more are encoded in steps."""


def _on_error(context: RequestContext, request: ShareFetchRequest, error: KafkaError) -> ShareFetchResponse:
    return {"error_code": error.code}


@api(ApiKey.SHARE_FETCH, versions=(1, 2), needs=NEEDS, on_error=_on_error, cost_shift=RECORDS_COST_SHIFT)
def handle(context: RequestContext, request: ShareFetchRequest) -> Response | Awaitable[Response]:
    key = check_request(context, request)
    renews = context.api_version >= RENEW_SINCE and request.is_renew_ack
    if renews and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait):
        raise KafkaError(ErrorCode.invalid_request, "a renewal must not fetch")
    acknowledges = any(row.acknowledgement_batches for topic in request.topics for row in topic.partitions)
    try:
        session = _session(context, request, key, acknowledges)
    except KafkaError as error:
        if error.code is ErrorCode.share_session_limit_reached:
            return _refused_later(error.code, max(0, request.max_wait / 1000))
        raise
    acknowledging = Acknowledging(context, request, key) if acknowledges else None
    fetch = None if session is None or renews else _ShareFetch(context, request, key, session)
    answer = _Answer(context, request, key, session)
    if session is not None and len(session) > ROWS_AT_ONCE:
        return _later(answer, fetch, acknowledging)
    if (fetch is not None and not fetch.try_at_once()) or (acknowledging is not None and acknowledging.is_under_way):
        return _later(answer, fetch, acknowledging)
    return answer.at_once({} if fetch is None else fetch.found, {} if acknowledging is None else acknowledging.failures)


async def _later(answer: _Answer, fetch: _ShareFetch | None, acknowledging: Acknowledging | None) -> Response:
    found = {} if fetch is None else await fetch.run()
    return answer.of(found, {} if acknowledging is None else await acknowledging.result())


async def _in_steps(response: Response) -> Response:
    return response


async def _refused_later(code: ErrorCode, seconds: float) -> Response:
    """When a fetch would have waited for long enough: the client asks again."""
    await asyncio.sleep(seconds)
    raise KafkaError(code)


def _session(
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
    session = manager.sessions.fetch(
        key, request.share_session_epoch, named, forgotten, id(connection), acknowledges=acknowledges
    )
    if connection is not None and session is not None:
        connection.when_lost(partial(manager.disconnected, id(connection)))
    return session


class Found:
    """The result for a member in one partition."""

    __slots__ = ("acquired", "error", "records")

    def __init__(self, error: ErrorCode = ErrorCode.none) -> None:
        self.error = error
        self.records: Buffer = b""
        self.acquired: list[Acquired] = []


class _ShareFetch:
    """One fetch from its first look to what it found."""

    __slots__ = (
        "_committed_only", "_count", "_ends", "_is_done", "_is_first", "_is_over", "_key", "_led", "_looks_again",
        "_manager", "_max_bytes", "_may_suspend", "_min_bytes", "_node", "_readable", "_request", "_session",
        "_threads", "_woken", "found",
    )  # fmt: skip

    def __init__(
        self, context: RequestContext, request: ShareFetchRequest, key: SessionKey, session: ShareSession
    ) -> None:
        self._node = context.node
        self._readable = allowed(context, Operation.READ)
        self._manager = context.node.share.partitions
        self._request = request
        self._key = key
        self._session = session
        self._is_first = request.share_session_epoch == 0
        bytes_max = self._node.config.fetch_max_bytes
        self._max_bytes = min(request.max_bytes, bytes_max)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._committed_only = self._manager.reads_committed(key.group_id)
        self.found: dict[SharedPartition, Found] = {}
        """Partitions of which it is known."""
        self._count = 0
        """Records in them."""
        self._led: list[LedSharePartition] = []
        self._ends: list[Reading] = []
        """What the last look has read, where that was not enough."""
        self._woken: asyncio.Event | None = None
        """Set when something has changed since the last look."""
        self._is_done = False
        self._looks_again = False
        """The last look has found only records that have to wait; there may be others behind them."""
        self._may_suspend = False
        """Whether a look may go on in a thread once it has acquired records. One that is answered at once may not."""
        self._threads = 0
        """How often a look has waited for a thread."""
        self._is_over = request.max_wait <= 0
        """The time is over, as the timer said: by the loop's clock, which is rounded, it may be just not yet."""
        self._find()

    @property
    def _has_nothing_to_do(self) -> bool:
        return not self._led or self._max_bytes <= 0 or self._request.max_records <= 0

    def try_at_once(self) -> bool:
        """Acquire what is there, if it is enough and nothing has to come from a disk first; returns whether it was."""
        if self._has_nothing_to_do:
            self._is_done = True
        else:
            look = self._look()
            try:
                next(look)
            except StopIteration as end:
                self._is_done = bool(end.value)
            else:
                look.close()
            self._may_suspend = True
        return self._is_done

    async def run(self) -> dict[SharedPartition, Found]:
        """Wait until there is enough, or the time is over."""
        if self._is_done or self._has_nothing_to_do:
            return self.found
        loop = asyncio.get_running_loop()
        woken = self._woken = asyncio.Event()
        leds, wake = [*self._led], woken.set
        timer = loop.call_later(max(0, self._request.max_wait / 1000), self._time_is_over)
        self._node.on_stop.append(wake)
        for led in leds:
            led.waiters[wake] = None
        try:
            while not await self._looked():
                readings = self._ends
                if self._looks_again:
                    await asyncio.sleep(0)
                    continue
                if all(each.up_to == self._end(each) for each in readings):
                    least = max(1, self._min_bytes - sum(len(each.data) for each in readings))
                    delayed = DelayedFetch((each.led.partition for each in readings), least, wake)
                    try:
                        await woken.wait()
                    finally:
                        delayed.leave()
                woken.clear()
            return self.found
        finally:
            timer.cancel()
            self._node.on_stop.remove(wake)
            for led in leds:
                led.waiters.pop(wake, None)

    def _time_is_over(self) -> None:
        self._is_over = True
        assert self._woken is not None
        self._woken.set()

    async def _looked(self) -> bool:
        look = self._look()
        try:
            work = next(look)
            while True:
                self._threads += 1
                try:
                    result = await self._node.fs.run(work)
                except Exception as error:
                    work = look.throw(error)
                else:
                    work = look.send(result)
        except StopIteration as end:
            return bool(end.value)
        finally:
            look.close()

    def _look(self) -> Generator[Work, object, bool]:
        """Whether there is enough, or the time is over. Yields what is to be done in a thread, and is sent its
        result."""
        began_s = elapsed_s()
        expired = self._node.stopping or self._is_over
        self._looks_again = False
        readings = self._ends = self._begin()
        try:
            yield from self._read(readings)
            size = sum(len(each.data) for each in readings)
            failed = any(each.error is not None for each in readings)
            if readings and (failed or expired or size >= self._min_bytes):
                self._acquire(readings)
                threads = self._threads
                yield from self._fill(readings)
                if self._threads != threads:
                    self._drop_lost(readings)
                if not (failed or expired) and self._all_wait(readings):
                    return False
                took_s = elapsed_s() - began_s
                self._manager.metrics.fetched(self._key.group_id, len(readings), len(self._session), took_s)
                return True
        finally:
            for each in readings:
                each.led.read_is_over()
        self._note_lost()
        if expired or not self._led:
            self._manager.metrics.fetched(self._key.group_id, 0, len(self._session), 0.0)
            return True
        return False

    def _all_wait(self, readings: list[Reading]) -> bool:
        """Whether the records that were read have to wait, all of them, so that the fetch waits too."""
        if any(self.found[each.led.where].acquired for each in readings):
            return False
        selections = [(each, core.selection) for each in readings if (core := each.led.core) is not None]
        if any(selection is None for _, selection in selections):
            return False
        self._looks_again = any(
            selection is not None and selection.next_fetch_offset() != each.offset for each, selection in selections
        )
        for each in readings:
            del self.found[each.led.where]
        return True

    def _find(self) -> None:
        """The share-partitions of the session, as this node leads them."""
        node, session, image = self._node, self._session, self._node.image
        if session.found_in != image.offset or self._readable is not EVERYTHING:
            session.found, session.found_in = {}, image.offset
        topics: dict[TopicTraffic, None] = {}
        for where in _rotated([*session], self._request.share_session_epoch):
            led: LedSharePartition | None = session.found.get(where)
            if led is not None and led.error is None and led.partition.is_leader:
                led.partition.traffic.fetches += 1
                topics[led.partition.traffic] = None
                self._led.append(led)
                continue
            topic = image.topic_by_id(where.topic_id)
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
                topics[partition.traffic] = None
                led = session.found[where] = self._manager.get_or_load(self._key.group_id, where, partition)
                self._led.append(led)
            except KafkaError as error:
                self.found[where] = Found(error.code)
        for traffic in topics:
            traffic.share_fetches += 1

    def _note_lost(self) -> None:
        """Share-partitions that could not be loaded, or that are not this node's any more."""
        for led in [*self._led]:
            if led.error is not None:
                led.partition.traffic.failed_share_fetches += 1
                self.found[led.where] = Found(led.error)
                self._led.remove(led)

    def _begin(self) -> list[Reading]:
        """Begin reads of the partitions that may have records for this member, each reserved for this fetch until its
        read is over."""
        readings = []
        config = self._manager.config_of(self._key.group_id)
        for led in self._led:
            led.is_wanted |= led.is_read
            if led.core is None or led.is_read:
                continue
            self._manager.use(led.core, config)
            log_start_offset = led.partition.log.log_start_offset
            if led.core.selection is not None and log_start_offset > led.core.window.start_offset:
                # What waits is not read, so that no read would say that retention has deleted it.
                led.core.move_start(log_start_offset, self._manager.now_ms())
            if led.core.can_acquire():
                led.read_begins()
                readings.append(Reading(led, led.core.parts(self._request.max_records)))
        return readings

    # Reading

    def _read(self, readings: list[Reading]) -> Generator[Work, object, None]:
        left = self._max_bytes
        each_max = max(1, self._max_bytes // max(1, len(readings)))
        for position, reading in enumerate(readings, start=1):
            try:
                yield from self._read_one(reading, min(left, each_max), min_one_batch=left == self._max_bytes)
            except KafkaError as error:
                reading.error = error
            left -= len(reading.data)
            if self._has_all(reading):
                for other in readings[position:]:
                    other.led.read_is_over()
                del readings[position:]
                return

    def _read_one(self, reading: Reading, max_bytes: int, *, min_one_batch: bool) -> Generator[Work, object, None]:
        reading.led.partition.check_leader()
        reading.up_to = self._end(reading)
        yield from read_parts(reading, reading.parts, max_bytes, self._committed_only, min_one_batch)

    def _has_all(self, reading: Reading) -> bool:
        """Whether one partition has all records that are wanted, none of which anybody else has."""
        core, wanted = reading.led.core, self._request.max_records
        if core is None or not reading.batches or len(reading.data) < self._min_bytes or self._committed_only:
            return False
        window, found = core.window, sum([last - first + 1 for first, last in reading.read])
        if core.selection is not None:
            return found >= wanted
        is_new = reading.offset > window.end_offset or not window.batches
        return is_new and found >= wanted and window.count + wanted <= core.config.partition_max_record_locks

    def _end(self, reading: Reading) -> Offset:
        log = reading.led.partition.log
        return log.last_stable_offset if self._committed_only else log.high_watermark

    # Acquiring

    def _acquire(self, readings: list[Reading]) -> None:
        """Give the member what was read, as far as others have not got it."""
        for reading in readings:
            led = reading.led
            self.found[led.where] = found = Found()
            if led.core is None:
                continue
            if reading.error is not None:
                led.partition.traffic.failed_fetches += 1
                led.partition.traffic.failed_share_fetches += 1
                if reading.error.code is ErrorCode.offset_out_of_range:  # the log begins later now
                    led.core.move_start(led.partition.log.log_start_offset, self._manager.now_ms())
                else:
                    found.error = ErrorCode(reading.error.code)
                continue
            self._acquire_one(reading, led.core)

    def _acquire_one(self, reading: Reading, core: SharePartition) -> bool:
        """Whether the member has acquired anything."""
        left, led = self._request.max_records - self._count, reading.led
        mode = getattr(self._request, "share_acquire_mode", 0)
        wanted = Wanted(self._key.member_id, left, max(1, self._request.batch_size), mode == RECORD_LIMIT)
        acquired = core.acquire(
            wanted,
            reading.offset,
            reading.batches,
            self._manager.now_ms(),
            reading.aborted,
            reading.marks,
            reading.read,
        )
        self._manager.acquired(led, acquired)
        if acquired:
            self._count += count_records(acquired)
            self._take(reading, in_order(self.found[led.where].acquired, acquired))
        return bool(acquired)

    def _take(self, reading: Reading, acquired: list[Acquired]) -> None:
        """Set what the member gets of a partition."""
        found, traffic = self.found[reading.led.where], reading.led.partition.traffic
        found.acquired = acquired
        traffic.bytes_out -= len(found.records)
        found.records = sliced(reading, acquired) if acquired else b""
        traffic.bytes_out += len(found.records)

    def _drop_lost(self, readings: list[Reading]) -> None:
        """While a disk was slow locks may have ended: the records are another member's, or were acquired again here.
        Leave out what the member does not have any more."""
        for reading in readings:
            core, found = reading.led.core, self.found[reading.led.where]
            if core is not None and found.acquired:
                held = core.still_held(self._key.member_id, found.acquired)
                if held != found.acquired:
                    self._take(reading, held)

    def _fill(self, readings: list[Reading]) -> Generator[Work, object, None]:
        """Read further where records that were read have to wait, or lie in more places than are read at once, until
        the member has what it wants."""
        for reading in readings:
            core, rounds = reading.led.core, 0
            if core is None or core.selection is None or reading.error is not None:
                continue
            while rounds < FILLS_MAX and core.selection is not None and core.selection.goes_on:
                left = self._request.max_records - self._count
                if left <= 0 or (bytes_left := self._max_bytes - sum(len(each.data) for each in readings)) <= 0:
                    return
                if not core.can_acquire():
                    break
                before, scanned = len(reading.batches), core.selection.scan_from
                more = read_parts(
                    reading, core.parts(left), bytes_left + len(reading.data), self._committed_only, False
                )
                try:
                    if self._may_suspend:
                        yield from more
                    elif next(more, None) is not None:
                        return
                except KafkaError:
                    break  # the next fetch begins there, and says so
                if reading.led.core is not core or core.selection is None:
                    return
                is_acquired = self._acquire_one(reading, core)
                if not is_acquired and (len(reading.batches) == before or core.selection.scan_from == scanned):
                    break
                rounds += 1


def _rotated(partitions: list[SharedPartition], epoch: int) -> list[SharedPartition]:
    """Rotate the partitions, so that another one comes first in each fetch of a session."""
    start = epoch % len(partitions) if partitions and epoch > 0 else 0
    return partitions[start:] + partitions[:start]


class _Answer:
    """The answer to a fetch."""

    __slots__ = ("_context", "_is_plain", "_key", "_ranges", "_request", "_session")

    def __init__(
        self, context: RequestContext, request: ShareFetchRequest, key: SessionKey, session: ShareSession | None
    ) -> None:
        self._context = context
        self._request = request
        self._key = key
        self._session = session
        self._is_plain = True
        """Nothing is wrong."""
        self._ranges = 0
        """Rows of acquired records."""

    def at_once(self, found: dict[SharedPartition, Found], failures: Failures) -> Response | Awaitable[Response]:
        rows = self._rows(found, failures)
        if self._ranges > ROWS_AT_ONCE:
            return _in_steps(self._values(rows, failures))
        if not self._is_plain:
            return self._values(rows, failures)
        self._end()
        topics: dict[UUID, list[share_fetch.Row]] = {}
        for where, each in rows.items():
            topics.setdefault(where.topic_id, []).append((where.partition, each.records, each.acquired))
        lock_ms = self._context.node.share.partitions.config_of(self._key.group_id).record_lock_duration_ms
        return EncodedResponse(*share_fetch.encode_response(self._context.correlation_id, lock_ms, topics))

    def of(self, found: dict[SharedPartition, Found], failures: Failures) -> ShareFetchResponse:
        return self._values(self._rows(found, failures), failures)

    def _end(self) -> None:
        """The session ends with its last fetch."""
        if self._request.share_session_epoch == FINAL_EPOCH:
            self._context.node.share.partitions.end_session(self._key)

    def _values(self, rows: dict[SharedPartition, Found], failures: Failures) -> ShareFetchResponse:
        context = self._context
        self._end()
        known, endpoints = leaders(context, ((where, each.error) for where, each in rows.items()))
        values = {where: _row(where, each, failures.get(where)) for where, each in rows.items()}
        for where, leader in known.items():
            values[where]["current_leader"] = leader
        return {
            "error_code": ErrorCode.none,
            "acquisition_lock_timeout": context.node.share.partitions.config_of(
                self._key.group_id
            ).record_lock_duration_ms,
            "responses": [{"topic_id": topic_id, "partitions": some} for topic_id, some in by_topic(values).items()],
            "node_endpoints": endpoints,
        }

    def _rows(self, found: dict[SharedPartition, Found], failures: Failures) -> dict[SharedPartition, Found]:
        """A session names, but for its first answer, only what is new."""
        session, rows = self._session, {}
        is_first = self._request.share_session_epoch == 0
        for where, each in found.items():
            assert session is not None
            has_error = bool(each.error)
            if session.must_name(where, has_records=bool(len(each.records)), has_error=has_error) or is_first:
                rows[where] = each
                self._ranges += len(each.acquired)
                self._is_plain &= not has_error
        for where, error in failures.items():
            if where not in rows:
                rows[where] = Found()
            self._is_plain &= error is None
        return rows


def _row(where: SharedPartition, found: Found, failure: KafkaError | None) -> ShareFetchResponsePartitionData:
    return {
        "partition_index": where.partition,
        "error_code": found.error,
        "acknowledge_error_code": ErrorCode.none if failure is None else failure.code,
        "acknowledge_error_message": None if failure is None else failure.message or None,
        "current_leader": NO_LEADER_KNOWN,
        "records": found.records,
        "acquired_records": [
            {"first_offset": first, "last_offset": last, "delivery_count": count}
            for first, last, count in found.acquired
        ],
    }
