"""What a DataFrame has to look like to be written, as `KafkaWriter` of Spark's connector says it; its rows as records.

Columns: `value` (and `key`): binary or text, or anything with `value.format`; `topic`, `partition`, `headers`, and with
`includeTimestamp` `timestamp`. Others are ignored, as the connector does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from ottla.formats.typed import Typed
from ottla.spark.sink_options import SinkOptions

_HEADERS: Final = "array<struct<key:string,value:binary>>"
_PLAIN: Final = ("string", "binary")


@dataclass(frozen=True)
class Rows:
    """How rows become records. Picklable."""

    columns: tuple[str, ...]
    formats: Mapping[str, str]

    def records(self) -> Records:
        return Records(self)


class Records:
    """Records of one task: makes batches with those columns of records that exist."""

    def __init__(self, rows: Rows) -> None:
        self._columns = rows.columns
        self._typed = _typed(rows.formats) if rows.formats else None

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Raises ValueError for what its format cannot hold."""
        chosen = batch.select(list(self._columns))
        if self._typed is not None and self._typed.parts:
            chosen = self._typed.write(chosen)
        return chosen


def rows_of(schema: StructType, options: SinkOptions) -> Rows:
    """Raises ValueError that says which column is missing or of a wrong type."""
    types = {each.name: each.dataType.simpleString() for each in schema.fields}
    if "value" not in types:
        raise ValueError(f"there is no column value; there are {', '.join(types) or 'none'}")
    if options.topic is None and "topic" not in types:
        raise ValueError("no topic: set the option topic, or add a column topic")
    formats = _by_registry(schema, options)
    for part in ("key", "value"):
        kind = formats.get(f"{part}.format", "binary")
        if kind == "json" and part in types and f"{part}.schema.parts" not in formats:
            formats.setdefault(f"{part}.schema", types[part])
        elif part in types and kind in ("binary", "string") and types[part] not in _PLAIN:
            raise ValueError(f"{part} has the type {types[part]}; it must be binary or string, or set {part}.format")
        if kind == "string" and part in types and types[part] != "string":
            raise ValueError(f"{part} has the type {types[part]}, and {part}.format=string")
    wanted = {"topic": "string", "partition": "int", "headers": _HEADERS, "timestamp": "timestamp"}
    for name, kind in wanted.items():
        if name in types and types[name] != kind and not (name == "timestamp" and not options.has_timestamps):
            raise ValueError(f"{name} has the type {types[name]}; it must be {kind}")
    if options.has_timestamps and "timestamp" not in types:
        raise ValueError("includeTimestamp: there is no column timestamp")
    _typed(formats)
    names = ["key", "value", "topic", "partition", "headers", *(["timestamp"] if options.has_timestamps else [])]
    if options.topic is not None:
        names.remove("topic")  # the option goes before the column, as in the connector
    return Rows(tuple(name for name in names if name in types), _without_binary(formats))


def _by_registry(schema: StructType, options: SinkOptions) -> dict[str, str]:
    """The options with schemas of a registry, registered now, in the driver. Raises SchemaError, OSError."""
    formats = dict(options.formats)
    if "schema.registry.url" not in formats:
        return formats
    from pyspark.sql.pandas.types import to_arrow_schema

    from ottla.schemas.options import for_writing

    kinds = {each.name: each.type for each in to_arrow_schema(schema, timezone="UTC") if each.name in ("key", "value")}
    return for_writing(formats, options.topic, kinds, options.client.security)


def _typed(formats: Mapping[str, str]) -> Typed:
    if "schema.registry.url" not in formats:
        return Typed.of_options(formats)
    from ottla.schemas.options import typed_of

    return typed_of(formats)


def _without_binary(formats: Mapping[str, str]) -> dict[str, Any]:
    return (
        {} if all(formats.get(f"{part}.format", "binary") == "binary" for part in ("key", "value")) else dict(formats)
    )
