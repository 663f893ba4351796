"""DDL and JSON: types, what Spark's from_json takes, round trips, and bytes that are something else."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.formats.ddl import type_of_ddl
from ottla.formats.errors import SchemaError
from ottla.formats.json_values import JsonValues
from ottla.formats.nested import Bad

ALL = (
    "a INT, b STRING, c ARRAY<DOUBLE>, d STRUCT<x: DATE, `y z` MAP<STRING, BIGINT>>, e TIMESTAMP, f DECIMAL(10,2), "
    "g BINARY, h BOOLEAN, i FLOAT, j TIMESTAMP_NTZ, k SMALLINT NOT NULL COMMENT 'it''s'"
).replace("it''s", "short")


def test_ddl_gives_the_types_that_pyspark_gives() -> None:
    assert type_of_ddl(ALL) == pa.struct(
        [
            ("a", pa.int32()),
            ("b", pa.string()),
            ("c", pa.list_(pa.float64())),
            ("d", pa.struct([("x", pa.date32()), ("y z", pa.map_(pa.string(), pa.int64()))])),
            ("e", pa.timestamp("us", "UTC")),
            ("f", pa.decimal128(10, 2)),
            ("g", pa.binary()),
            ("h", pa.bool_()),
            ("i", pa.float32()),
            ("j", pa.timestamp("us")),
            ("k", pa.int16()),
        ]
    )
    assert type_of_ddl("struct<a int>") == type_of_ddl("a int") == pa.struct([("a", pa.int32())])
    assert type_of_ddl("ARRAY<STRUCT<>>") == pa.list_(pa.struct([]))
    assert type_of_ddl(" bigint ") == pa.int64()


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "a",
            "a INT,, b INT",
            "a INT b INT",
            "a ARRAY<INT",
            "a MAP<INT,INT>",
            "a DECIMAL(39)",
            "a DECIMAL(1,2,3)",
        ),
        *("a INT, a INT", "a BLOB", "a INT NOT", "a DECIMAL(x)", "a int)", "; drop", "a " + "ARRAY<" * 2000, "a-b INT"),
    ],
)
def test_ddl_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SchemaError):
        type_of_ddl(text)


@settings(max_examples=300)
@given(st.text(alphabet="aINTSRUCDEML<>(),:`'0 1.;", max_size=30))
def test_any_text_is_a_type_or_refused(text: str) -> None:
    try:
        type_of_ddl(text)
    except SchemaError:
        pass


READ: list[tuple[str, str, Any]] = [
    ("INT", "5", 5),
    ("INT", "2147483648", None),
    ("INT", "1.0", None),
    ("INT", "true", None),
    ("INT", '"5"', None),
    ("BIGINT", "1e3", None),
    ("STRING", "5", "5"),
    ("STRING", '{"a": [1, null]}', '{"a":[1,null]}'),
    ("STRING", "true", "true"),
    ("STRING", '""', ""),
    ("DOUBLE", "5", 5.0),
    ("DOUBLE", '"-Infinity"', float("-inf")),
    ("DOUBLE", '"5"', None),
    ("BOOLEAN", "1", None),
    ("BINARY", '"AAE="', b"\0\1"),
    ("BINARY", '"A"', None),
    ("DECIMAL(5,2)", "1.005", Decimal("1.01")),
    ("DECIMAL(5,2)", '"1.5"', Decimal("1.50")),
    ("DECIMAL(5,2)", "999.995", None),
    ("DECIMAL(5,2)", "1e400000000", None),
    ("DECIMAL(38,18)", "12345678901234567890.123456789012345678", Decimal("12345678901234567890.123456789012345678")),
    ("DATE", '"2024-02-30"', None),
    ("ARRAY<INT>", "[1, null]", [1, None]),
    ("ARRAY<INT>", "1", None),
    ("MAP<STRING, INT>", '{"a": 1}', [("a", 1)]),
]


@pytest.mark.parametrize(("kind", "text", "wanted"), READ)
def test_values_as_spark_reads_them(kind: str, text: str, wanted: Any) -> None:
    values = JsonValues(type_of_ddl(f"v {kind}, w INT"))
    bad = Bad()
    column = values.decode([f'{{"v": {text}, "w": 1}}'.encode(), b'{"w": 2}'], bad)
    column.validate(full=True)
    assert column.to_pylist() == [{"v": wanted, "w": 1}, {"v": None, "w": 2}], "other fields are kept"
    assert bool(bad.reasons) == (wanted is None)


def test_timestamps() -> None:
    texts = ['"2024-01-01T00:00:00Z"', '"2024-01-01 02:00:00+02:00"', '"2024-01-01"', "1704067200", '"x"', "1e99"]
    values = JsonValues(type_of_ddl("TIMESTAMP"))
    for group in (texts, *([each] for each in texts)):
        bad = Bad()
        column = values.decode([each.encode() for each in group], bad).cast(pa.int64()).to_pylist()
        assert {each for each in column if each is not None} <= {1704067200000000}
        assert len(bad.reasons) == sum(each in texts[4:] for each in group)


def test_a_bad_item_within_lists_marks_its_own_record() -> None:
    bad = Bad()
    column = JsonValues(type_of_ddl("a ARRAY<STRUCT<x: INT>>")).decode(
        [b'{"a": [{"x": 1}, {"x": 2}]}', b"null", b'{"a": []}', b'{"a": [{"x": 3}, {"x": "no"}]}', b'{"a": [5]}'], bad
    )
    assert sorted(bad.reasons) == [3, 4]
    assert column.to_pylist()[3] == {"a": [{"x": 3}, {"x": None}]}


def test_rows_are_written_as_spark_writes_them() -> None:
    kind = type_of_ddl("a INT, d DECIMAL(20,2), x DOUBLE, m MAP<STRING, ARRAY<INT>>, t TIMESTAMP, b BINARY")
    rows = [
        {"a": 1, "d": Decimal("123456789012345678.90"), "x": float("nan"), "m": [("k", [1, None])], "t": 1, "b": b"\0"},
        None,
        {"a": None},
    ]
    column = pa.array(rows, kind)
    written = JsonValues(kind).encode(column).to_pylist()
    assert written == [
        b'{"a":1,"d":123456789012345678.90,"x":"NaN","m":{"k":[1,null]},"t":"1970-01-01T00:00:00.000001Z","b":"AA=="}',
        None,
        b"{}",
    ]
    assert JsonValues(kind).encode(column.slice(1)).to_pylist() == written[1:]


def row_strategy() -> st.SearchStrategy[Any]:
    optional = lambda each: st.none() | each  # noqa: E731
    return st.fixed_dictionaries(
        {
            "a": optional(st.integers(-(1 << 31), (1 << 31) - 1)),
            "b": optional(st.text(st.characters(exclude_categories=["Cs"]))),
            "c": optional(st.lists(optional(st.floats(allow_nan=False)), max_size=3)),
            "d": optional(
                st.fixed_dictionaries(
                    {
                        "x": optional(st.dates()),
                        "y z": optional(st.dictionaries(st.text("ab"), st.integers(-9, 9)).map(lambda m: [*m.items()])),
                    }
                )
            ),
            "f": optional(st.decimals(-99999999, 99999999, places=2)),
            "g": optional(st.binary(max_size=5)),
            "h": optional(st.booleans()),
        }
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(st.none() | row_strategy(), max_size=5))
def test_what_is_written_is_read(rows: list[Any]) -> None:
    kind = type_of_ddl(ALL)
    values = JsonValues(kind)
    column = pa.array(rows, kind)
    bad = Bad()
    assert values.decode(values.encode(column).to_pylist(), bad).equals(column)
    assert not bad.reasons


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.sampled_from("abcdefghijxyz"), each, max_size=6),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=20) | JSONS.map(lambda each: json.dumps(each).encode()), max_size=4))
@pytest.mark.parametrize("kind", [ALL, ALL.replace("DECIMAL(10,2)", "DOUBLE")])
def test_bad_bytes_never_crash(kind: str, values: list[bytes]) -> None:
    bad = Bad()
    column = JsonValues(type_of_ddl(kind)).decode(list(values), bad)
    column.validate(full=True)
    assert len(column) == len(values)


def test_hostile_texts() -> None:
    texts = [b"[" * 100_000, b'{"b": "\\ud800"}', b'{"b": "\xff"}', b'{"f": ' + b"9" * 10_000 + b"}", b"", b"  "]
    texts += [b'{"d": {"y z": {"\\ud800": 1, "a": 2}}}', b'{"f": NaN, "c": [Infinity]}']
    for kind in (ALL, ALL.replace("DECIMAL(10,2)", "DOUBLE")):
        bad = Bad()
        column = JsonValues(type_of_ddl(kind)).decode(list(texts), bad)
        column.validate(full=True)
        assert sorted(bad.reasons)[:3] == [0, 1, 2]
        assert {4, 5, 6, 7} <= set(bad.reasons)


TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.text('ab"\\\x00\n\x1f\x7f')


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.none()
        | st.tuples(
            st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
            st.none() | TEXTS,
            st.none() | st.floats(allow_nan=False, allow_infinity=False),
            st.none() | st.booleans(),
            st.none() | st.dictionaries(st.just("x"), st.none() | TEXTS, min_size=1),
        ),
        max_size=6,
    ),
    st.integers(0, 3),
)
def test_texts_are_those_of_orjson(rows: list[Any], start: int) -> None:
    kind = type_of_ddl('a BIGINT, `b"é` STRING, c DOUBLE, d BOOLEAN, e STRUCT<x: STRING>')
    dicts = [None if row is None else dict(zip(["a", 'b"é', "c", "d", "e"], row, strict=True)) for row in rows]
    wanted = [None if row is None else orjson.dumps(without_nulls(row)) for row in dicts]
    assert JsonValues(kind).encode(pa.array(dicts, kind).slice(start)).to_pylist() == wanted[start:]


def without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in row.items() if value is not None}
    return {name: without_nulls(value) if isinstance(value, dict) else value for name, value in found.items()}


def test_what_is_no_utf8_is_not_written() -> None:
    broken = pa.array([b"\xc3", b"\xa9"]).cast(pa.string(), safe=False)
    with pytest.raises(ValueError, match="utf-8"):
        JsonValues(pa.string()).encode(broken)


def test_moments_of_all_units_and_zones() -> None:
    for unit, digits in (("s", "000000"), ("ms", "001000"), ("us", "000001")):
        for zone in (None, "UTC", "Europe/Paris"):
            moment = int(digits) // {"s": 1, "ms": 1000, "us": 1}[unit]
            column = pa.array([moment, None, -62_167_219_200 * {"s": 1, "ms": 1000, "us": 10**6}[unit]])
            written = JsonValues(pa.timestamp(unit, zone)).encode(column.cast(pa.timestamp(unit, zone)))
            end = "Z" if zone else ""
            assert written.to_pylist() == [
                f'"1970-01-01T00:00:00.{digits}{end}"'.encode(),
                None,
                f'"0000-01-01T00:00:00.000000{end}"'.encode(),
            ]
