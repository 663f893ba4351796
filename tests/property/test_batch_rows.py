"""Arrow columns as record batches: what was in the rows is read back, both ways, however they are cut."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.protocol.records import _batch_rows
from ottla.protocol.records.columns import Columns
from ottla.protocol.records.record_batch import MAGIC, BatchHeader, Record, assemble, iterate_records
from tests.property.test_columns import records_of
from tests.property.test_record_batch import INTERPRETED as INTERPRETED_RECORDS
from tests.property.test_record_batch import interpreted

pa = pytest.importorskip("pyarrow")

from ottla.client import arrow_columns  # noqa: E402 - needs pyarrow


def _columns_over(rows: ModuleType) -> ModuleType:
    """`arrow_columns` with another `_batch_rows` below it."""
    spec = importlib.util.spec_from_file_location("arrow_columns_interpreted", arrow_columns.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, {"ottla.protocol.records._batch_rows": rows}):
        spec.loader.exec_module(module)
    return module


with mock.patch.dict(sys.modules, {"ottla.protocol.records._records": INTERPRETED_RECORDS}):
    INTERPRETED = interpreted("_batch_rows")
WAYS = [(_batch_rows, arrow_columns), (INTERPRETED, _columns_over(INTERPRETED))]

NOW = 1_700_000_000_123
STICKY = 1
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Row(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    partition: int | None
    timestamp: int | None
    """ms"""


octets = st.none() | st.binary(max_size=20) | st.sampled_from([b"v" * 63, b"v" * 64, b"v" * 300, b"\x80\xff\xfe"])
texts = st.none() | st.text(max_size=8).map(str.encode)
headers = st.none() | st.lists(st.tuples(st.text(max_size=4), octets), max_size=3)
times = st.none() | st.sampled_from([-(2**45), -1, 0, 1, 2**45]) | st.integers(NOW - 10**6, NOW + 10**6)


def rows(partitions: int, content: Any = octets) -> Any:
    row = st.builds(Row, content, content, headers, st.none() | st.integers(0, partitions - 1), times)
    return st.lists(row, max_size=40)


def batch_of(items: list[Row], kind: Any = None, offset: int = 0, unit: str = "us") -> Any:
    """The rows behind `offset` others, which are sliced off: buffers and bitmaps begin in the middle of a byte."""
    padding = [Row(b"pad", b"pad", [("pad", b"pad")], 0, 5)] * offset
    whole = [*padding, *items, *padding]
    kind = kind or pa.binary()
    as_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)

    def content(value: bytes | None) -> Any:
        return value.decode() if as_text and value is not None else value

    scale = {"ms": 1, "us": 1000}[unit]
    columns = {
        "key": pa.array([content(row.key) for row in whole], kind),
        "value": pa.array([content(row.value) for row in whole], kind),
        "headers": pa.array(
            [row.headers and [{"key": name, "value": value} for name, value in row.headers] for row in whole], HEADERS
        ),
        "partition": pa.array([row.partition for row in whole], pa.int32()),
        "timestamp": pa.array(
            [None if row.timestamp is None else row.timestamp * scale for row in whole], pa.int64()
        ).cast(pa.timestamp(unit, "UTC")),
    }
    return pa.record_batch(columns).slice(offset, len(items))


def encoded(
    way: tuple[ModuleType, ModuleType], batches: list[Any], partitions: int, limit: int
) -> dict[int, list[bytes]]:
    """Batches by partition, each closed where `append` says so."""
    module, columns_module = way
    sections = [module.Section(1, 0) for _ in range(partitions)]
    found: dict[int, list[bytes]] = {at: [] for at in range(partitions)}

    def close(at: int) -> None:
        taken, count, base, newest = sections[at].take()
        header = BatchHeader(0, 0, -1, MAGIC, 0, 0, count - 1, base, newest, -1, -1, -1, count)
        found[at].append(bytes(assemble(header, taken)))

    for batch in batches:
        columns = columns_module.record_columns(batch)
        row = 0
        while True:
            row, why = module.append(
                sections,
                row,
                columns.rows,
                columns.key,
                columns.value,
                columns.headers,
                columns.partitions,
                columns.timestamps,
                NOW,
                STICKY,
                limit,
            )
            if why == -1:
                assert row == columns.rows
                break
            assert why >= 0, "its partition exists"
            close(why)
    for at, section in enumerate(sections):
        if section.count:
            close(at)
    return found


def partition_of(row: Row, partitions: int) -> int:
    if row.partition is not None:
        return row.partition
    return STICKY if row.key is None else (INTERPRETED.murmur2(row.key) & 0x7FFFFFFF) % partitions


def expected_of(items: list[Row], partitions: int) -> dict[int, list[tuple[Any, ...]]]:
    """(timestamp, key, value, headers) of each partition in their order."""
    found: dict[int, list[tuple[Any, ...]]] = {at: [] for at in range(partitions)}
    for row in items:
        found[partition_of(row, partitions)].append(
            (NOW if row.timestamp is None else row.timestamp, row.key, row.value, tuple(row.headers or ()))
        )
    return found


def plain(record: Record) -> tuple[Any, ...]:
    return record.timestamp, record.key, record.value, tuple(record.headers)


@settings(max_examples=300)
@given(st.lists(rows(3), max_size=3), st.integers(0, 17), st.integers(1, 2000), st.sampled_from(["ms", "us"]))
def test_rows_come_back(items: list[list[Row]], offset: int, limit: int, unit: str) -> None:
    """By both readers, from both encoders, which give the same bytes; a batch is larger than the limit only for one
    record."""
    expected = expected_of([row for batch in items for row in batch], 3)
    batches = [batch_of(batch, offset=offset, unit=unit) for batch in items]
    found, theirs = [encoded(way, batches, 3, limit) for way in WAYS]
    assert found == theirs
    for at in range(3):
        records = [list(iterate_records(batch)) for batch in found[at]]
        assert [plain(record) for batch in records for record in batch] == expected[at]
        for batch, decoded in zip(found[at], records, strict=True):
            assert len(batch) - 61 <= limit or len(decoded) == 1
            assert [record.offset for record in decoded] == list(range(len(decoded)))
        columns = Columns(headers=True)
        for batch in found[at]:
            columns.add(batch, 0)
        assert [plain(record) for record in records_of(columns.take())] == expected[at]


@given(
    rows(2, texts), st.integers(0, 9), st.sampled_from([pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
)
def test_text_and_bytes_of_all_widths(items: list[Row], offset: int, kind: Any) -> None:
    batches = [batch_of(items, kind, offset)]
    found, theirs = [encoded(way, batches, 2, 10**6) for way in WAYS]
    assert found == theirs
    for at, expected in expected_of(items, 2).items():
        assert [plain(record) for batch in found[at] for record in iterate_records(batch)] == expected


@given(rows(1), st.sampled_from(["key", "headers", "partition", "timestamp"]), st.booleans())
def test_a_column_that_is_absent_or_of_type_null_is_null(items: list[Row], name: str, absent: bool) -> None:
    batch = batch_of(items)
    at = batch.schema.names.index(name)
    kind = {"timestamp": pa.timestamp("ms"), "partition": pa.int32()}.get(name, pa.null())
    if absent:
        batch = batch.drop_columns([name])
    else:
        batch = batch.set_column(at, name, pa.nulls(len(items), kind))
    items = [row._replace(**{name: None}) for row in items]
    for way in WAYS:
        found = encoded(way, [batch], 2, 10**6)  # of two, as rows without a key go to the second
        for at, expected in expected_of(items, 2).items():
            assert [plain(record) for one in found[at] for record in iterate_records(one)] == expected


@pytest.mark.parametrize("way", WAYS, ids=["as built", "interpreted"])
@pytest.mark.parametrize("partition", [-1, 2, 2**31 - 1, -(2**31)])
def test_a_partition_that_does_not_exist_stops_before_its_row(
    way: tuple[ModuleType, ModuleType], partition: int
) -> None:
    module, columns_module = way
    batch = pa.record_batch({"value": [b"a", b"b", b"c"], "partition": pa.array([0, partition, 1], pa.int32())})
    columns = columns_module.record_columns(batch)
    sections = [module.Section(10, 0) for _ in range(2)]
    row, why = module.append(
        sections, 0, 3, columns.key, columns.value, columns.headers, columns.partitions, columns.timestamps, NOW, 0, 100
    )
    assert (row, why) == (1, -2)
    assert [section.count for section in sections] == [1, 0]


def test_headers_whose_list_is_null_but_not_empty_below() -> None:
    """Arrow lets a null list have entries: nobody sees them, without names at that."""
    pairs = pa.StructArray.from_arrays(
        [pa.array(["a", None, "c"]), pa.array([b"1", b"2", None], pa.binary())], names=["key", "value"]
    )
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3]), pairs, mask=pa.array([False, True, False]))
    batch = pa.record_batch({"value": [b"x", b"y", b"z"], "headers": lists})
    for way in WAYS:
        (one,) = encoded(way, [batch], 2, 1000)[STICKY]
        assert [record.headers for record in iterate_records(one)] == [(("a", b"1"),), (), (("c", None),)]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([[{"key": None, "value": b"v"}]], "a header has no name"),
        ([[None]], "a header has no name"),
    ],
)
def test_headers_without_a_name_are_refused(pairs: Any, message: str) -> None:
    batch = pa.record_batch({"value": [b"x"], "headers": pa.array(pairs, HEADERS)})
    with pytest.raises(ValueError, match=message):
        arrow_columns.record_columns(batch)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("value", pa.array([1])),
        ("key", pa.array([1.5])),
        ("headers", pa.array(["a"])),
        ("headers", pa.array([[{"name": "a", "value": b"b"}]])),
        ("headers", pa.array([[{"key": 1, "value": b"b"}]])),
        ("headers", pa.array([["a"]])),
        ("timestamp", pa.array([1])),
        ("partition", pa.array(["a"])),
    ],
)
def test_types_that_no_record_has_are_refused(name: str, column: Any) -> None:
    columns = {"value": pa.array([b"v"]), name: column}
    with pytest.raises(ValueError):
        arrow_columns.record_columns(pa.record_batch(columns))


def test_times_of_a_zone_whose_clock_is_put_back() -> None:
    """A session's time zone is in the type that Spark gives; the hour that comes twice is two."""
    micros = [1_699_162_200_123_456 + 600_000_000 * at for at in range(-12, 12)]  # around 06:00 UTC, 5 November 2023
    micros += [1_678_604_399_999_999, 1_678_604_400_000_000, -1]
    column = pa.array(micros, pa.timestamp("us", "America/New_York"))
    batch = pa.record_batch({"value": [b""] * len(micros), "timestamp": column})
    for way in WAYS:
        (one,) = encoded(way, [batch], 2, 10**6)[STICKY]
        assert [record.timestamp for record in iterate_records(one)] == [value // 1000 for value in micros]


def test_a_digit_of_every_unit() -> None:
    for unit, scale in (("s", 1000), ("ms", 1), ("us", 1 / 1000), ("ns", 1 / 1_000_000)):
        value = round(1_700_000_000_000 / scale)
        batch = pa.record_batch({"value": [b""], "timestamp": pa.array([value], pa.timestamp(unit))})
        for way in WAYS:
            (one,) = encoded(way, [batch], 2, 10**6)[STICKY]
            assert [record.timestamp for record in iterate_records(one)] == [1_700_000_000_000]


def test_times_as_far_apart_as_can_be() -> None:
    times = [-(2**63) + 1, 2**63 - 1, 0, -1]
    batch = pa.record_batch({"value": [b""] * 4, "timestamp": pa.array(times, pa.timestamp("ms"))})
    found = [encoded(way, [batch], 2, 10**6)[STICKY] for way in WAYS]
    assert found[0] == found[1]
    assert [record.timestamp for one in found[0] for record in iterate_records(one)] == times
