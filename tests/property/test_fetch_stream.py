"""A response that is decoded as it arrives is what the whole one is decoded to, whatever pieces it comes in."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.protocol import fetch, fetch_responses
from ottla.protocol.fetch import FetchResponse
from ottla.protocol.fetch_stream import COST_AT_ONCE, KEEP_BYTES_MAX, PIECE_BYTES, READ_AHEAD_BYTES, FetchStream
from ottla.protocol.messages import MalformedRequest
from tests.property.test_messages_hot import joined, whole_fetch_responses

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
    st.lists(whole_fetch_responses, min_size=1, max_size=3),
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
        frame = joined(fetch_responses.encode_response(version, 9, response))
        whole = fetch_responses.decode_response(version, frame)[1]
        rows.clear()
        found = decoded(stream, frame, pieces, rows)
        assert rows == [copied(topic.topic_id, row) for topic in whole.topics for row in topic.partitions]
        assert (found.error_code, found.session_id) == (whole.error_code, whole.session_id)
        assert list(found.node_endpoints) == list(whole.node_endpoints)


@settings(max_examples=100)
@given(whole_fetch_responses, st.sampled_from(VERSIONS), st.data())
def test_one_that_is_cut_off_is_malformed(response: FetchResponse, version: int, data: st.DataObject) -> None:
    frame = joined(fetch_responses.encode_response(version, 9, response))
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
    return joined(fetch_responses.encode_response(17, 9, FetchResponse([topic])))


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


batch_sizes = st.lists(st.integers(0, 3 * PIECE_BYTES // 2), max_size=8)


@settings(max_examples=60, deadline=None)
@given(st.lists(batch_sizes, min_size=1, max_size=3), st.integers(1, 2 * PIECE_BYTES), st.binary(max_size=20))
def test_a_large_partition_comes_in_pieces_of_whole_batches(
    partitions: list[list[int]], size: int, cut_off: bytes
) -> None:
    """What is together in one answer is what was sent; the last batch may be cut off, as leaders do."""
    sent = [
        b"".join(bytes(8) + each.to_bytes(4, "big") + bytes([each % 251]) * each for each in sizes) + cut_off
        for sizes in partitions
    ]
    frame = answered(*(fetch.FetchedPartition(number, 0, 7, records=each) for number, each in enumerate(sent)))
    got: list[list[bytes]] = [[] for _ in sent]

    def take(_: Any, answered: fetch.FetchedPartition) -> int:
        assert answered.high_watermark == 7
        got[answered.partition_index].append(bytes(answered.records or b""))
        return 0

    stream = FetchStream(17, take)
    decoded(stream, frame, [size], [])
    assert [b"".join(pieces) for pieces in got] == sent
    largest = max(itertools.chain([0], *partitions))
    assert len(stream._view) <= largest + 4 * PIECE_BYTES
    for pieces in got:
        for piece in pieces[:-1]:
            assert whole_batches(piece) == len(piece) > 0
        assert max(map(len, pieces)) <= largest + 3 * PIECE_BYTES


def whole_batches(records: bytes) -> int:
    position = 0
    while position + 12 <= len(records):
        position += 12 + int.from_bytes(records[position + 8 : position + 12], "big")
    return position


@pytest.mark.parametrize("length", [-1, -(1 << 31), (1 << 31) - 1])
def test_a_batch_that_says_it_is_longer_than_its_partition_comes_with_the_rest(length: int) -> None:
    records = bytes(8) + length.to_bytes(4, "big", signed=True) + bytes(3 * PIECE_BYTES)
    got: list[bytes] = []

    def take(_: Any, answered: fetch.FetchedPartition) -> int:
        got.append(bytes(answered.records or b""))
        return 0

    decoded(FetchStream(17, take), answered(fetch.FetchedPartition(0, records=records)), [70_000], [])
    assert got == [records]


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


def test_a_buffer_that_one_batch_made_large_is_given_back() -> None:
    stream = FetchStream(17, lambda *_: 0)
    batch = bytes(8) + KEEP_BYTES_MAX.to_bytes(4, "big") + bytes(KEEP_BYTES_MAX)
    decoded(stream, answered(fetch.FetchedPartition(0, records=batch)), [1 << 20], [])
    assert len(stream._view) == 0
    decoded(stream, answered(row(0, 1000)), [1 << 20], [])
    assert 0 < len(stream._view) <= KEEP_BYTES_MAX


def test_what_the_caller_raises_comes_out() -> None:
    def take(_: Any, answered: fetch.FetchedPartition) -> int:
        raise KeyError(answered.partition_index)

    stream = FetchStream(17, take)
    with pytest.raises(KeyError):
        decoded(stream, answered(row(3, 10)), [1000], [])
