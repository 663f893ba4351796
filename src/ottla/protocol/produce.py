"""Produce (API 0), requests and responses in every version that Kafka 4 serves, by hand: this is the hot path.

Decoding copies no records: they are views into the frame. Versions 0-2 are advertised, as Kafka does for librdkafka's
sake, and refused (KAFKA-18659). Version 8 has record errors (KIP-467), 9 is flexible, 10 has leader hints (KIP-951),
13 names topics by id (KIP-516).
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla.model import Buffer
from ottla.protocol.messages import ApiKey, MalformedRequest, response_header
from ottla.protocol.wire import (
    ELEMENTS_MAX,
    INT32,
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
from ottla.steps import without_pauses

VERSION_MIN: Final = 3
VERSION_MAX: Final = 13
FLEXIBLE_SINCE: Final = 9
TOPIC_IDS_SINCE: Final = 13
_RECORD_ERRORS_SINCE: Final = 8
_LEADERS_SINCE: Final = 10
_START_OFFSET_SINCE: Final = 5

ROWS_PER_STEP: Final = 32
"""Partitions: so many batches are appended at once, more of them one by one, from a copy of the request."""

_ACKS_TIMEOUT = struct.Struct(">hi")
_PARTITION = struct.Struct(">ihqq")
_PARTITION_START_OFFSET = struct.Struct(">ihqqq")


@dataclass(slots=True)
class ProducePartition:
    index: int
    records: Buffer | None
    """A view into the request's frame."""


@dataclass(slots=True)
class ProduceTopic:
    name: str | None
    """None from version 13 on, which has `topic_id` instead."""
    topic_id: UUID | None
    partitions: list[ProducePartition]


@dataclass(slots=True)
class ProduceRequest:
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


@dataclass(slots=True)
class ProducedPartition:
    index: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    """(index in the batch, message) of each record that caused the batch to be refused."""
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch | None = None


@dataclass(slots=True)
class ProducedTopic:
    name: str | None
    topic_id: UUID | None
    partitions: list[ProducedPartition]


@dataclass(slots=True)
class ProduceResponse:
    topics: list[ProducedTopic]
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


