"""The records of one partition between two offsets, a fetch at a time, with the next one always under way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.client.cluster import RETRIABLE, Cluster, Leader, Retry
from ottla.client.connection import Connection
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID, Offset, TopicPartition
from ottla.protocol import fetch, fetch_responses
from ottla.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages import ApiKey, MalformedRequest
from ottla.protocol.records.record_batch import (
    LENGTH_AND_MAGIC,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    unpack_header,
)

MIB: Final = 1024 * 1024
VERSION_MAX: Final = 16
_NO_PROGRESS_S: Final = 120.0


class Chunk(NamedTuple):
    """Whole batches as they were fetched, and perhaps a piece of another one, to be left alone."""

    records: memoryview
    """Valid until the next chunk is asked for."""
    offset: Offset
    """Where the fetch began: the first batch may begin before it."""
    following: Offset
    """After the last whole batch."""
    aborted: list[tuple[int, int]] | None
    """(producer id, first offset); None unless only what is committed is read."""
    high_watermark: Offset
    log_start: Offset


class OffsetOutOfRange(KafkaError):
    """Retention, DeleteRecords or a new topic of the same name: the offset is not between `log_start` and the
    log's `end`."""

    def __init__(self, what: str, offset: Offset, log_start: Offset, high_watermark: Offset) -> None:
        super().__init__(
            ErrorCode.offset_out_of_range, f"{what} has offsets from {log_start} to {high_watermark}, not {offset}"
        )
        self.offset = offset
        self.log_start = log_start
        self.end = high_watermark


class TopicRecreated(KafkaError):
    """UNKNOWN_TOPIC_ID: the topic was deleted while it was read, and there is another one of its name."""

    def __init__(self, topic: str) -> None:
        super().__init__(ErrorCode.unknown_topic_id, f"topic {topic} was deleted and recreated while it was read")


