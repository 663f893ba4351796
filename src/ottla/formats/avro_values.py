"""Avro bytes to Arrow columns and back, with fastavro: the bare binary encoding, one datum a value, no container.

As Spark's `from_avro` and `to_avro`; other than Spark, bytes behind the datum make a bad record: they are the sign of a
schema that it was not written with, and Spark would give wrong values. A schema that was extended since needs `writer`.
"""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pyarrow as pa

from ottla.formats.avro_bare import bare
from ottla.formats.avro_schema import codec_of
from ottla.formats.errors import SchemaError
from ottla.formats.nested import Bad


class AvroValues:
    """Values of the Avro schema `schema` (JSON text), which were written with the schema `writer` where it
    is another."""

    def __init__(self, schema: str, writer: str | None = None) -> None:
        self._reader, described = _parsed(schema)
        self._writer = self._reader if writer is None else _parsed(writer)[0]
        if writer is not None:
            codec_of(json.loads(writer))  # its arrays, too, must take bytes
        self._codec = codec_of(described)
        self.type: pa.DataType = self._codec.type

    def decode(self, values: list[bytes | None], bad: Bad) -> pa.Array:
        """A column with a row for each of `values`; null and noted in `bad` where it cannot be read."""
        from fastavro import schemaless_reader as read

        writer = self._writer
        reader = None if writer is self._reader else self._reader
        found: list[Any] = []
        for row, value in enumerate(values):
            datum = None
            if value is not None:
                stream = BytesIO(value)
                try:
                    datum = read(stream, writer, reader)
                except Exception as error:  # what fastavro raises for wrong bytes is of any type
                    bad.mark(row, f"not Avro of this schema: {type(error).__name__}: {error}")
                else:
                    if stream.tell() != len(value):
                        left = len(value) - stream.tell()
                        bad.mark(row, f"not Avro of this schema: {left} bytes are left behind the datum")
                        datum = None
            found.append(datum)
        return self._codec.build(found, range(len(found)), bad)

    def encode(self, column: pa.Array) -> pa.Array:
        """Avro bytes of each row; a null stays null. Raises ValueError for values that the schema has no place for."""
        from fastavro import schemaless_writer as write

        if column.type != self.type:
            column = column.cast(self.type)
        found: list[bytes | None] = []
        for row in self._codec.raw(column):
            if row is None:
                found.append(None)
                continue
            stream = BytesIO()
            try:
                write(stream, self._reader, row)
            except Exception as error:  # of any type, as above
                raise ValueError(f"a row does not fit its Avro schema: {type(error).__name__}: {error}") from error
            found.append(stream.getvalue())
        return pa.array(found, pa.binary())


def _parsed(text: str) -> tuple[Any, Any]:
    """(what fastavro reads with, the schema as it is). Raises SchemaError."""
    from fastavro import parse_schema

    try:
        described = json.loads(text)
        return parse_schema(bare(described)), described
    except Exception as error:  # ValueError, SchemaParseException, KeyError, RecursionError, ...
        raise SchemaError(f"not an Avro schema: {type(error).__name__}: {error}") from error
