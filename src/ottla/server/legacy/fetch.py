"""Fetch, versions 0-3: record batches as messages of format 0 (versions 0 and 1) or 1 (2 and 3).

Waiting, permissions and errors are those of any fetch (`server/fetch/fetching.py`), as one of version 4 without a
session. What it finds is read again here, a part at a time, and converted in a thread. Old clients are
read_uncommitted: they get the records of all transactions, committed, aborted or open, below the high watermark.

A client that asks for an offset from which on there is nothing for it (control batches, records that compaction has
removed) gets what follows, and waits if nothing does: Kafka 3.9 answered it without anything that it could step over.
A partition's answer has at most the bytes that the client asks for, but one message at least. All partitions together
have `CONVERTED_BYTES_MAX`; those that are left out come first another time, as the order rotates. A batch compressed by
zstd is UNSUPPORTED_COMPRESSION_TYPE, once the records before it were fetched.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Generator, Iterator
from typing import Any, Final

from ottla.drivers.cooperative import run_yielding
from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_LEADER_EPOCH, Buffer, Offset
from ottla.protocol import messages
from ottla.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages import ApiKey, response_header
from ottla.protocol.records.old_formats import Down, down_convert
from ottla.protocol.wire import INT32, write_string
from ottla.replication.fetch_session import CachedPartition
from ottla.replication.partition import Partition
from ottla.server.api import Deferred, EncodedResponse, Handling, RequestContext, Response
from ottla.server.fetch.fetching import Fetch
from ottla.server.fetch.partition_read import Read
from ottla.server.legacy.translation import Legacy
from ottla.storage.log.log import ColdRead

HANDLED_AS: Final = 4
FORMAT_1_SINCE: Final = 2
THROTTLE_SINCE: Final = 1

CONVERTED_BYTES_MAX: Final = 4 << 20
"""Bytes of messages in an answer, a partition's first message not counted: what one client takes of a node's memory."""

READ_BYTES: Final = 1 << 20
"""Bytes of batches that are read and converted at once; a larger batch is read whole."""

_PARTITION = struct.Struct(">ihqi")


class PartitionData:
    """What an answer says of a partition."""

    __slots__ = ("data", "error", "high_watermark", "key", "next_offset", "partition")

    def __init__(self, key: tuple[str, int], partition: Partition | None, offset: Offset, error: ErrorCode) -> None:
        self.key = key
        self.partition = partition
        self.error = error
        self.high_watermark = -1
        self.data: Buffer = b""
        self.next_offset = offset
        """From where on there may be something for the client."""


class _Look(Fetch):
    """A fetch that gives what it has found, instead of an answer."""

    def _finish(self, reads: list[Read | None]) -> Any:
        return self._found(reads)

    def _finish_in_steps(self, reads: list[Read | None]) -> Handling[Any]:
        yield 0
        self._end()
        return self._found(reads)

    def _found(self, reads: list[Read | None]) -> list[tuple[CachedPartition, Read | None]]:
        return list(zip(self._entries, reads, strict=True))


def decode(version: int, frame: Buffer, offset: int) -> Generator[int, None, FetchRequest]:
    old = yield from messages.decode_request_in_steps(ApiKey.FETCH, version, memoryview(frame), offset)
    request = FetchRequest(old.max_wait, old.min_bytes, old.max_bytes, [], replica_id=old.replica_id)
    for topic in old.topics:
        partitions = []
        for each in topic.partitions:
            partitions.append(FetchPartition(each.partition, each.fetch_offset, each.partition_max_bytes))
            yield 1
        request.topics.append(FetchTopic(topic.topic, None, partitions))
        yield 1
    return request


def handle(context: RequestContext, request: FetchRequest) -> Deferred:
    if request.replica_id >= 0:  # a broker of an old release, which cannot follow this one
        raise KafkaError(ErrorCode.unsupported_version)
    one = _LegacyFetch(context, request)
    context.node.spawn(one.run())
    return one.deferred


class _LegacyFetch:
    """One fetch from its first look to its answer."""

    def __init__(self, context: RequestContext, request: FetchRequest) -> None:
        self._context = context
        self._node = context.node
        self._request = request
        self._version = context.api_version
        self._magic = 1 if self._version >= FORMAT_1_SINCE else 0
        self._asked = {
            (topic.name or "", each.partition): each for topic in request.topics for each in topic.partitions
        }
        self._looking: Deferred | None = None
        self._wake: asyncio.Future[Any] | None = None
        self.deferred = Deferred(self._cancel)

    async def run(self) -> None:
        result: Response | BaseException
        try:
            result = await self._answer()
        except Exception as error:
            result = error
        self._context.api_version = self._version
        self.deferred.complete(result)

    def _cancel(self) -> None:
        """The client is gone."""
        if self._looking is not None:
            self._looking.cancel()
        if self._wake is not None and not self._wake.done():
            self._wake.set_result([])

    async def _answer(self) -> Response:
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + max(self._request.max_wait_ms, 0) / 1000
        asked = self._asked
        while True:
            rows = [self._row(cached, read) for cached, read in await self._look(asked, ends_s - loop.time())]
            room = min(self._request.max_bytes, CONVERTED_BYTES_MAX)
            for row in _rotated(rows, self._context.correlation_id):
                if self.deferred.cancelled:
                    return None
                if row.partition is not None:
                    size = min(asked[row.key].partition_max_bytes, room)
                    await self._fill(row, row.partition, size, is_first=room > 0)
                    room -= len(row.data)
            is_over = loop.time() >= ends_s or self._node.stopping or not rows
            if is_over or any(row.data or row.error for row in rows):
                return self._encode(rows)
            further = {
                row.key: asked[row.key]._replace(fetch_offset=row.next_offset) for row in rows
            }  # there was something, and nothing for this client
            if further == asked:
                return self._encode(rows)
            asked = further

    async def _look(
        self, asked: dict[tuple[str, int], FetchPartition], wait_s: float
    ) -> list[tuple[CachedPartition, Read | None]]:
        topics: dict[str, FetchTopic] = {}
        for (name, _), each in asked.items():
            topics.setdefault(name, FetchTopic(name, None, [])).partitions.append(each)
        request = self._request
        wait_ms = max(int(wait_s * 1000), 0)
        look = FetchRequest(wait_ms, request.min_bytes, request.max_bytes, list(topics.values()))
        self._context.api_version = HANDLED_AS
        one = _Look(self._context, look)
        outcome: Any = await run_yielding(one.begin_in_steps()) if one.is_long() else one.begin()
        if isinstance(outcome, Deferred):
            self._looking = outcome
            self._wake = asyncio.get_running_loop().create_future()
            wake = self._wake

            def completed(result: Any) -> None:
                if not wake.done():
                    if isinstance(result, BaseException):
                        wake.set_exception(result)
                    else:
                        wake.set_result(result)

            outcome.on_complete = completed
            if self.deferred.cancelled:
                self._cancel()
            outcome = await wake
            self._looking = None
        found: list[tuple[CachedPartition, Read | None]] = outcome
        return found

    def _row(self, cached: CachedPartition, read: Read | None) -> PartitionData:
        assert read is not None  # there is no session
        key: Any = cached.key
        partition = None if read.error else cached.found
        row = PartitionData(key, partition, cached.request.fetch_offset, read.error)
        row.high_watermark = read.high_watermark
        return row

    async def _fill(self, row: PartitionData, partition: Partition, max_bytes: int, *, is_first: bool) -> None:
        """Read from where the client is until there is something for it. Errors are in `row`."""
        if max_bytes <= 0 and not is_first:
            return
        try:
            while not row.data:
                part = await self._read(partition, row.next_offset, min(max_bytes, READ_BYTES))
                if part is None:
                    return
                down: Down = await self._node.long_work(
                    lambda data=part, offset=row.next_offset: down_convert(data, self._magic, offset, max_bytes)  # type: ignore[misc]
                )
                row.data = down.data
                row.high_watermark = partition.log.high_watermark
                if down.refused and not down.data:
                    raise KafkaError(ErrorCode.unsupported_compression_type)
                if down.next_offset <= row.next_offset and not down.data:
                    return
                row.next_offset = down.next_offset
        except KafkaError as error:
            row.error, row.data = error.code, b""
            self._context.count_error(error.code)
        else:
            partition.traffic.bytes_out += len(row.data)

    async def _read(self, partition: Partition, offset: Offset, max_bytes: int) -> Buffer | None:
        """Whole batches; None where there is nothing to read. Raises KafkaError."""
        while True:
            partition.check_leader(NO_LEADER_EPOCH)
            try:
                part = partition.log.read(offset, max_bytes, partition.log.high_watermark, True, True)
                break
            except ColdRead as cold:
                warm = cold.warm
            await self._on_disk(warm)
        if part is None:
            return None
        try:
            data: Buffer = await self._on_disk(part.read)
        except KafkaError:
            partition.log.health.report(offset)
            raise
        return data

    async def _on_disk(self, work: Any) -> Any:
        try:
            return await self._node.fs.run(work)
        except OSError as error:
            raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error

    def _encode(self, rows: list[PartitionData]) -> EncodedResponse:
        session = self._context.session
        throttle_ms = 0
        if self._node.quotas is not None and session is not None and session.quotas is not None:
            throttle_ms = session.quotas.fetched(self._context, sum(len(row.data) for row in rows))
            if throttle_ms > 0:
                rows = []
        return EncodedResponse(list(encoded(self._version, self._context.correlation_id, throttle_ms, rows)))


def _rotated(rows: list[PartitionData], by: int) -> list[PartitionData]:
    start = by % len(rows) if rows else 0
    return rows[start:] + rows[:start]


def encoded(version: int, correlation_id: int, throttle_ms: int, rows: list[PartitionData]) -> Iterator[Buffer]:
    """The parts of a response, without its length prefix."""
    topics: dict[str, list[PartitionData]] = {}
    for row in rows:
        topics.setdefault(row.key[0], []).append(row)
    out = bytearray(response_header(ApiKey.FETCH, version, correlation_id))
    if version >= THROTTLE_SINCE:
        out += INT32.pack(throttle_ms)
    out += INT32.pack(len(topics))
    for name, found in topics.items():
        write_string(out, name, False)
        out += INT32.pack(len(found))
        for row in found:
            error = row.error
            if error == ErrorCode.kafka_storage_error:  # of which these versions do not know
                error = ErrorCode.not_leader_or_follower
            out += _PARTITION.pack(row.key[1], error, row.high_watermark, len(row.data))
            if row.data:
                yield out
                yield row.data
                out = bytearray()
    if out:
        yield out


def on_error(context: RequestContext, request: FetchRequest, error: KafkaError) -> EncodedResponse:
    """The same error for every partition: these versions have no other place for it."""
    rows = [
        PartitionData((topic.name or "", each.partition), None, each.fetch_offset, error.code)
        for topic in request.topics
        for each in topic.partitions
    ]
    return EncodedResponse(list(encoded(context.api_version, context.correlation_id, 0, rows)))


LEGACY: Final = Legacy(decode, handle, on_error)