class NoProgress(KafkaError):
    """REQUEST_TIMED_OUT: nothing came, long after the end was known to be further on."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.request_timed_out, message)


@dataclass(frozen=True)
class FetchLimits:
    """Sizes in bytes. The first batch of an answer is whole even if it is larger than `bytes_max`."""

    bytes_max: int = 8 * MIB
    bytes_min: int = 1
    wait_ms_max: int = 500


DEFAULT_LIMITS: Final = FetchLimits()


class _Asked(NamedTuple):
    connection: Connection
    node_id: int
    version: int
    correlation_id: int
    offset: Offset


class Fetcher:
    """Iterate once. Leaders that move and lost connections are followed, until `request_timeout_s` passes without an
    answer. An end that is not reached, as its records are not committed, is given 120 s: a broker may just
    have begun to lead and not know yet how far the log is committed."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partition: int,
        start: Offset,
        stop: Offset,
        *,
        read_committed: bool = False,
        limits: FetchLimits = DEFAULT_LIMITS,
    ) -> None:
        """Reads the offsets from `start` up to `stop`, which is a log's end or before it."""
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._offset = start
        self._stop = stop
        self._read_committed = read_committed
        self._limits = limits
        self._asked: _Asked | None = None
        self._buffer = bytearray()
        self._topic_id = ZERO_UUID
        self._replica = -1
        self._replica_until = 0.0
        self._is_at_end = False

    def __iter__(self) -> Iterator[Chunk]:
        """Raises OffsetOutOfRange, TopicRecreated, NoProgress, other KafkaErrors, OSError."""
        try:
            while self._offset < self._stop and not self._is_at_end:
                chunk = self._following()
                if chunk is not None:
                    yield chunk
        finally:
            self.close()

    def close(self) -> None:
        """Whatever is still under way is of no use, and neither is its connection."""
        if self._asked is not None:
            self._asked.connection.close()
            self._asked = None

    # One chunk

    def _following(self) -> Chunk | None:
        """None at the end of the log, or of what is committed."""
        retry = Retry(self._cluster.config.request_timeout_s)
        since = time.monotonic()
        while True:
            failure: KafkaError | OSError
            try:
                row = self._receive()
                if row is None:
                    continue
                code = ErrorCode(row.error_code)
                if code is ErrorCode.none:
                    retry = Retry(self._cluster.config.request_timeout_s)
                    if row.preferred_read_replica >= 0:
                        self._follow_replica(row.preferred_read_replica)
                        continue
                    chunk = self._chunk(row)
                    if chunk is not None or self._is_at_end:
                        return chunk
                    if time.monotonic() - since > _NO_PROGRESS_S:
                        raise self._stuck(row)
                    continue
                if code is ErrorCode.offset_out_of_range and self._replica < 0:
                    raise OffsetOutOfRange(self._name, self._offset, *self._bounds(row))
                failure = KafkaError(code, f"partition {self._name}")
            except (OffsetOutOfRange, TopicRecreated, NoProgress):
                raise
            except (KafkaError, OSError) as error:
                failure = error
            was_replica, self._replica = self._replica, -1
            if was_replica >= 0:
                continue  # the leader knows better
            if isinstance(failure, KafkaError) and failure.code not in RETRIABLE:
                raise failure
            if not retry.again():
                raise failure
            self._cluster.drop(self._topic)

    @property
    def _name(self) -> str:
        return f"{self._topic}-{self._partition}"

    def _bounds(self, row: FetchedPartition) -> tuple[Offset, Offset]:
        """The bounds of the partition, as the answer that refuses an offset may lack them."""
        if row.log_start_offset >= 0 and row.high_watermark >= 0:
            return row.log_start_offset, row.high_watermark
        return self._cluster.bounds(TopicPartition(self._topic, self._partition))

    def _stuck(self, row: FetchedPartition) -> NoProgress:
        end = row.last_stable_offset if self._read_committed else row.high_watermark
        return NoProgress(
            f"{self._name} has had nothing from offset {self._offset} on for {_NO_PROGRESS_S:.0f} s, though"
            f" {self._stop} was its end; now it is {end}",
        )

    def _chunk(self, row: FetchedPartition) -> Chunk | None:
        records = memoryview(row.records) if row.records else memoryview(b"")  # type: ignore[arg-type]
        following = next_offset(records)
        if following < 0:
            end = row.last_stable_offset if self._read_committed else row.high_watermark
            # Nothing at an offset that has an end behind it: what was there has been compacted away.
            self._is_at_end = end >= self._stop
            return None
        begun = self._offset
        self._offset = max(begun, following)
        if self._offset < self._stop:
            self._send_ahead()
        aborted = list(row.aborted_transactions or ()) if self._read_committed else None
        return Chunk(records, begun, self._offset, aborted, row.high_watermark, row.log_start_offset)

    # The wire

    def _send_ahead(self) -> None:
        try:
            self._send()
        except (OSError, KafkaError):
            self.close()  # said when it is wanted

    def _send(self) -> _Asked:
        leader = self._cluster.leader(self._topic, self._partition)
        node_id = self._replica if self._replica >= 0 and time.monotonic() < self._replica_until else leader.node_id
        if node_id < 0:
            raise KafkaError(ErrorCode.leader_not_available, f"partition {self._name}")
        asked = self._asked
        connection = asked.connection if asked is not None and asked.node_id == node_id else None
        if connection is None:
            self.close()
            connection = self._cluster.connect(node_id)
        highest = VERSION_MAX if leader.topic_id != ZERO_UUID else fetch.TOPIC_IDS_SINCE - 1
        version = connection.version(ApiKey.FETCH, fetch.VERSION_MIN, highest)
        frame = fetch.encode_request(
            version, connection.following_id, self._cluster.config.client_id, self._request(leader, node_id)
        )
        correlation_id = connection.send_frame(frame)
        self._asked = _Asked(connection, node_id, version, correlation_id, self._offset)
        return self._asked

    def _request(self, leader: Leader, node_id: int) -> FetchRequest:
        if self._topic_id == ZERO_UUID:
            self._topic_id = leader.topic_id
        elif leader.topic_id not in (self._topic_id, ZERO_UUID):
            raise TopicRecreated(self._topic)
        limits = self._limits
        epoch = leader.epoch if node_id == leader.node_id else -1
        row = FetchPartition(self._partition, self._offset, limits.bytes_max, epoch)
        return FetchRequest(
            limits.wait_ms_max,
            limits.bytes_min,
            limits.bytes_max,
            [FetchTopic(self._topic, leader.topic_id, [row])],
            int(self._read_committed),
            rack_id=self._cluster.config.rack or "",
        )

    def _receive(self) -> FetchedPartition | None:
        """None when the answer has nothing, as when a client is throttled. Raises OSError, KafkaError."""
        asked = self._asked if self._asked is not None and self._asked.offset == self._offset else self._send()
        try:
            frame = asked.connection.receive_frame(self._buffer)
            if isinstance(frame.obj, bytearray):
                self._buffer = frame.obj
            response = decoded(asked.connection, asked.version, asked.correlation_id, frame)
        except OSError:
            self.close()
            raise
        self._asked = None
        self._cluster.spare(asked.node_id, asked.connection)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), f"fetching {self._name}")
        return response.topics[0].partitions[0] if response.topics and response.topics[0].partitions else None

    def _follow_replica(self, node_id: int) -> None:
        """Fetch from there for as long as metadata is good (KIP-392)."""
        self._replica = node_id
        self._replica_until = time.monotonic() + self._cluster.config.metadata_max_age_s


def decoded(connection: Connection, version: int, correlation_id: int, frame: memoryview) -> FetchResponse:
    """Raises OSError for what is no answer to that request."""
    try:
        found, response = fetch_responses.decode_response(version, frame)
    except MalformedRequest as error:
        raise ConnectionError(f"{connection.address}: an answer that cannot be read: {error}") from error
    if found != correlation_id:
        raise ConnectionError(f"{connection.address}: an answer to another request")
    return response


def next_offset(records: memoryview) -> Offset:
    """The offset after the last whole batch, -1 if there is none. Only the heads are looked at."""
    position, following, end = 0, -1, len(records)
    while end - position > MAGIC_POSITION:
        length, magic = LENGTH_AND_MAGIC.unpack_from(records, position + 8)
        size = length + LOG_OVERHEAD
        if length <= 0 or size > end - position:
            break
        if magic == MAGIC and size > 61:
            header: BatchHeader = unpack_header(records, position)
            following = header.last_offset + 1
        else:
            following = int.from_bytes(records[position : position + 8], "big") + 1
        position += size
    return following
