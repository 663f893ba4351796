"""Options to typed keys and values, and what becomes of records that cannot be read.

`key.format` and `value.format`: binary (the default), string, json or avro; `key.schema` and `value.schema`:
Avro's JSON, or
Spark's DDL for json; `key.writer.schema`, `value.writer.schema`: what Avro was written with, where that is another.
`bad.records`: fail (the default), column (`_corrupt_record` or `_corrupt_key` has the bytes), drop, or
dead-letter: they are
handed to the caller, who produces them to `dead.letter.topic`. Names of options are lower case, as Spark hands them on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from ottla.formats.ddl import type_of_ddl
from ottla.formats.errors import SchemaError
from ottla.formats.json_values import JsonValues
from ottla.formats.nested import Bad, scalars, utf8

FORMATS = ("binary", "string", "json", "avro")
BAD_RECORDS = ("fail", "column", "drop", "dead-letter")
CORRUPT = {"value": "_corrupt_record", "key": "_corrupt_key"}


class BadRecord(ValueError):
    """A record that cannot be read, with bad.records=fail."""


class Values(Protocol):
    """One format with its schema."""

    type: pa.DataType

    def decode(self, values: list[bytes | None], bad: Bad) -> pa.Array: ...
    def encode(self, column: pa.Array) -> pa.Array: ...


class Schemas(Protocol):
    """Where schemas come from: options, or a registry (`ottla.schemas`)."""

    def values(self, part: str) -> Values | None:
        """How "key" or "value" are read; None: they are bytes. Raises SchemaError."""


class StringValues:
    """UTF-8 texts; other bytes are bad records (Spark's cast takes any)."""

    type = pa.string()
    _build = staticmethod(scalars(pa.string(), lambda value: utf8(value.decode()), {bytes}))

    def decode(self, values: list[bytes | None], bad: Bad) -> pa.Array:
        return self._build(values, range(len(values)), bad)

    def encode(self, column: pa.Array) -> pa.Array:
        return column.cast(pa.string()).cast(pa.binary())


@dataclass(frozen=True)
class GivenSchemas:
    """Schemas that the options give."""

    options: Mapping[str, str]

    def values(self, part: str) -> Values | None:
        kind = self.options.get(f"{part}.format", "binary")
        schema = self.options.get(f"{part}.schema")
        writer = self.options.get(f"{part}.writer.schema")
        if kind not in FORMATS:
            known = ", ".join((*FORMATS, "protobuf"))
            needs = f"{part}.format=protobuf needs schema.registry.url"
            raise SchemaError(needs if kind == "protobuf" else f"{part}.format must be one of {known}, not {kind!r}")
        if schema is None and kind in ("json", "avro"):
            raise SchemaError(f"{part}.format={kind} needs {part}.schema")
        if schema is not None and kind in ("binary", "string"):
            raise SchemaError(f"{part}.schema needs {part}.format json or avro, not {kind}")
        if writer is not None and kind != "avro":
            raise SchemaError(f"{part}.writer.schema needs {part}.format=avro")
        if kind == "avro":
            from ottla.formats.avro_values import AvroValues

            return AvroValues(schema or "", writer)
        if kind == "json":
            return JsonValues(type_of_ddl(schema or ""))
        return StringValues() if kind == "string" else None


class DeadLetter(NamedTuple):
    """A record to produce unchanged, with headers that describe its error."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Typed:
    """Turns `key` and `value` columns of bytes into typed ones, and back."""

    def __init__(self, schemas: Schemas, bad_records: str = "fail") -> None:
        if bad_records not in BAD_RECORDS:
            raise SchemaError(f"bad.records must be one of {', '.join(BAD_RECORDS)}, not {bad_records!r}")
        self.bad_records = bad_records
        self.parts = {part: values for part in ("key", "value") if (values := schemas.values(part)) is not None}

    @classmethod
    def of_options(cls, options: Mapping[str, str], schemas: Schemas | None = None) -> Typed:
        """`schemas` in place of those that the options give. Raises SchemaError (a ValueError) for what does not fit
        together."""
        bad_records = options.get("bad.records", "fail")
        if (bad_records == "dead-letter") != ("dead.letter.topic" in options):
            raise SchemaError("bad.records=dead-letter and dead.letter.topic go together")
        return cls(schemas or GivenSchemas(options), bad_records)

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """The schema of what `read` makes of batches with `schema`."""
        fields = []
        for field in schema:
            typed = self.parts.get(field.name)
            fields.append(field if typed is None else pa.field(field.name, typed.type))
        if self.bad_records == "column":
            fields += [pa.field(CORRUPT[part], pa.binary()) for part in self.parts if part in schema.names]
        return pa.schema(fields)

    def read(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[DeadLetter]]:
        """The typed batch, and with bad.records=dead-letter what could not be read, in order.

        For its dead letters and messages `batch` has the columns key, value, topic, partition and offset; headers, too,
        where they are to be kept. A column that is not there is not read. Raises BadRecord with bad.records=fail.
        """
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        broken: dict[str, Bad] = {}
        for part in [each for each in self.parts if each in columns]:
            bad = broken[part] = Bad()
            raw = columns[part].to_pylist()
            columns[part] = self.parts[part].decode(raw, bad)
            if bad.reasons and self.bad_records == "fail":
                row = min(bad.reasons)
                raise BadRecord(f"{_place(batch, row)}: the {part} is {bad.reasons[row]}")
            if self.bad_records == "column":
                kept = [raw[row] if row in bad.reasons else None for row in range(len(raw))]
                columns[CORRUPT[part]] = pa.array(kept, pa.binary())
        rows = sorted({row for bad in broken.values() for row in bad.reasons})
        found = pa.RecordBatch.from_arrays(list(columns.values()), schema=self.schema(batch.schema))
        if not rows or self.bad_records == "column":
            return found, []
        lost = set(rows)
        found = found.filter(pa.array([row not in lost for row in range(batch.num_rows)], pa.bool_()))
        return found, [] if self.bad_records == "drop" else [_letter(batch, row, broken) for row in rows]

    def write(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Bytes for typed keys and values; other columns as they are. Raises ValueError for what its schema
        cannot hold."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for part in [each for each in self.parts if each in columns]:
            columns[part] = self.parts[part].encode(columns[part])
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _cell(batch: pa.RecordBatch, name: str, row: int) -> Any:
    return batch.column(name)[row].as_py() if name in batch.schema.names else None


def _place(batch: pa.RecordBatch, row: int) -> str:
    if not {"topic", "partition", "offset"}.issubset(batch.schema.names):
        return f"row {row}"
    return f"{_cell(batch, 'topic', row)}-{_cell(batch, 'partition', row)} at offset {_cell(batch, 'offset', row)}"


def _letter(batch: pa.RecordBatch, row: int, broken: Mapping[str, Bad]) -> DeadLetter:
    """Headers as Kafka Connect's DeadLetterQueueReporter writes them
    (errors.deadletterqueue.context.headers.enable)."""
    headers = [(each["key"], each["value"]) for each in _cell(batch, "headers", row) or ()]
    part = next(part for part, bad in broken.items() if row in bad.reasons)
    says = {
        "topic": _cell(batch, "topic", row),
        "partition": _cell(batch, "partition", row),
        "offset": _cell(batch, "offset", row),
        "connector.name": "ottla",
        "stage": f"{part.upper()}_CONVERTER",
        "exception.class.name": f"{BadRecord.__module__}.{BadRecord.__name__}",
        "exception.message": broken[part].reasons[row],
    }
    headers += [
        (f"__connect.errors.{name}", str(what).encode(errors="backslashreplace"))
        for name, what in says.items()
        if what is not None
    ]
    return DeadLetter(_cell(batch, "key", row), _cell(batch, "value", row), headers)
