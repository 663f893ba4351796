"""Fetch (API 1) in every version that Kafka 4 serves, by hand: messages and rows, requests encoded and decoded.
`fetch_responses.py` has the bytes of responses.

Version 7 has sessions (KIP-227), 12 is flexible, 13 names topics by id (KIP-516), 15 moves the replica id to a tagged
field (KIP-903), 16 has leader hints (KIP-951), 17 directory ids (KIP-853), 18 the follower's high watermark (KIP-1166).
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from ottla.model import ZERO_UUID, Buffer
from ottla.protocol.messages import ApiKey, MalformedRequest
from ottla.protocol.wire import (
    ELEMENTS_MAX,
    INT32,
    INT64,
    LeaderIdAndEpoch,
    NodeEndpoint,
    end_of_tags,
    guarded_steps,
    read_count,
    read_name,
    read_string,
    read_tags,
    read_uuid,
    request_header,
    uuid_bytes,
    write_count,
    write_string,
    write_tags,
)
from ottla.steps import without_pauses

VERSION_MIN: Final = 4
VERSION_MAX: Final = 18
FLEXIBLE_SINCE: Final = 12
TOPIC_IDS_SINCE: Final = 13
START_OFFSET_SINCE: Final = 5
SESSIONS_SINCE: Final = 7
_LEADER_EPOCH_SINCE: Final = 9
RACK_SINCE: Final = 11
_REPLICA_STATE_SINCE: Final = 15
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


class RecordsSlice(Protocol):
    """Records that are not in memory: a range of a file that the server sends without reading it."""

    @property
    def length(self) -> int: ...


Records = Buffer | RecordsSlice


def records_length(records: Records | None) -> int:
    """Bytes of records, in memory or not."""
    if records is None:
        return 0
    return len(records) if isinstance(records, bytes | bytearray | memoryview) else records.length


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
    if version >= SESSIONS_SINCE:  # without them a fetch has no session (KIP-227)
        request.session_id, request.session_epoch = _SESSION.unpack_from(frame, position)
        position += 8
    request.topics, position = yield from _read_topics(version, frame, position)
    if version >= SESSIONS_SINCE:
        request.forgotten_topics, position = yield from _read_forgotten(version, frame, position)
    if version >= RACK_SINCE:  # for the choice of a replica near by (KIP-392)
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
    names += ["log_start_offset"] if version >= START_OFFSET_SINCE else []  # the follower's (KIP-107)
    names += ["partition_max_bytes"]
    layout = struct.Struct(">" + "".join("q" if name.endswith("offset") else "i" for name in names))
    return layout, tuple(names.index(name) if name in names else -1 for name in FetchPartition._fields[:6])


_LAYOUTS: Final = {version: _partition_layout(version) for version in range(VERSION_MIN, VERSION_MAX + 1)}


def read_topic_key(version: int, frame: Buffer, position: int) -> tuple[str | None, UUID | None, int]:
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
        name, topic_id, position = read_topic_key(version, frame, position)
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
        name, topic_id, position = read_topic_key(version, frame, position)
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
    if version >= SESSIONS_SINCE:
        out += _SESSION.pack(request.session_id, request.session_epoch)
    write_count(out, len(request.topics), flexible)
    for topic in request.topics:
        write_topic_key(out, version, topic)
        write_count(out, len(topic.partitions), flexible)
        for partition in topic.partitions:
            _write_request_partition(out, version, partition)
        if flexible:
            out.append(0)
    if version >= SESSIONS_SINCE:
        write_count(out, len(request.forgotten_topics), flexible)
        for forgotten in request.forgotten_topics:
            write_topic_key(out, version, forgotten)
            write_count(out, len(forgotten.partitions), flexible)
            out += struct.pack(f">{len(forgotten.partitions)}i", *forgotten.partitions)
            if flexible:
                out.append(0)
    if version >= RACK_SINCE:
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


def write_topic_key(out: bytearray, version: int, topic: FetchTopic | ForgottenTopic | FetchedTopic) -> None:
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
