"""A response that is decoded as it arrives is what the whole one is decoded to, whatever pieces it comes in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.protocol import fetch
from ottla.protocol.fetch import FetchResponse
from ottla.protocol.fetch_stream import COST_AT_ONCE, KEEP_BYTES_MAX, READ_AHEAD_BYTES, FetchStream
from ottla.protocol.messages import MalformedRequest
from tests.property.test_messages_hot import fetch_responses, joined

VERSIONS = range(13, 18)


def decoded(stream: FetchStream, frame: bytes, pieces: list[int], rows: list[Any]) -> FetchResponse:
    """Feed a frame in pieces of these sizes, over and over, and hold what there is to promise before each."""
    stream.begin(len(frame))
    at = turn = 0
    while not stream.is_over:
        if stream.is_busy:
            stream.take(0)
            continue
        room = stream.room()
        assert 0 < len(room) <= len(frame) - at
        count = min(len(room), pieces[turn % len(pieces)])
        room[:count] = frame[at : at + count]
        at, turn = at + count, turn + 1
        stream.take(count)
    assert at == len(frame)
    response: FetchResponse = stream.response
    return response


def copied(topic_id: Any, row: fetch.FetchedPartition) -> Any:
    records = None if row.records is None else bytes(row.records)  # type: ignore[arg-type]
    return topic_id, row.partition_index, row.error_code, row.high_watermark, row.diverging_epoch, records


@settings(max_examples=150)
@given(
    st.lists(fetch_responses, min_size=1, max_size=3),
    st.sampled_from(VERSIONS),
    st.lists(st.integers(1, 100), min_size=1),
)
def test_any_pieces_give_the_same(responses: list[FetchResponse], version: int, pieces: list[int]) -> None:
    rows: list[Any] = []

    def take(topic_id: Any, row: fetch.FetchedPartition) -> int:
        rows.append(copied(topic_id, row))
        return 0

    stream = FetchStream(version, take)
    for response in responses:  # in the buffer of the one before
        frame = joined(fetch.encode_response(version, 9, response))
        whole = fetch.decode_response(version, frame)[1]
        rows.clear()
        found = decoded(stream, frame, pieces, rows)
        assert rows == [copied(topic.topic_id, row) for topic in whole.topics for row in topic.partitions]
        assert (found.error_code, found.session_id) == (whole.error_code, whole.session_id)
        assert list(found.node_endpoints) == list(whole.node_endpoints)


@settings(max_examples=100)
@given(fetch_responses, st.sampled_from(VERSIONS), st.data())
def test_one_that_is_cut_off_is_malformed(response: FetchResponse, version: int, data: st.DataObject) -> None:
    frame = joined(fetch.encode_response(version, 9, response))
    frame = frame[: data.draw(st.integers(1, len(frame) - 1))]
    with pytest.raises(MalformedRequest):
        decoded(FetchStream(version, lambda *_: 0), frame, [data.draw(st.integers(1, 50))], [])


@settings(max_examples=300)
@given(st.binary(min_size=1, max_size=80), st.sampled_from(VERSIONS))
@example(b"\0\0\0\1\0" + bytes(10) + b"\xff\xff\xff\xff\x0f", 13)
@example(b"\0\0\0\1\0" + bytes(10) + b"\2" + bytes(16) + b"\xff\xff\xff\xff\x07" + bytes(60), 13)
def test_any_bytes_are_decoded_or_malformed(frame: bytes, version: int) -> None:
    try:
        decoded(FetchStream(version, lambda *_: 0), frame, [7], [])
    except MalformedRequest:
        pass


def row(number: int, size: int) -> fetch.FetchedPartition:
    return fetch.FetchedPartition(number, high_watermark=number, records=bytes([number]) * size)


def answered(*rows: fetch.FetchedPartition) -> bytes:
    from uuid import UUID

    topic = fetch.FetchedTopic(None, UUID(int=5), list(rows))
    return joined(fetch.encode_response(17, 9, FetchResponse([topic])))


def test_a_partition_is_taken_before_the_next_one_has_come_and_memory_is_that_of_one() -> None:
    size = 100_000
    frame = answered(*(row(number, size) for number in range(8)))
    seen: list[tuple[int, int]] = []
    got = 0
    largest = 0

    def take(_: Any, answered: fetch.FetchedPartition) -> int:
        assert bytes(answered.records or b"") == bytes([answered.partition_index]) * size
        seen.append((answered.partition_index, got))
        return 0

    stream = FetchStream(17, take)
    stream.begin(len(frame))
    while not stream.is_over:
        room = stream.room()
        room[:] = frame[got : got + len(room)]
        got += len(room)
        largest = max(largest, len(stream._view))
        stream.take(len(room))
    assert [number for number, _ in seen] == list(range(8))
    for number, at in seen:
        assert at <= (number + 1) * (size + 100) + READ_AHEAD_BYTES
    assert largest < 2 * size
    stream.trim()
    assert decoded(stream, frame, [len(frame)], []) is stream.response


def test_others_have_their_turn_between_partitions_that_take_long() -> None:
    frame = answered(*(row(number, 10) for number in range(4)))
    taken: list[int] = []

    def take(_: Any, answered: fetch.FetchedPartition) -> int:
        taken.append(answered.partition_index)
        return COST_AT_ONCE

    stream = FetchStream(17, take)
    stream.begin(len(frame))
    room = stream.room()
    room[:] = frame
    stream.take(len(frame))
    turns = 1
    while stream.is_busy:
        assert len(taken) == turns
        stream.take(0)
        turns += 1
    assert (stream.is_over, taken, turns) == (True, [0, 1, 2, 3], 5)


def test_a_buffer_that_one_partition_made_large_is_given_back() -> None:
    stream = FetchStream(17, lambda *_: 0)
    decoded(stream, answered(row(0, KEEP_BYTES_MAX + 1)), [1 << 20], [])
    assert len(stream._view) == 0
    decoded(stream, answered(row(0, 1000)), [1 << 20], [])
    assert 0 < len(stream._view) <= KEEP_BYTES_MAX


def test_what_the_caller_raises_comes_out() -> None:
    def take(_: Any, answered: fetch.FetchedPartition) -> int:
        raise KeyError(answered.partition_index)

    stream = FetchStream(17, take)
    with pytest.raises(KeyError):
        decoded(stream, answered(row(3, 10)), [1000], [])
