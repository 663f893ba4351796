"""Values behind the id of their schema: decoded as one schema whatever they were written with, and encoded.

The `Schemas` of `ottla.formats.typed`, by options that `options.py` has filled in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ottla.formats.avro_values import AvroValues
from ottla.formats.errors import SchemaError
from ottla.formats.json_values import JsonValues
from ottla.formats.nested import Bad
from ottla.formats.typed import GivenSchemas, Values
from ottla.schemas import avro, json_schema, protobuf, protobuf_files, wire
from ottla.schemas.client import NOT_FOUND, Registry, RegistryError, Schema

Decode = Callable[[list[bytes | None], Bad], pa.Array]
Parts = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RegistrySchemas:
    """Schemas that `for_reading` or `for_writing` put among the options, and of ids that records name."""

    options: Mapping[str, str]

    def values(self, part: str) -> Values | None:
        """How "key" or "value" are read. Raises SchemaError."""
        if f"{part}.schema.parts" not in self.options:
            return GivenSchemas(self.options).values(part)
        return values_of(self.options, part)


def values_of(options: Mapping[str, str], part: str) -> RegistryValues:
    """Values of a part whose schema is among the options. Raises SchemaError."""
    return {"avro": _Avro, "json": _Json, "protobuf": _Protobuf}[options[f"{part}.format"]](options, part)


class RegistryValues:
    """Values of one format; a subclass knows how values written with another schema are read."""

    kind: str
    type: pa.DataType

    def __init__(self, options: Mapping[str, str], part: str) -> None:
        self._options = options
        self._text = options[f"{part}.schema"]
        self._parts: Parts = tuple((name, each) for name, each in json.loads(options[f"{part}.schema.parts"]))
        self._values = self._reader(options.get(f"{part}.message"))
        self.type = self._values.type
        own = options.get(f"{part}.schema.id")
        self._id = None if own is None else int(own)
        self._registry: Registry | None = None
        self._decoders: dict[int, Decode | SchemaError] = {}
        """Decoders by id. Values written with the reader schema need no registry."""
        if self._id is not None:
            self._decoders[self._id] = self._own()

    def _reader(self, message: str | None) -> Any:
        """The reader schema, or one of its messages. Raises SchemaError."""
        raise NotImplementedError

    def _own(self) -> Decode:
        """For what was written with the schema that is read as."""
        raise NotImplementedError

    def _other(self, writer: Schema, parts: Parts) -> Decode:
        """For what was written with another one. Raises SchemaError."""
        raise NotImplementedError

    def decode(self, values: list[bytes | None], bad: Bad) -> pa.Array:
        """A column with a row for each of `values`, decoded by groups of the same schema. Raises RegistryUnreachable,
        and RegistryError for what a registry answers but that there is no such schema."""
        groups, bare = wire.grouped(values)
        for row in bare:
            bad.mark(row, "not of Confluent's wire format: it does not begin with a zero byte and a schema's id")
        if len(groups) == 1 and not bare:
            ((schema_id, _),) = groups.items()
            data = [None if each is None else each[wire.PREFIX_BYTES :] for each in values]
            return self._group(schema_id, data, bad)
        order: list[int | None] = [None] * len(values)
        pieces, place = [], 0
        for schema_id, rows in groups.items():
            inner = Bad()
            pieces.append(self._group(schema_id, [(values[row] or b"")[wire.PREFIX_BYTES :] for row in rows], inner))
            for index, reason in inner.reasons.items():
                bad.mark(rows[index], reason)
            for at, row in enumerate(rows, place):
                order[row] = at
            place += len(rows)
        if not pieces:
            return pa.nulls(len(values), self.type)
        return pa.concat_arrays(pieces).take(pa.array(order, pa.int64()))

    def _group(self, schema_id: int, data: list[bytes | None], bad: Bad) -> pa.Array:
        decode = self._decoder(schema_id)
        if not isinstance(decode, SchemaError):
            return decode(data, bad)
        for row, datum in enumerate(data):
            if datum is not None:
                bad.mark(row, f"written with the schema {schema_id}: {decode}")
        return pa.nulls(len(data), self.type)

    def _decoder(self, schema_id: int) -> Decode | SchemaError:
        """The decoder of a schema id. An invalid schema makes its records invalid; an unreachable registry does not.
        Raises RegistryUnreachable, RegistryError."""
        if schema_id in self._decoders:
            return self._decoders[schema_id]
        if self._registry is None:
            self._registry = Registry.of_options(self._options)
        found: Decode | SchemaError
        try:
            writer = self._registry.by_id(schema_id)
            if writer.type != self.kind:
                raise SchemaError(f"it is of type {writer.type}, not {self.kind}")
            found = self._other(writer, tuple(self._registry.parts(writer)))
        except RegistryError as error:
            if error.http_status != NOT_FOUND:
                raise
            return error  # not kept: it may be registered by the next time
        except SchemaError as error:
            found = error
        self._decoders[schema_id] = found
        return found

    def encode(self, column: pa.Array) -> pa.Array:
        """The five bytes and the datum of each row. Raises ValueError for values that the schema has no place for."""
        if self._id is None:
            raise SchemaError("a schema without an id is for reading")
        before = wire.prefix(self._id)
        data = self._values.encode(column).to_pylist()
        return pa.array([None if each is None else before + each for each in data], pa.binary())


class _Avro(RegistryValues):
    kind = "AVRO"

    def _reader(self, message: str | None) -> AvroValues:
        return AvroValues(self._text)

    def _own(self) -> Decode:
        return self._values.decode  # type: ignore[no-any-return]

    def _other(self, writer: Schema, parts: Parts) -> Decode:
        return AvroValues(self._text, avro.whole(writer.text, parts)).decode


class _Json(RegistryValues):
    """A JSON text says by itself what it has: the schema that it was written with changes nothing."""

    kind = "JSON"

    def _reader(self, message: str | None) -> JsonValues:
        return JsonValues(json_schema.type_of(self._text, self._parts))

    def _own(self) -> Decode:
        return self._values.decode  # type: ignore[no-any-return]

    def _other(self, writer: Schema, parts: Parts) -> Decode:
        return self._own()


class _Protobuf(RegistryValues):
    kind = "PROTOBUF"

    def _reader(self, message: str | None) -> protobuf.ProtobufValues:
        return protobuf.ProtobufValues(protobuf_files.file_of(self._text, self._parts), message)

    def _own(self) -> Decode:
        return self._of(protobuf_files.file_of(self._text, self._parts))

    def _other(self, writer: Schema, parts: Parts) -> Decode:
        return self._of(protobuf_files.file_of(writer.text, parts))

    def _of(self, file: Any) -> Decode:
        return lambda data, bad: self._values.decode(data, bad, file)
