"""Fetch (API 1), requests and responses in every version that Kafka 4 serves, by hand: this is the hot path.

A response is encoded to parts: bytes, and between them the records as the caller gave them, so that slices of files go
from disk to socket by sendfile. Version 7 has sessions (KIP-227), 12 is flexible, 13 names topics by id (KIP-516),
15 moves the replica id to a tagged field (KIP-903), 16 has leader hints (KIP-951), 17 directory ids (KIP-853),
18 the follower's high watermark (KIP-1166).
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from ottla.model import ZERO_UUID, Buffer
from ottla.protocol.messages import ApiKey, MalformedRequest, response_header
from ottla.protocol.wire import (
    ELEMENTS_MAX,
    INT32,
    INT64,
    LeaderIdAndEpoch,
    NodeEndpoint,
    end_of_tags,
    endpoints_bytes,
    guarded,
    guarded_steps,
    leader_bytes,
    read_count,
    read_endpoints,
    read_leader,
    read_name,
    read_records,
    read_string,
    read_tags,
    read_uuid,
    request_header,
    uuid_bytes,
    write_count,
    write_string,
    write_tags,
)
from ottla.steps import at_once, without_pauses

VERSION_MIN: Final = 4
VERSION_MAX: Final = 18
FLEXIBLE_SINCE: Final = 12
TOPIC_IDS_SINCE: Final = 13
_START_OFFSET_SINCE: Final = 5
_SESSIONS_SINCE: Final = 7
_LEADER_EPOCH_SINCE: Final = 9
_RACK_SINCE: Final = 11
_REPLICA_STATE_SINCE: Final = 15
_ENDPOINTS_SINCE: Final = 16
_DIRECTORY_SINCE: Final = 17
_HIGH_WATERMARK_SINCE: Final = 18

ROWS_PER_STEP: Final = 200
"""Partitions, or topics, that cost a few microseconds each; a request that has no more is decoded in one step."""

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
"""Session epoch of a request that neither has nor wants a session."""
UNKNOWN_HIGH_WATERMARK: Final = 2**63 - 1
"""The follower does not say (before version 18)."""

_LIMITS = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_REPLICA_STATE = struct.Struct(">iqx")
_RESPONSE_START = struct.Struct(">ihi")
_PARTITION_START = struct.Struct(">ihqqq")
_PARTITION_START_V4 = struct.Struct(">ihqq")
_ABORTED = struct.Struct(">qq")
_EPOCH_AND_OFFSET = struct.Struct(">iqx")
_OFFSET_AND_EPOCH = struct.Struct(">qix")


class RecordsSlice(Protocol):
    """Records that are not in memory: a range of a file that the server sends without reading it."""

    @property
    def length(self) -> int: ...


Records = Buffer | RecordsSlice


class FetchPartition(NamedTuple):
    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    replica_directory_id: UUID = ZERO_UUID
    high_watermark: int = UNKNOWN_HIGH_WATERMARK


class FetchTopic:
    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str | None, topic_id: UUID | None, partitions: list[FetchPartition]) -> None:
        self.name = name
        """None from version 13 on, which has `topic_id` instead."""
        self.topic_id = topic_id
        self.partitions = partitions

    def __eq__(self, other: object) -> bool:
        return type(other) is FetchTopic and _is_equal(self, other)


@dataclass(slots=True)
class ForgottenTopic:
    name: str | None
    topic_id: UUID | None
    partitions: list[int]


class FetchRequest:
    __slots__ = (
        "cluster_id", "forgotten_topics", "isolation_level", "max_bytes", "max_wait_ms", "min_bytes", "rack_id",
        "replica_epoch", "replica_id", "session_epoch", "session_id", "topics",
    )  # fmt: skip

    def __init__(
        self,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        topics: list[FetchTopic],
        isolation_level: int = 0,
        session_id: int = NO_SESSION,
        session_epoch: int = FINAL_EPOCH,
        forgotten_topics: Sequence[ForgottenTopic] = (),
        rack_id: str = "",
        replica_id: int = -1,
        replica_epoch: int = -1,
        cluster_id: str | None = None,
    ) -> None:
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.topics = topics
        self.isolation_level = isolation_level
        """1 for read_committed."""
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.forgotten_topics = forgotten_topics
        self.rack_id = rack_id
        self.replica_id = replica_id
        """-1 for consumers; from the replica state in version 15 and later."""
        self.replica_epoch = replica_epoch
        self.cluster_id = cluster_id

    def __eq__(self, other: object) -> bool:
        return type(other) is FetchRequest and _is_equal(self, other)


def _is_equal(one: Any, other: Any) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in one.__slots__)


class EpochEndOffset(NamedTuple):
    """Where a follower's log diverges from its leader's (KIP-595)."""

    epoch: int = -1
    end_offset: int = -1


class SnapshotId(NamedTuple):
    """The snapshot to fetch instead, when the log no longer reaches back to the fetch offset (KIP-630)."""

    end_offset: int = -1
    epoch: int = -1


@dataclass(slots=True)
class FetchedPartition:
    partition_index: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[tuple[int, int]] | None = None
    """(producer id, first offset); None unless the request was read_committed."""
    preferred_read_replica: int = -1
    records: Records | None = b""
    diverging_epoch: EpochEndOffset | None = None
    current_leader: LeaderIdAndEpoch | None = None
    snapshot_id: SnapshotId | None = None


@dataclass(slots=True)
class FetchedTopic:
    name: str | None
    topic_id: UUID | None
    partitions: list[FetchedPartition]


@dataclass(slots=True)
class FetchResponse:
    topics: list[FetchedTopic]
    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = NO_SESSION
    node_endpoints: Sequence[NodeEndpoint] = ()


class EncodedResponse(NamedTuple):
    parts: list[Records]
    """In order: bytes of this codec and the caller's records, untouched."""
    size: int
    """Size of all parts together: the frame's length prefix."""


