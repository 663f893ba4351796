"""Avro: every type to its column and back, schemas that changed, and bytes that are something else."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.formats.avro_values import AvroValues
from ottla.formats.errors import SchemaError
from ottla.formats.nested import Bad

UTC = dt.UTC
MOMENT = dt.datetime(2024, 2, 29, 12, 30, 1, 123000, tzinfo=UTC)


def logical(kind: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


TYPES: list[tuple[Any, pa.DataType, Any]] = [
    ("boolean", pa.bool_(), True),
    ("int", pa.int32(), -7),
    ("long", pa.int64(), 1 << 62),
    ("float", pa.float32(), 1.5),
    ("double", pa.float64(), 0.1),
    ("bytes", pa.binary(), b"\x00\xff"),
    ("string", pa.string(), "één"),
    (logical("int", "date"), pa.date32(), dt.date(2024, 2, 29)),
    (logical("int", "time-millis"), pa.time64("ns"), dt.time(1, 2, 3, 4000)),
    (logical("long", "time-micros"), pa.time64("ns"), dt.time(1, 2, 3, 4)),
    (logical("long", "timestamp-millis"), pa.timestamp("us", "UTC"), MOMENT),
    (logical("long", "timestamp-micros"), pa.timestamp("us", "UTC"), MOMENT.replace(microsecond=123456)),
    (logical("long", "local-timestamp-micros"), pa.timestamp("us"), dt.datetime.fromisoformat("1960-01-01")),
    (logical("bytes", "decimal", precision=10, scale=2), pa.decimal128(10, 2), Decimal("-123.45")),
    (logical("string", "uuid"), pa.string(), "6f1c1bd0-5d62-4a44-8a53-8d2c8f6a2b11"),
    ({"type": "fixed", "name": "F", "size": 2}, pa.binary(), b"ab"),
    (
        {"type": "fixed", "name": "D", "size": 8, "logicalType": "decimal", "precision": 18, "scale": 4},
        pa.decimal128(18, 4),
        Decimal("99999999999999.9999"),
    ),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.string(), "B"),
    ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.int32()), [1, None, 3]),
    ({"type": "map", "values": "long"}, pa.map_(pa.string(), pa.int64()), [("a", 1), ("b", 2)]),
    (["int", "long"], pa.int64(), 5),
    (["null", "float", "double"], pa.float64(), 0.5),
    (
        ["null", "int", "string"],
        pa.struct([("member0", pa.int32()), ("member1", pa.string())]),
        {"member0": None, "member1": "x"},
    ),
    (
        {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": ["null", "string"]}]},
        pa.struct([("x", pa.string())]),
        {"x": None},
    ),
]


def record(*types: Any) -> str:
    fields = [{"name": f"f{index}", "type": each} for index, each in enumerate(types)]
    return json.dumps({"type": "record", "name": "R", "namespace": "ottla", "fields": fields})


@pytest.mark.parametrize(("kind", "arrow", "value"), TYPES, ids=lambda each: str(each)[:40])
def test_each_type_comes_back_as_its_column(kind: Any, arrow: pa.DataType, value: Any) -> None:
    for nullable in (kind, ["null", *(kind if isinstance(kind, list) else [kind])]):
        if isinstance(nullable, list) and nullable.count("null") > 1:
            continue
        values = AvroValues(record(nullable, "int"))
        assert values.type == pa.struct([("f0", arrow), ("f1", pa.int32())])
        rows = [{"f0": value, "f1": 1}, None] + ([{"f0": None, "f1": 2}] if "null" in nullable else [])
        bad = Bad()
        column = values.decode(values.encode(pa.array(rows, values.type)).to_pylist(), bad)
        column.validate(full=True)
        assert column.type == values.type
        assert column.to_pylist() == rows
        assert not bad.reasons


def test_what_fastavro_writes_with_logical_types_is_read() -> None:
    schema = record(*(kind for kind, _, _ in TYPES if isinstance(kind, dict) and "logicalType" in kind))
    wanted = [(kind, value) for kind, _, value in TYPES if isinstance(kind, dict) and "logicalType" in kind]
    stream = BytesIO()
    row = {f"f{index}": value for index, (_, value) in enumerate(wanted)}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(schema)), row)
    assert AvroValues(schema).decode([stream.getvalue()], Bad()).to_pylist() == [row]


def test_a_reader_with_another_schema() -> None:
    old = record("int")
    new = json.dumps(
        {
            "type": "record",
            "name": "R",
            "namespace": "ottla",
            "fields": [{"name": "added", "type": "string", "default": "?"}, {"name": "f0", "type": "long"}],
        }
    )
    written = AvroValues(old).encode(pa.array([{"f0": 5}], pa.struct([("f0", pa.int32())])))
    read = AvroValues(new, writer=old).decode(written.to_pylist(), Bad())
    assert read.to_pylist() == [{"added": "?", "f0": 5}]


def test_bytes_behind_the_datum_make_a_bad_record() -> None:
    bad = Bad()
    assert AvroValues('"long"').decode([b"\x02", b"\x00\x00\x00\x00\x02", b""], bad).to_pylist() == [1, None, None]
    assert bad.reasons[1] == "not Avro of this schema: 4 bytes are left behind the datum"
    assert 2 in bad.reasons


def test_a_date_that_python_cannot_hold() -> None:
    bad = Bad()
    column = AvroValues(json.dumps(logical("int", "date"))).decode([b"\xfe\xff\xff\xff\x0f"], bad)
    assert column.cast(pa.int32()).to_pylist() == [(1 << 31) - 1]
    assert not bad.reasons


@pytest.mark.parametrize(
    "schema",
    [
        "",
        "{",
        '"lng"',
        '{"type": "record"}',
        '{"type": "array", "items": "null"}',
        '["int", {"type": "fixed", "name": "F", "size": 1}, "bytes"]',
        '{"type": "bytes", "logicalType": "decimal", "precision": 39}',
        '{"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}',
    ],
)
def test_schemas_without_columns_are_refused(schema: str) -> None:
    with pytest.raises(SchemaError):
        AvroValues(schema)


def test_a_row_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit its Avro schema"):
        AvroValues(record("int")).encode(pa.array([{"f0": None}], pa.struct([("f0", pa.int32())])))


EVERYTHING = AvroValues(record(*(kind for kind, _, _ in TYPES)))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=80), max_size=4))
def test_bad_bytes_never_crash(values: list[bytes]) -> None:
    bad = Bad()
    column = EVERYTHING.decode(list(values), bad)
    column.validate(full=True)
    assert len(column) == len(values)
    for row, each in enumerate(column.is_valid().to_pylist()):
        assert each or row in bad.reasons


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_changed_byte_never_crashes(data: st.DataObject) -> None:
    row = {f"f{index}": value for index, (_, _, value) in enumerate(TYPES)}
    (whole,) = EVERYTHING.encode(pa.array([row], EVERYTHING.type)).to_pylist()
    assert EVERYTHING.decode([whole], Bad()).to_pylist() == [row]
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:at] + bytes([data.draw(st.integers(0, 255))]) + whole[at + 1 :]
    EVERYTHING.decode([changed, whole[:at]], Bad()).validate(full=True)
