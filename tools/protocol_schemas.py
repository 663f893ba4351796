"""Writes the tables of `protocol/schemas` from Kafka's message definitions: `python -m tools.protocol_schemas JARS`.

Kafka's jars carry them as JSON; JARS are those of the newest release that Ottla speaks, 4.4. `--other 3.9 JARS` adds
the versions that Kafka 4.0 removed (KIP-896), `--other 4.5 JARS` what a newer release changes: marked with the release,
and not served. The marked lines of a release that is not given stay as they are. The messages that only Ottla has are
in `OWN`, in the same form; what it has beside Kafka's records, and calls otherwise, in `tools/own_records.py`.
Requests and responses are in `table.py`, all else in `records.py`. `--check` writes nothing, and fails where a file is
stale.
"""

from __future__ import annotations

import argparse
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ottla.protocol.schemas import OF_APIS
from tools.own_records import CHANGES, OWN_FIELDS, OWN_RECORDS, STRUCTS

TABLE: Final = Path(__file__).resolve().parents[1] / "src" / "ottla" / "protocol" / "schemas" / "table.py"
RECORDS: Final = TABLE.with_name("records.py")
_DEFINITION: Final = re.compile(r"(common/)?(message|metadata)/\w+\.json")
_COMMENT: Final = re.compile(r"^\s*//.*$", re.MULTILINE)

HEADS: Final = {
    TABLE: '''"""Kafka's messages, a line each: made by `python -m tools.protocol_schemas`, never edited."""

TABLE = """\\
''',
    RECORDS: '''"""Records, a line each: made by `python -m tools.protocol_schemas`, never edited.

Their classes are attributes of this module, which the package makes when they are first asked for.
"""

TABLE = """\\
''',
}

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
    _row("ProducerId", "int64", tag=0, taggedVersions="0+", default="-1", ignorable=True),
]  # fmt: skip

_CREDENTIAL: Final = [
    _row("Name", "string"), _row("Mechanism", "int8"), _row("Iterations", "int32"), _row("Salt", "bytes"),
    _row("StoredKey", "bytes"), _row("ServerKey", "bytes"),
]  # fmt: skip
_STORED: Final = [
    _row("User", "string"), _row("Mechanism", "int8"), _row("ErrorCode", "int16"),
    _row("ErrorMessage", "string", **_NULLABLE),
]  # fmt: skip

_LOST: Final = [
    _row("GroupId", "string"), _row("Topic", "string"), _row("Partition", "int32"), _row("FirstOffset", "int64"),
    _row("TimestampMs", "int64"), _row("Message", "string"),
]  # fmt: skip

_SHARED: Final = [
    _row("GroupId", "string"), _row("Topic", "string"), _row("Partition", "int32"), _row("StartOffset", "int64"),
    _row("AcquiredRecords", "int64"), _row("RedeliveredRecords", "int64"), _row("WaitingRecords", "int64"),
    _row("ArchivedRecords", "int64"),
]  # fmt: skip


def _own(key: int, kind: str, name: str, fields: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "apiKey": key,
        "type": kind,
        "name": name,
        "validVersions": "0",
        "flexibleVersions": "0+",
        "fields": fields,
    }


OWN: Final = [
    _own(
        20_000, "request", "ListClientsRequest",
        [*_FILTER, _row("OnlyProducers", "bool", tag=0, taggedVersions="0+", default="false", ignorable=True)],
    ),
    _own(
        20_000, "response", "ListClientsResponse", [*_FAILURE, _row("Clients", "[]ListedClient", fields=_CLIENT)]
    ),
    _own(20_001, "request", "DisconnectClientsRequest", _FILTER),
    _own(20_001, "response", "DisconnectClientsResponse", [*_FAILURE, _row("Closed", "int32")]),
    _own(20_002, "request", "DescribeLostLettersRequest", [_row("Groups", "[]string")]),
    _own(
        20_002, "response", "DescribeLostLettersResponse", [*_FAILURE, _row("Groups", "[]LostLetters", fields=_LOST)]
    ),
    _own(
        20_003, "request", "StoreUserScramCredentialsRequest",
        [_row("Credentials", "[]StoredScramCredential", fields=_CREDENTIAL)],
    ),
    _own(
        20_003, "response", "StoreUserScramCredentialsResponse",
        [_row("ThrottleTimeMs", "int32"), _row("Results", "[]StoreUserScramCredentialsResult", fields=_STORED)],
    ),
    _own(20_004, "request", "DescribeSharePartitionsRequest", [_row("Groups", "[]string")]),
    _own(
        20_004, "response", "DescribeSharePartitionsResponse",
        [*_FAILURE, _row("Partitions", "[]DescribedSharePartition", fields=_SHARED)],
    ),
]  # fmt: skip
"""Keys far above Kafka's. ApiVersions names them to Ottla's own commands only."""