# Requests


@guarded_steps
def decode_in_steps(version: int, frame: Buffer, position: int) -> Generator[int, None, FetchRequest]:
    """The request whose body starts at `position`; yields the cost of many partitions. Raises MalformedRequest."""
    flexible = version >= FLEXIBLE_SINCE
    request = FetchRequest(0, 0, 0, [])
    if version < _REPLICA_STATE_SINCE:  # KIP-903 moves it to a tag, with the broker's epoch
        (request.replica_id,) = INT32.unpack_from(frame, position)
        position += 4
    request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level = _LIMITS.unpack_from(
        frame, position
    )
    position += _LIMITS.size
    if version >= _SESSIONS_SINCE:  # without them a fetch has no session (KIP-227)
        request.session_id, request.session_epoch = _SESSION.unpack_from(frame, position)
        position += 8
    request.topics, position = yield from _read_topics(version, frame, position)
    if version >= _SESSIONS_SINCE:
        request.forgotten_topics, position = yield from _read_forgotten(version, frame, position)
    if version >= _RACK_SINCE:  # for the choice of a replica near by (KIP-392)
        request.rack_id, position = read_name(frame, position, flexible)
    if flexible and frame[position]:
        tags, _ = read_tags(frame, position)
        if 0 in tags:  # voters of the metadata log say it (KIP-595)
            request.cluster_id, _ = read_string(frame, tags[0][0], True)
        if 1 in tags and version >= _REPLICA_STATE_SINCE:
            request.replica_id, request.replica_epoch = _REPLICA_STATE.unpack_from(frame, tags[1][0])
    return request


decode_request = without_pauses(decode_in_steps)


def _partition_layout(version: int) -> tuple[struct.Struct, tuple[int, ...]]:
    """The fixed part of a partition, and where each of FetchPartition's first six fields is in it (-1: absent)."""
    names = ["partition"]
    names += ["current_leader_epoch"] if version >= _LEADER_EPOCH_SINCE else []  # fences old leaders (KIP-320)
    names += ["fetch_offset"]
    names += ["last_fetched_epoch"] if version >= FLEXIBLE_SINCE else []  # finds where logs diverge (KIP-595)
    names += ["log_start_offset"] if version >= _START_OFFSET_SINCE else []  # the follower's (KIP-107)
    names += ["partition_max_bytes"]
    layout = struct.Struct(">" + "".join("q" if name.endswith("offset") else "i" for name in names))
    return layout, tuple(names.index(name) if name in names else -1 for name in FetchPartition._fields[:6])


_LAYOUTS: Final = {version: _partition_layout(version) for version in range(VERSION_MIN, VERSION_MAX + 1)}


def _read_topic_key(version: int, frame: Buffer, position: int) -> tuple[str | None, UUID | None, int]:
    if version >= TOPIC_IDS_SINCE:  # a topic that is deleted and made again is another one (KIP-516)
        topic_id, position = read_uuid(frame, position)
        return None, topic_id, position
    name, position = read_name(frame, position, version >= FLEXIBLE_SINCE)
    return name, None, position


