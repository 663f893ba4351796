"""The columns of a source: those given to Spark, and those that must be decoded for them.

Spark asks for batches whose Arrow schema equals what it makes of the DataFrame's schema, in microseconds and UTC. It
starts a Python for the schema of every query: what is not needed for that is not imported here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    from ottla.formats.typed import DeadLetter, Typed

COLUMNS = StructType([
    StructField("key", BinaryType()), StructField("value", BinaryType()), StructField("topic", StringType()),
    StructField("partition", IntegerType()), StructField("offset", LongType()),
    StructField("timestamp", TimestampType()), StructField("timestampType", IntegerType()),
    StructField("headers", ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))),
])  # fmt: skip
"""The columns of Spark's Kafka connector and of `ottla.arrow`."""
_PLACE = ("topic", "partition", "offset")
TypedOptions = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Layout:
    """Picklable: it travels to the tasks, which build the readers of typed values by themselves."""

    output: pa.Schema
    """What Spark wants, in its order."""
    decoded: pa.Schema
    """What is read of the records."""
    typed: TypedOptions = ()
    """The options of typed topics; empty where keys and values are bytes."""
    dead_letter_topic: str | None = None

    def finish(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[DeadLetter]]:
        """Decoded columns to those of the output, and the records that could not be read. Raises BadRecord."""
        letters: list[DeadLetter] = []
        if self.typed:
            batch, letters = _typed(self.typed).read(batch)
        if not batch.schema.equals(self.output):
            batch = pa.RecordBatch.from_arrays(list(self._arrays(batch)), schema=self.output)
        return batch, letters

    def _arrays(self, batch: pa.RecordBatch) -> Iterator[pa.Array]:
        for field in self.output:
            column = batch.column(field.name)
            yield column if column.type.equals(field.type) else column.cast(field.type)


def source_schema(options: Mapping[str, str]) -> StructType:
    """The columns of a source for which no schema is given: those of Spark's Kafka connector, or `columns`.

    Raises ValueError for options that do not fit together.
    """
    given = by_registry(_lower(options))
    whole = _whole(given)
    text = given.get("columns")
    if text is None:
        with_headers = given.get("includeheaders", "false").strip().lower() == "true"
        names = [name for name in whole.names if name != "headers" or with_headers]
    else:
        names = [name for name in (part.strip() for part in text.split(",")) if name]
        _check_names("columns", names, whole)
    return _to_spark(pa.schema([whole.field(name) for name in names]))


def layout(options: Mapping[str, str], wanted: StructType) -> Layout:
    """What is decoded for the columns `wanted`. Raises ValueError for those that a source does not have."""
    output = to_arrow_schema(wanted, timezone="UTC")
    given = by_registry(_lower(options), output)
    whole = _whole(given)
    names = wanted.fieldNames()
    _check_names("schema", names, whole)
    of_source = _to_spark(whole)
    for field in wanted.fields:
        name, expected = field.name, of_source[field.name].dataType
        if not output.field(name).type.equals(_to_arrow(whole.field(name))):
            raise ValueError(
                f"schema: the column {name} is {expected.simpleString()}, not {field.dataType.simpleString()}"
            )
        if not field.nullable and name not in (*_PLACE, "timestamp", "timestampType"):
            raise ValueError(f"schema: the column {name} may be null, and cannot be NOT NULL")
    typed = _typed_options(given)
    needed = set(names)
    if typed:
        needed |= _needed_by_types(_typed(typed), names)
    decoded = [field for field in _plain() if field.name in needed]
    return Layout(output, pa.schema(decoded), typed, given.get("dead.letter.topic"))


def by_registry(given: dict[str, str], output: pa.Schema | None = None) -> dict[str, str]:
    """The options with schemas that a registry has, asked now, in the driver: for columns as a query was planned with
    them, or the newest. Raises SchemaError, RegistryUnreachable."""
    if "schema.registry.url" not in given:
        return given
    from ottla.schemas.options import for_reading

    topics = given.get("subscribe", "").split(",")

    def is_wanted(part: str, kind: pa.DataType) -> bool:
        if output is None or part not in output.names:
            return True
        return bool(_to_arrow(pa.field(part, kind)).equals(output.field(part).type))

    return for_reading(given, topics[0].strip() if len(topics) == 1 and topics[0] else None, is_wanted)


def _needed_by_types(typed: Typed, names: Sequence[str]) -> set[str]:
    """What is decoded besides the columns that are wanted.

    A record that is dropped is dropped whichever columns are wanted: a count is to be the same for all of them.
    """
    from ottla.formats.typed import CORRUPT

    drops = typed.bad_records in ("drop", "dead-letter")
    parts = {part for part in typed.parts if drops or part in names or CORRUPT[part] in names}
    if typed.bad_records == "dead-letter" and parts:
        parts |= {"key", "value", "headers"}
    return parts.union(_PLACE) if parts else parts


def _plain() -> pa.Schema:
    return to_arrow_schema(COLUMNS, timezone="UTC")


def _whole(options: Mapping[str, str]) -> pa.Schema:
    plain = _plain()
    typed = _typed_options(options)
    return _typed(typed).schema(plain) if typed else plain


def _typed_options(options: Mapping[str, str]) -> TypedOptions:
    """Empty where there are none. Raises SchemaError."""
    named = {
        name: value
        for name, value in options.items()
        if name.startswith(("key.", "value.", "schema.registry.")) or name in ("bad.records", "dead.letter.topic")
    }
    if not named:
        return ()
    chosen = tuple(sorted(named.items()))
    return chosen if _typed(chosen).parts else ()


@lru_cache(maxsize=16)  # a worker serves one query after the other, each with a source or a few
def _typed(options: TypedOptions) -> Typed:
    chosen = dict(options)
    if "schema.registry.url" in chosen:
        from ottla.schemas.options import typed_of

        return typed_of(chosen)
    from ottla.formats.typed import Typed

    return Typed.of_options(chosen)


def _check_names(where: str, names: Sequence[str], whole: pa.Schema) -> None:
    if not names:
        raise ValueError(f"{where}: no columns; there are {', '.join(whole.names)}")
    others = [name for name in names if name not in whole.names]
    if others:
        raise ValueError(f"{where}: no columns {', '.join(others)}; there are {', '.join(whole.names)}")
    if len(set(names)) < len(names):
        raise ValueError(f"{where}: a column is named twice in {', '.join(names)}")


def _to_spark(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def _to_arrow(field: pa.Field) -> pa.DataType:
    """The type that Spark makes of a column's own: names within lists and maps may be others."""
    return to_arrow_schema(_to_spark(pa.schema([field])), timezone="UTC").field(0).type


def _lower(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): str(value) for name, value in options.items()}
