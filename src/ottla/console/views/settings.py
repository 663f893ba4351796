"""Settings in words: what differs from the default, what it means, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.config import definitions
from ottla.config.explained import BROKER, DEFAULT_SOURCE, TOPIC, Entry, entry_of, find, meaning
from ottla.config.setting import Setting
from ottla.console.brokers import ensure_none
from ottla.protocol.messages import ApiKey

_TABLES: Final[Mapping[int, Mapping[str, Setting]]] = {TOPIC: definitions.TOPIC, BROKER: definitions.BROKER}


@dataclass(frozen=True)
class SettingRow:
    name: str
    value: str | None
    """None for a secret, which brokers do not show, and for a setting that has no value."""
    meaning: str
    """The value with its unit, such as `7 days`; empty where that says nothing more."""
    default: str | None
    """None where the broker does not tell it."""
    differs: bool
    """Whether it was set anywhere: for this topic or broker, for all brokers, or in start-up settings."""
    is_own: bool
    """Whether it was set for this topic or broker alone."""
    where: str
    is_secret: bool
    is_read_only: bool
    what: str
    """What the setting does, in words; empty for one that this program does not know."""


def rows_of(result: Mapping[str, Any]) -> list[SettingRow]:
    """A result of DescribeConfigs, what differs first. Raises KafkaError."""
    ensure_none(ApiKey.DESCRIBE_CONFIGS, result, result["resource_name"])
    kind = result["resource_type"]
    rows = [_row(kind, entry_of(each)) for each in result["configs"]]
    return sorted(rows, key=lambda each: (not each.is_own, not each.differs, each.name))


def _row(kind: int, entry: Entry) -> SettingRow:
    setting = find(entry.name, _TABLES.get(kind, {}))
    # A broker's setting behind it may have another unit: retention.ms follows log.retention.hours.
    defaults = (each.value for each in entry.layers if each.source == DEFAULT_SOURCE and each.name == entry.name)
    default = next(defaults, None)
    if default is None and setting is not None:
        default = setting.default
    return SettingRow(
        entry.name,
        None if entry.sensitive else entry.value,
        "" if entry.sensitive else meaning(entry.name, entry.value),
        None if entry.sensitive else default,
        entry.source != DEFAULT_SOURCE,
        entry.source in (1, 2),
        entry.where,
        entry.sensitive,
        entry.read_only,
        "" if setting is None else setting.doc,
    )
