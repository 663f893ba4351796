"""The hand-written codec of Fetch against that of all messages, byte for byte, in every version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ottla.model import ZERO_UUID
from ottla.protocol import fetch, fetch_plain, fetch_responses
from ottla.protocol.messages import (
    ApiKey,
    MalformedRequest,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    plain,
    read_header,
)
from ottla.protocol.wire import LeaderIdAndEpoch, NodeEndpoint

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
POSITIVE32 = st.integers(0, 2**31 - 1)
ERRORS = st.integers(-1, 100)
NAMES = st.text(max_size=12) | st.sampled_from(["n" * 126, "n" * 127, "ü" * 64])
RECORDS = st.none() | st.binary(max_size=20) | st.sampled_from([b"r" * 126, b"r" * 127, b"r" * 128])
PRODUCE_VERSIONS = range(14)
FETCH_VERSIONS = range(fetch.VERSION_MIN, fetch.VERSION_MAX + 1)


def few(items: Any) -> Any:
    return st.lists(items, max_size=2)


leaders = st.none() | st.builds(LeaderIdAndEpoch, INT32, INT32).filter(lambda leader: leader != (-1, -1))
endpoints = few(st.builds(NodeEndpoint, INT32, NAMES, INT32, st.none() | NAMES)).map(tuple)
fetch_requests = st.builds(
    fetch.FetchRequest,
    max_wait_ms=POSITIVE32,
    min_bytes=INT32,
    max_bytes=INT32,
    topics=few(
        st.builds(
            fetch.FetchTopic,
            NAMES,
            st.uuids(),
            few(
                st.builds(fetch.FetchPartition, POSITIVE32, INT64, INT32, INT32, INT32, INT64, st.uuids(), INT64)
                | st.tuples(POSITIVE32, INT64, INT32).map(lambda values: fetch.FetchPartition(*values))
            ),
        )
    ),
    isolation_level=st.integers(0, 1),
    session_id=INT32,
    session_epoch=INT32,
    forgotten_topics=few(st.builds(fetch.ForgottenTopic, NAMES, st.uuids(), few(INT32))),
    rack_id=NAMES,
    replica_id=INT32,
    replica_epoch=INT64,
    cluster_id=st.none() | NAMES,
)
whole_fetch_responses = st.builds(
    fetch.FetchResponse,
    topics=few(
        st.builds(
            fetch.FetchedTopic,
            NAMES,
            st.uuids(),
            few(
                st.builds(
                    fetch.FetchedPartition,
                    POSITIVE32,
                    ERRORS,
                    INT64,
                    INT64,
                    INT64,
                    st.none() | few(st.tuples(INT64, INT64)),
                    INT32,
                    RECORDS,
                    st.none() | st.builds(fetch.EpochEndOffset, INT32, INT64),
                    leaders,
                    st.none() | st.builds(fetch.SnapshotId, INT64, INT32),
                )
            ),
        )
    ),
    throttle_time_ms=POSITIVE32,
    error_code=ERRORS,
    session_id=INT32,
    node_endpoints=endpoints,
)


def pairs(items: Any) -> list[dict[str, Any]]:
    return [item._asdict() for item in items]


def fetch_request_values(request: fetch.FetchRequest) -> dict[str, Any]:
    return {
        "cluster_id": request.cluster_id,
        "replica_id": request.replica_id,
        "replica_state": {"replica_id": request.replica_id, "replica_epoch": request.replica_epoch},
        "max_wait": request.max_wait_ms,
        "min_bytes": request.min_bytes,
        "max_bytes": request.max_bytes,
        "isolation_level": request.isolation_level,
        "session_id": request.session_id,
        "session_epoch": request.session_epoch,
        "rack_id": request.rack_id,
        "topics": [
            {"topic": topic.name, "topic_id": topic.topic_id, "partitions": pairs(topic.partitions)}
            for topic in request.topics
        ],
        "forgotten_topics_data": [
            {"topic": topic.name, "topic_id": topic.topic_id, "partitions": topic.partitions}
            for topic in request.forgotten_topics
        ],
    }


def fetch_response_values(response: fetch.FetchResponse) -> dict[str, Any]:
    return {
        "throttle_time": response.throttle_time_ms,
        "error_code": response.error_code,
        "session_id": response.session_id,
        "node_endpoints": pairs(response.node_endpoints),
        "responses": [
            {
                "topic": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [
                    {
                        "partition_index": item.partition_index,
                        "error_code": item.error_code,
                        "high_watermark": item.high_watermark,
                        "last_stable_offset": item.last_stable_offset,
                        "log_start_offset": item.log_start_offset,
                        "aborted_transactions": None
                        if item.aborted_transactions is None
                        else [
                            {"producer_id": producer, "first_offset": offset}
                            for producer, offset in item.aborted_transactions
                        ],
                        "preferred_read_replica": item.preferred_read_replica,
                        "records": item.records,
                        "diverging_epoch": (item.diverging_epoch or fetch.EpochEndOffset())._asdict(),
                        "current_leader": (item.current_leader or LeaderIdAndEpoch())._asdict(),
                        "snapshot_id": (item.snapshot_id or fetch.SnapshotId())._asdict(),
                    }
                    for item in topic.partitions
                ],
            }
            for topic in response.topics
        ],
    }


def joined(encoded: fetch.EncodedResponse) -> bytes:
    data = b"".join(bytes(part) for part in encoded.parts)  # type: ignore[arg-type]
    assert len(data) == encoded.size
    return data


def every_truncation_is_malformed(decode: Any, frame: bytes, start: int = 0) -> None:
    for end in range(start, len(frame)):
        with pytest.raises(MalformedRequest):
            decode(frame[:end])


@settings(max_examples=80)
@given(fetch_requests, st.sampled_from(FETCH_VERSIONS))
def test_fetch_requests_are_encoded_and_decoded_as_kio_does(request: fetch.FetchRequest, version: int) -> None:
    frame = bytes(fetch.encode_request(version, 7, None, request))
    header = read_header(frame)
    kio = encode_request(ApiKey.FETCH, version, 7, None, fetch_request_values(request))
    assert plain(decode_request(ApiKey.FETCH, version, frame, header.body_offset)) == plain(
        decode_request(ApiKey.FETCH, version, kio, header.body_offset)
    )
    if version < fetch.FLEXIBLE_SINCE or all(
        partition.replica_directory_id != ZERO_UUID for topic in request.topics for partition in topic.partitions
    ):
        assert frame == kio
    decoded = fetch.decode_request(version, memoryview(frame + b"more"), header.body_offset)
    assert bytes(fetch.encode_request(version, 7, None, decoded)) == frame
    every_truncation_is_malformed(
        lambda data: fetch.decode_request(version, data, header.body_offset), frame, header.body_offset
    )


@settings(max_examples=80)
@given(fetch_requests, st.sampled_from(FETCH_VERSIONS), st.data())
def test_plain_fetch_requests_are_decoded_as_any(request: fetch.FetchRequest, version: int, data: Any) -> None:
    """And what is not plain, or cut short, or garbled, is left to the decoder of all."""
    if data.draw(st.booleans()):  # most have no tagged fields
        plain_partition = {"replica_directory_id": ZERO_UUID, "high_watermark": fetch.UNKNOWN_HIGH_WATERMARK}
        for topic in request.topics:
            topic.partitions[:] = [each._replace(**plain_partition) for each in topic.partitions]
        request.cluster_id, request.replica_id, request.replica_epoch = None, -1, -1
    frame = bytearray(fetch.encode_request(version, 7, None, request))
    offset = read_header(frame).body_offset
    found = fetch_plain.decode_plain(version, memoryview(frame), offset)
    if found is not None:
        assert found == fetch.decode_request(version, memoryview(frame), offset)
    else:
        assert version >= fetch.FLEXIBLE_SINCE, "there are no tagged fields in it"
    event(f"plain: {found is not None}")
    for _ in range(10):
        broken = frame[: data.draw(st.integers(offset, len(frame)))]
        if broken[offset:]:
            broken[data.draw(st.integers(offset, len(broken) - 1))] = data.draw(st.integers(0, 255))
        found = fetch_plain.decode_plain(version, memoryview(broken), offset)
        if found is not None:
            assert found == fetch.decode_request(version, memoryview(broken), offset)


def row_of(partition: fetch.FetchedPartition) -> fetch_plain.Row:
    row = fetch_plain.Row()
    for name in ("high_watermark", "last_stable_offset", "log_start_offset", "records"):
        setattr(row, name, getattr(partition, name))
    return row


@given(whole_fetch_responses, st.sampled_from(FETCH_VERSIONS))
def test_plain_fetch_responses_are_encoded_as_any(response: fetch.FetchResponse, version: int) -> None:
    response = replace(response, error_code=0, throttle_time_ms=0, node_endpoints=())
    by_name = version < fetch.TOPIC_IDS_SINCE
    for topic in response.topics:
        if not topic.partitions:
            return
        topic.partitions = [
            fetch.FetchedPartition(
                each.partition_index,
                0,
                each.high_watermark,
                each.last_stable_offset,
                each.log_start_offset,
                records=each.records or b"",
            )
            for each in topic.partitions
        ]
    keys = [topic.name if by_name else topic.topic_id for topic in response.topics]
    if len(set(keys)) < len(keys):
        return
    session_id = response.session_id if version >= 7 else 0
    rows = [
        ((key, each.partition_index), row_of(each))
        for key, topic in zip(keys, response.topics, strict=True)
        for each in topic.partitions
    ]
    parts, size = fetch_plain.encode_plain(version, 9, session_id, rows)
    assert b"".join(map(bytes, parts)) == joined(fetch_responses.encode_response(version, 9, response))
    assert size == sum(map(len, parts))
    event(f"rows: {len(rows)}")


@settings(max_examples=80)
@given(whole_fetch_responses, st.sampled_from(FETCH_VERSIONS))
def test_fetch_responses_are_encoded_and_decoded_as_kio_does(response: fetch.FetchResponse, version: int) -> None:
    frame = joined(fetch_responses.encode_response(version, 9, response))
    assert frame == encode_response(ApiKey.FETCH, version, 9, fetch_response_values(response))
    correlation_id, decoded = fetch_responses.decode_response(version, frame)
    assert correlation_id == 9
    assert joined(fetch_responses.encode_response(version, 9, decoded)) == frame
    assert decode_response(ApiKey.FETCH, version, frame)[0] == 9
    every_truncation_is_malformed(lambda data: fetch_responses.decode_response(version, data), frame)


@settings(max_examples=300)
@given(st.binary(max_size=80), st.sampled_from(PRODUCE_VERSIONS), st.sampled_from(FETCH_VERSIONS))
def test_any_bytes_are_decoded_or_malformed(data: bytes, produce_version: int, fetch_version: int) -> None:
    for decode in (
        lambda: decode_request(ApiKey.PRODUCE, produce_version, data, 0),
        lambda: decode_response(ApiKey.PRODUCE, produce_version, data),
        lambda: fetch.decode_request(fetch_version, data, 0),
        lambda: fetch_responses.decode_response(fetch_version, data),
    ):
        try:
            decode()
        except MalformedRequest:
            pass
