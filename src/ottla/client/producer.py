"""A producer of Arrow's record batches on blocking sockets: idempotent, transactional, in order.

Rows become record batches in a compiled loop (`ottla.protocol.records._batch_rows`). To each leader goes one request at
a time, with the next batch of each of its partitions; while it is on its way the following batches are made. So a
partition has one batch in flight, and whatever is sent again is sent in the same order with the same sequence numbers
(KIP-98).
"""

from __future__ import annotations

import math
import random
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from ottla.client.arrow_columns import RecordColumns, by_topic, record_columns
from ottla.client.cluster import RETRIABLE, Cluster, Retry
from ottla.client.connection import Connection
from ottla.client.transactions import ProducerId, add_partitions, end_transaction, init_producer
from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Millis, Offset, TopicPartition
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey, MalformedRequest
from ottla.protocol.records._batch_rows import Section, append
from ottla.protocol.records.compression import CODECS, compress
from ottla.protocol.records.record_batch import (
    HEADER_SIZE,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    SimpleRecord,
    assemble,
    build_batch,
    increment_sequence,
    iterate_records,
    put_header,
    read_batch_header,
)

if TYPE_CHECKING:
    from ottla.protocol.schemas.received import ProduceResponse
    from ottla.protocol.schemas.sent import PartitionProduceData, ProduceRequest

DEFAULT_BATCH_BYTES: Final = 1_000_000
"""Below the `max.message.bytes` of a topic, 1,048,588 unless it is set."""
DEFAULT_BUFFER_BYTES_MAX: Final = 32 * 1024 * 1024
"""Limit of the batches that are not acknowledged yet, as `buffer.memory` of Kafka's producer; batches being filled may
take as much again."""
REQUEST_BYTES_MAX: Final = 1024 * 1024
"""As `max.request.size` of Kafka's producer; the first batch may be larger. A broker takes half the CPU time for these
that it takes for requests of 4 MB, whose memory is the kernel's each time (mmap)."""
_VERSION_MIN: Final = 3
_VERSION_MAX: Final = 11
"""From 12 on transactions are of KIP-890's second kind: see `transactions.py`."""
_FIRST_ROOM: Final = 64 * 1024
_SHARE_MIN: Final = 4096
"""Least share of a batch for each of very many partitions: below that, requests would be mostly headers."""
_STICKY_ROWS: Final = 1000
"""Rows without a key go to one partition for so long, then to another."""
_BACKOFF_S: Final = 0.05
_CREATION_S: Final = 5.0
"""How long a topic is waited for that the broker may be creating (`auto.create.topics.enable`)."""
_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}

_AGAIN: Final = RETRIABLE | {
    ErrorCode.not_enough_replicas, ErrorCode.not_enough_replicas_after_append, ErrorCode.concurrent_transactions,
    ErrorCode.coordinator_not_available, ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator,
}  # fmt: skip


class _Batch(NamedTuple):
    at: TopicPartition
    data: memoryview
    deadline: float


class _Sent(NamedTuple):
    connection: Connection
    version: int
    correlation_id: int
    batches: list[_Batch]
    deadline: float