def _read_topics(version: int, frame: Buffer, position: int) -> Generator[int, None, tuple[list[FetchTopic], int]]:
    flexible = version >= FLEXIBLE_SINCE
    layout, order = _LAYOUTS[version]
    count, position = read_count(frame, position, flexible, 3 if flexible else 6)
    topics = []
    budget = ELEMENTS_MAX
    room = ROWS_PER_STEP
    for _ in range(count):
        name, topic_id, position = _read_topic_key(version, frame, position)
        partition_count, position = read_count(frame, position, flexible, layout.size)
        budget -= partition_count
        if budget < 0:
            raise MalformedRequest("too many partitions")
        partitions = []
        for _ in range(partition_count):
            values = (*layout.unpack_from(frame, position), -1)
            partition = FetchPartition(*[values[index] for index in order])
            position += layout.size
            if flexible:
                if frame[position]:
                    partition, position = _read_partition_tags(version, frame, position, partition)
                else:
                    position += 1
            partitions.append(partition)
            room -= 1
            if not room:
                room = ROWS_PER_STEP
                yield 2 * ROWS_PER_STEP
        if flexible:
            position = end_of_tags(frame, position)
        topics.append(FetchTopic(name, topic_id, partitions))
        if len(topics) % ROWS_PER_STEP == 0:
            yield 8 * ROWS_PER_STEP
    return topics, position


def _read_partition_tags(
    version: int, frame: Buffer, position: int, partition: FetchPartition
) -> tuple[FetchPartition, int]:
    tags, position = read_tags(frame, position)
    if 0 in tags and version >= _DIRECTORY_SINCE:  # a voter is an id and a directory (KIP-853)
        partition = partition._replace(replica_directory_id=read_uuid(frame, tags[0][0])[0])
    if 1 in tags and version >= _HIGH_WATERMARK_SINCE:  # a follower that knows less is answered at once (KIP-1166)
        partition = partition._replace(high_watermark=INT64.unpack_from(frame, tags[1][0])[0])
    return partition, position


def _read_forgotten(
    version: int, frame: Buffer, position: int
) -> Generator[int, None, tuple[list[ForgottenTopic], int]]:
    flexible = version >= FLEXIBLE_SINCE
    count, position = read_count(frame, position, flexible, 3 if flexible else 6)
    topics = []
    budget = ELEMENTS_MAX
    for _ in range(count):
        name, topic_id, position = _read_topic_key(version, frame, position)
        partition_count, position = read_count(frame, position, flexible, 4)
        budget -= partition_count
        if budget < 0:
            raise MalformedRequest("too many partitions")
        partitions = list(struct.unpack_from(f">{partition_count}i", frame, position))
        position += 4 * partition_count
        if flexible:
            position = end_of_tags(frame, position)
        topics.append(ForgottenTopic(name, topic_id, partitions))
        if partition_count > ROWS_PER_STEP or len(topics) % ROWS_PER_STEP == 0:
            yield 5 * ROWS_PER_STEP + partition_count // 16
    return topics, position


def encode_request(version: int, correlation_id: int, client_id: str | None, request: FetchRequest) -> bytearray:
    """A request frame without its length prefix, as a client sends it. Fields that the version lacks are left out."""
    flexible = version >= FLEXIBLE_SINCE
    out = request_header(ApiKey.FETCH, version, correlation_id, client_id, flexible)
    if version < _REPLICA_STATE_SINCE:
        out += INT32.pack(request.replica_id)
    out += _LIMITS.pack(request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level)
    if version >= _SESSIONS_SINCE:
        out += _SESSION.pack(request.session_id, request.session_epoch)
    write_count(out, len(request.topics), flexible)
    for topic in request.topics:
        _write_topic_key(out, version, topic)
        write_count(out, len(topic.partitions), flexible)
        for partition in topic.partitions:
            _write_request_partition(out, version, partition)
        if flexible:
            out.append(0)
    if version >= _SESSIONS_SINCE:
        write_count(out, len(request.forgotten_topics), flexible)
        for forgotten in request.forgotten_topics:
            _write_topic_key(out, version, forgotten)
            write_count(out, len(forgotten.partitions), flexible)
            out += struct.pack(f">{len(forgotten.partitions)}i", *forgotten.partitions)
            if flexible:
                out.append(0)
    if version >= _RACK_SINCE:
        write_string(out, request.rack_id, flexible)
    if flexible:
        tags = []
        if request.cluster_id is not None:
            cluster_id = bytearray()
            write_string(cluster_id, request.cluster_id, True)
            tags.append((0, cluster_id))
        if version >= _REPLICA_STATE_SINCE and (request.replica_id, request.replica_epoch) != (-1, -1):
            tags.append((1, bytearray(_REPLICA_STATE.pack(request.replica_id, request.replica_epoch))))
        write_tags(out, tags)
    return out


