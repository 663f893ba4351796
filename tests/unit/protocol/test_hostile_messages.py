"""What a client can make the decoder do in one step, or hold in memory, has a limit."""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any
from uuid import UUID

import pytest

from ottla.coordinator.group.consumer.consumer_protocol import decode_subscription
from ottla.protocol import fetch
from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.layout import ELEMENTS_MAX, TAGGED_ARRAY_BYTES_MAX, TAGS_MAX
from ottla.protocol.messages import (
    ApiKey,
    MalformedRequest,
    decode_request,
    encode_request,
    read_header,
    request_header,
    request_layout,
)
from ottla.protocol.varint import write_uvarint
from ottla.protocol.writer import Writer

FETCH_VERSION = 13
PARTITION = struct.pack(">iiqiqi", 0, -1, 0, -1, -1, 1 << 20)


def uvarint(number: int) -> bytes:
    out = bytearray()
    write_uvarint(out, number)
    return bytes(out)


def tags(count: int) -> bytes:
    """Unknown tagged fields without a value."""
    return uvarint(count) + b"\x64\0" * count


def fetch_frame(topics: int, partitions: int, tagged: int = 0, forgotten: bytes = b"\1") -> bytes:
    head = bytes(request_header(ApiKey.FETCH, FETCH_VERSION, 1, "c"))
    head += struct.pack(">iiiibii", -1, 500, 1, 1 << 20, 0, 0, -1)
    topic = bytes(16) + uvarint(partitions + 1) + (PARTITION + tags(tagged)) * partitions + b"\0"
    return head + uvarint(topics + 1) + topic * topics + forgotten + b"\1\0"


def decoding(frame: bytes) -> Generator[int, None, Any]:
    return fetch.decode_in_steps(FETCH_VERSION, memoryview(frame), read_header(frame).body_offset)


def test_a_step_counts_the_partitions_of_all_topics() -> None:
    """199 of each were one step: no topic was long."""
    steps = list(decoding(fetch_frame(199, 199)))
    assert len(steps) >= 199 * 199 // fetch.ROWS_PER_STEP


def test_more_tagged_fields_than_anybody_sends_are_refused() -> None:
    assert list(decoding(fetch_frame(1, 1, TAGS_MAX))) == []
    with pytest.raises(MalformedRequest):
        list(decoding(fetch_frame(1, 1, TAGS_MAX + 1)))
    heartbeat = encode_request(ApiKey.HEARTBEAT, 4, 1, "c", {"group_id": "g", "member_id": "m"})[:-1]
    start = read_header(heartbeat).body_offset
    assert decode_request(ApiKey.HEARTBEAT, 4, heartbeat + tags(TAGS_MAX), start).group_id == "g"
    with pytest.raises(MalformedRequest):
        decode_request(ApiKey.HEARTBEAT, 4, heartbeat + tags(TAGS_MAX + 1), start)


def test_forgotten_partitions_of_all_topics_have_a_limit() -> None:
    half = ELEMENTS_MAX // 2 + 1
    topic = bytes(16) + uvarint(half + 1) + bytes(4 * half) + b"\0"
    assert list(decoding(fetch_frame(1, 1, forgotten=uvarint(2) + topic)))
    with pytest.raises(MalformedRequest):
        list(decoding(fetch_frame(1, 1, forgotten=uvarint(3) + 2 * topic)))


def test_a_tagged_array_is_short() -> None:
    """It is read in one piece."""
    directories = [UUID(int=number) for number in range(TAGGED_ARRAY_BYTES_MAX // 16)]

    def decoded(some: list[UUID]) -> Any:
        frame = encode_request(ApiKey.BROKER_HEARTBEAT, 1, 1, "c", {"offline_log_dirs": some})
        return decode_request(ApiKey.BROKER_HEARTBEAT, 1, frame, read_header(frame).body_offset)

    assert len(decoded(directories[:-1]).offline_log_dirs) == len(directories) - 1
    with pytest.raises(MalformedRequest):
        decoded(directories)


def test_a_subscription_has_as_many_names_as_a_request() -> None:
    def subscription(names: int) -> bytes:
        return struct.pack(">hi", 0, names) + bytes(2 * names) + struct.pack(">i", -1)

    assert decode_subscription(subscription(3)).topics == ("", "", "")
    with pytest.raises(MalformedRecord):
        decode_subscription(subscription(ELEMENTS_MAX + 1))


def test_a_writer_that_is_done_writes_into_memory_of_its_own() -> None:
    """It wrote into the bytes that it had given."""
    layout = request_layout(ApiKey.HEARTBEAT, 4)
    writer = Writer(b"x" * 1000)
    given = writer.done()
    writer.write(layout, {"group_id": "g", "member_id": "m"})
    assert given == b"x" * 1000
    assert writer.done()


def test_an_id_is_a_number() -> None:
    class Odd:
        int = (1, 2)

    with pytest.raises((TypeError, AttributeError)):
        encode_request(
            ApiKey.FETCH_SNAPSHOT, 1, 1, "c", {"topics": [{"partitions": [{"replica_directory_id": Odd()}]}]}
        )
