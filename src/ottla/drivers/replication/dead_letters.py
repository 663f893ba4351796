"""Writes the dead letters of share groups (KIP-1191; Kafka's `ShareGroupDLQStateManager`).

A letter goes to partition `p % n` of the group's topic, for a record of partition p and n partitions there, with the
time at which it is written. Letters of a group are written together, in the order in which they come. What passes (a
leader that moves, too few replicas) is tried again for `PATIENCE_S`; what does not, such as a topic that may not be
used, leaves the record without a letter: it is archived all the same, and an error is logged once for each reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.drivers.tasks import cancelled
from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.metadata.image import ConfigResourceType
from ottla.model import Offset
from ottla.network import Address
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.compression import DecompressionFailed
from ottla.protocol.records.record_batch import (
    CorruptBatch,
    Record,
    SimpleRecord,
    build_batch,
    iterate_batches,
    iterate_records,
    records_section,
)
from ottla.replication.partition import Partition
from ottla.replication.share.dead_letters import (
    COPY,
    ENABLE,
    TOPIC,
    DeadRecords,
    LostLetters,
    Source,
    context_headers,
    problem,
)
from ottla.storage.log.log import ColdRead

if TYPE_CHECKING:
    from ottla.drivers.ports import WritingHost
    from ottla.metrics.shared import ShareMetrics

_LOG = logging.getLogger("ottla.share")

PATIENCE_S: Final = 120.0
"""The default of a producer's delivery.timeout.ms. Kafka gives up after five tries, about 15 seconds."""
PAUSE_S: Final = 0.1
PAUSE_S_MAX: Final = 10.0
PRODUCE_VERSIONS: Final = (3, 9)

READ_BYTES: Final = 1 << 20
"""Bytes of the source log that are read at once, and kept until their letters are written."""
DECOMPRESSED_BYTES_MAX: Final = 32 << 20
"""Bytes of a batch that are decompressed for its letters; those of a larger one have no payload."""
BATCH_BYTES: Final = 61
RECORD_BYTES: Final = 40
HEADER_BYTES: Final = 10
"""What the fields around the bytes of a batch, a record and a header take at most."""

LOST_GROUPS_MAX: Final = 1_000
"""Groups of which it is known why their last letters are lost; the one that has told nothing for longest goes first."""

_TRUE: Final = "true"

_GONE: Final = (ErrorCode.not_leader_or_follower, ErrorCode.kafka_storage_error)
"""What a log answers that is truncated, closed or offline."""


class Letters(NamedTuple):
    """The letters of records that died together."""

    group_id: str
    partition: Partition
    """Where the records are."""
    dead: DeadRecords
    done: Callable[[], None]
    """Called once, when the letters are written or given up; never when the node stops or no longer leads the
    partition, for then the next leader writes them."""


class _LogIsGoneError(Exception):
    """The log of the records is being truncated, closed or offline: another broker leads the partition, or will."""


