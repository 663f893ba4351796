"""The columns are Arrow's memory as it is: pyarrow takes them without a copy, and finds no fault with them."""

from __future__ import annotations

import pytest

from ottla.protocol.records.columns import ColumnBuffers, Columns
from ottla.protocol.records.record_batch import SimpleRecord, build_batch

pa = pytest.importorskip("pyarrow")
TIME = 1_700_000_000_000
RECORDS = [
    SimpleRecord(TIME + at, None if at % 3 else b"k%d" % at, None if at % 5 == 4 else b"v" * (at % 7), headers)
    for at in range(3001)
    for headers in [(("é", b"x"), ("b", None)) if at % 4 == 0 else ()]
]


def table(taken: ColumnBuffers) -> pa.Table:
    def column(
        kind: pa.DataType, rows: int, *buffers: memoryview | None, children: list[pa.Array] | None = None
    ) -> pa.Array:
        found = [None if each is None else pa.py_buffer(each) for each in buffers]
        return pa.Array.from_buffers(kind, rows, found, children=children)

    rows, count = taken.rows, taken.header_count
    pairs = column(
        pa.struct([("key", pa.string()), ("value", pa.binary())]),
        count,
        None,
        children=[
            column(pa.string(), count, None, taken.header_key_offsets, taken.header_key_data),
            column(
                pa.binary(), count, taken.header_value_validity, taken.header_value_offsets, taken.header_value_data
            ),
        ],
    )
    made = pa.table(
        {
            "key": column(pa.binary(), rows, taken.key_validity, taken.key_offsets, taken.key_data),
            "value": column(pa.binary(), rows, taken.value_validity, taken.value_offsets, taken.value_data),
            "offset": column(pa.int64(), rows, None, taken.offset),
            "timestamp": column(pa.timestamp("us", "UTC"), rows, None, taken.timestamp),
            "timestampType": column(pa.int32(), rows, None, taken.timestamp_type),
            "headers": column(
                pa.list_(pairs.type), rows, taken.headers_validity, taken.headers_offsets, children=[pairs]
            ),
        }
    )
    made.validate(full=True)
    return made


def test_arrow_reads_them() -> None:
    columns = Columns(headers=True)
    log = build_batch(RECORDS[:1000]) + build_batch(RECORDS[1000:], base_offset=1000)
    for _ in range(2):
        assert columns.add(bytes(log), 5) == len(RECORDS)
        first = table(columns.take())
        columns.add(bytes(log), 2000)
        columns.take()  # what was taken before stays as it is
        rows = first.to_pylist()
        assert len(rows) == len(RECORDS) - 5
        for offset, (row, record) in enumerate(zip(rows, RECORDS[5:], strict=True), 5):
            assert (row["offset"], row["key"], row["value"]) == (offset, record.key, record.value)
            assert round(row["timestamp"].timestamp() * 1000) == record.timestamp
            headers = None if not record.headers else [{"key": key, "value": value} for key, value in record.headers]
            assert row["headers"] == headers


def test_arrow_reads_no_rows() -> None:
    assert table(Columns(headers=True).take()).num_rows == 0