def _write_topic_key(out: bytearray, version: int, topic: FetchTopic | ForgottenTopic | FetchedTopic) -> None:
    if version >= TOPIC_IDS_SINCE:
        out += uuid_bytes(topic.topic_id)
    else:
        write_string(out, topic.name, version >= FLEXIBLE_SINCE)


def _write_request_partition(out: bytearray, version: int, partition: FetchPartition) -> None:
    layout, order = _LAYOUTS[version]
    present = sorted((index, field) for field, index in enumerate(order) if index >= 0)
    out += layout.pack(*[partition[field] for _, field in present])
    if version >= FLEXIBLE_SINCE:
        tags = []
        if version >= _DIRECTORY_SINCE and partition.replica_directory_id != ZERO_UUID:
            tags.append((0, partition.replica_directory_id.bytes))
        if version >= _HIGH_WATERMARK_SINCE and partition.high_watermark != UNKNOWN_HIGH_WATERMARK:
            tags.append((1, INT64.pack(partition.high_watermark)))
        write_tags(out, tags)


# Responses


def records_length(records: Records | None) -> int:
    """Bytes of records, in memory or not."""
    if records is None:
        return 0
    return len(records) if isinstance(records, bytes | bytearray | memoryview) else records.length


def encode_response(version: int, correlation_id: int, response: FetchResponse) -> EncodedResponse:
    """A response frame without its length prefix, in parts. Fields that the version lacks are left out."""
    return at_once(encode_response_in_steps(version, correlation_id, response))


def encode_response_in_steps(
    version: int, correlation_id: int, response: FetchResponse
) -> Generator[int, None, EncodedResponse]:
    """The same; yields the cost of many partitions."""
    flexible = version >= FLEXIBLE_SINCE
    parts: list[Records] = []
    size = 0
    out = bytearray(response_header(ApiKey.FETCH, version, correlation_id))
    if version >= _SESSIONS_SINCE:
        out += _RESPONSE_START.pack(response.throttle_time_ms, response.error_code, response.session_id)
    else:
        out += INT32.pack(response.throttle_time_ms)
    _write_length(out, len(response.topics), flexible)
    rows = 0
    for topic in response.topics:
        _write_topic_key(out, version, topic)
        _write_length(out, len(topic.partitions), flexible)
        for partition in topic.partitions:
            _write_partition(out, version, partition)
            records = partition.records
            length = records_length(records)
            _write_length(out, -1 if records is None else length, flexible)
            if records is not None and length:
                parts += (out, records)
                size += len(out) + length
                out = bytearray()
            if flexible:
                _write_partition_tags(out, partition)
            rows += 1
            if rows == ROWS_PER_STEP:
                rows = 0
                yield 5 * ROWS_PER_STEP
        if flexible:
            out.append(0)
    if flexible:
        if response.node_endpoints and version >= _ENDPOINTS_SINCE:  # where the new leaders are (KIP-951)
            write_tags(out, [(0, endpoints_bytes(response.node_endpoints))])
        else:
            out.append(0)
    if out:
        parts.append(out)
    return EncodedResponse(parts, size + len(out))


def _write_length(out: bytearray, length: int, flexible: bool) -> None:
    """Like `write_count`, typed."""
    if flexible:
        length += 1
        while length > 0x7F:
            out.append(length & 0x7F | 0x80)
            length >>= 7
        out.append(length)
    else:
        out += INT32.pack(length)


def _write_partition(out: bytearray, version: int, partition: FetchedPartition) -> None:
    """All of a partition that comes before its records."""
    if version >= _START_OFFSET_SINCE:
        out += _PARTITION_START.pack(
            partition.partition_index,
            partition.error_code,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.log_start_offset,
        )
    else:
        out += _PARTITION_START_V4.pack(
            partition.partition_index, partition.error_code, partition.high_watermark, partition.last_stable_offset
        )
    flexible = version >= FLEXIBLE_SINCE
    aborted = partition.aborted_transactions  # none is null: only readers of committed records get a list (KIP-98)
    _write_length(out, -1 if aborted is None else len(aborted), flexible)
    for transaction in aborted or ():
        out += _ABORTED.pack(*transaction)
        if flexible:
            out.append(0)
    if version >= _RACK_SINCE:  # to fetch from next (KIP-392)
        out += INT32.pack(partition.preferred_read_replica)


