"""What Ottla's own tables lack of a release of Kafka, or say otherwise, as Markdown: `python -m tools.kafka_gap 4.4`.

The release is a folder of jars, or one that `peers.kafka` knows. Compared are versions of APIs, messages, errors,
features, metadata versions and settings; what a setting of Ottla does is not known here (`without_effect.py`).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ottla.config import definitions
from ottla.config.checks import AtLeast, Between, Check, GzipLevel, ListOf, NotEmpty, OneOf
from ottla.config.setting import Setting
from ottla.config.tables.without_effect import why
from ottla.errors import ErrorCode
from ottla.metadata import features
from ottla.protocol.schemas.records import TABLE as RECORDS
from ottla.protocol.schemas.table import TABLE as MESSAGES
from ottla.server.controller_handlers import CONTROLLER_TABLE
from ottla.server.handlers import TABLE, Served
from tools import protocol_schemas
from tools.kafka_diff import shown, table
from tools.kafka_tables import Release, release, span

TABLES: Final[Mapping[str, Mapping[str, Setting]]] = {
    "broker": definitions.BROKER,
    "topic": definitions.TOPIC,
    "group": definitions.GROUP,
    "client metrics": definitions.CLIENT_METRICS,
    "broker quota": definitions.THROTTLES,
}
Gap = tuple[str, str, str]
"""Name, what Ottla has, what the release has."""


def apis(of: Release, served: Mapping[int, Served], listener: str) -> Iterator[Gap]:
    """APIs of a listener, `broker` or `controller`, by their stable versions."""
    for key, api in sorted(of.apis.items()):
        own = served.get(key)
        ours = span(own.min_version, own.max_version) if own else "-"
        if listener not in api.listeners:
            if own:
                yield f"{api.name} ({key})", ours, f"not on the listeners of a {listener}"
            continue
        # Produce says 3 in its schema and advertises 0 (ApiKeys.PRODUCE_API_VERSIONS_RESPONSE_MIN_VERSION).
        first = 0 if api.name == "Produce" else api.first
        theirs = "-" if api.last_stable < first else span(first, api.last_stable)
        if ours != theirs:
            yield f"{api.name} ({key})", ours, theirs


def messages(of: Release) -> Iterator[Gap]:
    """Definitions of messages, as lines of Ottla's table."""
    own = {each.partition(" ")[0]: each for each in (MESSAGES + RECORDS).splitlines() if each}
    for name, message in sorted(of.messages.items()):
        line = protocol_schemas.line(message)
        if own.get(name) != line:
            yield name, own.get(name, "-"), line


def errors(of: Release) -> Iterator[Gap]:
    own = {each.name.upper(): int(each) for each in ErrorCode}
    for name, row in of.of("error").items():
        if own.get(name) != row["code"]:
            yield name, str(own.get(name, "-")), str(row["code"])


def levels(of: Release) -> Iterator[Gap]:
    """The highest level of features that the release uses in production."""
    for name, row in of.of("feature").items():
        highest = features.SUPPORTED.get(name, (0, "-"))[1]
        if highest != row["production"]:
            yield name, str(highest), str(row["production"])


def metadata_versions(of: Release) -> Iterator[Gap]:
    """Ottla's supported and unstable metadata versions against those of the release."""
    supported = {each.name: (each.level, each.changes_records) for each in features.METADATA_VERSIONS}
    unstable = {each.name: (each.level, each.changes_records) for each in features.UNSTABLE_METADATA_VERSIONS}
    for name, row in of.of("metadata version").items():
        own = (supported if row["production"] else unstable).get(name)
        theirs = row["level"], row["changes records"]
        if own != theirs:
            kind = "" if row["production"] else ", not production"
            yield name, "-" if own is None else str(own), f"{theirs}{kind}"