def definitions(jars: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """The message definitions in `jars`, as Kafka's code generator reads them."""
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            for name in sorted(archive.namelist()):
                if _DEFINITION.fullmatch(name):
                    yield json.loads(_COMMENT.sub("", archive.read(name).decode()))


def _field(field: Mapping[str, Any], common: Mapping[str, Any], struct: str, message: str) -> str:
    field = {**field, **CHANGES.get(f"{struct}.{field['name']}", {})}
    below = field.get("fields") or common.get(field["type"].removeprefix("[]"))
    kind = field["type"].removeprefix("[]")
    renamed = STRUCTS.get(f"{message} {kind}", kind)
    versions = field.get("versions") or field["taggedVersions"]
    parts = [field["name"], field["type"].removesuffix(kind) + renamed, versions]
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
    if field.get("secret"):
        parts.append("*")
    if field.get("flexibleVersions") == "none":
        parts.append("!")
    text = " ".join(parts)
    return f"{text} {{{_fields(below, common, renamed, message)}}}" if below is not None else text


def _fields(fields: Iterable[Mapping[str, Any]], common: Mapping[str, Any], struct: str, message: str) -> str:
    return "; ".join(_field(each, common, struct, message) for each in fields)


def line(message: Mapping[str, Any]) -> str:
    """`Name kind key versions flexible-versions: fields`. A key of - is none."""
    common = {each["name"]: each["fields"] for each in message.get("commonStructs", ())}
    flexible = message.get("flexibleVersions", "none")
    name, _, _ = message["name"].partition("@")
    fields = [*message.get("fields", ()), *OWN_FIELDS.get(name, ())]
    head = f"{message['name']} {message['type']} {message.get('apiKey', '-')} {message['validVersions']} {flexible}"
    return f"{head}: {_fields(fields, common, name, name)}".rstrip()


def _ends(message: Mapping[str, Any]) -> tuple[int, int]:
    first, _, last = message["validVersions"].partition("-")
    return int(first), int(last or first)


def _of_versions(fields: Iterable[Mapping[str, Any]], first: int, last: int) -> list[dict[str, Any]]:
    """The fields that some of these versions have."""
    found = []
    for each in fields:
        low, dash, high = (each.get("versions") or each["taggedVersions"]).rstrip("+").partition("-")
        open_ended = (each.get("versions") or each["taggedVersions"]).endswith("+")
        if int(low) <= last and (open_ended or int(high if dash else low) >= first):
            below = {"fields": _of_versions(each["fields"], first, last)} if "fields" in each else {}
            found.append({**each, **below})
    return found


def marked(
    release: str, ours: Mapping[str, Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """What another release has beside ours: messages and versions of a newer one, versions before the first of ours."""
    newer = float(release) > 4
    early = {each["apiKey"] for each in theirs if each.get("latestVersionUnstable")}
    for message in theirs:
        known = ours.get(message["name"])
        if message["validVersions"] == "none" or line(message) == (known and line(known)):
            continue
        first, last = _ends(message)
        if newer and known is not None and last > _ends(known)[1]:
            first = _ends(known)[1] + 1
        elif not newer:
            if known is None or first >= _ends(known)[0] or message.get("apiKey") in early:
                continue  # what brokers with ZooKeeper had, and early access
            last = _ends(known)[0] - 1
        yield {
            **message,
            "name": f"{message['name']}@{release}",
            "validVersions": str(first) if first == last else f"{first}-{last}",
            "fields": _of_versions(message.get("fields", ()), first, last),
            "commonStructs": [
                {**each, "fields": _of_versions(each["fields"], first, last)}
                for each in message.get("commonStructs", ())
            ],
        }


def rendered(jars: Sequence[Path], others: Mapping[str, Sequence[Path]] | None = None) -> dict[Path, str]:
    """The texts of the tables."""
    every = [*definitions(jars), *OWN, *OWN_RECORDS]
    ours = {each["name"]: each for each in every if each["validVersions"] != "none"}
    lines = [line(each) for each in ours.values()]
    for release, of_it in (others or {}).items():
        lines += map(line, marked(release, ours, [*definitions(of_it)]))
    for each in (TABLE.read_text() + RECORDS.read_text()).splitlines():
        mark = each.partition(" ")[0].partition("@")[2]
        if mark and mark not in (others or {}):
            lines.append(each)
    parts: dict[Path, list[str]] = {TABLE: [], RECORDS: []}
    for each in sorted(lines):
        parts[TABLE if each.split(" ", 2)[1] in OF_APIS else RECORDS].append(each)
    return {path: HEADS[path] + "".join(each + "\n" for each in part) + '"""\n' for path, part in parts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--other", nargs="+", action="append", default=[], metavar=("RELEASE", "JARS"))
    parser.add_argument("jars", nargs="+", type=Path)
    arguments = parser.parse_args()
    others = {release: [Path(jar) for jar in jars] for release, *jars in arguments.other}
    for path, text in rendered(arguments.jars, others).items():
        if not arguments.check:
            path.write_text(text)
        elif path.read_text() != text:
            raise SystemExit(f"{path.name} is stale: python -m tools.protocol_schemas writes it again")


if __name__ == "__main__":
    main()
