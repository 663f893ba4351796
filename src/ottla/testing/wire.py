"""Writes and reads the records of `records.py` with Ottla's own blocking client (`ottla.client`).

That client has no threads, takes milliseconds for a call, and prints nothing when its broker is killed: librdkafka
starts four threads for a producer, waits for more records (`linger.ms`), and logs the end of every connection.
Each call has connections of its own, so calls from several threads do not meet.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING, Any

from ottla.client.assigned_fetcher import AssignedFetcher
from ottla.client.cluster import EARLIEST, LATEST, RETRIABLE, Cluster, Retry
from ottla.client.config import ClientConfig, parse_addresses
from ottla.client.fetcher import Chunk
from ottla.client.transactions import ProducerId, init_producer
from ottla.clock import SystemClock
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID, Offset, TopicPartition
from ottla.protocol.messages import ApiKey
from ottla.protocol.records._batch_rows import murmur2
from ottla.protocol.records.aborted_transactions import Aborted
from ottla.protocol.records.record_batch import (
    CorruptBatch,
    SimpleRecord,
    build_batch,
    iterate_batches,
    iterate_records,
)
from ottla.testing.process import BrokerError
from ottla.testing.records import ConsumeTimeout, Record

if TYPE_CHECKING:
    from ottla.protocol.schemas.sent import ProduceRequest

CLIENT_ID = "ottla.testing"
BATCH_BYTES = 900_000
"""Below the default of `max.message.bytes`, 1,048,588; a record that is larger is a batch of its own."""
RECORD_OVERHEAD = 64
"""Bytes of a record beside its key, value and headers, at most."""
PRODUCE_VERSION_MIN = 3
PRODUCE_VERSION_MAX = 11
"""Later versions are for transactions of KIP-890's second kind."""
LOOK_S = 0.1
"""Between two looks whether the caller has given up."""
TOPIC_WAIT_S = 0.02
"""Between two looks whether a topic has been created."""
_AGAIN = RETRIABLE | {ErrorCode.not_enough_replicas, ErrorCode.not_enough_replicas_after_append}

_calls = itertools.count()
"""Which partition is next for records without a key."""


def produce(bootstrap: str, topic: str, records: Sequence[Record], timeout: float) -> list[Record]:
    """The same records with their partitions, offsets and timestamps. Raises BrokerError."""
    if not records:
        return []
    cluster = _connected(bootstrap, timeout)
    try:
        partitions = _partitions_to_write(cluster, topic)
        return _written(cluster, topic, _placed(records, topic, partitions), timeout)
    except (KafkaError, OSError) as error:
        raise BrokerError(str(error)) from error
    finally:
        cluster.close()


def consume(
    bootstrap: str,
    topic: str,
    count: int | None,
    timeout: float,
    group: str | None,
    read_committed: bool,
    given_up: Event | None,
) -> list[Record]:
    """See `Exchange.consume`. Raises ConsumeTimeout, BrokerError."""
    cluster = _connected(bootstrap, timeout)
    try:
        patience = _Patience(time.monotonic() + timeout, given_up)
        reading = _Reading(cluster, topic, count, patience, group, read_committed)
        records = reading.records()
        if count is not None and len(records) < count:
            there = "" if reading.starts else f"; there is no topic {topic}"
            what = f"{len(records)} of {count} records of topic {topic} came within {timeout:g} s{there}"
            raise ConsumeTimeout(what, records)
        reading.commit(records)
        return records
    except (KafkaError, OSError, CorruptBatch) as error:
        if isinstance(error, ConsumeTimeout):
            raise
        raise BrokerError(str(error)) from error
    finally:
        cluster.close()


def _connected(bootstrap: str, timeout: float) -> Cluster:
    # A look at what is there now, with a timeout of 0, is answered too.
    return Cluster(ClientConfig(parse_addresses(bootstrap), CLIENT_ID, request_timeout_s=max(1.0, timeout)))


# Produce


@dataclass(slots=True)
class _Batch:
    at: TopicPartition
    first: int
    """The place of its first record among those of its partition."""
    records: list[SimpleRecord]
    sequence: int


def _partitions_to_write(cluster: Cluster, topic: str) -> int:
    """How many a topic has, which is created where brokers do that. Raises KafkaError, OSError."""
    retry = Retry(cluster.config.request_timeout_s)
    wanted = {"topics": [{"name": topic, "topic_id": ZERO_UUID}], "allow_auto_topic_creation": True}
    while not (found := cluster.partitions([topic])):
        (row,) = cluster.ask_any(ApiKey.METADATA, wanted)["topics"]
        code = ErrorCode(row["error_code"])
        # Each look asks for the topic again: where none is created, there is nothing to wait for.
        if code is ErrorCode.unknown_topic_or_partition or (code not in RETRIABLE and code is not ErrorCode.none):
            raise KafkaError(code, f"topic {topic}")
        if not retry.again():
            raise KafkaError(ErrorCode.request_timed_out, f"topic {topic} is not created in time")
    return len(found)


