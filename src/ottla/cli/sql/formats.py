"""What a registry has of the formats that `ottla sql` is asked for."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.cli import client_security
from ottla.cli.schema.access import TYPES
from ottla.formats.errors import SchemaError
from ottla.formats.typed import GivenSchemas


def _is_by_registry(options: Mapping[str, str], part: str) -> bool:
    return options.get(f"{part}.format") in TYPES and f"{part}.schema" not in options


def by_registry(options: Mapping[str, str], url: str, topic: str) -> Mapping[str, str]:
    """The options with schemas that a registry has, for parts that are read by one. Raises SchemaError, OSError."""
    chosen = [part for part in ("key", "value") if _is_by_registry(options, part)]
    if not chosen:
        return options
    from ottla.cli.schema.access import of_client
    from ottla.schemas.options import for_reading

    found = of_client(url)
    for part in chosen:
        format = options[f"{part}.format"]
        asked = {**found, f"{part}.format": "json" if format == "json-schema" else format}
        found = for_reading(asked, topic, security=client_security.current())
    return {**options, **found}


def ensure_formats(options: Mapping[str, str]) -> None:
    """Raises SchemaError for options of `ottla.formats.typed` that do not fit together, by the command's names."""
    for part in ("key", "value"):
        kind, schema = options.get(f"{part}.format"), options.get(f"{part}.schema")
        if (kind == "json" and schema is None) or _is_by_registry(options, part):
            continue
        if kind in ("json-schema", "protobuf"):
            raise SchemaError(f"--{part}-schema is only for avro and json: {kind} gets its schema from a registry")
        try:
            GivenSchemas(options).values(part)
        except SchemaError as error:
            text = str(error)
            for name in ("key.format", "key.schema", "value.format", "value.schema"):
                text = text.replace(name, f"--{name.replace('.', '-')}")
            raise SchemaError(text) from None
