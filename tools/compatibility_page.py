"""Writes the tables of docs/reference/compatibility.md that the node's own tables give: `python -m
tools.compatibility_page docs/reference/compatibility.md`. A test fails while they are stale.

What is written by hand on that page, and what `make compatibility` found, stays. `--release 4.5 JARS` notes in
`api_versions.json` which versions a release of Kafka has; the page says of each which release brought it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from ottla.config.tables.without_effect import WITHOUT_EFFECT
from ottla.errors import ErrorCode
from ottla.metadata import features
from ottla.protocol.messages import ApiKey
from ottla.protocol.schemas.records import TABLE as RECORDS
from ottla.server.controller_handlers import CONTROLLER_TABLE
from ottla.server.handlers import TABLE, Served
from tools import protocol_schemas

VERSIONS: Final = Path(__file__).with_name("api_versions.json")
"""Release to the last stable version of each API, oldest first."""

NOTES: Final[Mapping[int, str]] = {
    0: "Versions 0 to 2 are advertised, as Kafka does for old librdkafka, and refused.",
    1: "Long poll, incremental sessions (KIP-227), topic ids, fetch from any offset.",
    2: "Earliest, latest, timestamp, max timestamp, local and tiered specials.",
    3: "Creates topics on first use where allowed.",
    10: "Groups, transactional ids and share-partitions.",
    11: "Classic protocol.",
    17: "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI.",
    18: "A controller's listener refuses clients that mean another node too, where Kafka's takes them.",
    22: "Version 6 (two-phase commit) is not stable in Kafka 4.3 and 4.4.",
    43: "Preferred and unclean.",
    66: "Patterns in RE2's syntax.",
    49: "An ip entity is an address; Kafka also takes the names of hosts.",
    71: "Offered once there is a subscription: [metrics of clients](../production/monitoring.md#metrics-of-clients).",
    72: "What is decompressed is bounded by telemetry.max.bytes too.",
    83: "For brokers, as the four below: the share coordinator.",
    88: "Warm-up tasks and racks of standbys take effect, of which Kafka 4.4 has only the settings. Like Kafka 4.4, no "
    "regular expressions for topics yet.",
    93: "A node keeps the description with the group; Kafka needs a plug-in for that.",
}
"""What a reader should know of an API of a broker, by its key."""


def camel(key: int) -> str:
    """An API's name as Kafka writes it."""
    return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))


def came_with(key: int, low: int, high: int) -> str:
    """Which release brought the versions from `low` to `high`: `4.0; 13 with 4.1`. Nothing for what the
    oldest release of the file has."""
    releases: Mapping[str, Mapping[str, int]] = json.loads(VERSIONS.read_text())
    found: list[str] = []
    before, oldest = -1, next(iter(releases))
    for release, last_of in releases.items():
        last = min(last_of.get(str(key), -1), high)
        if last > before:
            first = max(before + 1, low)
            if release != oldest:
                what = str(first) if first == last else f"{first}-{last}"
                found.append(release if before < low and last == high else f"{what} with {release}")
            before = last
    return "; ".join(found)


def apis(table: Mapping[int, Served], notes: Mapping[int, str]) -> Iterator[str]:
    yield "| API (key) | versions | came with Kafka | notes |"
    yield "|---|---|---|---|"
    for key, row in sorted(table.items()):
        low, high = row.min_version, row.max_version
        yield f"| {camel(key)} ({key}) | {low}-{high} | {came_with(key, low, high)} | {notes.get(key, '')} |"


def feature_levels() -> Iterator[str]:
    yield "| feature | levels | of a fresh node |"
    yield "|---|---|---|"
    for name, (low, high) in sorted(features.SUPPORTED.items()):
        named = {each.level: f" ({each.name})" for each in features.METADATA_VERSIONS}
        names = named if name == features.METADATA_VERSION else {}
        fresh = features.BOOTSTRAP.get(name, 0)
        yield f"| `{name}` | {low}{names.get(low, '')} to {high}{names.get(high, '')} | {fresh}{names.get(fresh, '')} |"
    for each in features.UNSTABLE_METADATA_VERSIONS:
        yield f"| `{features.METADATA_VERSION}` | {each.level} ({each.name}) | not supported: in no release of Kafka |"


def errors() -> Iterator[str]:
    """All of them in a paragraph: a table would be longer than the page."""
    yield ", ".join(f"{each.name.upper()} ({int(each)})" for each in sorted(ErrorCode)) + "."


def records() -> Iterator[str]:
    yield "| record | kind | number | versions |"
    yield "|---|---|---|---|"
    kinds = {
        "metadata": "`__cluster_metadata`",
        "coordinator-key": "key of a coordinator",
        "coordinator-value": "its value",
    }
    for line in RECORDS.splitlines():
        name, kind, number, versions, *_ = [*line.partition(":")[0].split(), "", "", "", ""]
        if kind in kinds and "@" not in name:
            yield f"| {name} | {kinds[kind]} | {number} | {versions} |"


def without_effect() -> Iterator[str]:
    """By reason: many settings share one."""
    yield "| settings | why they do nothing |"
    yield "|---|---|"
    by_reason: dict[str, list[str]] = {}
    for name, why in WITHOUT_EFFECT.items():
        by_reason.setdefault(why, []).append(f"`{name}*`" if name.endswith(".") else f"`{name}`")
    for why, names in by_reason.items():
        yield f"| {', '.join(names)} | {why} |"


SECTIONS: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "APIs of brokers": lambda: apis(TABLE, NOTES),
    "APIs of controllers": lambda: apis(CONTROLLER_TABLE, {}),
    "features": feature_levels,
    "errors": errors,
    "records": records,
    "settings without effect": without_effect,
}


def page_with_tables(page: str) -> str:
    """The page with every section between its two marks. Raises ValueError where a mark is missing."""
    for name, section in SECTIONS.items():
        begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
        head, found, rest = page.partition(begin)
        _, closed, tail = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"the page has no marks for {name}")
        page = f"{head}{begin}\n" + "\n".join(section()) + f"\n{end}{tail}"
    return page


def note_release(release: str, jars: list[Path]) -> None:
    """Add the versions of a release to `api_versions.json`."""
    last: dict[str, int] = {}
    for message in protocol_schemas.definitions(jars):
        if message["type"] == "request" and message["validVersions"] != "none":
            version = int(message["validVersions"].rpartition("-")[2]) - bool(message.get("latestVersionUnstable"))
            if version >= 0:
                last[str(message["apiKey"])] = version
    known = json.loads(VERSIONS.read_text()) if VERSIONS.exists() else {}
    known[release] = dict(sorted(last.items(), key=lambda each: int(each[0])))
    ordered = dict(sorted(known.items(), key=lambda each: [int(part) for part in each[0].split(".")]))
    rows = ",\n".join(f' "{name}": {json.dumps(versions)}' for name, versions in ordered.items())
    VERSIONS.write_text("{\n" + rows + "\n}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", help="note the versions of this release instead")
    parser.add_argument("paths", nargs="+", type=Path, help="the page, or with --release the jars of Kafka")
    arguments = parser.parse_args()
    if arguments.release:
        note_release(arguments.release, arguments.paths)
        return
    (page,) = arguments.paths
    page.write_text(page_with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
