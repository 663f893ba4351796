"""What commands that speak to a schema registry share: its URL, its answers as sentences, keys and values as JSON."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from ottla.cli import client_security
from ottla.cli.exits import FAILED, MISUSED, UNREACHABLE, CommandFailed
from ottla.cli.output import visible
from ottla.cli.records.record import Outgoing, Record
from ottla.cli.values import FilePath, SettingName, Text

if TYPE_CHECKING:
    from ottla.cli.records.records_in import Line
    from ottla.schemas.client import Registry, Schema
    from ottla.schemas.json_codecs import Writer

DEFAULT_URL: Final = "http://127.0.0.1:8081"
"""Where `ottla registry` listens."""
TYPES: Final = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF"}
"""Words of --format and --type, and what a registry calls them. `json` alone means lines and output."""
SUFFIXES: Final = {".avsc": "avro", ".proto": "protobuf", ".json": "json-schema"}
RETRY_S: Final = 2.0
"""For a registry that is just starting; somebody waits at a terminal."""

_OPTION: Final = "schema.registry.url"

RegistryUrl = Annotated[
    Text,
    Parameter(env_var="OTTLA_REGISTRY", help="URL of the schema registry, with USER:PASSWORD@ before the host if "
                                             "needed; separate several by commas."),
]  # fmt: skip
SchemaFile = Annotated[
    FilePath | None,
    Parameter(help="A file with the schema to register and encode values with. Default: the subject's latest."),
]
Subject = Annotated[SettingName | None, Parameter(help="The schema's subject in the registry. Default: TOPIC-value.")]
Message = Annotated[SettingName | None, Parameter(help="The message type in a Protobuf schema. Default: the first.")]
RegistryUrls = Annotated[Text | None, Parameter(env_var="OTTLA_REGISTRY")]


@contextlib.contextmanager
def connected(url: str) -> Iterator[Registry]:
    """Raises CommandFailed for all that goes wrong with it."""
    try:
        from ottla.schemas.access import carried
        from ottla.schemas.client import Registry
    except ImportError as error:
        raise CommandFailed(f"{error.name} is not installed: pip install 'ottla[registry]'") from error
    options = carried(of_client(url), client_security.current())
    with complaints(), contextlib.closing(Registry.of_options(options, RETRY_S)) as registry:
        yield registry


def of_client(url: str) -> dict[str, str]:
    """The options of a registry for the client's file of this command."""
    typed = client_security.typed()
    return {_OPTION: url} if typed is None else {_OPTION: url, "client.config": str(typed)}


@contextlib.contextmanager
def complaints() -> Iterator[None]:
    """Turns errors of a registry, and its absence, into CommandFailed."""
    from ottla.formats.errors import SchemaError
    from ottla.schemas.client import RegistryUnreachable

    try:
        yield
    except ImportError as error:
        raise CommandFailed(f"{error.name} is not installed: pip install 'ottla[registry]'") from error
    except RegistryUnreachable as error:
        raise CommandFailed(f"{error}\n  start one: ottla registry", UNREACHABLE) from None
    except SchemaError as error:
        text = str(error)
        if text.startswith(_OPTION):
            raise CommandFailed(f"--registry{text.removeprefix(_OPTION)}", MISUSED) from None
        raise CommandFailed(visible(text), FAILED) from None


def type_of(path: Path, given: str | None, text: str) -> str:
    """The schema type as a registry names it: the given one, or detected from the file's name or content. Raises
    CommandFailed."""
    if given is not None:
        return TYPES[given]
    if path.suffix in SUFFIXES and path.suffix != ".json":
        return TYPES[SUFFIXES[path.suffix]]
    try:
        value = json.loads(text)
    except ValueError:
        return "PROTOBUF" if re.search(r"\b(message|enum|syntax)\b", text) else "AVRO"
    is_json_schema = isinstance(value, dict) and (
        "$schema" in value or "properties" in value or value.get("type") == "object"
    )
    return "JSON" if is_json_schema else "AVRO"


def schema_of(path: Path, given: str | None, references: list[str] | None = None) -> Schema:
    """A schema in a file, - for standard input. Raises CommandFailed."""
    import sys

    from ottla.schemas.client import Reference, Schema

    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CommandFailed(f"cannot read {visible(str(path))}: {reason}") from error
    found = []
    for reference in references or ():
        match = re.fullmatch(r"(?P<name>[^=]+)=(?P<subject>.+):(?P<version>[1-9]\d*)", reference)
        if match is None:
            raise CommandFailed(f"--reference must be NAME=SUBJECT:VERSION, not {reference!r}", MISUSED)
        found.append(Reference(match["name"], match["subject"], int(match["version"])))
    return Schema(text, type_of(path, given, text), tuple(found))


def shown_text(text: str, kind: str) -> str:
    """The text as people read it: JSON indented, Protobuf unchanged."""
    if kind == "PROTOBUF":
        return text.rstrip("\n")
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


class Decoder:
    """Records with keys and values that a registry has the schemas of, as JSON texts."""

    def __init__(self, registry: Registry, types: dict[str, str]) -> None:
        """`types` of key, value or both, as a registry calls them."""
        from ottla.schemas.json_codecs import Reader

        self._texts = {part: Reader(registry, kind) for part, kind in types.items()}

    def __call__(self, record: Record) -> Record:
        """Raises CommandFailed that says where the record is which cannot be read."""
        changed: dict[str, Any] = {}
        for part, texts in self._texts.items():
            raw = getattr(record, part)
            if raw is None:
                continue
            try:
                changed[part] = texts.read(raw).encode()
            except OSError:
                raise
            except ValueError as error:
                where = f"{record.topic}-{record.partition} at offset {record.offset}"
                raise CommandFailed(
                    f"{visible(where)}: the {part} cannot be read: {visible(str(error))}\n"
                    f"  see its bytes: ottla consume {record.topic} -p {record.partition} --from {record.offset} -n 1 "
                    f"--format hexdump"
                ) from None
        return record._replace(**changed)


@contextlib.contextmanager
def decoded(
    emit: Callable[[Record], None], url: str, key_format: str | None, value_format: str | None
) -> Iterator[Callable[[Record], None]]:
    """`emit` of records whose keys and values are decoded before, where they have a format. Raises CommandFailed."""
    formats = {"key": key_format, "value": value_format}
    chosen = {part: TYPES[format] for part, format in formats.items() if format is not None}
    if not chosen:
        yield emit
        return
    with connected(url) as registry:
        decoder = Decoder(registry, chosen)
        yield lambda record: emit(decoder(record))


@contextlib.contextmanager
def encoded(
    records: Iterable[tuple[Line, Outgoing]],
    url: str,
    subject: str,
    format: str,
    file: Path | None,
    message: str | None,
) -> Iterator[Iterator[tuple[Line, Outgoing]]]:
    """Records whose values are JSON texts, with what a schema makes of them. Raises CommandFailed."""
    with connected(url) as registry:
        from ottla.schemas.json_codecs import Writer

        schema = None if file is None else schema_of(file, format)
        writer = Writer(registry, subject, TYPES[format], schema, message)
        yield _written(records, writer)


def _written(records: Iterable[tuple[Line, Outgoing]], writer: Writer) -> Iterator[tuple[Line, Outgoing]]:
    for line, record in records:
        if record.value is None:
            yield line, record
            continue
        try:
            yield line, record._replace(value=writer.write(record.value.decode()))
        except ValueError as error:
            raise CommandFailed(f"{line}: {visible(str(error))}") from None
