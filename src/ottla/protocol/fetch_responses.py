"""Responses to Fetch (API 1), encoded as any version has them, and decoded: `fetch.py` has their rows.

A response is encoded to parts: bytes, and between them the records as the caller gave them, so that slices of files go
from disk to socket by sendfile.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Final

from ottla.model import Buffer
from ottla.protocol.fetch import (
    FLEXIBLE_SINCE,
    RACK_SINCE,
    ROWS_PER_STEP,
    SESSIONS_SINCE,
    START_OFFSET_SINCE,
    EncodedResponse,
    EpochEndOffset,
    FetchedPartition,
    FetchedTopic,
    FetchResponse,
    Records,
    SnapshotId,
    read_topic_key,
    records_length,
    write_topic_key,
)
from ottla.protocol.messages import ApiKey, response_header
from ottla.protocol.wire import (
    INT32,
    end_of_tags,
    endpoints_bytes,
    guarded,
    leader_bytes,
    read_count,
    read_endpoints,
    read_leader,
    read_records,
    read_tags,
    write_tags,
)
from ottla.steps import at_once

_ENDPOINTS_SINCE: Final = 16

_RESPONSE_START = struct.Struct(">ihi")
_PARTITION_START = struct.Struct(">ihqqq")
_PARTITION_START_V4 = struct.Struct(">ihqq")
_ABORTED = struct.Struct(">qq")
_EPOCH_AND_OFFSET = struct.Struct(">iqx")
_OFFSET_AND_EPOCH = struct.Struct(">qix")


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
    if version >= SESSIONS_SINCE:
        out += _RESPONSE_START.pack(response.throttle_time_ms, response.error_code, response.session_id)
    else:
        out += INT32.pack(response.throttle_time_ms)
    _write_length(out, len(response.topics), flexible)
    rows = 0
    for topic in response.topics:
        write_topic_key(out, version, topic)
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
    if version >= START_OFFSET_SINCE:
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
    if version >= RACK_SINCE:  # to fetch from next (KIP-392)
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
        name, topic_id, position = read_topic_key(version, frame, position)
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
    if version >= SESSIONS_SINCE:
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
    layout = _PARTITION_START if version >= START_OFFSET_SINCE else _PARTITION_START_V4
    return FetchedPartition(*layout.unpack_from(frame, position))


def read_partition(version: int, frame: Buffer, position: int) -> tuple[FetchedPartition, int]:
    """A partition of a response, its records as a view, and the position after it."""
    flexible = version >= FLEXIBLE_SINCE
    layout = _PARTITION_START if version >= START_OFFSET_SINCE else _PARTITION_START_V4
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
    if version >= RACK_SINCE:
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
