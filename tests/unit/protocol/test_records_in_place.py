"""Records are neither copied when a request is read, nor when one is written in parts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol import messages
from ottla.protocol.messages import ApiKey, MalformedRequest
from ottla.protocol.writer import COPIED_BYTES_MAX
from ottla.steps import at_once

PRODUCE_VERSIONS = range(3, 14)
RECORDS = st.none() | st.sampled_from([0, 1, 126, 127, COPIED_BYTES_MAX, COPIED_BYTES_MAX + 1, 70_000]).map(bytes)
COUNTS = st.lists(st.lists(RECORDS, max_size=3), max_size=3)


def produce(records: list[list[Any]]) -> dict[str, Any]:
    topics = [
        {"name": f"t{number}", "partition_data": [{"index": index, "records": each} for index, each in enumerate(rows)]}
        for number, rows in enumerate(records)
    ]
    return {"transactional_id": None, "acks": -1, "timeout": 9, "topic_data": topics}


@given(st.sampled_from(PRODUCE_VERSIONS), COUNTS)
def test_parts_of_a_request_are_the_whole(version: int, records: list[list[Any]]) -> None:
    parts = messages.request_parts(ApiKey.PRODUCE, version, 7, "me", produce(records))
    assert b"".join(parts) == messages.encode_request(ApiKey.PRODUCE, version, 7, "me", produce(records))
    long = [each for rows in records for each in rows if each is not None and len(each) > COPIED_BYTES_MAX]
    assert [id(part) for part in parts[1::2]] == [id(each) for each in long]


@given(st.sampled_from(PRODUCE_VERSIONS), COUNTS)
def test_records_of_a_request_are_views(version: int, records: list[list[Any]]) -> None:
    frame = bytearray(messages.encode_request(ApiKey.PRODUCE, version, 7, "me", produce(records)))
    at = messages.read_header(frame).body_offset
    read = messages.decode_request(ApiKey.PRODUCE, version, memoryview(frame), at)
    stepwise = at_once(messages.decode_request_in_steps(ApiKey.PRODUCE, version, memoryview(frame), at))
    for request in (read, stepwise):
        found = [[data.records for data in topic.partition_data] for topic in request.topic_data]
        assert found == records
        views = [each for rows in found for each in rows if each is not None]
        assert all(type(each) is memoryview and each.obj is frame for each in views)
    for each in [each for each in views if len(each)]:
        each[0] = 1
    assert sum(frame) - sum(bytes(each)[0] for each in views if len(each)) == sum(
        messages.encode_request(ApiKey.PRODUCE, version, 7, "me", produce(records))
    )
    for end in range(at, min(len(frame), at + 300)):
        with pytest.raises(MalformedRequest):
            messages.decode_request(ApiKey.PRODUCE, version, memoryview(frame)[:end], at)


def test_a_request_of_many_rows_is_not_decoded_at_once() -> None:
    frame = messages.encode_request(ApiKey.PRODUCE, 9, 7, "me", produce([[b"1", b"2"], [b"3"]]))
    at = messages.read_header(frame).body_offset
    assert messages.decode_short_request(ApiKey.PRODUCE, 9, frame, at, 4) is None
    request = messages.decode_short_request(ApiKey.PRODUCE, 9, frame, at, 5)
    assert request == messages.decode_request(ApiKey.PRODUCE, 9, frame, at)
