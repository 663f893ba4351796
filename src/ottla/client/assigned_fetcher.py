"""The records of many partitions, each from an offset on and without an end: one request to each leader at a time."""

from __future__ import annotations

import select
import time
from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ottla.client.cluster import RETRIABLE, Cluster, Retry
from ottla.client.connection import Connection
from ottla.client.fetcher import (
    DEFAULT_LIMITS,
    VERSION_MAX,
    Chunk,
    FetchLimits,
    OffsetOutOfRange,
    TopicRecreated,
    decoded,
    next_offset,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID, Offset, TopicPartition
from ottla.protocol import fetch
from ottla.protocol.fetch import FetchedPartition, FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages import ApiKey

_BACKOFF_S: Final = 0.1


class _Asked(NamedTuple):
    connection: Connection
    version: int
    correlation_id: int
    offsets: dict[TopicPartition, Offset]
    deadline: float


class AssignedFetcher:
    """Leaders that move and lost connections are followed until a partition has failed for `request_timeout_s`.

    `positions` are where each partition goes on; a caller may set them, and drop those that it wants no more of.
    `out_of_range` has what retention or DeleteRecords has overtaken, or what is past the log's end: it is fetched no
    more until the caller sets its position again. `empty` has where the log ended for partitions without records, as of
    the newest answer without any.
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, Offset],
        *,
        read_committed: bool = False,
        limits: FetchLimits = DEFAULT_LIMITS,
    ) -> None:
        self.positions = dict(positions)
        self.out_of_range: dict[TopicPartition, OffsetOutOfRange] = {}
        self.empty: dict[TopicPartition, Offset] = {}
        self._cluster = cluster
        self._read_committed = read_committed
        self._limits = limits
        self._asked: dict[int, _Asked] = {}
        self._buffers: dict[int, bytearray] = {}
        self._topic_ids: dict[str, UUID] = {}
        self._not_before: dict[TopicPartition, float] = {}
        self._retries: dict[TopicPartition, Retry] = {}
        self._turn = 0

    def close(self) -> None:
        """Whatever is still under way is of no use, and neither are its connections."""
        for asked in self._asked.values():
            asked.connection.close()
        self._asked.clear()

    def send(self) -> None:
        """Ask each leader that has no request under way. Raises TopicRecreated, other KafkaErrors and OSError for
        what fails for too long."""
        under_way = {at for asked in self._asked.values() for at in asked.offsets}
        now = time.monotonic()
        by_node: dict[int, list[TopicPartition]] = {}
        for at in self.positions:
            if at in under_way or self._not_before.get(at, 0.0) > now:
                continue
            try:
                leader = self._cluster.leader(*at)
                if self._topic_ids.setdefault(at.topic, leader.topic_id) != leader.topic_id:
                    raise TopicRecreated(at.topic)
                if leader.node_id < 0:
                    raise KafkaError(ErrorCode.leader_not_available, f"partition {at}")
            except TopicRecreated:
                raise
            except (KafkaError, OSError) as error:
                self._put_off(at, error)
                continue
            if leader.node_id not in self._asked:
                by_node.setdefault(leader.node_id, []).append(at)
        for node_id, partitions in by_node.items():
            try:
                self._ask(node_id, self._turned(partitions))
            except OSError as error:
                for at in partitions:
                    self._put_off(at, error)

    def receive(self, timeout_s: float) -> list[tuple[TopicPartition, Chunk]]:
        """Answers of leaders; empty after `timeout_s` without one. Send before and after. Records are valid until the
        next call. Raises KafkaError, OSError.

        Records are valid until the next call. Raises KafkaError, OSError.
        """
        poll = select.poll()
        nodes = {asked.connection.fileno(): node_id for node_id, asked in self._asked.items()}
        for descriptor in nodes:
            poll.register(descriptor, select.POLLIN)
        found = []
        for descriptor, _ in poll.poll(max(0.0, timeout_s) * 1000):
            found += self._receive(nodes[descriptor])
        for node_id, asked in list(self._asked.items()):
            if asked.deadline < time.monotonic():
                self._failed(node_id, TimeoutError("no answer in time"))
        return found

    def _turned(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Rotate the partitions: brokers fill an answer in the order of the request."""
        self._turn += 1
        first = self._turn % len(partitions)
        return partitions[first:] + partitions[:first]

    def _ask(self, node_id: int, partitions: list[TopicPartition]) -> None:
        topics: dict[str, FetchTopic] = {}
        for at in partitions:
            leader = self._cluster.leader(*at)
            topic = topics.setdefault(at.topic, FetchTopic(at.topic, leader.topic_id, []))
            topic.partitions.append(
                FetchPartition(at.partition, self.positions[at], self._limits.bytes_max, leader.epoch)
            )
        limits = self._limits
        request = FetchRequest(
            limits.wait_ms_max, limits.bytes_min, limits.bytes_max, list(topics.values()), int(self._read_committed)
        )
        connection = self._cluster.connect(node_id)
        has_ids = all(topic.topic_id != ZERO_UUID for topic in topics.values())
        version = connection.version(
            ApiKey.FETCH, fetch.VERSION_MIN, VERSION_MAX if has_ids else fetch.TOPIC_IDS_SINCE - 1
        )
        client_id = self._cluster.config.client_id
        frame = fetch.encode_request(version, connection.following_id, client_id, request)
        correlation_id = connection.send_frame(frame)
        deadline = time.monotonic() + self._cluster.config.request_timeout_s
        offsets = {at: self.positions[at] for at in partitions}
        self._asked[node_id] = _Asked(connection, version, correlation_id, offsets, deadline)

    def _receive(self, node_id: int) -> list[tuple[TopicPartition, Chunk]]:
        asked = self._asked[node_id]
        try:
            frame = asked.connection.receive_frame(self._buffers.get(node_id))
            if isinstance(frame.obj, bytearray):
                self._buffers[node_id] = frame.obj
            response = decoded(asked.connection, asked.version, asked.correlation_id, frame)
        except OSError as error:
            self._failed(node_id, error)
            return []
        del self._asked[node_id]
        self._cluster.spare(node_id, asked.connection)
        names = {self._topic_ids.get(at.topic): at.topic for at in asked.offsets}
        found: list[tuple[TopicPartition, Chunk]] = []
        ends: dict[TopicPartition, Offset] = {}
        for topic in response.topics:
            name = topic.name or names.get(topic.topic_id)
            for row in topic.partitions if name is not None else ():
                at = TopicPartition(str(name), row.partition_index)
                # A caller that has set a position since wants no answer to an older one.
                if at in asked.offsets and self.positions.get(at) == asked.offsets[at]:
                    chunk = self._chunk(at, row)
                    if chunk is not None:
                        found.append((at, chunk))
                    elif at not in self.out_of_range and not row.error_code:
                        ends[at] = row.last_stable_offset if self._read_committed else row.high_watermark
        if not found:  # and none is only left out for want of room
            self.empty.update(ends)
        if response.error_code:
            for at in asked.offsets:
                self._put_off(at, KafkaError(ErrorCode(response.error_code), f"partition {at}"))
        return found

    def _chunk(self, at: TopicPartition, row: FetchedPartition) -> Chunk | None:
        code = ErrorCode(row.error_code)
        if code is ErrorCode.offset_out_of_range:
            bounds = self._cluster.bounds(at)
            offset = self.positions.pop(at)
            self.out_of_range[at] = OffsetOutOfRange(f"{at.topic}-{at.partition}", offset, *bounds)
            return None
        if code is not ErrorCode.none:
            self._put_off(at, KafkaError(code, f"partition {at}"))
            return None
        self._retries.pop(at, None)
        records = memoryview(row.records) if row.records else memoryview(b"")  # type: ignore[arg-type]
        following = next_offset(records)
        begun = self.positions[at]
        if following <= begun:
            return None
        self.positions[at] = following
        aborted = list(row.aborted_transactions or ()) if self._read_committed else None
        return Chunk(records, begun, following, aborted, row.high_watermark, row.log_start_offset)

    def _failed(self, node_id: int, error: OSError) -> None:
        asked = self._asked.pop(node_id)
        asked.connection.close()
        for at in asked.offsets:
            self._put_off(at, error)

    def _put_off(self, at: TopicPartition, error: KafkaError | OSError) -> None:
        """Ask again a little later, of whoever leads then. Raises `error` when it is no use, or the time is over."""
        if isinstance(error, KafkaError) and error.code not in RETRIABLE:
            raise error
        retry = self._retries.setdefault(at, Retry(self._cluster.config.request_timeout_s))
        if retry.is_over:
            raise error
        self._not_before[at] = time.monotonic() + _BACKOFF_S
        self._cluster.drop(at.topic)
