"""What masks hide of a topic is hidden before anything else sees its records: before fields of its JSON are inferred,
before a filter is asked, and before DuckDB. No query can reach what is hidden, as it is not there.

A key or value with hidden fields is JSON: as it was written, or as the schema registry decodes it. What is neither is
hidden whole, as it is on the console's pages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

PARTS: Final = ("key", "value")
BY_REGISTRY: Final = ("avro", "json-schema", "protobuf")
"""Formats whose schemas are a registry's."""
_MAGIC: Final = 0
_PREFIX_BYTES: Final = 5


class How(Protocol):
    """What is shown instead."""

    def shown(self, value: Any) -> str: ...


class Mask(Protocol):
    """What is hidden of one topic for one user (`TopicMask` of the console)."""

    @property
    def key(self) -> How | None: ...
    @property
    def value(self) -> How | None: ...
    @property
    def fields(self) -> Mapping[Any, Any]: ...
    def header(self, name: str) -> How | None: ...
    def text(self, decoded: tuple[Any] | None) -> str:
        """What is shown of a JSON value. What is not JSON, `decoded` being None, is hidden whole."""


Decode = Callable[[bytes], str]
"""JSON text of bytes behind a schema's id. Raises ValueError."""


@dataclass(frozen=True)
class Masked:
    """Hides what a mask says in batches of Kafka's records."""

    mask: Mask
    decode: Decode | None = None
    """What decodes bytes that a registry's schema describes."""

    def options(self, options: Mapping[str, str]) -> dict[str, str]:
        """Formats in which the parts are read afterwards: what is hidden whole is a text, what a registry's schema
        describes was decoded to JSON."""
        found = dict(options)
        for part in PARTS:
            if getattr(self.mask, part) is not None:
                found[f"{part}.format"] = "string"
            elif self.mask.fields and found[f"{part}.format"] in BY_REGISTRY:
                found[f"{part}.format"] = "json"
        return found

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            hide = self._hiding(name)
            if hide is not None:
                column = pa.array([hide(each) for each in column.to_pylist()], batch.schema.field(name).type)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def _hiding(self, name: str) -> Callable[[Any], Any] | None:
        if name == "headers":
            return self._headers
        if name not in PARTS:
            return None
        how: How | None = getattr(self.mask, name)
        if how is not None:
            return lambda data: _utf8(how.shown(data))
        return self._part if self.mask.fields else None

    def _headers(self, headers: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        if headers is None:
            return None
        found = []
        for each in headers:
            how = self.mask.header(each["key"])
            found.append(each if how is None else {**each, "value": _utf8(how.shown(each["value"]))})
        return found

    def _part(self, data: bytes | None) -> bytes | None:
        """JSON without what is hidden. It is always written again: a name may be there twice."""
        if not data:
            return data
        value: tuple[Any] | None = None
        try:
            if self.decode is not None and len(data) >= _PREFIX_BYTES and data[0] == _MAGIC:
                value = (json.loads(self.decode(data)),)
            else:
                value = (json.loads(data),)
        except (ValueError, RecursionError):
            pass
        return _utf8(self.mask.text(value))


def _utf8(text: str) -> bytes:
    return text.encode(errors="replace")  # JSON may have halves of surrogate pairs


def decoder(registry: Mapping[str, str]) -> Decode:
    """Decodes with the schemas of a registry, which are kept."""
    from ottla.formats.errors import SchemaError
    from ottla.schemas.client import Registry
    from ottla.schemas.json_codecs import codec_of

    client = Registry.of_options(registry, 0.0)
    codecs: dict[int, Any] = {}

    def decode(data: bytes) -> str:
        number = int.from_bytes(data[1:_PREFIX_BYTES], "big")
        if number not in codecs:
            try:
                schema = client.by_id(number)
                codecs[number] = codec_of(schema, client.parts(schema))
            except (SchemaError, ImportError) as error:  # a registry that does not answer fails the query
                raise ValueError(f"schema {number}: {error}") from error
        text: str = codecs[number].to_text(data[_PREFIX_BYTES:])
        return text

    return decode
