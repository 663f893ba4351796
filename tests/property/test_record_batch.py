"""Record batches: what is built is read back, in every codec, compiled and interpreted; and no bytes do harm."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.records import _records, record_batch
from ottla.protocol.records.compression import Codec, DecompressionFailed, compress, decompress
from ottla.protocol.records.record_batch import (
    HEADER_SIZE,
    CorruptBatch,
    SimpleRecord,
    build_batch,
    crc_is_valid,
    iterate_batches,
    iterate_records,
    read_batch_header,
)


def interpreted(name: str) -> ModuleType:
    """A module of `ottla.protocol` from its source, also where a compiled one is found first."""
    directory = record_batch.__file__.rpartition("/")[0]
    spec = importlib.util.spec_from_file_location(f"{name}_interpreted", f"{directory}/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


INTERPRETED = interpreted("_records")
BOTH = pytest.mark.parametrize("module", [_records, INTERPRETED], ids=["as built", "interpreted"])
INT64 = st.integers(-(2**63), 2**63 - 1)

values = st.none() | st.binary(max_size=30) | st.sampled_from([b"v" * 63, b"v" * 64, b"v" * 300])
headers = st.lists(st.tuples(st.text(max_size=5), values), max_size=3).map(tuple)
records = st.lists(
    st.builds(SimpleRecord, st.integers(-1, 2**45), values, values, headers), min_size=1, max_size=130
)  # offset deltas from 64 on take two bytes
small = st.lists(st.builds(SimpleRecord, st.integers(0, 2**41), values, values, headers), min_size=1, max_size=4)


@given(records, st.sampled_from(list(Codec)), st.integers(0, 2**40), st.booleans())
def test_what_is_built_is_read_back(items: list[SimpleRecord], codec: Codec, offset: int, append_time: bool) -> None:
    batch = build_batch(items, base_offset=offset, leader_epoch=3, codec=codec, timestamp_type=int(append_time))
    header = read_batch_header(batch)
    assert (header.size, header.count, header.codec) == (len(batch), len(items), codec)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (offset, offset + len(items) - 1, 3)
    assert header.max_timestamp == max(item.timestamp for item in items)
    assert crc_is_valid(batch, 0, header)
    found = list(iterate_records(batch))
    assert [record.offset for record in found] == list(range(offset, offset + len(items)))
    assert [(record.key, record.value, record.headers) for record in found] == [item[1:] for item in items]
    expected = [header.max_timestamp] * len(items) if append_time else [item.timestamp for item in items]
    assert [record.timestamp for record in found] == expected


@given(records)
def test_compiled_and_interpreted_write_the_same(items: list[SimpleRecord]) -> None:
    ours, theirs = bytearray(), bytearray()
    assert _records.write(ours, items, items[0].timestamp) == INTERPRETED.write(theirs, items, items[0].timestamp)
    assert ours == theirs


def scan_of(items: list[SimpleRecord]) -> tuple[bytes, int]:
    section = bytearray()
    _records.write(section, items, 0)
    return bytes(section), len(items)


@given(small)
def test_scan_sees_what_was_written(items: list[SimpleRecord]) -> None:
    section, count = scan_of(items)
    stamps = [item.timestamp for item in items]
    keyless = [index for index, item in enumerate(items) if item.key is None]
    expected = (
        _records.OK,
        count,
        min(stamps),
        max(stamps),
        stamps.index(max(stamps)),
        keyless[0] if keyless else -1,
        -1,
    )
    assert _records.scan(section, 0, len(section), count, 0) == expected
    assert INTERPRETED.scan(section, 0, len(section), count, 0) == expected


@given(small)
def test_a_count_that_disagrees_with_the_records_is_seen(items: list[SimpleRecord]) -> None:
    section, count = scan_of(items)
    for module in (_records, INTERPRETED):
        assert module.scan(section, 0, len(section), count + 1, 0)[:2] == (module.TRUNCATED, count)
        assert module.scan(section, 0, len(section), count - 1, 0)[:2] == (module.LEFT_OVER, count - 1)
        assert module.scan(section + b"\0", 0, len(section) + 1, count, 0)[0] == module.LEFT_OVER


@given(small)
def test_every_truncation_of_the_records_is_seen(items: list[SimpleRecord]) -> None:
    section, count = scan_of(items)
    for end in range(len(section)):
        result = _records.scan(section[:end], 0, end, count, 0)
        assert result[0] in (_records.TRUNCATED, _records.MALFORMED)
        assert result == INTERPRETED.scan(section, 0, end, count, 0)


@settings(max_examples=500)
@given(st.binary(max_size=60), st.integers(-1, 5), INT64)
def test_any_bytes_scan_alike_compiled_and_interpreted(data: bytes, count: int, base: int) -> None:
    result = _records.scan(data, 0, len(data), count, base)
    assert result == INTERPRETED.scan(data, 0, len(data), count, base)
    if result[0] != _records.OK:
        with pytest.raises(ValueError):
            _records.read(data, 0, len(data), count, 0, base, -1)
    elif count > 0:
        found = _records.read(data, 0, len(data), count, 7, base, -1)
        assert found == INTERPRETED.read(data, 0, len(data), count, 7, base, -1)
        assert len(found) == count


def scan_one_by_one(data: bytes, count: int, base: int) -> tuple[int, ...]:
    """What `scan` finds, without its short way for what most records are."""
    position, seen, stamps, keyless, misplaced = 0, 0, [], -1, -1
    status = _records.OK
    while seen < count:
        stop, delta, offset_delta, keyed = INTERPRETED._record(data, position, len(data))
        if stop < 0:
            status = -stop
            break
        if not -(2**63) <= base + delta < 2**63:
            status = _records.TIMESTAMP_OVERFLOW
            break
        stamps.append(base + delta)
        keyless = seen if keyless < 0 and not keyed else keyless
        misplaced = seen if misplaced < 0 and offset_delta != seen else misplaced
        position, seen = stop, seen + 1
    else:
        status = _records.OK if position == len(data) else _records.LEFT_OVER
    greatest = max(stamps, default=-1)
    index = stamps.index(greatest) if greatest > -1 else -1
    least = min((stamp for stamp in stamps if stamp != -1), default=2**63 - 1)
    return status, seen, least, max(greatest, -1), index, keyless, misplaced


many = st.integers(-1, 300).map(lambda size: None if size < 0 else b"v" * size)
varied = st.lists(st.builds(SimpleRecord, st.integers(0, 100), many, many, headers), min_size=1, max_size=90)


@settings(max_examples=500)
@given(varied, st.integers(0, 2) | st.integers(2**63 - 100, 2**63 - 1), st.data())
def test_the_short_way_through_the_records_finds_what_the_long_one_does(
    items: list[SimpleRecord], base: int, data: st.DataObject
) -> None:
    section, count = scan_of(items)
    whole = bytearray(section)
    assert _records.scan(section, 0, len(section), count, base) == scan_one_by_one(section, count, base)
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]))
    section = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    for module in (_records, INTERPRETED):
        assert module.scan(section, 0, len(section), count, base) == scan_one_by_one(section, count, base)


@settings(max_examples=300)
@given(small, st.data())
def test_a_flipped_byte_is_seen_by_the_crc_or_lies_outside_it(items: list[SimpleRecord], data: st.DataObject) -> None:
    batch = build_batch(items)
    position = data.draw(st.integers(0, len(batch) - 1))
    batch[position] ^= data.draw(st.integers(1, 255))
    try:
        header = read_batch_header(batch)
    except CorruptBatch:
        return
    assert not crc_is_valid(batch, 0, header) or position < 8 or 12 <= position < 16


@given(st.binary(max_size=200), st.integers(1, 4))
def test_any_bytes_decompress_or_fail(data: bytes, codec: int) -> None:
    try:
        decompress(codec, data, 10_000)
    except DecompressionFailed:
        pass


@given(st.binary(max_size=300) | st.binary(max_size=3).map(lambda item: item * 40_000), st.sampled_from(list(Codec)))
def test_codecs_give_back_what_they_took_and_keep_to_the_limit(data: bytes, codec: Codec) -> None:
    packed = compress(codec, data)
    assert bytes(decompress(codec, packed, len(data))) == data
    if data and codec != Codec.NONE:
        with pytest.raises(DecompressionFailed):
            decompress(codec, packed, len(data) - 1)


@given(st.lists(small, min_size=1, max_size=4), st.data())
def test_batches_are_iterated_up_to_the_torn_one(groups: list[list[SimpleRecord]], data: st.DataObject) -> None:
    batches = [bytes(build_batch(items, base_offset=100 * index)) for index, items in enumerate(groups)]
    whole = b"".join(batches)
    cut = data.draw(st.integers(0, len(whole)))
    found = list(iterate_batches(whole[:cut]))
    expected = 0
    for position, header in found:
        assert position == expected and header == read_batch_header(whole, position)
        expected += header.size
    assert expected <= cut
    assert len(found) == len(batches) or cut < expected + len(batches[len(found)])


@BOTH
def test_numbers_wrap_as_javas_do(module: Any) -> None:
    # The five-byte varint of a length has bits beyond 32, which Java shifts out.
    body = bytes([0, 0, 0, 1, 1, 0])
    length = bytes([0x80 | (2 * len(body)), 0x80, 0x80, 0x80, 0x70])
    assert module.scan(length + body, 0, 5 + len(body), 1, 5)[:4] == (module.OK, 1, 5, 5)
    assert module.scan(b"\xff\xff\xff\xff\xff\x01", 0, 6, 1, 0)[0] == module.MALFORMED


@BOTH
def test_timestamps_beyond_64_bits_are_refused(module: Any) -> None:
    section = bytearray()
    module.write(section, [(10, None, None, ())], 0)
    assert module.scan(bytes(section), 0, len(section), 1, 2**63 - 1)[0] == module.TIMESTAMP_OVERFLOW
    assert module.scan(bytes(section), 0, len(section), 1, 2**63 - 11)[3] == 2**63 - 1


def test_huge_header_counts_cost_nothing() -> None:
    body = bytes([0, 0, 0, 1, 1, 0xFE, 0xFF, 0xFF, 0xFF, 0x0F])
    section = bytes([2 * len(body)]) + body
    assert _records.scan(section, 0, len(section), 1, 0)[0] == _records.MALFORMED


def test_a_batch_needs_records() -> None:
    with pytest.raises(ValueError):
        build_batch([])


def test_headers_cut_off_or_of_other_formats_are_corrupt() -> None:
    batch = build_batch([SimpleRecord(0, None, b"v")])
    for end in range(HEADER_SIZE):
        with pytest.raises(CorruptBatch):
            read_batch_header(batch[:end])
    for magic in (0, 1, 3, 255):
        batch[16] = magic
        with pytest.raises(CorruptBatch):
            read_batch_header(batch)
