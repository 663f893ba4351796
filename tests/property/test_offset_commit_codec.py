"""The hand-written codec of OffsetCommit against kio's, byte for byte, in every version; torn and hostile requests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import ErrorCode
from ottla.model import ZERO_UUID
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey, MalformedRequest
from ottla.protocol.offset_commit import (
    CommittedTopic,
    OffsetCommitRequest,
    PartitionToCommit,
    TopicToCommit,
    decode_request,
    encode_response,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
VERSIONS = st.integers(2, 10)
IDS = st.uuids().filter(lambda value: value != ZERO_UUID)
PARTITIONS = st.builds(PartitionToCommit, INT32, INT64, INT32, st.none() | TEXT)
TOPICS = st.builds(TopicToCommit, TEXT, IDS, st.lists(PARTITIONS, max_size=4))
REQUESTS = st.builds(
    OffsetCommitRequest, TEXT, INT32, TEXT, st.none() | TEXT, st.integers(0, 2**40), st.lists(TOPICS, max_size=4)
)
ANSWERS = st.lists(
    st.builds(CommittedTopic, TEXT, IDS, st.lists(st.tuples(INT32, st.sampled_from(ErrorCode)), max_size=4)), max_size=4
)


def seen_in(version: int, request: OffsetCommitRequest) -> OffsetCommitRequest:
    """The fields of a request that a version has."""
    topics = [
        TopicToCommit(
            "" if version >= 10 else name,
            topic_id if version >= 10 else ZERO_UUID,
            [each if version >= 6 else each._replace(committed_leader_epoch=-1) for each in partitions],
        )
        for name, topic_id, partitions in request.topics
    ]
    instance_id = request.group_instance_id if version >= 7 else None
    retention = request.retention_time_ms if version <= 4 else -1
    return request._replace(group_instance_id=instance_id, retention_time_ms=retention, topics=topics)


def by_kio(version: int, request: OffsetCommitRequest) -> tuple[bytes, int]:
    values: dict[str, Any] = request._asdict() | {"retention_time": request.retention_time_ms}
    values["topics"] = [
        topic._asdict() | {"partitions": [each._asdict() for each in topic.partitions]} for topic in request.topics
    ]
    frame = messages.encode_request(ApiKey.OFFSET_COMMIT, version, 7, "c", values)
    return frame, messages.read_header(frame).body_offset


@given(VERSIONS, REQUESTS)
def test_requests_decode_as_kio_wrote_them(version: int, request: OffsetCommitRequest) -> None:
    frame, body = by_kio(version, request)
    assert decode_request(version, memoryview(frame), body) == seen_in(version, request)


@given(VERSIONS, REQUESTS, st.data())
def test_torn_and_changed_requests_are_malformed_or_other_requests(
    version: int, request: OffsetCommitRequest, data: st.DataObject
) -> None:
    frame, body = by_kio(version, request)
    cut = data.draw(st.integers(body, len(frame) - 1))
    with pytest.raises(MalformedRequest):
        decode_request(version, frame[:cut], body)
    changed = bytearray(frame)
    changed[data.draw(st.integers(body, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_request(version, changed, body)
    except MalformedRequest:
        pass


@given(VERSIONS, ANSWERS)
def test_responses_are_what_kio_writes(version: int, topics: list[CommittedTopic]) -> None:
    values = [
        {
            "name": topic.name,
            "topic_id": topic.topic_id,
            "partitions": [{"partition_index": number, "error_code": error} for number, error in topic.partitions],
        }
        for topic in topics
    ]
    expected = messages.encode_response(ApiKey.OFFSET_COMMIT, version, 9, {"topics": values})
    header = messages.response_header(ApiKey.OFFSET_COMMIT, version, 9)
    assert encode_response(version, topics, header=header) == expected