def _placed(records: Sequence[Record], topic: str, partitions: int) -> list[Record]:
    """Records with a topic, a partition and a timestamp. Raises BrokerError for a partition that there is not."""
    now, without_key = SystemClock().now_ms(), next(_calls) % partitions
    found = []
    for record in records:
        partition = record.partition
        if partition < 0:
            partition = without_key if record.key is None else (murmur2(record.key) & 0x7FFFFFFF) % partitions
        elif partition >= partitions:
            raise BrokerError(f"topic {topic} has partitions 0 to {partitions - 1}, not {partition}")
        timestamp = record.timestamp if record.timestamp >= 0 else now
        found.append(replace(record, topic=topic, partition=partition, timestamp=timestamp))
    return found


def _written(cluster: Cluster, topic: str, records: Sequence[Record], timeout: float) -> list[Record]:
    """Sends the first batch of every partition until there is none. One batch of a partition is in flight at a time,
    with sequence numbers (KIP-98), so that one that is sent again is there once. Raises KafkaError, OSError."""
    places: dict[TopicPartition, list[int]] = {}
    for place, record in enumerate(records):
        places.setdefault(TopicPartition(topic, record.partition), []).append(place)
    waiting = {at: list(_batches(at, [records[place] for place in found])) for at, found in places.items()}
    producer, retry, written = init_producer(cluster, None), Retry(timeout), list(records)
    while waiting:
        failure: KafkaError | OSError | None = None
        for batch, answer in _sent(cluster, producer, [batches[0] for batches in waiting.values()]):
            if isinstance(answer, KafkaError | OSError):
                failure = answer
                continue
            code = ErrorCode(answer["error_code"])
            if code is ErrorCode.message_too_large and len(batch.records) > 1:
                waiting[batch.at][:1] = _one_by_one(batch)
                continue
            if code is not ErrorCode.none:
                failure = KafkaError(code, answer["error_message"] or f"partition {batch.at}")
                continue
            base_offset, stamped = answer["base_offset"], answer["log_append_time"]
            for number in range(len(batch.records)):
                place = places[batch.at][batch.first + number]
                stamp = stamped if stamped >= 0 else written[place].timestamp
                written[place] = replace(written[place], offset=base_offset + number, timestamp=stamp)
            waiting[batch.at].pop(0)
        waiting = {at: batches for at, batches in waiting.items() if batches}
        if failure is not None:
            if isinstance(failure, KafkaError) and failure.code not in _AGAIN:
                raise failure
            if not retry.again():
                raise failure
            with suppress(OSError):
                cluster.refresh([topic])
    return written


def _batches(at: TopicPartition, records: Sequence[Record]) -> Iterator[_Batch]:
    batch = _Batch(at, 0, [], 0)
    size = 0
    for number, record in enumerate(records):
        bytes_ = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
        bytes_ += sum(len(name.encode()) + len(value or b"") + RECORD_OVERHEAD for name, value in record.headers)
        if batch.records and size + bytes_ > BATCH_BYTES:
            yield batch
            batch, size = _Batch(at, number, [], number), 0
        size += bytes_
        batch.records.append(SimpleRecord(record.timestamp, record.key, record.value, record.headers))
    yield batch


def _one_by_one(batch: _Batch) -> list[_Batch]:
    """For a topic that takes only smaller batches (`max.message.bytes`)."""
    return [
        _Batch(batch.at, batch.first + number, [record], batch.sequence + number)
        for number, record in enumerate(batch.records)
    ]


def _sent(
    cluster: Cluster, producer: ProducerId, batches: Sequence[_Batch]
) -> Iterator[tuple[_Batch, dict[str, Any] | KafkaError | OSError]]:
    """Each batch with the row of its partition's leader, or why there is none."""
    by_node: dict[int, list[_Batch]] = {}
    for batch in batches:
        try:
            node_id = cluster.leader(*batch.at).node_id
        except (KafkaError, OSError) as error:
            yield batch, error
            continue
        if node_id < 0:
            yield batch, KafkaError(ErrorCode.leader_not_available, f"partition {batch.at}")
        else:
            by_node.setdefault(node_id, []).append(batch)
    for node_id, ours in by_node.items():
        try:
            rows = _ask(cluster, node_id, producer, ours)
        except OSError as error:
            for batch in ours:
                yield batch, error
            continue
        for batch in ours:
            missing = KafkaError(ErrorCode.network_exception, f"no answer for partition {batch.at}")
            yield batch, rows.get(batch.at.partition, missing)


def _ask(cluster: Cluster, node_id: int, producer: ProducerId, batches: Sequence[_Batch]) -> dict[int, dict[str, Any]]:
    """One Produce request with batches of one topic. Raises OSError."""
    request: ProduceRequest = {
        "transactional_id": None,
        "acks": -1,
        "timeout": round(cluster.config.request_timeout_s * 1000),
        "topic_data": [
            {
                "name": batches[0].at.topic,
                "partition_data": [
                    {"index": batch.at.partition, "records": _encoded(batch, producer)} for batch in batches
                ],
            }
        ],
    }
    connection = cluster.connect(node_id)
    try:
        version = connection.version(ApiKey.PRODUCE, PRODUCE_VERSION_MIN, PRODUCE_VERSION_MAX)
        answer = connection.ask(ApiKey.PRODUCE, version, request)
    except BaseException:
        connection.close()
        raise
    cluster.spare(node_id, connection)
    return {row["index"]: row for topic in answer["responses"] for row in topic["partition_responses"]}


