"""Options, and what becomes of bad records."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ottla.formats.errors import SchemaError
from ottla.formats.typed import BadRecord, Typed

JSON = {"value.format": "json", "value.schema": "a INT"}
DEAD = {"bad.records": "dead-letter", "dead.letter.topic": "dead"}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def batch() -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k0", None, b"\xff", b"k3"], pa.binary()),
            "value": pa.array([b'{"a": 1}', None, b'{"a": 2}', b"?"], pa.binary()),
            "topic": ["t"] * 4,
            "partition": pa.array([3] * 4, pa.int32()),
            "offset": [10, 11, 12, 13],
            "headers": pa.array([None, None, None, [{"key": "h", "value": b"v"}]], HEADERS),
        }
    )


def read(**options: str) -> tuple[pa.RecordBatch, list[object]]:
    typed = Typed.of_options({each.replace("_", "."): text for each, text in options.items()} | JSON)
    found, letters = typed.read(batch())
    assert found.schema == typed.schema(batch().schema)
    return found, list(letters)


def test_fail_names_the_record() -> None:
    with pytest.raises(BadRecord, match="t-3 at offset 13: the value is not JSON"):
        read()


def test_column_keeps_the_bytes() -> None:
    found, letters = read(bad_records="column", key_format="string")
    assert found.column("value").to_pylist() == [{"a": 1}, None, {"a": 2}, None]
    assert found.column("key").to_pylist() == ["k0", None, None, "k3"]
    assert found.column("_corrupt_record").to_pylist() == [None, None, None, b"?"]
    assert found.column("_corrupt_key").to_pylist() == [None, None, b"\xff", None]
    assert letters == []


def test_drop() -> None:
    found, letters = read(bad_records="drop", key_format="string")
    assert found.column("offset").to_pylist() == [10, 11]
    assert letters == []


def test_dead_letters_have_the_headers_of_connect() -> None:
    found, (letter,) = read(bad_records="dead-letter", dead_letter_topic="dead")
    assert found.column("offset").to_pylist() == [10, 11, 12]
    key, value, headers = letter  # type: ignore[misc]
    assert (key, value, headers[0]) == (b"k3", b"?", ("h", b"v"))
    said = dict(headers[1:])
    assert said.pop("__connect.errors.exception.message").startswith(b"not JSON")
    assert said == {
        "__connect.errors.topic": b"t",
        "__connect.errors.partition": b"3",
        "__connect.errors.offset": b"13",
        "__connect.errors.connector.name": b"ottla",
        "__connect.errors.stage": b"VALUE_CONVERTER",
        "__connect.errors.exception.class.name": b"ottla.formats.typed.BadRecord",
    }


def test_columns_that_are_not_there_are_not_read() -> None:
    typed = Typed.of_options(JSON | DEAD)
    some = batch().select(["key", "offset"])
    assert typed.read(some) == (some, [])


def test_writing() -> None:
    typed = Typed.of_options(JSON | {"key.format": "avro", "key.schema": '"string"'})
    written = typed.write(
        pa.RecordBatch.from_pydict(
            {"key": ["ab"], "value": pa.array([{"a": 1}], pa.struct([("a", pa.int64())])), "partition": [0]}
        )
    )
    assert written.to_pylist() == [{"key": b"\x04ab", "value": b'{"a":1}', "partition": 0}]
    read_again, _ = typed.read(written)
    assert read_again.to_pylist() == [{"key": "ab", "value": {"a": 1}, "partition": 0}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value.format": "xml"}, "one of binary"),
        ({"value.format": "json"}, "needs value.schema"),
        ({"value.schema": "a INT"}, "not binary"),
        (JSON | {"value.writer.schema": '"int"'}, "needs value.format=avro"),
        ({"bad.records": "keep"}, "one of fail"),
        ({"bad.records": "dead-letter"}, "go together"),
        ({"dead.letter.topic": "d"}, "go together"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, str], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Typed.of_options(options)