def validator(check: Check | None) -> str | None:
    """A check in the words of Kafka's validators, or None where Kafka's has none for it."""
    if isinstance(check, AtLeast):
        return f"[{check.low},...]"
    if isinstance(check, Between):
        return f"[{check.low},...,{check.high}]"
    if isinstance(check, GzipLevel):
        return "[1,...,9] or -1"
    if isinstance(check, OneOf):
        return f"[{', '.join(check.words)}]"
    if isinstance(check, ListOf):
        return f"[{', '.join(check.words)}]" if check.words else ""
    return "non-empty string" if isinstance(check, NotEmpty) else None


def setting(own: Setting, theirs: Mapping[str, object]) -> Iterator[str]:
    """In what a setting of Ottla differs from Kafka's."""
    if own.type.name != theirs["type"]:
        yield f"type {own.type.name}, not {theirs['type']}"
    if own.default != theirs["default"]:
        yield f"default {shown(own.default)}, not {shown(theirs['default'])}"
    if own.internal != theirs["internal"]:
        yield "internal" if own.internal else "not internal"
    if own.required != theirs["required"]:
        yield "required" if own.required else "not required"
    if "mode" in theirs and own.mode.value != theirs["mode"]:
        yield f"{own.mode.value}, not {theirs['mode']}"
    said = theirs["validator"]
    expected = None if said is None else re.sub(r"^\(case insensitive\) ", "", str(said))
    ours = validator(own.check)
    if ours != expected and (ours, expected) not in _SAME_VALIDATORS and own.name not in _CHECKED_ELSEWHERE:
        yield f"check {own.check}, not {said}"


_SAME_VALIDATORS: Final = {(None, "[partitionId]:[brokerId],[partitionId]:[brokerId],...")}
_CHECKED_ELSEWHERE: Final = {
    "share.auto.offset.reset": "OffsetReset",
    "authorizer.class.name": "text may be empty, and is never null here",
    "controller.quorum.bootstrap.servers": "config/roles.py",
    "controller.quorum.voters": "config/roles.py",
}


def settings(of: Release, kind: str) -> Iterator[Gap]:
    own, theirs = TABLES[kind], of.settings(kind)
    for name in sorted({*own, *theirs}):
        if name not in theirs:
            if not name.startswith("ottla.") and not why(name):
                yield name, "a setting", "-"
        elif name not in own:
            row = theirs[name]
            yield name, "-", f"{row['type']}, default {shown(row['default'])}{', internal' if row['internal'] else ''}"
        elif found := [*setting(own[name], theirs[name])]:
            yield name, "; ".join(found), ""
    if kind == "topic":
        synonyms = {name: ", ".join(each.name for each in found) for name, found in definitions.TOPIC_SYNONYMS.items()}
        for name, row in of.of("topic synonym").items():
            if name in own and synonyms.get(name) != row["value"]:
                yield name, f"default from {synonyms.get(name)}", f"default from {row['value']}"


def gaps(of: Release) -> dict[str, list[Gap]]:
    """Everything, by its heading."""
    return {
        "APIs of a broker": [*apis(of, TABLE, "broker")],
        "APIs of a controller": [*apis(of, CONTROLLER_TABLE, "controller")],
        "Messages": [*messages(of)],
        "Errors": [*errors(of)],
        "Features": [*levels(of)],
        "Metadata versions": [*metadata_versions(of)],
        **{f"Settings: {kind}": [*settings(of, kind)] for kind in TABLES},
    }


def render(of: Release) -> str:
    lines = [f"# What Ottla lacks of Kafka {of.name}", ""]
    lines += [f"- Not found in the jars: {each}" for each in of.missing]
    for title, found in gaps(of).items():
        rows: Sequence[Sequence[str]] = found
        lines += [f"## {title}", "", *(table(("", "Ottla", f"Kafka {of.name}"), rows) or ["Nothing.", ""])]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("release", help="a folder of jars, or a release such as 4.4")
    print(render(release(parser.parse_args().release)), end="")


if __name__ == "__main__":
    main()