class Producer:
    """Not thread-safe. An error leaves it unusable: start another, and with a transactional id nothing of the open
    transaction counts."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: str = "all",
        idempotent: bool = True,
        transactional_id: str | None = None,
        transaction_timeout_ms: Millis = 60_000,
        compression: str = "none",
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        buffer_bytes_max: int = DEFAULT_BUFFER_BYTES_MAX,
        delivery_timeout_s: float = 120.0,
        creates_topics: bool = True,
    ) -> None:
        """`creates_topics`: let the broker create a topic that is missing, if it does that. Raises ValueError for
        settings that contradict each other."""
        if (idempotent or transactional_id is not None) and _ACKS[acks] != -1:
            raise ValueError("an idempotent producer needs acks=all")
        self._cluster = cluster
        self._acks = _ACKS[acks]
        self._is_idempotent = idempotent or transactional_id is not None
        self.transactional_id = transactional_id
        self._transaction_timeout_ms = transaction_timeout_ms
        self._codec = int(CODECS[compression])
        self._codecs: dict[str, int] = {}
        """Codecs of topics that have another one than the default."""
        self._batch_bytes = batch_bytes
        self._buffer_bytes_max = buffer_bytes_max
        self._delivery_timeout_s = delivery_timeout_s
        self._creates_topics = creates_topics
        self._producer = ProducerId(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        self._sections: dict[str, list[Section]] = {}
        self._waiting: dict[TopicPartition, deque[_Batch]] = {}
        self._bytes = 0
        self._limits: dict[str, int] = {}
        """Bytes of a batch of topics that have refused larger ones."""
        self._share = batch_bytes
        self._sequences: dict[TopicPartition, int] = {}
        self._is_behind = False
        """Batches were dropped that have sequence numbers: only a new epoch begins with others."""
        self._in_transaction: set[TopicPartition] = set()
        self._expected: Sequence[TopicPartition] = ()
        self._sent: dict[int, _Sent] = {}
        self._not_before: dict[TopicPartition, float] = {}
        self._random = random.Random()
        self.rows = 0
        """How many were given to `send`."""
        self.on_acknowledged: Callable[[TopicPartition, Offset, int], None] | None = None
        """Called with each batch that is acknowledged: where it is, its first offset, and how many records it has. Of a
        partition they come in the order of the log."""

    @property
    def producer_id(self) -> int:
        return self._producer.producer_id

    @property
    def epoch(self) -> int:
        return self._producer.epoch

    # What a caller does

    def start(self) -> None:
        """Get a producer id if one is needed. Raises KafkaError, OSError."""
        if self._is_idempotent:
            self._producer = init_producer(self._cluster, self.transactional_id, self._transaction_timeout_ms)
        self._sequences.clear()
        self._is_behind = False

    def begin(self, expected: Sequence[TopicPartition] = ()) -> None:
        """A transaction, which the coordinator hears of with its first batch. The partitions of that are added together
        with the `expected` ones, which later batches will be for. Raises KafkaError, OSError."""
        assert self.transactional_id is not None, "no transactional id"
        self._in_transaction.clear()
        self._expected = expected
        if self._is_behind:
            self.start()

    def send(self, topic: str | None, batch: pa.RecordBatch) -> None:
        """Take the rows of `batch`: columns key, value, headers, partition, timestamp; without `topic` also that.

        Returns before they are acknowledged, when there is room for more. Raises ValueError for rows that are no
        records, KafkaError, OSError.
        """
        if topic is not None:
            self._add(topic, batch)
            return
        if "topic" not in batch.schema.names:
            raise ValueError("no topic: neither one for all rows nor a column topic")
        for name, rows in by_topic(batch):
            self._add(name, rows)

    def compress(self, topic: str, codec: int) -> None:
        """Batches of `topic` that are not full yet, and later ones, are compressed so: a number of record batches."""
        self._codecs[topic] = codec

    def flush(self) -> None:
        """Wait until all that was sent is acknowledged. Raises KafkaError, OSError."""
        for topic, sections in self._sections.items():
            for partition, section in enumerate(sections):
                if section.count:
                    self._close_section(TopicPartition(topic, partition), section)
        while any(self._waiting.values()):
            self._pump(wait=True)

    def commit(self) -> None:
        """Flush, and commit the transaction. Raises KafkaError, OSError: then it may be committed or not."""
        self.flush()
        self._end(True)

    def abort(self) -> None:
        """Abort the transaction; what is not sent yet never is. Raises KafkaError, OSError."""
        # A batch that arrives behind its abort would be of a transaction that nobody ends: so wait for what is sent.
        for node_id, sent in list(self._sent.items()):
            with suppress(OSError):
                _decoded(sent)
                self._cluster.spare(node_id, sent.connection)
                del self._sent[node_id]
        self.close()
        self._end(False)

    def close(self) -> None:
        """Drop what is not acknowledged. An open transaction stays open."""
        self._is_behind = self._is_behind or bool(self._sequences)
        for sent in self._sent.values():
            sent.connection.close()
        self._sent.clear()
        self._waiting.clear()
        self._sections.clear()
        self._bytes = 0

    def _end(self, commit: bool) -> None:
        assert self.transactional_id is not None
        if self._in_transaction:
            end_transaction(self._cluster, self.transactional_id, self.producer_id, self.epoch, commit=commit)
        self._in_transaction.clear()

    # From rows to batches

    def _add(self, topic: str, batch: pa.RecordBatch) -> None:
        sections = self._sections.get(topic) or self._begin_topic(topic)
        columns = record_columns(batch)
        self.rows += columns.rows
        row, now = 0, time.time_ns() // 1_000_000
        while row < columns.rows:
            sticky = self._random.randrange(len(sections))
            row = self._add_rows(topic, sections, columns, row, min(columns.rows, row + _STICKY_ROWS), now, sticky)

    def _add_rows(
        self, topic: str, sections: list[Section], columns: RecordColumns, row: int, stop: int, now: Millis, sticky: int
    ) -> int:
        while True:
            row, full = append(
                sections,
                row,
                stop,
                columns.key,
                columns.value,
                columns.headers,
                columns.partitions,
                columns.timestamps,
                now,
                sticky,
                min(self._share, self._limits.get(topic, self._share)),
            )
            if full == -1:
                return row
            if full == -2:
                raise ValueError(
                    f"{topic} has {len(sections)} partitions, but a row names another partition: row {row}"
                )
            self._close_section(TopicPartition(topic, full), sections[full])
            self._pump(wait=self._bytes >= self._buffer_bytes_max)

    def _begin_topic(self, topic: str) -> list[Section]:
        """Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION for one that does not exist and is not created."""
        retry = Retry(_CREATION_S)
        while not (partitions := self._cluster.partitions([topic])):
            values = {"topics": [{"name": topic}], "allow_auto_topic_creation": self._creates_topics}
            self._cluster.ask_any(ApiKey.METADATA, values)
            if not retry.again():
                raise KafkaError(ErrorCode.unknown_topic_or_partition, f"topic {topic}")
        count = len(partitions) + sum(map(len, self._sections.values()))
        self._share = min(self._batch_bytes, max(_SHARE_MIN, self._buffer_bytes_max // count))
        self._sections[topic] = [Section(min(_FIRST_ROOM, self._share), HEADER_SIZE) for _ in partitions]
        return self._sections[topic]

    def _close_section(self, at: TopicPartition, section: Section) -> None:
        data, count, base_timestamp, max_timestamp = section.take()
        sequence = NO_SEQUENCE
        if self._is_idempotent:
            sequence = self._sequences.get(at, 0)
            self._sequences[at] = increment_sequence(sequence, count)
        codec = self._codecs.get(at.topic, self._codec)
        header = BatchHeader(
            0,
            0,
            -1,
            MAGIC,
            0,
            codec | (TRANSACTIONAL if self.transactional_id is not None else 0),
            count - 1,
            base_timestamp,
            max_timestamp,
            self.producer_id,
            self.epoch,
            sequence,
            count,
        )
        if codec:
            data = memoryview(assemble(header, compress(codec, data[HEADER_SIZE:])))
        else:
            put_header(header, data)
        self._waiting.setdefault(at, deque()).append(_Batch(at, data, time.monotonic() + self._delivery_timeout_s))
        self._bytes += len(data)

    # The wire

    def _pump(self, *, wait: bool) -> None:
        """Send what can be, and take the answers that are there; with `wait` one at least, or until a retry is due."""
        self._send_waiting()
        if not self._sent:
            if wait and any(self._waiting.values()):
                self._check_deadlines()
                time.sleep(_BACKOFF_S)
            return
        now = time.monotonic()
        connections = {sent.connection.fileno(): node_id for node_id, sent in self._sent.items()}
        # poll, as a process of many files has descriptors above what select takes
        poll = select.poll()
        for descriptor in connections:
            poll.register(descriptor, select.POLLIN)
        due = [sent.deadline for sent in self._sent.values()]
        due += [at for at in self._not_before.values() if at > now]
        timeout = max(0.0, min(due) - now) if wait else 0.0
        for descriptor, _ in poll.poll(math.ceil(timeout * 1000)):
            self._receive(connections[descriptor])
        for node_id in [node_id for node_id, sent in self._sent.items() if sent.deadline <= time.monotonic()]:
            self._fail(self._sent.pop(node_id), TimeoutError("no answer in time"))
        self._send_waiting()

    def _send_waiting(self) -> None:
        now = time.monotonic()
        in_flight = {batch.at for sent in self._sent.values() for batch in sent.batches}
        ready = [at for at, waiting in self._waiting.items() if waiting and at not in in_flight]
        ready = [at for at in ready if self._not_before.get(at, 0.0) <= now]
        if self.transactional_id is not None and (new := [at for at in ready if at not in self._in_transaction]):
            new = [*dict.fromkeys([*new, *self._expected])]
            add_partitions(self._cluster, self.transactional_id, self._producer, new)
            self._in_transaction.update(new)
            self._expected = ()
        by_node: dict[int, list[_Batch]] = {}
        for at in ready:
            try:
                node_id = self._cluster.leader(*at).node_id
            except (KafkaError, OSError) as error:
                self._put_off(at, error)
                continue
            if node_id < 0:
                self._put_off(at, KafkaError(ErrorCode.leader_not_available, f"partition {at}"))
            elif node_id not in self._sent:
                by_node.setdefault(node_id, []).append(self._waiting[at][0])
        for node_id, batches in by_node.items():
            self._send(node_id, batches)

    def _send(self, node_id: int, batches: list[_Batch]) -> None:
        room = REQUEST_BYTES_MAX
        chosen: list[_Batch] = []
        for batch in batches:
            room -= len(batch.data)
            if room < 0 and chosen:
                break
            chosen.append(batch)
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in chosen:
            topics.setdefault(batch.at.topic, []).append({"index": batch.at.partition, "records": batch.data})
        request: ProduceRequest = {
            "transactional_id": self.transactional_id,
            "acks": self._acks,
            "timeout": round(self._cluster.config.request_timeout_s * 1000),
            "topic_data": [{"name": name, "partition_data": rows} for name, rows in topics.items()],
        }
        connection: Connection | None = None
        try:
            connection = self._cluster.connect(node_id)
            version = connection.version(ApiKey.PRODUCE, _VERSION_MIN, _VERSION_MAX)
            client_id = self._cluster.config.client_id
            parts = messages.request_parts(ApiKey.PRODUCE, version, connection.following_id, client_id, request)
            correlation_id = connection.send_frame(*parts, is_answered=self._acks != 0)
        except OSError as error:
            if connection is not None:
                connection.close()
            for batch in chosen:
                self._put_off(batch.at, error)
            return
        if self._acks == 0:
            self._cluster.spare(node_id, connection)
            for batch in chosen:
                self._drop_first(batch)
            return
        deadline = time.monotonic() + self._cluster.config.request_timeout_s
        self._sent[node_id] = _Sent(connection, version, correlation_id, chosen, deadline)

    def _receive(self, node_id: int) -> None:
        sent = self._sent.pop(node_id)
        try:
            response = _decoded(sent)
        except OSError as error:
            self._fail(sent, error)
            return
        self._cluster.spare(node_id, sent.connection)
        rows = {
            TopicPartition(topic.name, row.index): row
            for topic in response.responses
            for row in topic.partition_responses
        }
        for batch in sent.batches:
            row = rows.get(batch.at)
            code = ErrorCode.unknown_server_error if row is None else ErrorCode(row.error_code)
            if code in (ErrorCode.none, ErrorCode.duplicate_sequence_number):
                self._drop_first(batch)
                if self.on_acknowledged is not None and row is not None:
                    self.on_acknowledged(batch.at, row.base_offset, read_batch_header(batch.data).count)
                continue
            if code is ErrorCode.message_too_large and self._split(batch):
                continue
            refusal = KafkaError(code, (row and row.error_message) or f"partition {batch.at}")
            if code not in _AGAIN:
                raise refusal
            self._put_off(batch.at, refusal)

    def _fail(self, sent: _Sent, error: OSError) -> None:
        sent.connection.close()
        for batch in sent.batches:
            self._put_off(batch.at, error)

    def _split(self, batch: _Batch) -> bool:
        """Split the batch in two, as Kafka's producer does if a topic takes only smaller ones (`max.message.bytes`):
        together they have the sequence numbers that it had. False for a single record.
        """
        header = read_batch_header(batch.data)
        if header.count < 2:
            return False
        records = [
            SimpleRecord(record.timestamp, record.key, record.value, record.headers)
            for record in iterate_records(batch.data)
        ]
        half, waiting = len(records) // 2, self._waiting[batch.at]
        self._drop_first(batch)
        for start, stop in ((half, len(records)), (0, half)):
            sequence = increment_sequence(header.base_sequence, start) if self._is_idempotent else NO_SEQUENCE
            data = build_batch(
                records[start:stop],
                codec=header.codec,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=sequence,
                transactional=self.transactional_id is not None,
            )
            waiting.appendleft(batch._replace(data=memoryview(data)))
            self._bytes += len(data)
        limit = self._limits.get(batch.at.topic, self._share)
        self._limits[batch.at.topic] = max(1, min(limit, len(batch.data) // 2))
        return True

    def _drop_first(self, batch: _Batch) -> None:
        waiting = self._waiting[batch.at]
        assert waiting[0] is batch
        waiting.popleft()
        self._bytes -= len(batch.data)

    def _put_off(self, at: TopicPartition, error: Exception) -> None:
        """Send the first batch of a partition again, a little later. Raises `error` when its time is over."""
        now = time.monotonic()
        if self._waiting[at][0].deadline < now:
            raise error
        self._not_before[at] = now + _BACKOFF_S
        self._cluster.drop(at.topic)

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        for at, waiting in self._waiting.items():
            if waiting and waiting[0].deadline < now:
                raise KafkaError(ErrorCode.request_timed_out, f"partition {at}: not delivered in time")


def _decoded(sent: _Sent) -> ProduceResponse:
    """Raises OSError."""
    frame = sent.connection.receive_frame()
    try:
        correlation_id, response = messages.decode_response(ApiKey.PRODUCE, sent.version, frame)
    except MalformedRequest as error:
        raise ConnectionError(f"{sent.connection.address}: an answer that cannot be read: {error}") from error
    if correlation_id != sent.correlation_id:
        raise ConnectionError(f"{sent.connection.address}: an answer to another request")
    produced: ProduceResponse = response
    return produced
