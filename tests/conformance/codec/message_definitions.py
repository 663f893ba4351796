"""Kafka's message definitions, read from its jars: what every request, response and record is made of.

The definitions are JSON with comments, beside the classes that were generated from them.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from peers.kafka import cache as cache_of
from peers.kafka import install

RELEASE: Final = "4.4"
"""Its definitions hold every version of earlier releases too."""
JARS: Final = (
    "kafka-clients", "kafka-group-coordinator", "kafka-metadata", "kafka-raft", "kafka-share-coordinator",
    "kafka-storage", "kafka-transaction-coordinator",
)  # fmt: skip
INTEGERS: Final = {
    "int8": (-(2**7), 2**7 - 1), "int16": (-(2**15), 2**15 - 1), "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1), "int64": (-(2**63), 2**63 - 1),
}  # fmt: skip
SCALARS: Final = {*INTEGERS, "bool", "float64", "uuid", "string", "bytes", "records"}
_VERSION_MAX: Final = 2**15 - 1


def versions(text: str | None) -> range:
    """The versions that a text such as "0-3", "2+", "1" or "none" names."""
    if text is None or text == "none":
        return range(0)
    low, dash, high = text.partition("-")
    if low.endswith("+"):
        return range(int(low[:-1]), _VERSION_MAX + 1)
    return range(int(low), (int(high) if dash else int(low)) + 1)


@dataclass(frozen=True)
class Field:
    name: str
    type: str
    """A scalar's name, or that of a struct; without `[]`."""
    is_array: bool
    versions: range
    nullable: range
    tag: int | None
    tagged: range
    default: str | None
    struct: Struct | None

    def is_tagged(self, version: int) -> bool:
        return self.tag is not None and version in self.tagged


@dataclass(frozen=True)
class Struct:
    fields: tuple[Field, ...]

    def at(self, version: int) -> list[Field]:
        return [field for field in self.fields if version in field.versions]


@dataclass(frozen=True)
class Definition:
    name: str
    type: str
    """`request`, `response`, `metadata`, `data`, `coordinator-key` and so on."""
    api_key: int | None
    versions: range
    flexible: range
    struct: Struct
    java_class: str
    listeners: tuple[str, ...]
    """Listeners of a request: `broker`, `controller`."""
    is_latest_unstable: bool
    """Whether brokers show the newest version only where unstable ones are switched on."""


def _struct(fields: list[dict[str, Any]], common: dict[str, list[dict[str, Any]]]) -> Struct:
    return Struct(tuple(_field(each, common) for each in fields))


def _field(given: dict[str, Any], common: dict[str, list[dict[str, Any]]]) -> Field:
    is_array = given["type"].startswith("[]")
    kind = given["type"].removeprefix("[]")
    struct = None if kind in SCALARS else _struct(given.get("fields") or common[kind], common)
    present = versions(given.get("versions"))
    return Field(
        given["name"],
        kind,
        is_array,
        present,
        versions(given.get("nullableVersions")),
        given.get("tag"),
        versions(given.get("taggedVersions")),
        None if (default := given.get("default")) is None else str(default),
        struct,
    )


def _without_comments(text: str) -> str:
    """The definitions have comments only behind white space, and no string in them has two slashes there."""
    return re.sub(r"(^|\s)//[^\n]*", "", text)


def _definitions(jar: zipfile.ZipFile) -> Iterator[Definition]:
    names = jar.namelist()
    classes = {
        name.rpartition("/")[2].removesuffix("JsonConverter.class"): name.removesuffix("JsonConverter.class")
        for name in names
        if name.endswith("JsonConverter.class") and "$" not in name
    }
    for name in names:
        if not re.fullmatch(r"(common/)?(message|metadata)/\w+\.json", name):
            continue
        given = json.loads(_without_comments(jar.read(name).decode()))
        java = classes.get(given["name"] + "Data") or classes.get(given["name"])
        if java is None:  # of an API that is no more: no class is generated
            continue
        common = {each["name"]: each["fields"] for each in given.get("commonStructs", ())}
        yield Definition(
            given["name"],
            given["type"],
            given.get("apiKey"),
            versions(given["validVersions"]),
            versions(given.get("flexibleVersions")),
            _struct(given["fields"], common),
            java.replace("/", "."),
            tuple(given.get("listeners", ())),
            given.get("latestVersionUnstable", False),
        )


@cache
def definitions() -> tuple[Definition, ...]:
    """All messages of Kafka that a class was generated for, by name."""
    install(RELEASE)
    libs = cache_of(RELEASE) / "libs"
    found: list[Definition] = []
    for prefix in JARS:
        (path,) = (each for each in libs.glob(f"{prefix}-[0-9]*.jar") if "test" not in each.name)
        with zipfile.ZipFile(path) as jar:
            found += _definitions(jar)
    return tuple(sorted(found, key=lambda each: each.name))
