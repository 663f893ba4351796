"""Fetch (API 1) in every version that Kafka 4 serves: requests, responses and their rows as nodes keep them.

Requests travel as all messages do; plain ones are decoded by hand (`fetch_plain.py`), and responses encoded
(`fetch_responses.py`).

Version 7 has sessions (KIP-227), 12 is flexible, 13 names topics by id (KIP-516), 15 moves the replica id to a tagged
field (KIP-903), 16 has leader hints (KIP-951), 17 directory ids (KIP-853), 18 the follower's high watermark (KIP-1166).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from ottla.model import ZERO_UUID, Buffer
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.protocol.wire import LeaderIdAndEpoch, NodeEndpoint, read_name, read_uuid, uuid_bytes, write_string
from ottla.steps import without_pauses

VERSION_MIN: Final = 4
VERSION_MAX: Final = 18
FLEXIBLE_SINCE: Final = 12
TOPIC_IDS_SINCE: Final = 13
START_OFFSET_SINCE: Final = 5
SESSIONS_SINCE: Final = 7
RACK_SINCE: Final = 11
_REPLICA_STATE_SINCE: Final = 15

ROWS_PER_STEP: Final = 200
"""Partitions, or topics, that cost a few microseconds each; a request that has no more is decoded in one step."""

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
"""Session epoch of a request that neither has nor wants a session."""
UNKNOWN_HIGH_WATERMARK: Final = 2**63 - 1
"""The follower does not say (before version 18)."""

_new = tuple.__new__


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


def decode_in_steps(version: int, frame: Buffer, position: int) -> Generator[int, None, FetchRequest]:
    """The request whose body starts at `position`; yields the cost of many partitions. Raises MalformedRequest."""
    message = yield from messages.decode_request_in_steps(ApiKey.FETCH, version, memoryview(frame), position)
    return (yield from request_of(version, message))


decode_request = without_pauses(decode_in_steps)


def request_of(version: int, message: Any) -> Generator[int, None, FetchRequest]:
    """The request that `message` is; yields the cost of many partitions. Rows of `message` are freed one by one."""
    by_id = version >= TOPIC_IDS_SINCE  # a topic that is deleted and made again is another one (KIP-516)
    request = FetchRequest(message.max_wait, message.min_bytes, message.max_bytes, [])
    request.isolation_level, request.cluster_id = message.isolation_level, message.cluster_id
    if version >= SESSIONS_SINCE:  # without them a fetch has no session (KIP-227)
        request.session_id, request.session_epoch = message.session_id, message.session_epoch
    request.rack_id = message.rack_id
    state = message if version < _REPLICA_STATE_SINCE else message.replica_state  # KIP-903 adds the broker's epoch
    request.replica_id, request.replica_epoch = state.replica_id, message.replica_state.replica_epoch
    room = ROWS_PER_STEP
    topics, message.topics = list(reversed(message.topics)), ()
    while topics:
        topic = topics.pop()
        rows, topic.partitions = list(reversed(topic.partitions)), ()
        name, topic_id = (None, topic.topic_id) if by_id else (topic.topic, None)
        partitions: list[FetchPartition] = []
        request.topics.append(FetchTopic(name, topic_id, partitions))
        room -= 1
        while rows:
            partitions.append(_partition_of(rows.pop()))
            room -= 1
            if room <= 0:
                room = ROWS_PER_STEP
                yield 2 * ROWS_PER_STEP
    forgotten: list[ForgottenTopic] = []
    for gone in message.forgotten_topics_data:
        name, topic_id = (None, gone.topic_id) if by_id else (gone.topic, None)
        forgotten.append(ForgottenTopic(name, topic_id, list(gone.partitions)))
        room -= 1 + len(gone.partitions) // 16
        if room <= 0:
            room = ROWS_PER_STEP
            yield 5 * ROWS_PER_STEP
    if version >= SESSIONS_SINCE:
        request.forgotten_topics = forgotten
    return request


def _partition_of(row: Any) -> FetchPartition:
    return _new(
        FetchPartition,
        (
            row.partition,
            row.fetch_offset,
            row.partition_max_bytes,
            row.current_leader_epoch,
            row.last_fetched_epoch,
            row.log_start_offset,
            row.replica_directory_id,
            row.high_watermark,
        ),
    )


def encode_request(version: int, correlation_id: int, client_id: str | None, request: FetchRequest) -> bytes:
    """A request frame without its length prefix, as a client sends it. Fields that the version lacks are left out."""
    values = {
        "cluster_id": request.cluster_id,
        "replica_id": request.replica_id,
        "replica_state": {"replica_id": request.replica_id, "replica_epoch": request.replica_epoch},
        "max_wait": request.max_wait_ms,
        "min_bytes": request.min_bytes,
        "max_bytes": request.max_bytes,
        "isolation_level": request.isolation_level,
        "session_id": request.session_id,
        "session_epoch": request.session_epoch,
        "topics": [_topic_values(topic) for topic in request.topics],
        "forgotten_topics_data": [_topic_values(topic) for topic in request.forgotten_topics],
        "rack_id": request.rack_id,
    }
    return messages.encode_request(ApiKey.FETCH, version, correlation_id, client_id, values)


def _topic_values(topic: FetchTopic | ForgottenTopic) -> dict[str, Any]:
    """Rows have the names of the message's fields."""
    return {"topic": topic.name or "", "topic_id": topic.topic_id, "partitions": topic.partitions}


def read_topic_key(version: int, frame: Buffer, position: int) -> tuple[str | None, UUID | None, int]:
    if version >= TOPIC_IDS_SINCE:  # a topic that is deleted and made again is another one (KIP-516)
        topic_id, position = read_uuid(frame, position)
        return None, topic_id, position
    name, position = read_name(frame, position, version >= FLEXIBLE_SINCE)
    return name, None, position


def write_topic_key(out: bytearray, version: int, topic: FetchTopic | ForgottenTopic | FetchedTopic) -> None:
    if version >= TOPIC_IDS_SINCE:
        out += uuid_bytes(topic.topic_id)
    else:
        write_string(out, topic.name, version >= FLEXIBLE_SINCE)
