"""Single keys and values of a registry as JSON texts, and back: what people read and type.

Each is read with the schema that it was written with. Avro: the JSON encoding of its specification, but members of
unions without their type around them (both are understood); Protobuf: the JSON mapping of proto3; JSON as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final, Protocol

from ottla.formats.avro_bare import bare
from ottla.formats.errors import SchemaError
from ottla.schemas import avro, protobuf_files, wire
from ottla.schemas.client import Registered, Registry, Schema

_NAMED: Final = ("record", "error", "enum", "fixed")


class Codec(Protocol):
    """Codec of one schema: between the bytes behind a schema id and their JSON."""

    def to_text(self, datum: bytes) -> str: ...
    def to_bytes(self, text: str) -> bytes: ...


class Reader:
    """JSON texts of values with schemas of one type, by the ids of a registry."""

    def __init__(self, registry: Registry, type: str) -> None:
        self._registry, self._type = registry, type
        self._codecs: dict[int, Codec] = {}

    def read(self, value: bytes) -> str:
        """Raises ValueError for what is not of the wire format or not of its schema, RegistryError,
        RegistryUnreachable."""
        if len(value) < wire.PREFIX_BYTES or value[0] != wire.MAGIC:
            raise ValueError("not of Confluent's wire format: it does not begin with a zero byte and a schema's id")
        schema_id = int.from_bytes(value[1 : wire.PREFIX_BYTES], "big")
        if schema_id not in self._codecs:
            schema = self._registry.by_id(schema_id)
            if schema.type != self._type:
                raise ValueError(f"it has the schema {schema_id}, which is of type {schema.type}, not {self._type}")
            self._codecs[schema_id] = codec_of(schema, self._registry.parts(schema))
        return self._codecs[schema_id].to_text(value[wire.PREFIX_BYTES :])


class Writer:
    """Encodes with one schema: a given one, registered for a subject, or the subject's newest version."""

    def __init__(
        self, registry: Registry, subject: str, type: str, schema: Schema | None = None, message: str | None = None
    ) -> None:
        """Raises SchemaError (of another type than `type`, too), RegistryError, RegistryUnreachable."""
        if schema is None:
            found: Registered = registry.version(subject)
            self.id, schema = found.id, found.schema
        else:
            self.id = registry.register(subject, schema)
        if schema.type != type:
            raise SchemaError(f"subject {subject} has schemas of type {schema.type}, not {type}")
        self._codec = codec_of(schema, registry.parts(schema), message)

    def write(self, text: str) -> bytes:
        """Raises ValueError for text that is not JSON or does not fit the schema."""
        return wire.prefix(self.id) + self._codec.to_bytes(text)


def codec_of(schema: Schema, parts: list[tuple[str, str]], message: str | None = None) -> Codec:
    """`message` is the name of one of Protobuf's, for writing; the first unless given. Raises SchemaError."""
    if schema.type == "AVRO":
        return _Avro(avro.whole(schema.text, parts))
    if schema.type == "PROTOBUF":
        return _Protobuf(schema.text, tuple(parts), message)
    return _Json(schema.text, parts)


class _Json:
    def __init__(self, text: str, parts: list[tuple[str, str]]) -> None:
        import jsonschema
        import referencing
        import referencing.jsonschema

        def resource(text: str) -> Any:
            return referencing.Resource.from_contents(
                json.loads(text), default_specification=referencing.jsonschema.DRAFT7
            )

        others = referencing.Registry().with_resources([(name, resource(each)) for name, each in parts])
        schema = json.loads(text)
        self._validator = jsonschema.validators.validator_for(schema)(schema, registry=others)

    def to_text(self, datum: bytes) -> str:
        return json.dumps(json.loads(datum), ensure_ascii=False)

    def to_bytes(self, text: str) -> bytes:
        import jsonschema

        value = json.loads(text)
        try:
            self._validator.validate(value)
        except jsonschema.ValidationError as error:
            raise ValueError(f"{error.json_path}: {error.message}") from None
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class _Protobuf:
    def __init__(self, text: str, parts: tuple[tuple[str, str], ...], message: str | None) -> None:
        self._file = protobuf_files.file_of(text, parts)
        self._path = (0,) if message is None else protobuf_files.path_of(self._file, message)
        protobuf_files.message_at(self._file, self._path)

    def to_text(self, datum: bytes) -> str:
        from google.protobuf import json_format, message_factory
        from google.protobuf.message import DecodeError

        path, at = wire.message_path(datum, 0)
        found = message_factory.GetMessageClass(protobuf_files.message_at(self._file, path))()
        try:
            found.ParseFromString(datum[at:])
        except DecodeError as error:
            raise ValueError(f"not Protobuf of its schema: {error}") from None
        return str(json_format.MessageToJson(found, indent=None, ensure_ascii=False))

    def to_bytes(self, text: str) -> bytes:
        from google.protobuf import json_format, message_factory

        message = message_factory.GetMessageClass(protobuf_files.message_at(self._file, self._path))()
        try:
            json_format.Parse(text, message)
        except json_format.ParseError as error:
            raise ValueError(str(error)) from None
        return wire.path_bytes(self._path) + bytes(message.SerializeToString(deterministic=True))


