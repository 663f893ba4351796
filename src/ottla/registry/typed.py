"""Typed keys and values whose schemas a registry holds: the `Schemas` of `ottla.formats.typed`.

Options, besides those of `ottla.formats.typed`: `schema.registry.url`, `schema.registry.basic.auth.user.info`;
`value.subject` (else TOPIC-value), `value.schema.version` (else the latest), `value.schema` (what is read as, or written
with), `auto.register.schemas` (true), `use.latest.version` (false), as Confluent's serializers name them. The same for
key.

`for_reading` and `for_writing` ask the registry once, where a query begins, and put what they found among the options:
tasks ask for no more than schemas that they meet and do not know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ottla.formats.avro_values import AvroValues
from ottla.formats.ddl import SchemaError
from ottla.formats.json_values import JsonValues
from ottla.formats.nested import Bad
from ottla.formats.typed import GivenSchemas, Typed, Values
from ottla.registry import typed_avro, typed_json, typed_protobuf, wire
from ottla.registry.client import Registered, Registry, RegistryError, Schema

URL = "schema.registry.url"
TYPES = {"avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF"}
PARTS = ("key", "value")
OPTIONS = (
    URL,
    "schema.registry.basic.auth.user.info",
    "auto.register.schemas",
    "use.latest.version",
    *(f"{part}.{name}" for part in PARTS for name in ("subject", "schema.version")),
)
"""What a source or sink reads besides the options of `ottla.formats.typed`."""


def typed_of(options: Mapping[str, str], topic: str | None = None) -> Typed:
    """As `Typed.of_options`, with a registry where one is named. Raises SchemaError, RegistryUnreachable."""
    if URL not in options:
        return Typed.of_options(options)
    bad_records = options.get("bad.records", "fail")
    if (bad_records == "dead-letter") != ("dead.letter.topic" in options):
        raise SchemaError("bad.records=dead-letter and dead.letter.topic go together")
    return Typed(RegistrySchemas(for_reading(options, topic)), bad_records)


def for_reading(options: Mapping[str, str], topic: str | None) -> dict[str, str]:
    """The options with the schemas that are read as: of the version that they say, or the latest."""
    found = dict(options)
    if URL not in options:
        return found
    registry = Registry.of_options(options)
    try:
        for part in _parts(options):
            if f"{part}.schema.parts" in options:
                continue
            if f"{part}.schema" in options:
                found[f"{part}.schema.parts"] = "[]"
                continue
            latest = registry.version(_subject(options, part, topic), _version(options, part))
            _check_type(latest, part, options)
            _put(found, part, latest.schema, latest.id, registry)
    finally:
        registry.close()
    return found


def for_writing(options: Mapping[str, str], topic: str | None, kinds: Mapping[str, pa.DataType]) -> dict[str, str]:
    """The options with the schemas that are written with, registered: of the types `kinds`, or as they are given.

    Raises SchemaError (RegistryError) for one that is not compatible with what is registered.
    """
    found = dict(options)
    if URL not in options:
        return found
    registry = Registry.of_options(options)
    try:
        for part in [each for each in _parts(options) if each in kinds]:
            subject = _subject(options, part, topic)
            if _flag(options, "use.latest.version", False) or f"{part}.schema.version" in options:
                latest = registry.version(subject, _version(options, part))
                _check_type(latest, part, options)
                _put(found, part, latest.schema, latest.id, registry)
                continue
            kind = options[f"{part}.format"]
            text = options.get(f"{part}.schema") or _derived(kind, kinds[part], subject)
            schema = Schema(text, TYPES[kind])
            if _flag(options, "auto.register.schemas", True):
                schema_id = _register(registry, subject, schema)
            else:
                schema_id = registry.lookup(subject, schema).id
            _put(found, part, schema, schema_id, registry)
    finally:
        registry.close()
    return found


def _register(registry: Registry, subject: str, schema: Schema) -> int:
    try:
        return registry.register(subject, schema)
    except RegistryError as error:
        raise SchemaError(f"subject {subject}: the schema is not registered: {error}") from error


def _put(found: dict[str, str], part: str, schema: Schema, schema_id: int, registry: Registry) -> None:
    parts = registry.parts(schema)
    found[f"{part}.schema"] = typed_avro.whole(schema.text, parts) if schema.type == "AVRO" else schema.text
    found[f"{part}.schema.id"] = str(schema_id)
    found[f"{part}.schema.parts"] = json.dumps([] if schema.type == "AVRO" else parts)


def _parts(options: Mapping[str, str]) -> list[str]:
    """Those whose format a registry knows."""
    return [part for part in PARTS if options.get(f"{part}.format") in TYPES]


def _subject(options: Mapping[str, str], part: str, topic: str | None) -> str:
    subject = options.get(f"{part}.subject") or (None if topic is None else f"{topic}-{part}")
    if subject is None:
        raise SchemaError(f"{part}.subject is needed: there is not one topic whose name it would have")
    return subject


def _version(options: Mapping[str, str], part: str) -> int | str:
    text = options.get(f"{part}.schema.version", "latest")
    if text != "latest" and not re.fullmatch(r"[1-9]\d{0,9}", text):
        raise SchemaError(f"{part}.schema.version: expected latest or a number, got {text}")
    return text


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise SchemaError(f"{name}: expected true or false, got {text}")
    return text == "true"


def _check_type(found: Registered, part: str, options: Mapping[str, str]) -> None:
    wanted = options[f"{part}.format"]
    if found.schema.type != TYPES[wanted]:
        raise SchemaError(f"{part}.format={wanted}, and subject {found.subject} has schemas of type {found.schema.type}")


def _derived(kind: str, arrow: pa.DataType, subject: str) -> str:
    name = re.sub(r"\W", "_", subject, flags=re.ASCII)
    name = name if re.match(r"[A-Za-z_]", name) else f"_{name}"
    derive = {"avro": typed_avro.derived, "json": typed_json.derived, "protobuf": typed_protobuf.derived}
    return derive[kind](arrow, name)


@dataclass(frozen=True)
class RegistrySchemas:
    """Schemas that `for_reading` or `for_writing` put among the options, and of ids that records name."""

    options: Mapping[str, str]

    def values(self, part: str) -> Values | None:
        """How "key" or "value" are read. Raises SchemaError."""
        kind = self.options.get(f"{part}.format", "binary")
        if kind not in TYPES:
            return GivenSchemas(self.options).values(part)
        return RegistryValues(self.options, part)


class RegistryValues:
    """Values behind the id of the schema that they were written with, read as one schema."""

    def __init__(self, options: Mapping[str, str], part: str) -> None:
        self._options = options
        self._kind = options[f"{part}.format"]
        text = self._text = options[f"{part}.schema"]
        parts = tuple((name, each) for name, each in json.loads(options.get(f"{part}.schema.parts", "[]")))
        own = options.get(f"{part}.schema.id")
        self._id = None if own is None else int(own)
        self._registry: Registry | None = None
        self._file: Any = None
        self._reader: Any
        if self._kind == "avro":
            self._reader = AvroValues(text)
        elif self._kind == "json":
            self._reader = JsonValues(typed_json.type_of(text, parts))
        else:
            self._file = typed_protobuf.file_of(text, parts)
            self._reader = typed_protobuf.ProtobufValues(self._file)
        self._decoders: dict[int, Any] = {}
        """By id. What is written with the schema that is read as needs no registry."""
        self.type: pa.DataType = self._reader.type

    def decode(self, values: list[bytes | None], bad: Bad) -> pa.Array:
        """A column with a row for each of `values`, decoded by groups of the same schema. Raises RegistryUnreachable."""
        groups, bare = wire.grouped(values)
        for row in bare:
            bad.mark(row, "not of Confluent's wire format: it does not begin with a zero byte and a schema's id")
        if len(groups) == 1 and not bare and None not in values:
            ((schema_id, _),) = groups.items()
            return self._group(schema_id, [None if each is None else each[5:] for each in values], bad)
        order = [-1] * len(values)
        pieces, place = [], 0
        for schema_id, rows in groups.items():
            inner = Bad()
            pieces.append(self._group(schema_id, [(values[row] or b"")[5:] for row in rows], inner))
            for index, reason in inner.reasons.items():
                bad.mark(rows[index], reason)
            for at, row in enumerate(rows, place):
                order[row] = at
            place += len(rows)
        if not pieces:
            return pa.nulls(len(values), self.type)
        indexes = pa.array([None if at < 0 else at for at in order], pa.int64())
        return pa.concat_arrays(pieces).take(indexes)

    def _group(self, schema_id: int, values: list[bytes | None], bad: Bad) -> pa.Array:
        try:
            decode = self._decoder(schema_id)
        except SchemaError as error:
            for row in range(len(values)):
                bad.mark(row, f"written with the schema {schema_id}: {error}")
            return pa.nulls(len(values), self.type)
        found: pa.Array = decode(values, bad)
        return found

    def _decoder(self, schema_id: int) -> Any:
        if schema_id not in self._decoders:
            self._decoders[schema_id] = self._new_decoder(schema_id)
        return self._decoders[schema_id]

    def _new_decoder(self, schema_id: int) -> Any:
        reader = self._reader
        if schema_id == self._id:
            writer, parts = None, ()
        else:
            if self._registry is None:
                self._registry = Registry.of_options(self._options)
            writer = self._registry.by_id(schema_id)
            if writer.type != TYPES[self._kind]:
                raise SchemaError(f"it is of type {writer.type}, not {TYPES[self._kind]}")
            parts = tuple(self._registry.parts(writer))
        if self._kind == "json" or (self._kind == "avro" and writer is None):
            return reader.decode
        if self._kind == "avro" and writer is not None:
            return AvroValues(self._text, typed_avro.whole(writer.text, parts)).decode
        file = self._file if writer is None else typed_protobuf.file_of(writer.text, parts)
        return lambda values, bad: reader.decode(values, bad, file)

    def encode(self, column: pa.Array) -> pa.Array:
        """The five bytes and the datum of each row. Raises ValueError for values that the schema has no place for."""
        if self._id is None:
            raise SchemaError("a schema without an id is for reading")
        before = wire.prefix(self._id)
        data = self._reader.encode(column).to_pylist()
        return pa.array([None if each is None else before + each for each in data], pa.binary())