@guarded_steps
def decode_in_steps(version: int, frame: Buffer, position: int) -> Generator[int, None, ProduceRequest]:
    """The request whose body starts at `position`; yields the cost of many partitions. Raises MalformedRequest."""
    flexible = version >= FLEXIBLE_SINCE
    transactional_id, position = read_string(frame, position, flexible)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    count, position = read_count(frame, position + 6, flexible, 3 if flexible else 6)
    topics = []
    budget = ELEMENTS_MAX
    room = ROWS_PER_STEP
    for _ in range(count):
        name = topic_id = None
        if version >= TOPIC_IDS_SINCE:
            topic_id, position = read_uuid(frame, position)
        else:
            name, position = read_name(frame, position, flexible)
        partition_count, position = read_count(frame, position, flexible, 6 if flexible else 8)
        budget -= partition_count
        if budget < 0:
            raise MalformedRequest("too many partitions")
        partitions = []
        for _ in range(partition_count):
            (index,) = INT32.unpack_from(frame, position)
            records, position = read_records(frame, position + 4, flexible)
            if flexible:
                position = end_of_tags(frame, position)
            partitions.append(ProducePartition(index, records))
            room -= 1
            if not room:
                room = ROWS_PER_STEP
                yield 2 * ROWS_PER_STEP
        if flexible:
            position = end_of_tags(frame, position)
        topics.append(ProduceTopic(name, topic_id, partitions))
        if len(topics) % ROWS_PER_STEP == 0:
            yield 2 * ROWS_PER_STEP
    if flexible:
        end_of_tags(frame, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


decode_request = without_pauses(decode_in_steps)


def encode_request(version: int, correlation_id: int, client_id: str | None, request: ProduceRequest) -> bytearray:
    """A request frame without its length prefix, as a client sends it."""
    return bytearray().join(request_parts(version, correlation_id, client_id, request))


def request_parts(version: int, correlation_id: int, client_id: str | None, request: ProduceRequest) -> list[Buffer]:
    """The frame of `encode_request` in pieces, in which the records are not copied."""
    flexible = version >= FLEXIBLE_SINCE
    parts: list[Buffer] = []
    out = request_header(ApiKey.PRODUCE, version, correlation_id, client_id, flexible)
    write_string(out, request.transactional_id, flexible)
    out += _ACKS_TIMEOUT.pack(request.acks, request.timeout_ms)
    write_count(out, len(request.topics), flexible)
    for topic in request.topics:
        if version >= TOPIC_IDS_SINCE:
            out += uuid_bytes(topic.topic_id)
        else:
            write_string(out, topic.name, flexible)
        write_count(out, len(topic.partitions), flexible)
        for partition in topic.partitions:
            out += INT32.pack(partition.index)
            records = partition.records
            write_count(out, -1 if records is None else len(records), flexible)
            if records:
                parts += (out, records)
                out = bytearray()
            if flexible:
                out.append(0)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    parts.append(out)
    return parts


def encode_response(version: int, correlation_id: int, response: ProduceResponse) -> bytearray:
    """A response frame without its length prefix. Fields that the version lacks are left out."""
    flexible = version >= FLEXIBLE_SINCE
    out = bytearray(response_header(ApiKey.PRODUCE, version, correlation_id))
    write_count(out, len(response.topics), flexible)
    for topic in response.topics:
        if version >= TOPIC_IDS_SINCE:
            out += uuid_bytes(topic.topic_id)
        else:
            write_string(out, topic.name, flexible)
        write_count(out, len(topic.partitions), flexible)
        for partition in topic.partitions:
            _write_partition(out, version, partition)
        if flexible:
            out.append(0)
    out += INT32.pack(response.throttle_time_ms)
    if flexible:
        if response.node_endpoints and version >= _LEADERS_SINCE:
            write_tags(out, [(0, endpoints_bytes(response.node_endpoints))])
        else:
            out.append(0)
    return out


def _write_partition(out: bytearray, version: int, partition: ProducedPartition) -> None:
    if version >= _START_OFFSET_SINCE:
        out += _PARTITION_START_OFFSET.pack(
            partition.index,
            partition.error_code,
            partition.base_offset,
            partition.log_append_time_ms,
            partition.log_start_offset,
        )
    else:
        out += _PARTITION.pack(
            partition.index, partition.error_code, partition.base_offset, partition.log_append_time_ms
        )
    if version < _RECORD_ERRORS_SINCE:
        return
    flexible = version >= FLEXIBLE_SINCE
    write_count(out, len(partition.record_errors), flexible)
    for index, message in partition.record_errors:
        out += INT32.pack(index)
        write_string(out, message, flexible)
        if flexible:
            out.append(0)
    write_string(out, partition.error_message, flexible)
    if flexible:
        leader = partition.current_leader
        if leader is not None and leader != (-1, -1) and version >= _LEADERS_SINCE:
            write_tags(out, [(0, leader_bytes(leader))])
        else:
            out.append(0)


def decode_response(version: int, frame: Buffer) -> tuple[int, ProduceResponse]:
    """(correlation id, response) of a frame without its length prefix. Raises MalformedRequest."""
    return _decode_response(version, frame, 0)


@guarded
def _decode_response(version: int, frame: Buffer, position: int) -> tuple[int, ProduceResponse]:
    flexible = version >= FLEXIBLE_SINCE
    (correlation_id,) = INT32.unpack_from(frame, position)
    position = end_of_tags(frame, position + 4) if flexible else position + 4
    count, position = read_count(frame, position, flexible, 3)
    topics = []
    for _ in range(count):
        name = topic_id = None
        if version >= TOPIC_IDS_SINCE:
            topic_id, position = read_uuid(frame, position)
        else:
            name, position = read_name(frame, position, flexible)
        partition_count, position = read_count(frame, position, flexible, _PARTITION.size)
        partitions = []
        for _ in range(partition_count):
            partition, position = _read_partition(version, frame, position)
            partitions.append(partition)
        if flexible:
            position = end_of_tags(frame, position)
        topics.append(ProducedTopic(name, topic_id, partitions))
    (throttle_time_ms,) = INT32.unpack_from(frame, position)
    endpoints: tuple[NodeEndpoint, ...] = ()
    if flexible:
        tags, _ = read_tags(frame, position + 4)
        if 0 in tags:
            endpoints = read_endpoints(frame, tags[0][0])
    return correlation_id, ProduceResponse(topics, throttle_time_ms, endpoints)


def _read_partition(version: int, frame: Buffer, position: int) -> tuple[ProducedPartition, int]:
    flexible = version >= FLEXIBLE_SINCE
    layout = _PARTITION_START_OFFSET if version >= _START_OFFSET_SINCE else _PARTITION
    partition = ProducedPartition(*layout.unpack_from(frame, position))
    position += layout.size
    if version < _RECORD_ERRORS_SINCE:
        return partition, position
    count, position = read_count(frame, position, flexible, 5)
    errors = []
    for _ in range(count):
        (index,) = INT32.unpack_from(frame, position)
        message, position = read_string(frame, position + 4, flexible)
        if flexible:
            position = end_of_tags(frame, position)
        errors.append((index, message))
    partition.record_errors = errors
    partition.error_message, position = read_string(frame, position, flexible)
    if flexible:
        tags, position = read_tags(frame, position)
        if 0 in tags:
            partition.current_leader = read_leader(frame, tags[0][0])
    return partition, position
