"""Options of typed keys and values whose schemas a registry holds.

Besides those of `ottla.formats.typed`, named as Confluent's serializers do where these have them:
- `schema.registry.url`, several with commas, and how it is reached: `access.py`;
- `value.subject`, else TOPIC-value, and `value.schema.version`, else the latest; or `value.schema`, which is read as or
  written with whatever the subject has; `value.message`, of Protobuf, by its name, else the first; the same for key;
- `auto.register.schemas` (true), `use.latest.version` (false).

`for_reading` and `for_writing` ask the registry once, where a query begins, and put what they found among the options:
tasks ask for no more than schemas that they meet and do not know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

from ottla.client.security import Security
from ottla.formats.errors import SchemaError
from ottla.formats.typed import Typed
from ottla.schemas import access, avro, avro_types, json_schema, protobuf
from ottla.schemas.client import Registered, Registry, RegistryError, Schema
from ottla.schemas.values import RegistrySchemas, values_of

if TYPE_CHECKING:
    import pyarrow as pa

URL: Final = "schema.registry.url"
TYPES: Final = {"avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF"}
"""Formats, and what a registry calls them."""
PARTS: Final = ("key", "value")
OPTIONS: Final = (
    URL,
    *access.NAMES,
    "auto.register.schemas",
    "use.latest.version",
    *(f"{part}.{name}" for part in PARTS for name in ("subject", "schema.version", "message")),
)
"""Options of a source or sink besides those of `ottla.formats.typed`."""
_VERSIONS_MAX: Final = 100
"""So many versions are looked at for one that has wanted columns."""


def typed_of(options: Mapping[str, str], topic: str | None = None) -> Typed:
    """Like `Typed.of_options`, with a registry where one is named. Raises SchemaError, RegistryUnreachable."""
    if URL not in options:
        return Typed.of_options(options)
    is_known = any(f"{part}.schema.parts" in options for part in PARTS)
    return Typed.of_options(options, RegistrySchemas(options if is_known else for_reading(options, topic)))


def for_reading(
    options: Mapping[str, str],
    topic: str | None,
    is_wanted: Callable[[str, pa.DataType], bool] | None = None,
    security: Security | None = None,
) -> dict[str, str]:
    """The options with the schemas that are read as: of the version that they name, or the latest.

    A query may have been planned with columns of an earlier version: `is_wanted` says of a part and a type whether it
    is what was planned with. Where the latest version is not, the newest one is looked for that is. Raises SchemaError
    (RegistryError), RegistryUnreachable.
    """
    found = dict(options)
    if URL not in options:
        return found
    found = access.carried(options, security)
    with _registry(found) as registry:
        for part in _parts(options):
            if f"{part}.schema.parts" in options:
                continue
            if f"{part}.schema" in options:
                found[f"{part}.schema.parts"] = "[]"
                continue
            subject = _subject(options, part, topic)
            version = _version(options, part)
            latest = registry.version(subject, version)
            _check_type(latest, part, options)
            _put(found, part, latest.schema, latest.id, registry)
            if is_wanted is not None and version == "latest" and not is_wanted(part, values_of(found, part).type):
                found = _earlier(found, part, subject, is_wanted, registry) or found
    return found


def _earlier(
    options: dict[str, str], part: str, subject: str, is_wanted: Callable[[str, pa.DataType], bool], registry: Registry
) -> dict[str, str] | None:
    """The options with the newest version that has these columns, if one has."""
    for number in sorted(registry.versions(subject), reverse=True)[1 : _VERSIONS_MAX + 1]:
        other = registry.version(subject, number)
        found = dict(options)
        _put(found, part, other.schema, other.id, registry)
        if is_wanted(part, values_of(found, part).type):
            return found
    return None


def for_writing(
    options: Mapping[str, str], topic: str | None, kinds: Mapping[str, pa.DataType], security: Security | None = None
) -> dict[str, str]:
    """The options with the schemas that are written with, registered: of the types `kinds`, or as they are given.

    Raises SchemaError (RegistryError) for one that is not compatible with what is registered, RegistryUnreachable.
    """
    found = dict(options)
    if URL not in options:
        return found
    found = access.carried(options, security)
    with _registry(found) as registry:
        for part in [each for each in _parts(options) if each in kinds]:
            subject = _subject(options, part, topic)
            if flag(options, "use.latest.version", False) or f"{part}.schema.version" in options:
                latest = registry.version(subject, _version(options, part))
                _check_type(latest, part, options)
                _put(found, part, latest.schema, latest.id, registry)
                continue
            kind = options[f"{part}.format"]
            schema = Schema(options.get(f"{part}.schema") or derived(kind, kinds[part], subject), TYPES[kind])
            if flag(options, "auto.register.schemas", True):
                schema_id = _register(registry, subject, schema)
            else:
                schema_id = registry.lookup(subject, schema).id
            _put(found, part, schema, schema_id, registry)
    return found


def derived(kind: str, arrow: pa.DataType, subject: str) -> str:
    """The text of the schema of a type, in one of the formats of TYPES. Raises SchemaError."""
    name = re.sub(r"\W", "_", subject, flags=re.ASCII)
    name = name if re.match(r"[A-Za-z_]", name) else f"_{name}"
    return {"avro": avro_types.derived, "json": json_schema.derived, "protobuf": protobuf.derived}[kind](arrow, name)


def flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    """Raises SchemaError."""
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise SchemaError(f"{name}: expected true or false, got {text}")
    return text == "true"


@contextmanager
def _registry(options: Mapping[str, str]) -> Iterator[Registry]:
    with closing(Registry.of_options(options)) as registry:
        yield registry


def _register(registry: Registry, subject: str, schema: Schema) -> int:
    try:
        return registry.register(subject, schema)
    except RegistryError as error:
        raise SchemaError(f"subject {subject}: the schema is not registered: {error}") from error


def _put(found: dict[str, str], part: str, schema: Schema, schema_id: int, registry: Registry) -> None:
    parts = registry.parts(schema)
    found[f"{part}.schema"] = avro.whole(schema.text, parts) if schema.type == "AVRO" else schema.text
    found[f"{part}.schema.id"] = str(schema_id)
    found[f"{part}.schema.parts"] = json.dumps([] if schema.type == "AVRO" else parts)


def _parts(options: Mapping[str, str]) -> list[str]:
    """Parts whose format a registry knows."""
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


def _check_type(found: Registered, part: str, options: Mapping[str, str]) -> None:
    wanted = options[f"{part}.format"]
    if found.schema.type != TYPES[wanted]:
        raise SchemaError(
            f"{part}.format={wanted}, and subject {found.subject} has schemas of type {found.schema.type}"
        )