class DeadLetterWriter:
    """All methods belong to the event loop's thread."""

    def __init__(
        self,
        node: WritingHost,
        metrics: ShareMetrics,
        lost: dict[str, LostLetters],
        make_topic: Callable[[str], Coroutine[Any, Any, None]],
    ) -> None:
        """`lost` is kept: groups whose letters cannot be written, `LOST_GROUPS_MAX` at most. `make_topic` creates a
        topic for dead letters; raises KafkaError."""
        self._node = node
        self._metrics = metrics
        self._make_topic = make_topic
        self._queues: dict[str, list[Letters]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._lost = lost
        self._client = node.broker_clients.new(f"broker-{node.node_id}-dead-letters")

    async def stop(self) -> None:
        """Letters that are not written then are written by the next leader."""
        for task in [*self._tasks.values()]:
            await cancelled(task)
        await self._client.close()

    def write(self, letters: Letters) -> None:
        self._queues.setdefault(letters.group_id, []).append(letters)
        if letters.group_id not in self._tasks:
            run = self._run(letters.group_id)
            self._tasks[letters.group_id] = asyncio.get_running_loop().create_task(run)

    async def _run(self, group_id: str) -> None:
        """Write what is there of a group, one round after the other, until there is nothing."""
        try:
            await asyncio.sleep(0)  # what else this turn of the loop brings goes along
            while queue := self._queues.pop(group_id, []):
                places: dict[int, list[Letters]] = {}
                for each in queue:
                    places.setdefault(each.partition.topic_partition.partition, []).append(each)
                await asyncio.gather(*(self._write(group_id, place, some) for place, some in places.items()))
        finally:
            del self._tasks[group_id]

    # Settings

    def _setting(self, group_id: str, name: str) -> str | None:
        return self._node.image.config(ConfigResourceType.GROUP, group_id).get(name)

    def _copies(self, group_id: str) -> bool:
        """Whether letters have the key and value of their records."""
        own = self._setting(group_id, COPY)
        if own is None:
            return bool(self._node.config.ottla_share_dlq_payload_and_reason)
        return own.strip().lower() == _TRUE

    def _topic(self, group_id: str) -> str:
        """The topic for a group's letters, which may not exist. Raises INVALID_CONFIG where it may not be used."""
        node = self._node
        name = (self._setting(group_id, TOPIC) or "").strip()
        config = node.image.topic_config(name) if node.image.topic(name) is not None else None
        why = problem(
            name,
            prefix=node.config.errors_deadletterqueue_topic_name_prefix or "",
            enabled=None if config is None else config.get(ENABLE, "").strip().lower() == _TRUE,
            may_create=bool(node.config.errors_deadletterqueue_auto_create_topics_enable),
        )
        if why is not None:
            raise KafkaError(ErrorCode.invalid_config, why)
        return name

    def _bytes_max(self, name: str) -> int:
        """The largest batch that a topic takes."""
        node = self._node
        own = node.image.topic_config(name).get("max.message.bytes") if node.image.topic(name) is not None else None
        return int(own) if own else node.config.message_max_bytes

    # Writing

    async def _write(self, group_id: str, place: int, queue: Sequence[Letters]) -> None:
        """Write letters of one partition's records. Raises nothing."""
        batch: list[SimpleRecord] = []
        size = BATCH_BYTES
        open_: list[Letters] = []
        """Letters of which something is not written."""
        for letters in queue:
            open_.append(letters)
            try:
                limit = self._bytes_max(self._topic(group_id))
                async for record in self._records(letters):
                    cost = _bytes_of(record)
                    if batch and size + cost > limit:
                        await self._send(group_id, place, batch)
                        batch, size = [], BATCH_BYTES
                        self._over(open_[:-1], None)
                        del open_[:-1]
                    batch.append(record)
                    size += cost
            except _LogIsGoneError:
                open_.pop()
            except Exception as error:
                self._failed(open_, error)
                batch, size, open_ = [], BATCH_BYTES, []
        if not open_:
            return
        try:
            await self._send(group_id, place, batch)
            self._over(open_, None)
        except Exception as error:
            self._failed(open_, error)

    def _failed(self, open_: Sequence[Letters], error: Exception) -> None:
        if not isinstance(error, KafkaError):
            _LOG.error("internal error in dead letters", exc_info=error)
        self._log_failure(open_[-1], _named(error))
        self._metrics.letters_of(open_[-1].group_id).failed += 1
        self._over(open_, error)

    def _over(self, letters: Sequence[Letters], error: Exception | None) -> None:
        if error is None and letters and self._lost.pop(letters[0].group_id, None) is not None:
            _LOG.info("dead letters of a share group are written again", extra=fields(group=letters[0].group_id))
        for each in letters:
            each.done()

    def _log_failure(self, letters: Letters, why: str) -> None:
        before = self._lost.pop(letters.group_id, None)
        place, offset = letters.partition.topic_partition, letters.dead.first_offset
        self._lost[letters.group_id] = LostLetters(place, offset, self._node.clock.now_ms(), why)
        if len(self._lost) > LOST_GROUPS_MAX:
            del self._lost[next(iter(self._lost))]
        if before is not None and before.why == why:
            return
        where = fields(
            group=letters.group_id,
            partition=place,
            offset=offset,
            topic=self._setting(letters.group_id, TOPIC),
            error=why,
        )
        _LOG.error("dead letters of a share group are lost; their records are archived", extra=where)

    async def _send(self, group_id: str, place: int, batch: Sequence[SimpleRecord]) -> None:
        """Have a batch written. Raises KafkaError."""
        loop = asyncio.get_running_loop()
        deadline, pause_s = loop.time() + PATIENCE_S, PAUSE_S
        counts = self._metrics.letters_of(group_id)
        while True:
            try:
                counts.requests += 1
                await self._produce(self._topic(group_id), place, batch)
                counts.records += len(batch)
                return
            except KafkaError as error:
                if error.code is ErrorCode.message_too_large and len(batch) > 1:
                    half = len(batch) // 2
                    await self._send(group_id, place, batch[:half])
                    await self._send(group_id, place, batch[half:])
                    return
                if error.code is ErrorCode.message_too_large and (light := _without_payload(batch[0])) != batch[0]:
                    batch = [light]  # Kafka loses such a letter
                    continue
                if not error.code.retriable or loop.time() + pause_s > deadline:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _produce(self, name: str, place: int, batch: Sequence[SimpleRecord]) -> None:
        """Raises KafkaError."""
        node = self._node
        topic = node.image.topic(name)
        if topic is None:
            await self._make_topic(name)
            topic = node.image.topic(name)
        if topic is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"topic {name} is not there yet")
        number = place % len(topic.partitions)
        leader = node.image.brokers.get(topic.partitions[number].leader)
        endpoint = None if leader is None else leader.endpoints.get(node.inter_broker_listener)
        if endpoint is None:
            raise KafkaError(ErrorCode.leader_not_available, f"{name}-{number} has no leader")
        values = {
            "transactional_id": None,
            "acks": -1,
            "timeout": node.config.request_timeout_ms,
            "topic_data": [{"name": name, "partition_data": [{"index": number, "records": bytes(build_batch(batch))}]}],
        }
        address = Address(endpoint.host, endpoint.port)
        answer = await self._client.ask(address, ApiKey.PRODUCE, values, versions=PRODUCE_VERSIONS)
        row = answer.response.responses[0].partition_responses[0]
        if row.error_code:
            code = ErrorCode(row.error_code)
            said = getattr(row, "error_message", None)
            raise KafkaError(code, f"{name}-{number}" + (f": {said}" if said else ""))

    # What letters say

    async def _records(self, letters: Letters) -> AsyncIterator[SimpleRecord]:
        """The letters, one for each offset. What cannot be read has only the headers of its context. Raises
        _LogIsGoneError."""
        node, (first, last, count, reason) = self._node, letters.dead
        topic, number = letters.partition.topic_partition
        told = bool(node.config.ottla_share_dlq_payload_and_reason)
        source = Source(topic, number, letters.group_id)
        found: Mapping[Offset, Record] = {}
        read_until = first - 1 if self._copies(letters.group_id) else last
        for offset in range(first, last + 1):
            if offset > read_until:
                found, read_until = await self._read(letters.partition, offset, last)
            record = found.get(offset)
            now_ms = node.clock.now_ms()
            headers = context_headers(source, offset, count, reason, record, told=told)
            if record is None:
                yield SimpleRecord(now_ms, None, None, headers)
            else:
                yield SimpleRecord(now_ms, record.key, record.value, headers)

    async def _read(self, partition: Partition, first: Offset, last: Offset) -> tuple[Mapping[Offset, Record], Offset]:
        """Records between two offsets, by offset, and the last offset that was looked at: `last` where no more can be
        read. Raises _LogIsGoneError."""
        node, log = self._node, partition.log
        try:
            while True:
                try:
                    # They were delivered, hence committed; a new leader's high watermark may still be before them.
                    part = log.read(first, READ_BYTES, up_to=log.log_end_offset, min_one_batch=True, nowait=True)
                    break
                except ColdRead as cold:
                    await node.fs.run(cold.warm)
            if part is None:
                return {}, last
            data = await node.fs.run(partial(part.file.pread, part.length, part.position))
            found, until = await node.fs.run(partial(_decode, data, first, last))
        except (KafkaError, OSError) as error:
            if isinstance(error, KafkaError) and error.code in _GONE:
                raise _LogIsGoneError from error
            where = fields(partition=partition.topic_partition, offset=first, error=str(error))
            _LOG.warning("dead letters without payload: their records cannot be read", extra=where)
            return {}, last
        return found, max(first, until)


