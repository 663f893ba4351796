"""Columns that are wanted, those that are decoded for them, and the Arrow schema that Spark expects."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="Spark is not set up: no pyspark here")

import pyarrow as pa
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from ottla import arrow
from ottla.spark.layout import layout, source_schema

JSON = {"value.format": "json", "VALUE.schema": "id bigint, tags array<string>"}


def test_the_connectors_columns_by_default() -> None:
    assert source_schema({}).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    assert source_schema({"includeHeaders": "TRUE"}).fieldNames()[-1] == "headers"
    assert all(field.nullable for field in source_schema({}).fields)
    plain = layout({}, source_schema({}))
    assert plain.output == plain.decoded == arrow.SCHEMA and plain.typed == ()
    with_headers = source_schema({"includeHeaders": "true"})
    assert layout({}, with_headers).decoded == arrow.schema(headers=True)


def test_only_what_is_wanted_is_decoded() -> None:
    chosen = layout({}, source_schema({"columns": " offset,value "}))
    assert chosen.output.names == ["offset", "value"]
    assert chosen.decoded.names == ["value", "offset"]
    assert pickle.loads(pickle.dumps(chosen)) == chosen
    batch = pa.record_batch([[b"x"], pa.array([7])], schema=chosen.decoded)
    assert chosen.finish(batch)[0].to_pylist() == [{"offset": 7, "value": b"x"}]


def test_a_column_that_is_never_null_may_be_declared_so() -> None:
    wanted = StructType([StructField("offset", LongType(), False), StructField("value", BinaryType())])
    chosen = layout({}, wanted)
    assert not chosen.output.field("offset").nullable
    batch = pa.record_batch([[b"x"], pa.array([7])], schema=chosen.decoded)
    assert chosen.finish(batch)[0].schema.equals(chosen.output)
    with pytest.raises(ValueError, match="value may be null"):
        layout({}, StructType([StructField("value", BinaryType(), False)]))


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("weight", "no columns weight"),
        ("", "no columns"),
        ("value,value", "named twice"),
        ("Value", "no columns Value"),
    ],
)
def test_columns_that_are_not_there_are_named(columns: str, says: str) -> None:
    with pytest.raises(ValueError, match=f"columns: .*{says}"):
        source_schema({"columns": columns})
    with pytest.raises(ValueError, match="the column offset is bigint, not int"):
        layout({}, StructType([StructField("offset", IntegerType())]))


def test_types_change_columns_and_need_places_for_messages() -> None:
    assert source_schema(JSON)["value"].dataType.simpleString() == "struct<id:bigint,tags:array<string>>"
    chosen = layout(JSON, source_schema(JSON | {"columns": "value"}))
    assert chosen.decoded.names == ["value", "topic", "partition", "offset"]
    columns = [[b'{"id": 1, "tags": ["a"]}'], ["t"], pa.array([0], pa.int32()), pa.array([5])]
    batch = pa.record_batch(columns, schema=chosen.decoded)
    found, letters = chosen.finish(batch)
    assert found.to_pylist() == [{"value": {"id": 1, "tags": ["a"]}}] and letters == []


def test_records_are_dropped_whichever_columns_are_wanted() -> None:
    only_offset = StructType([StructField("offset", LongType())])
    assert layout(JSON, only_offset).decoded.names == ["offset"]
    drop = layout(JSON | {"bad.records": "drop"}, only_offset)
    assert drop.decoded.names == ["value", "topic", "partition", "offset"]
    dead = JSON | {"bad.records": "dead-letter", "dead.letter.topic": "dead"}
    kept = layout(dead, only_offset)
    assert kept.decoded.names == ["key", "value", "topic", "partition", "offset", "headers"]
    assert kept.dead_letter_topic == "dead"
    column = JSON | {"bad.records": "column", "columns": "_corrupt_record"}
    assert "value" in layout(column, source_schema(column)).decoded.names


def test_looking_for_data_sources_loads_little() -> None:
    """Every Python worker that looks for data sources imports the module, and one for each query asks for a schema."""
    code = "import sys, pyspark_ottla; pyspark_ottla.DefaultSource({}).schema(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in loaded if name.split(".")[0] == "ottla"] == [
        "ottla",
        "ottla.spark",
        "ottla.spark.datasource",
        "ottla.spark.layout",
    ]
    assert not {"confluent_kafka", "kio"}.intersection(loaded)