def _write_partition_tags(out: bytearray, partition: FetchedPartition) -> None:
    diverging, leader, snapshot = partition.diverging_epoch, partition.current_leader, partition.snapshot_id
    if diverging is None and leader is None and snapshot is None:
        out.append(0)
        return
    tags = []  # with its default a tagged field is left out (KIP-482)
    if diverging is not None and diverging != (-1, -1):  # the follower truncates to it (KIP-595)
        tags.append((0, _EPOCH_AND_OFFSET.pack(*diverging)))
    if leader is not None and leader != (-1, -1):  # the client need not ask for metadata (KIP-951)
        tags.append((1, leader_bytes(leader)))
    if snapshot is not None and snapshot != (-1, -1):  # the log no longer reaches back so far (KIP-630)
        tags.append((2, _OFFSET_AND_EPOCH.pack(*snapshot)))
    write_tags(out, tags)


def decode_response(version: int, frame: Buffer) -> tuple[int, FetchResponse]:
    """(correlation id, response) of a frame without its length prefix; records are views. Raises MalformedRequest."""
    return _decode_response(version, frame, 0)


@guarded
def _decode_response(version: int, frame: Buffer, position: int) -> tuple[int, FetchResponse]:
    flexible = version >= FLEXIBLE_SINCE
    response = FetchResponse([])
    (correlation_id,) = INT32.unpack_from(frame, position)
    position = read_response_start(version, frame, position, response)
    count, position = read_count(frame, position, flexible, 3)
    for _ in range(count):
        name, topic_id, position = _read_topic_key(version, frame, position)
        partition_count, position = read_count(frame, position, flexible, _PARTITION_START_V4.size)
        partitions = []
        for _ in range(partition_count):
            partition, position = read_partition(version, frame, position)
            partitions.append(partition)
        if flexible:
            position = end_of_tags(frame, position)
        response.topics.append(FetchedTopic(name, topic_id, partitions))
    read_response_end(version, frame, position, response)
    return correlation_id, response


def read_response_start(version: int, frame: Buffer, position: int, response: FetchResponse) -> int:
    """Read the fields before the topics; returns the position after them."""
    position = end_of_tags(frame, position + 4) if version >= FLEXIBLE_SINCE else position + 4
    if version >= _SESSIONS_SINCE:
        response.throttle_time_ms, response.error_code, response.session_id = _RESPONSE_START.unpack_from(
            frame, position
        )
        return position + _RESPONSE_START.size
    (response.throttle_time_ms,) = INT32.unpack_from(frame, position)
    return position + 4


def read_response_end(version: int, frame: Buffer, position: int, response: FetchResponse) -> None:
    """Read the fields after the topics."""
    if version >= FLEXIBLE_SINCE:
        tags, _ = read_tags(frame, position)
        if 0 in tags and version >= _ENDPOINTS_SINCE:
            response.node_endpoints = read_endpoints(frame, tags[0][0])


def read_partition_start(version: int, frame: Buffer, position: int) -> FetchedPartition:
    """Read the fields before the records of a partition, except its aborted transactions."""
    layout = _PARTITION_START if version >= _START_OFFSET_SINCE else _PARTITION_START_V4
    return FetchedPartition(*layout.unpack_from(frame, position))


def read_partition(version: int, frame: Buffer, position: int) -> tuple[FetchedPartition, int]:
    """A partition of a response, its records as a view, and the position after it."""
    flexible = version >= FLEXIBLE_SINCE
    layout = _PARTITION_START if version >= _START_OFFSET_SINCE else _PARTITION_START_V4
    partition = read_partition_start(version, frame, position)
    count, position = read_count(frame, position + layout.size, flexible, _ABORTED.size, nullable=True)
    if count >= 0:
        aborted = []
        for _ in range(count):
            aborted.append(_ABORTED.unpack_from(frame, position))
            position += _ABORTED.size
            if flexible:
                position = end_of_tags(frame, position)
        partition.aborted_transactions = aborted
    if version >= _RACK_SINCE:
        (partition.preferred_read_replica,) = INT32.unpack_from(frame, position)
        position += 4
    partition.records, position = read_records(frame, position, flexible)
    if flexible:
        tags, position = read_tags(frame, position)
        if 0 in tags:
            partition.diverging_epoch = EpochEndOffset(*_EPOCH_AND_OFFSET.unpack_from(frame, tags[0][0]))
        if 1 in tags:
            partition.current_leader = read_leader(frame, tags[1][0])
        if 2 in tags:
            partition.snapshot_id = SnapshotId(*_OFFSET_AND_EPOCH.unpack_from(frame, tags[2][0]))
    return partition, position