def _decode(data: bytes, first: Offset, last: Offset) -> tuple[dict[Offset, Record], Offset]:
    """In a thread: the records between two offsets, and the last offset of the batches."""
    found: dict[Offset, Record] = {}
    until = first
    for at, header in iterate_batches(data):
        until = header.last_offset
        if header.is_control or header.last_offset < first:
            continue
        if header.base_offset > last:
            break
        try:
            if header.is_compressed:
                records_section(data, header, at, limit=DECOMPRESSED_BYTES_MAX)
            found.update((each.offset, each) for each in iterate_records(data, at) if first <= each.offset <= last)
        except (CorruptBatch, DecompressionFailed):
            continue
    return found, until


def _named(error: Exception) -> str:
    """An error with Kafka's name of it."""
    if not isinstance(error, KafkaError):
        return str(error)
    name = error.code.name.upper()
    return name if error.message is None else f"{name}: {error.message}"


def _bytes_of(record: SimpleRecord) -> int:
    """At least what a record takes in a batch."""
    size = RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
    return size + sum(HEADER_BYTES + len(name) + len(value or b"") for name, value in record.headers)


def _without_payload(record: SimpleRecord) -> SimpleRecord:
    """A letter with nothing of the record but its place; the same if it has no more."""
    own = tuple(each for each in record.headers if each[0].startswith(("__dlq.errors.", "__ottla.dlq.")))
    return SimpleRecord(record.timestamp, None, None, own)
