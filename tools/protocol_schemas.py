"""Writes `protocol/schemas/table.py` from Kafka's own message definitions: `python -m tools.protocol_schemas JARS`.

Kafka's jars carry them as JSON. Of several releases the newest definition of a message counts. The messages that only
Ottla has are in `OWN`, in the same form. `--check` writes nothing, and fails where the file is stale.
"""

from __future__ import annotations

import argparse
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

TABLE: Final = Path(__file__).resolve().parents[1] / "src" / "ottla" / "protocol" / "schemas" / "table.py"
_DEFINITION: Final = re.compile(r"(common/)?(message|metadata)/\w+\.json")
_COMMENT: Final = re.compile(r"^\s*//.*$", re.MULTILINE)

HEAD: Final = '''"""Kafka's messages, a line each: made by `python -m tools.protocol_schemas`, never edited."""

TABLE = """\\
'''

_NULLABLE: Final = {"nullableVersions": "0+", "default": "null"}


def _row(name: str, type_: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "versions": "0+", **more}


_FAILURE: Final = [
    _row("ThrottleTimeMs", "int32"), _row("ErrorCode", "int16"), _row("ErrorMessage", "string", **_NULLABLE),
    _row("NodeId", "int32"),
]  # fmt: skip
_FILTER: Final = [_row("Principal", "string", **_NULLABLE), _row("ClientId", "string", **_NULLABLE)]
_CLIENT: Final = [
    _row("Principal", "string"), _row("ClientId", "string", **_NULLABLE), _row("SoftwareName", "string"),
    _row("SoftwareVersion", "string"), _row("Host", "string"), _row("Port", "int32"), _row("Listener", "string"),
    _row("SecurityProtocol", "string"), _row("TlsVersion", "string", **_NULLABLE),
    _row("TlsCipher", "string", **_NULLABLE), _row("Mechanism", "string", **_NULLABLE), _row("ConnectedMs", "int64"),
    _row("IdleMs", "int64"), _row("BytesIn", "int64"), _row("BytesOut", "int64"), _row("ClientInstanceId", "uuid"),
    _row("PushedMetrics", "int32"),
]  # fmt: skip


def _own(key: int, kind: str, name: str, fields: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "apiKey": key, "type": kind, "name": name, "validVersions": "0", "flexibleVersions": "0+", "fields": fields,
    }  # fmt: skip


OWN: Final = [
    _own(20_000, "request", "ListClientsRequest", _FILTER),
    _own(
        20_000, "response", "ListClientsResponse", [*_FAILURE, _row("Clients", "[]ListedClient", fields=_CLIENT)]
    ),
    _own(20_001, "request", "DisconnectClientsRequest", _FILTER),
    _own(20_001, "response", "DisconnectClientsResponse", [*_FAILURE, _row("Closed", "int32")]),
]  # fmt: skip
"""Keys far above Kafka's. ApiVersions names them to Ottla's own commands only."""


def definitions(jars: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """The message definitions in `jars`, as Kafka's code generator reads them."""
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            for name in sorted(archive.namelist()):
                if _DEFINITION.fullmatch(name):
                    yield json.loads(_COMMENT.sub("", archive.read(name).decode()))


def _field(field: Mapping[str, Any], common: Mapping[str, Any]) -> str:
    versions = field.get("versions") or field["taggedVersions"]
    parts = [field["name"], field["type"], versions]
    if (nullable := field.get("nullableVersions", "none")) != "none":
        parts.append("?" + nullable)
    if "tag" in field:
        parts.append(f"#{field['tag']}@{field['taggedVersions']}")
    if field.get("default") not in (None, ""):
        default = str(field["default"])
        if field["type"] not in ("string", "bool", "float64") and default != "null":
            default = str(int(default, 0))
        parts.append("=" + default.lower() if field["type"] == "bool" else "=" + default)
    if field.get("ignorable"):
        parts.append("~")
    if field.get("flexibleVersions") == "none":
        parts.append("!")
    text = " ".join(parts)
    below = field.get("fields") or common.get(field["type"].removeprefix("[]"))
    return f"{text} {{{_fields(below, common)}}}" if below is not None else text


def _fields(fields: Iterable[Mapping[str, Any]], common: Mapping[str, Any]) -> str:
    return "; ".join(_field(each, common) for each in fields)


def line(message: Mapping[str, Any]) -> str:
    """`Name kind key versions flexible-versions: fields`. A key of - is none."""
    common = {each["name"]: each["fields"] for each in message.get("commonStructs", ())}
    flexible = message.get("flexibleVersions", "none")
    head = f"{message['name']} {message['type']} {message.get('apiKey', '-')} {message['validVersions']} {flexible}"
    return f"{head}: {_fields(message.get('fields', ()), common)}".rstrip()


def rendered(jars: Sequence[Path]) -> str:
    """The text of the table."""
    messages = {each["name"]: each for each in [*definitions(jars), *OWN] if each["validVersions"] != "none"}
    return HEAD + "".join(line(messages[name]) + "\n" for name in sorted(messages)) + '"""\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("jars", nargs="+", type=Path)
    arguments = parser.parse_args()
    text = rendered(arguments.jars)
    if arguments.check:
        if TABLE.read_text() != text:
            raise SystemExit(f"{TABLE.name} is stale: python -m tools.protocol_schemas writes it again")
        return
    TABLE.write_text(text)


if __name__ == "__main__":
    main()
