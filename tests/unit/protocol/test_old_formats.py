"""Batches for clients of message format 0 and 1, and their messages as batches, by the bytes alone.

Beside Kafka's own classes: `tests/conformance/drop_in/test_old_formats.py`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.records import old_formats
from ottla.protocol.records.compression import Codec, TooLong, compress
from ottla.protocol.records.message_set import Message, read_messages, size_of
from ottla.protocol.records.old_formats import Down, down_convert, up_convert
from ottla.protocol.records.record_batch import (
    Record,
    SimpleRecord,
    build_batch,
    iterate_batches,
    iterate_records,
    read_batch_header,
)
from tests.old_messages import TIME, message

OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
EVERYTHING = 1 << 30


def read(data: bytes | bytearray) -> list[Message]:
    found: list[Message] = []
    position = 0
    while position < len(data):
        found += read_messages(data, position)
        position += size_of(data, position)
    return found


def records_of(batch: bytes | bytearray) -> list[Record]:
    return list(iterate_records(batch))


def some(count: int, dice: random.Random) -> list[SimpleRecord]:
    def data(limit: int) -> bytes | None:
        return None if dice.random() < 0.2 else dice.randbytes(dice.randrange(limit))

    return [SimpleRecord(TIME + dice.randrange(1000), data(10), data(60), (("h", b"x"),)) for _ in range(count)]


def batches(seed: int, codec: int, **options: int) -> tuple[bytes, list[Record]]:
    """A log of batches, the offsets between which are not all there, and its records."""
    dice = random.Random(seed)
    data, offset = b"", 1000
    for _ in range(6):
        count = dice.randrange(1, 9)
        data += build_batch(some(count, dice), base_offset=offset, codec=codec, **options)
        offset += count + dice.randrange(5)
    return data, [record for position, _ in iterate_batches(data) for record in iterate_records(data, position)]


def all_of(data: bytes, magic: int, offset: int, max_bytes: int) -> tuple[list[Message], list[Down]]:
    """What a client reads that asks again and again, from where its last record ends."""
    found: list[Message] = []
    answers = []
    while True:
        answer = down_convert(data, magic, offset, max_bytes)
        answers.append(answer)
        if not answer.data:
            return found, answers
        got = read(answer.data)
        assert answer.next_offset > got[-1].offset >= got[0].offset >= offset
        found += got
        offset = got[-1].offset + 1


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("append_time", [0, 1])
def test_down_keeps_all_but_headers(magic: int, codec: int, append_time: int) -> None:
    for seed, max_bytes in enumerate((1, 100, 500, EVERYTHING)):
        data, records = batches(seed, codec, timestamp_type=append_time)
        for start in (0, records[3].offset, records[-1].offset, records[-1].offset + 1):
            wanted = [each for each in records if each.offset >= start]
            found, answers = all_of(data, magic, start, max_bytes)
            assert [each[0] for each in found] == [each.offset for each in wanted]
            assert [(each.key, each.value) for each in found] == [(each.key, each.value) for each in wanted]
            if magic:
                assert [each.timestamp for each in found] == [each.timestamp for each in wanted]
                assert {each.timestamp_type for each in found} <= {append_time}
            for answer in answers:
                first = size_of(answer.data, 0) if answer.data else 0
                assert len(answer.data) <= max(max_bytes, first), "one message, or what was asked for"


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_up_keeps_all(magic: int, codec: int) -> None:
    data, records = batches(7, codec)
    messages = read(down_convert(data, magic, 0, EVERYTHING).data)
    for _, header in iterate_batches(data):
        part = [each for each in messages if header.base_offset <= each.offset <= header.last_offset]
        base = part[0].offset if magic else 0
        inner = b"".join(
            message(each.offset - base, each.value, magic=magic, time=each.timestamp, key=each.key) for each in part
        )
        value = compress(codec, inner)
        if codec == Codec.LZ4 and not magic:
            value = old_formats.with_old_header_checksum(value)
        produced = (
            inner
            if codec == Codec.NONE
            else message(part[-1].offset - base, value, magic=magic, attributes=codec, key=None)
        )
        batch = up_convert(produced)
        assert batch is not None
        found = records_of(batch)
        assert [each.offset for each in found] == list(range(len(part)))
        assert [(each.timestamp, each.key, each.value) for each in found] == [
            (each.timestamp, each.key, each.value) for each in part
        ]
        made = read_batch_header(batch)
        assert (made.codec, made.base_offset, made.producer_id, made.count) == (codec, 0, -1, len(part))
    assert len(messages) == len(records)


def test_many_records_are_converted_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_formats, "RECORDS_AT_ONCE", 7)
    monkeypatch.setattr(old_formats, "WRAPPED_BYTES", 200)
    for codec in OLD_CODECS:
        data = bytes(build_batch(some(40, random.Random(1)), base_offset=5, codec=codec))
        answer = down_convert(data, 1, 9, EVERYTHING)
        assert [each.offset for each in read(answer.data)] == list(range(9, 45)) and answer.next_offset == 45
        sets = sum(1 for _ in old_formats._whole_messages(memoryview(answer.data)))
        assert 5 < sets < 36 if codec else sets == 36, "a batch becomes several compressed messages"
        batch = up_convert(b"".join(message(n, b"%d" % n) for n in range(40)))
        assert batch is not None
        assert [(each.offset, each.value) for each in records_of(batch)] == [(n, b"%d" % n) for n in range(40)]


def test_what_old_clients_cannot_have_is_stepped_over() -> None:
    control = control_batch(10)
    first = bytes(build_batch([SimpleRecord(TIME, b"k", b"v", ())], base_offset=9))
    last = bytes(
        build_batch(
            [SimpleRecord(TIME, b"k", b"w", ())],
            base_offset=11,
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
    )
    assert [each.offset for each in read(down_convert(first + control + last, 1, 9, EVERYTHING).data)] == [9, 11]
    alone = down_convert(control, 1, 10, EVERYTHING)
    assert (alone.data, alone.next_offset, alone.refused) == (b"", 11, False)
    behind = down_convert(control + last, 0, 10, 1)
    assert [each.value for each in read(behind.data)] == [b"w"]


def control_batch(offset: int) -> bytes:
    return bytes(
        build_batch(
            [SimpleRecord(TIME, b"\0\0\0\1", b"\0\0\0\0\0\0", ())],
            base_offset=offset,
            producer_id=7,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
    )


def test_zstd_ends_an_answer_and_refuses_the_next() -> None:
    plain = bytes(build_batch([SimpleRecord(TIME, b"k", b"v", ())], base_offset=0))
    packed = bytes(build_batch([SimpleRecord(TIME, b"k", b"v", ())], base_offset=1, codec=Codec.ZSTD))
    before = down_convert(plain + packed, 1, 0, EVERYTHING)
    assert [each.offset for each in read(before.data)] == [0] and before.next_offset == 1
    assert down_convert(packed, 1, 1, EVERYTHING) == (b"", 1, True)


def test_a_compacted_batch_that_ends_before_the_offset_is_no_dead_end() -> None:
    """Compaction keeps the last offset of a batch whose last records are gone: Kafka sent the set, which the client
    filtered, again and again."""
    batch = build_batch(some(3, random.Random(1)), base_offset=0, codec=Codec.GZIP)
    batch[23:27] = (9).to_bytes(4, "big")  # the last offset delta; the CRC is not looked at
    assert down_convert(bytes(batch), 1, 5, EVERYTHING)[:2] == (b"", 10)


INNER = b"".join(message(n, b"x%d" % n) for n in range(3))
INNER_0 = b"".join(message(n, b"x%d" % n, magic=0) for n in range(3))


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def packed(inner: bytes, codec: int = 1, *, magic: int = 1, offset: int = 2) -> bytes:
    return message(offset, compress(codec, inner), magic=magic, attributes=codec, key=None)


REFUSED: dict[str, tuple[bytes, ErrorCode]] = {
    "a wrong CRC": (flipped(message(0, b"v")), ErrorCode.corrupt_message),
    "a wrong CRC inside": (packed(flipped(INNER)), ErrorCode.corrupt_message),
    "an impossible size": (message(0, b"v")[:8] + b"\0\0\0\5" + message(0, b"v")[12:], ErrorCode.corrupt_message),
    "an unknown format": (message(0, b"v")[:16] + b"\3" + message(0, b"v")[17:], ErrorCode.corrupt_message),
    "two formats": (message(0, b"a", magic=0) + message(1, b"b"), ErrorCode.invalid_record),
    "a batch behind a message": (
        message(0, b"a") + bytes(build_batch([SimpleRecord(TIME, b"k", b"v", ())])), ErrorCode.invalid_record,
    ),
    "another format inside": (packed(INNER_0), ErrorCode.invalid_record),
    "an outer offset below the last": (packed(INNER, offset=1), ErrorCode.invalid_record),
    "two sets": (packed(INNER) * 2, ErrorCode.invalid_record),
    "a set and a message": (packed(INNER) + message(3, b"v"), ErrorCode.invalid_record),
    "a message and a set": (message(0, b"v") + packed(INNER), ErrorCode.invalid_record),
    "an empty set": (packed(b""), ErrorCode.invalid_record),
    "a set that is null": (message(0, None, attributes=1, key=None), ErrorCode.invalid_record),
    "a set in a set": (packed(packed(INNER)), ErrorCode.invalid_record),
    "bytes that are not compressed": (message(0, b"nothing", attributes=1, key=None), ErrorCode.invalid_record),
    "zstd": (packed(INNER, Codec.ZSTD), ErrorCode.invalid_record),
    "no codec": (message(0, b"v", attributes=5), ErrorCode.invalid_record),
    "an impossible timestamp": (message(0, b"v", time=-5), ErrorCode.invalid_timestamp),
}  # fmt: skip
"""Codes are those of Kafka 3.9.2, but of bytes that are not compressed, a codec that is none and an impossible
timestamp: an internal error there."""

TAKEN: dict[str, tuple[bytes, Sequence[bytes | None]]] = {
    "one of each format": (message(0, b"v", magic=0), [b"v"]),
    "a null": (message(0, None, key=None), [None]),
    "a time that is none": (message(0, b"v", time=-1), [b"v"]),
    "one that is cut off": (INNER[:-3], [b"x0", b"x1"]),
    "bytes behind": (INNER + bytes(11), [b"x0", b"x1", b"x2"]),
    "bytes behind, inside": (packed(INNER + bytes(3)), [b"x0", b"x1", b"x2"]),
    "an outer offset of 0": (packed(INNER, offset=0), [b"x0", b"x1", b"x2"]),
    "a large outer offset": (packed(INNER, offset=100), [b"x0", b"x1", b"x2"]),
    "offsets with gaps": (packed(message(5, b"a") + message(9, b"b"), offset=9), [b"a", b"b"]),
    "offsets that fall": (packed(message(3, b"a") + message(1, b"b"), offset=3), [b"a", b"b"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_by_kafka(name: str) -> None:
    data, code = REFUSED[name]
    with pytest.raises(KafkaError) as refused:
        up_convert(data)
    assert refused.value.code == code


@pytest.mark.parametrize("name", TAKEN)
def test_taken_as_by_kafka(name: str) -> None:
    data, values = TAKEN[name]
    batch = up_convert(data)
    assert batch is not None and [each.value for each in records_of(batch)] == values


def test_nothing_is_no_batch() -> None:
    assert up_convert(b"") is None and up_convert(INNER[:20]) is None


def test_a_set_that_grows_beyond_the_limit_is_not_decompressed() -> None:
    with pytest.raises(TooLong):
        up_convert(packed(message(0, bytes(100_000)), offset=0), 8192)


def test_append_time_is_that_of_the_set() -> None:
    data = message(2, compress(1, INNER), attributes=9, key=None, time=TIME + 5)
    batch = up_convert(data)
    assert batch is not None and read_batch_header(batch).timestamp_type == 1
    assert {each.timestamp for each in records_of(batch)} == {TIME + 5}
