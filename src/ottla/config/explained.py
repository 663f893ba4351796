"""Settings as a broker reports them, and in words as the table of settings explains them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ottla.config import definitions
from ottla.config.setting import Mode, Setting, Type
from ottla.config.tables.without_effect import why
from ottla.config.units import long_time, size

LONG_MAX = (1 << 63) - 1

TOPIC, BROKER, GROUP = 2, 4, 32
"""Resource types of the protocol."""

_SOURCES = {
    1: "topic",
    2: "broker, while running",
    3: "all brokers, while running",
    4: "start-up settings",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
DEFAULT_SOURCE = 5


@dataclass(frozen=True)
class Layer:
    """A place where a setting has a value."""

    name: str
    """The setting's name there: a topic's retention.ms is a broker's log.retention.hours."""
    value: str | None
    source: int

    @property
    def where(self) -> str:
        return _SOURCES.get(self.source, "unknown")


@dataclass(frozen=True)
class Entry:
    """One setting of a topic or broker: its value, and every place that has one, the deciding place first."""

    name: str
    value: str | None
    source: int
    read_only: bool = False
    sensitive: bool = False
    layers: tuple[Layer, ...] = ()

    @property
    def where(self) -> str:
        return _SOURCES.get(self.source, "unknown")

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "value": self.value,
            "source": self.where,
            "read_only": self.read_only,
            "sensitive": self.sensitive,
            "layers": [{"name": each.name, "value": each.value, "source": each.where} for each in self.layers],
        }


def entry_of(row: Mapping[str, Any]) -> Entry:
    """The entry of a row of DescribeConfigs."""
    layers = tuple(Layer(each["name"], each["value"], int(each["source"])) for each in row.get("synonyms") or ())
    return Entry(
        row["name"], row["value"], int(row["config_source"]), bool(row["read_only"]), bool(row["is_sensitive"]), layers
    )


def find(name: str, table: Mapping[str, Setting]) -> Setting | None:
    """A public row of the table."""
    setting = table.get(name)
    return None if setting is None or setting.internal else setting


def near(name: str, *tables: Mapping[str, Setting]) -> list[str]:
    """Names that a mistyped one may have meant."""
    known = sorted({each for table in tables for each, setting in table.items() if not setting.internal})
    close = difflib.get_close_matches(name, known, 3, 0.6)
    return close or [each for each in known if name in each][:5]


def misspelt(names: Iterable[str], table: Mapping[str, Setting], what: str) -> str | None:
    """A sentence about the first name that the table lacks, if it is near to one that it has.

    Other unknown names may be known to the broker, which answers for them.
    """
    for name in names:
        if find(name, table) is None:
            close = difflib.get_close_matches(name, [each for each in table if find(each, table)], 3, 0.6)
            if close:
                return f"there is no setting {name!r} of {what}\n  did you mean: {', '.join(close)}"
    return None


def meaning(name: str, value: str | None) -> str:
    """The meaning of a number, by the unit in its name: `7 days`, `1 GiB`, `no limit`; empty if there is nothing to
    add."""
    if value is None or not value.lstrip("-").isdigit():
        return ""
    number = int(value)
    if number == LONG_MAX:
        return "no limit"
    if number < 0:
        return "no limit" if number == -1 and name.endswith(("retention.ms", "retention.bytes")) else ""
    if name.endswith(".ms") and number >= 1000:
        return long_time(number)
    if name.endswith(".bytes") and number >= 1024:
        return size(number)
    return ""


def with_meaning(name: str, value: str | None) -> str:
    if value is None:
        return "(none)"
    said = meaning(name, value)
    return f"{value or '(empty)'} ({said})" if said else value or "(empty)"


def explain_topic_setting(setting: Setting) -> Iterator[tuple[str, str]]:
    """(heading, text) pairs."""
    yield from _common(setting)
    yield "change", f"at any time, for one topic: ottla config set {setting.name}=VALUE --topic NAME"
    synonyms = definitions.TOPIC_SYNONYMS.get(setting.name, ())
    if synonyms:
        names = ", then ".join(each.name for each in synonyms)
        yield "otherwise", f"a topic without it follows the broker's {names}"


def explain_group_setting(setting: Setting) -> Iterator[tuple[str, str]]:
    """(heading, text) pairs."""
    yield from _common(setting)
    yield "change", f"at any time, for one group: ottla config set {setting.name}=VALUE --group NAME"
    broker = f"group.{setting.name}"
    if broker in definitions.BROKER:
        yield "otherwise", f"a group without it follows the broker's {broker}"


_CHANGE = {
    Mode.READ_ONLY: "only by a restart: in server.properties, with --set, or in the environment as {variable}",
    Mode.PER_BROKER: "while it runs, for one broker: ottla config set {name}=VALUE --broker ID",
    Mode.CLUSTER_WIDE: "while it runs, for all brokers: ottla config set {name}=VALUE --all-brokers",
}


def explain_broker_setting(setting: Setting) -> Iterator[tuple[str, str]]:
    """(heading, text) pairs."""
    from ottla.config.server import variable_of

    yield from _common(setting)
    yield "change", _CHANGE[setting.mode].format(name=setting.name, variable=variable_of(setting.name))
    topics = [
        name for name, synonyms in definitions.TOPIC_SYNONYMS.items() if setting.name in {s.name for s in synonyms}
    ]
    if topics and topics != [setting.name]:
        yield "topics", f"the default of the topic setting {', '.join(topics)}"


def _common(setting: Setting) -> Iterator[tuple[str, str]]:
    yield "what", setting.doc
    reason = why(setting.name)
    if reason is not None:
        yield "note", f"it is accepted and reported, but does nothing. {reason}"
    default = "(required)" if setting.required else with_meaning(setting.name, setting.default)
    yield "default", default
    yield "allowed", f"{setting.allowed} ({setting.type.name.lower()})"
    if setting.type is Type.PASSWORD:
        yield "secret", "brokers never show it"


def explain_layers(entry: Entry) -> list[str]:
    """Where a value comes from, one line for each place, the deciding one first."""
    if not entry.layers:
        return [f"{with_meaning(entry.name, entry.value)}, from: {entry.where}"]
    lines = []
    for number, layer in enumerate(entry.layers):
        name = "" if layer.name == entry.name else f"{layer.name}="
        value = "(hidden)" if entry.sensitive else with_meaning(layer.name, layer.value)
        lines.append(f"{name}{value}, from: {layer.where}{'   <- decides' if number == 0 and entry.layers[1:] else ''}")
    return lines
