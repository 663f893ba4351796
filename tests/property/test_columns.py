"""Batches as columns: what `iterate_records` gives, in every codec, compiled and interpreted; hostile bytes."""

from __future__ import annotations

import struct
import sys
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.records import _columns, columns
from ottla.protocol.records.columns import ColumnBuffers, Columns
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.record_batch import (
    CRC_POSITION,
    HEADER_SIZE,
    CorruptBatch,
    Record,
    build_batch,
    compute_crc,
    iterate_batches,
    iterate_records,
)
from tests.property.test_record_batch import INTERPRETED as INTERPRETED_RECORDS
from tests.property.test_record_batch import interpreted, records

with mock.patch.dict(sys.modules, {"ottla.protocol.records._records": INTERPRETED_RECORDS}):
    INTERPRETED = interpreted("_columns")
ROWS = (_columns.Rows, INTERPRETED.Rows)
logs = st.lists(
    st.tuples(records, st.sampled_from(list(Codec)), st.integers(0, 1), st.integers(0, 3)), min_size=1, max_size=4
)
"""Logs of batches: records, codec, timestamp type, offsets missing before."""


def log_of(batches: Any) -> bytes:
    """The batches behind one another."""
    log, offset = bytearray(), 0
    for items, codec, timestamp_type, gap in batches:
        offset += gap
        log += build_batch(items, base_offset=offset, codec=codec, timestamp_type=timestamp_type)
        offset += len(items)
    return bytes(log)


def binary(rows: int, validity: memoryview | None, offsets: memoryview, data: memoryview) -> list[bytes | None]:
    """The values that Arrow reads from a column of bytes."""
    at = offsets.cast("i")
    assert at[0] == 0 and len(at) == rows + 1 and at[rows] == len(data)
    return [bytes(data[at[i] : at[i + 1]]) if is_set(validity, i) else None for i in range(rows)]


def is_set(validity: memoryview | None, row: int) -> bool:
    return validity is None or bool(validity[row >> 3] >> (row & 7) & 1)


def records_of(taken: ColumnBuffers) -> list[Record]:
    """All columns, put together as records; attributes have the timestamp type."""
    rows = taken.rows
    assert taken.key_offsets is not None and taken.value_offsets is not None and taken.headers_offsets is not None
    assert taken.timestamp is not None
    assert taken.key_data is not None and taken.value_data is not None and taken.timestamp_type is not None
    assert taken.header_key_offsets is not None and taken.header_value_offsets is not None
    assert taken.header_key_data is not None and taken.header_value_data is not None
    keys = binary(rows, taken.key_validity, taken.key_offsets, taken.key_data)
    values = binary(rows, taken.value_validity, taken.value_offsets, taken.value_data)
    names = binary(taken.header_count, None, taken.header_key_offsets, taken.header_key_data)
    contents = binary(
        taken.header_count, taken.header_value_validity, taken.header_value_offsets, taken.header_value_data
    )
    pairs = [(bytes(name or b"").decode(), content) for name, content in zip(names, contents, strict=True)]
    lists = taken.headers_offsets.cast("i")
    found = []
    for row in range(rows):
        headers = tuple(pairs[lists[row] : lists[row + 1]])
        assert is_set(taken.headers_validity, row) == bool(headers)
        micros = taken.timestamp.cast("q")[row]
        found.append(
            Record(
                taken.offset.cast("q")[row],
                micros // 1000,
                keys[row],
                values[row],
                headers,
                taken.timestamp_type.cast("i")[row],
            )
        )
    return found


def expected_of(log: bytes) -> list[Record]:
    return [
        record._replace(attributes=header.timestamp_type)
        for position, header in iterate_batches(log)
        for record in iterate_records(log[: position + header.size], position)
    ]


def each_way(headers: bool = True) -> list[Columns]:
    made = []
    for rows in ROWS:
        with mock.patch.object(columns, "Rows", rows):
            made.append(Columns(headers=headers))
    return made


@given(logs, st.integers(0, 400), st.integers(0, 400), st.integers(0, 70))
def test_the_records_of_a_range(batches: Any, start: int, length: int, cut: int) -> None:
    """A last batch that is cut off waits; twice with the same object, which is empty in between."""
    log = log_of(batches)
    log = log[: len(log) - cut] if cut < len(log) else log
    stop = start + length
    expected = [record for record in expected_of(log) if start <= record.offset < stop]
    end = max((header.next_offset for _, header in iterate_batches(log)), default=0)
    for made in each_way():
        for _ in range(2):
            assert made.add(log, start, stop) == min(max(start, end), stop)
            assert made.rows == len(expected)
            assert records_of(made.take()) == expected
            assert made.rows == made.bytes == 0


@given(logs, st.integers(1, 100), st.integers(1, 1000))
def test_in_pieces(batches: Any, rows_max: int, bytes_max: int) -> None:
    log = log_of(batches)
    expected = expected_of(log)
    for made in each_way():
        found: list[Record] = []
        start = 0
        while start <= expected[-1].offset:
            before = start
            start = made.add(log, start, rows_max=rows_max, bytes_max=bytes_max)
            assert start > before
            found += records_of(made.take())
        assert found == expected


@given(logs)
def test_only_what_is_wanted(batches: Any) -> None:
    log = log_of(batches)
    for rows in ROWS:
        with mock.patch.object(columns, "Rows", rows):
            made = Columns(keys=False, values=False, timestamps=False)
        made.add(log, 0)
        taken = made.take()
        assert taken.offset.cast("q").tolist() == [record.offset for record in expected_of(log)]
        assert all(
            each is None for name, each in taken._asdict().items() if name not in ("rows", "offset", "header_count")
        )


@settings(max_examples=400)
@given(
    records,
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(0, 200),
)
def test_hostile_records(items: Any, changes: list[tuple[int, int]], count: int) -> None:
    """Bytes changed under a true CRC: both give the same, and what `iterate_records` gives; a refused batch leaves
    nothing behind."""
    good = bytes(build_batch(items))
    bad = bytearray(build_batch(items, base_offset=len(items)))
    for at, byte in changes:
        bad[HEADER_SIZE + at % (len(bad) - HEADER_SIZE)] = byte
    if count < 100:
        struct.pack_into(">i", bad, 57, count)
    struct.pack_into(">I", bad, CRC_POSITION, compute_crc(bad, 0, len(bad)))
    try:
        whole = expected_of(bytes(bad))
    except CorruptBatch:
        whole = None
    good_ones = expected_of(good)
    for made in each_way():
        made.add(good, 0)
        try:
            made.add(bad, -(2**62), 2**62)
            refused = False
        except CorruptBatch:
            refused = True
        assert refused == (whole is None)
        assert made.rows == len(good_ones) + len(whole or ())
        offsets = [record.offset for record in good_ones + (whole or [])]
        taken = made.take()
        assert taken.offset.cast("q").tolist() == offsets
        if refused:
            assert records_of(taken) == good_ones


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_do_no_harm(noise: bytes, with_head: bool) -> None:
    data = struct.pack(">qiib", 0, len(noise) + 5, 0, 2) + noise if with_head else noise
    for made in each_way():
        try:
            made.add(data, 0)
        except CorruptBatch:
            pass
        made.take()
