"""What a release of Kafka says of itself: messages from the JSON in its jars, the rest from `KafkaTables.java` run on
them. For `tools.kafka_diff` and `tools.kafka_gap`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from peers import kafka
from tools import protocol_schemas
from tools.kafka_metrics import metric_names

PROGRAM: Final = Path(__file__).with_name("KafkaTables.java")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Release:
    """A release, as its jars tell of it."""

    name: str
    messages: Mapping[str, Row]
    """Definitions by name, as Kafka's code generator reads them; without those that have no version any more."""
    rows: Sequence[Row]
    """What the Java program printed."""
    jars: Sequence[Path] = ()

    def of(self, what: str) -> dict[str, Row]:
        """Rows of a kind (`error`, `feature`, `metadata version`, `dynamic mode`, ...) by name."""
        return {row["name"]: row for row in self.rows if row["what"] == what}

    def settings(self, kind: str) -> dict[str, Row]:
        """Rows of `broker`, `topic`, `group`, `client metrics`, `broker quota`, ... by name, with the dynamic mode of
        a broker's and the synonyms of the others."""
        modes, synonyms = self.of("dynamic mode"), self.of(f"{kind} synonym")
        found: dict[str, Row] = {}
        for row in self.rows:
            if row["what"] == "setting" and row["kind"] == kind:
                name = row["name"]
                more = {"mode": modes.get(name, {"value": "read-only"})["value"]} if kind == "broker" else {}
                if kind in ("topic", "group"):
                    more["default from"] = synonyms.get(name, {"value": None})["value"]
                found[name] = {**row, **more}
        return found

    @property
    def missing(self) -> list[str]:
        """What the Java program did not find: classes move between releases."""
        return [f"{row['name']}: {row['why']}" for row in self.rows if row["what"] == "missing"]

    @cached_property
    def metrics(self) -> dict[str, list[str]]:
        """What looks like the name of a metric, and the classes that have it."""
        return metric_names(self.jars)

    @cached_property
    def apis(self) -> dict[int, Api]:
        """APIs that have a version, by key."""
        found = {}
        for message in self.messages.values():
            if message["type"] == "request":
                first, _, last = message["validVersions"].partition("-")
                found[message["apiKey"]] = Api(
                    message["apiKey"],
                    message["name"].removesuffix("Request"),
                    int(first),
                    int(last or first),
                    bool(message.get("latestVersionUnstable")),
                    tuple(sorted(message.get("listeners", ()))),
                )
        return found


@dataclass(frozen=True)
class Api:
    """Versions of one API. An unstable last version is served only where `unstable.api.versions.enable` is set."""

    key: int
    name: str
    first: int
    last: int
    unstable: bool
    listeners: tuple[str, ...]

    @property
    def last_stable(self) -> int:
        return self.last - self.unstable

    @property
    def versions(self) -> str:
        stable = "none" if self.last_stable < self.first else span(self.first, self.last_stable)
        return f"{stable} ({self.last} unstable)" if self.unstable else stable


def span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def jars(where: str) -> list[Path]:
    """The jars of a folder, or of a release that `peers.kafka` knows. Raises SystemExit."""
    folder = kafka.cache(where) / "libs" if where in kafka.RELEASES else Path(where)
    if where in kafka.RELEASES:
        kafka.install(where)
    found = sorted(folder.glob("*.jar"))
    if not any(each.name.startswith("kafka-clients-") for each in found):
        known = ", ".join(kafka.RELEASES)
        raise SystemExit(f"{where} is neither a folder with the jars of a Kafka nor one of {known}")
    return found


def release(where: str) -> Release:
    """Read the jars of a folder, or of a release that `peers.kafka` knows. Raises SystemExit."""
    of_it = jars(where)
    name = next(each.stem for each in of_it if each.name.startswith("kafka-clients-")).removeprefix("kafka-clients-")
    messages = {each["name"]: each for each in protocol_schemas.definitions(of_it) if each["validVersions"] != "none"}
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{of_it[0].parent}/*", str(PROGRAM)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise SystemExit(f"{PROGRAM.name} failed on the jars of {name}:\n{done.stderr.strip()}")
    return Release(
        name, messages, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")], of_it
    )