class _Avro:
    """Logical types stay the numbers and bytes that they are on the wire."""

    def __init__(self, text: str) -> None:
        from fastavro import parse_schema

        self._named: dict[str, Any] = {}
        try:
            self._schema = parse_schema(bare(json.loads(text)), named_schemas=self._named)
        except Exception as error:  # ValueError, SchemaParseException, KeyError, RecursionError, ...
            raise SchemaError(f"not an Avro schema: {type(error).__name__}: {error}") from error

    def to_text(self, datum: bytes) -> str:
        from fastavro import schemaless_reader

        stream = BytesIO(datum)
        try:
            found = schemaless_reader(stream, self._schema, None)
        except Exception as error:  # what fastavro raises for wrong bytes is of any type
            raise ValueError(f"not Avro of its schema: {type(error).__name__}: {error}") from None
        if stream.tell() != len(datum):
            raise ValueError(f"not Avro of its schema: {len(datum) - stream.tell()} bytes are left behind the datum")
        return json.dumps(found, ensure_ascii=False, default=_latin)

    def to_bytes(self, text: str) -> bytes:
        from fastavro import schemaless_writer

        datum = self._datum(json.loads(text), self._schema, "")
        stream = BytesIO()
        try:
            schemaless_writer(stream, self._schema, datum)
        except Exception as error:  # of any type, as above
            raise ValueError(f"{type(error).__name__}: {error}") from None
        return stream.getvalue()

    def _datum(self, value: Any, schema: Any, place: str) -> Any:
        """The datum that fastavro writes for JSON. Raises ValueError that names the place that does not fit."""
        if isinstance(schema, list):
            return self._member(value, schema, place)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            return self._datum(value, kind, place)
        if kind in self._named and kind not in _NAMED:
            return self._datum(value, self._named[kind], place)
        if kind in ("record", "error"):
            return self._record(value, schema, place)
        if kind == "array" and isinstance(value, list):
            return [self._datum(each, schema["items"], f"{place}[{at}]") for at, each in enumerate(value)]
        if kind == "map" and isinstance(value, dict):
            return {name: self._datum(each, schema["values"], f"{place}.{name}") for name, each in value.items()}
        if kind in ("bytes", "fixed") and isinstance(value, str):
            try:
                return value.encode("latin-1")
            except UnicodeEncodeError:
                raise ValueError(f"{place or 'value'}: bytes are characters up to \\u00ff") from None
        if kind == "enum" and value in schema["symbols"]:
            return value
        if kind in _PLAIN and _PLAIN[kind](value):
            return float(value) if kind in ("float", "double") else value
        raise ValueError(f"{place or 'value'}: {json.dumps(value, ensure_ascii=False)[:60]} is no {kind}")

    def _record(self, value: Any, schema: Mapping[str, Any], place: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"{place or 'value'}: an object is wanted for {schema['name']}")
        fields = {each["name"]: each for each in schema["fields"]}
        if unknown := sorted(value.keys() - fields.keys()):
            raise ValueError(f"{place or 'value'}: {schema['name']} has no field {unknown[0]}")
        found = {}
        for name, field in fields.items():
            if name in value:
                found[name] = self._datum(value[name], field["type"], f"{place}.{name}".lstrip("."))
            elif "default" in field:
                found[name] = self._datum(field["default"], field["type"], f"default of {name}")
            else:
                raise ValueError(f"{place or 'value'}: the field {name} is missing, and has no default")
        return found

    def _member(self, value: Any, schema: list[Any], place: str) -> Any:
        """The first branch that it fits, or the one that is named: {"string": "x"}."""
        if isinstance(value, dict) and len(value) == 1:
            ((name, inner),) = value.items()
            for branch in schema:
                if _name(branch) == name:
                    return (
                        (name, self._datum(inner, branch, place))
                        if name in self._named
                        else self._datum(inner, branch, place)
                    )
        reasons = []
        for branch in schema:
            try:
                found = self._datum(value, branch, place)
            except ValueError as error:
                reasons.append(str(error))
                continue
            return (_name(branch), found) if _name(branch) in self._named else found
        raise ValueError("; ".join(reasons))


def _name(schema: Any) -> str:
    if isinstance(schema, dict):
        return str(schema["name"] if schema["type"] in _NAMED else schema["type"])
    return str(schema)


def _latin(value: Any) -> str:
    """Bytes as Avro's JSON encoding has them."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    raise TypeError(type(value).__name__)


def _is_whole(value: Any, bits: int) -> bool:
    return type(value) is int and -(1 << bits - 1) <= value < 1 << bits - 1


_PLAIN: Final[dict[str, Any]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: type(value) is bool,
    "int": lambda value: _is_whole(value, 32),
    "long": lambda value: _is_whole(value, 64),
    "float": lambda value: type(value) in (int, float),
    "double": lambda value: type(value) in (int, float),
    "string": lambda value: isinstance(value, str),
}