def _encoded(batch: _Batch, producer: ProducerId) -> bytearray:
    return build_batch(
        batch.records,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=batch.sequence,
    )


# Consume


class _Patience:
    """Until when records are waited for."""

    def __init__(self, deadline: float, given_up: Event | None) -> None:
        self._deadline = deadline
        self._given_up = given_up

    def seconds(self) -> float:
        """How long to wait for the next thing; 0 at the end."""
        if self._given_up is None:
            return max(0.0, self._deadline - time.monotonic())
        return 0.0 if self._given_up.is_set() else max(0.0, min(LOOK_S, self._deadline - time.monotonic()))


class _Reading:
    """One call of `consume`."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        count: int | None,
        patience: _Patience,
        group: str | None,
        read_committed: bool,
    ) -> None:
        """Raises KafkaError, OSError; BrokerError where nobody waits for a topic that there is not."""
        self._cluster = cluster
        self._topic = topic
        self._count = count
        self._patience = patience
        self._group = group
        self._read_committed = read_committed
        self.starts = self._find_starts()
        self.ends: dict[TopicPartition, Offset] = {}
        """Where reading ends; without a partition of its own where records are waited for."""
        if count is None:
            latest = cluster.offsets(dict.fromkeys(self.starts, LATEST), read_committed=read_committed)
            self.ends = {at: found.offset for at, found in latest.items()}

    def _find_starts(self) -> dict[TopicPartition, Offset]:
        """Empty for a topic that is not created in time."""
        while not (partitions := self._cluster.partitions([self._topic])):
            if self._count is None:
                raise BrokerError(f"there is no topic {self._topic}")
            if not self._patience.seconds():
                return {}
            time.sleep(TOPIC_WAIT_S)
        earliest = self._cluster.offsets(dict.fromkeys(partitions, EARLIEST))
        starts = {at: found.offset for at, found in sorted(earliest.items())}
        if self._group is not None:
            committed = self._cluster.committed_offsets(self._group)
            latest = self._cluster.offsets(dict.fromkeys(starts, LATEST))
            for at, earliest_offset in starts.items():
                offset = committed.get(at, -1)
                # What was committed of a topic that was deleted since is of no use, nor what retention has overtaken.
                starts[at] = offset if earliest_offset <= offset <= latest[at].offset else earliest_offset
        return starts

    def records(self) -> list[Record]:
        """In the order of partitions and offsets. Raises KafkaError, OSError, CorruptBatch."""
        wanted = self._count
        left = {at: start for at, start in self.starts.items() if wanted is not None or start < self.ends[at]}
        found: list[Record] = []
        with closing(AssignedFetcher(self._cluster, left, read_committed=self._read_committed)) as fetcher:
            while fetcher.positions and (wanted is None or len(found) < wanted):
                fetcher.send()
                seconds = self._patience.seconds()
                if not seconds:
                    if wanted is None:
                        raise KafkaError(ErrorCode.request_timed_out, f"topic {self._topic} is not read in time")
                    break
                for at, chunk in fetcher.receive(seconds):
                    found += self._decoded(at, chunk)
                for error in fetcher.out_of_range.values():
                    raise error
                if wanted is None:
                    self._drop_read(fetcher)
        found.sort(key=lambda record: (record.partition, record.offset))
        return found if wanted is None else found[:wanted]

    def _drop_read(self, fetcher: AssignedFetcher) -> None:
        """A partition whose end is reached, or that has nothing before it: compacted, or markers only."""
        for at, position in list(fetcher.positions.items()):
            if position >= self.ends[at] or fetcher.empty.get(at, -1) >= self.ends[at]:
                del fetcher.positions[at]

    def _decoded(self, at: TopicPartition, chunk: Chunk) -> Iterator[Record]:
        aborted, end = Aborted(chunk.aborted), self.ends.get(at)
        for position, header in iterate_batches(chunk.records):
            if aborted.covers(header, chunk.records[position:]) or header.is_control:
                continue
            for offset, timestamp, key, value, headers, _ in iterate_records(chunk.records, position):
                if offset >= chunk.offset and (end is None or offset < end):
                    yield Record(value, key, headers, at.partition, timestamp, offset, at.topic)

    def commit(self, records: Sequence[Record]) -> None:
        """What was returned, of a group. Raises BrokerError where the group has members, KafkaError, OSError."""
        if self._group is None:
            return
        offsets = {at: end for at, end in self.ends.items() if end > self.starts[at]}
        for record in records:
            at = TopicPartition(self._topic, record.partition)
            offsets[at] = max(offsets.get(at, 0), record.offset + 1)
        try:
            self._cluster.commit_offsets(self._group, offsets)
        except KafkaError as error:
            if error.code is not ErrorCode.unknown_member_id:
                raise
            what = f"group {self._group} has members, and only they commit: consume with another group, or none"
            raise BrokerError(what) from error
