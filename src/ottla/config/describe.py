"""The settings of a resource as DescribeConfigs lists them: value, where it comes from, and what else would decide.

Pure counterpart of Kafka's `ConfigHelper`; the handler adds errors and filters. Entries are mappings with the names of
the newest response version.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from ottla.config import definitions, foreign
from ottla.config.checks import InvalidValue
from ottla.config.effective import EffectiveConfig
from ottla.config.setting import Mode, Setting

if TYPE_CHECKING:

    class Entry(TypedDict, total=False):
        """A row of a DescribeConfigs response."""

        name: str
        value: str | None
        read_only: bool
        config_source: int
        is_sensitive: bool
        synonyms: Sequence[Synonym]
        config_type: int
        documentation: str | None

    class Synonym(TypedDict, total=False):
        name: str
        value: str | None
        source: int


class Source(enum.IntEnum):
    """The source of a value, as numbered by DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_CLUSTER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


_RETENTION = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
_BROKER_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.hours": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    **dict.fromkeys(_RETENTION, _RETENTION),
}
"""Settings of a broker that mean the same in several units (`DynamicBrokerConfig.brokerConfigSynonyms`)."""


def topic_entries(config: EffectiveConfig, overrides: Mapping[str, str]) -> Iterator[Entry]:
    """Every setting of a topic on this node, given the topic's own."""
    defaults = config.topic_defaults()
    for name in [*definitions.TOPIC, *(overrides.keys() - definitions.TOPIC.keys())]:
        setting = definitions.TOPIC.get(name)
        if setting is not None and setting.internal and name not in overrides:
            continue
        synonyms = []
        if broker_names := definitions.TOPIC_SYNONYMS.get(name):
            synonyms = _broker_synonyms(config, broker_names[0].name)
        value = _shown(setting, overrides.get(name, defaults.get(name)))
        if name in overrides:
            synonyms.insert(0, _synonym(name, value, Source.TOPIC))
        yield _entry(setting, name, value, synonyms)


_KNOWN: Mapping[str, Setting] = {**definitions.BROKER, **definitions.THROTTLES}


def broker_entries(config: EffectiveConfig) -> Iterator[Entry]:
    """Every setting of this node, those outside the table included."""
    public = [name for name, setting in definitions.BROKER.items() if not setting.internal]
    given = {*config.static, *config.cluster_wide, *config.per_broker}
    for name in [*public, *sorted(given - set(public))]:
        setting = definitions.BROKER.get(name)
        value = None if setting is None or setting.sensitive or _is_provided(config, name) else config.text(name)
        if name in foreign.PLUGIN_NAMES:  # Kafka hides whatever it does not know
            yield {**_entry(None, name, config.static.get(name), []), "is_sensitive": False, "read_only": True}
            continue
        if name in definitions.THROTTLES:
            value = config.per_broker.get(name, config.cluster_wide.get(name, config.static.get(name)))
        read_only = setting is None or setting.mode is Mode.READ_ONLY
        entry = _entry(_KNOWN.get(name), name, value, _broker_synonyms(config, name), read_only=read_only)
        yield {**entry, "is_sensitive": True} if _is_provided(config, name) else entry


def _is_provided(config: EffectiveConfig, name: str) -> bool:
    """Whether the value in effect comes from one of `config.providers`, and so is a secret whatever the setting."""
    return type(config.static.get(name, "")) is not str and name not in {**config.cluster_wide, **config.per_broker}


def cluster_entries(config: EffectiveConfig) -> Iterator[Entry]:
    """The dynamic settings of all brokers."""
    for name, text in config.cluster_wide.items():
        setting = _KNOWN.get(name)
        value = None if setting is None or setting.sensitive else text
        synonyms = [_synonym(name, value, Source.DYNAMIC_CLUSTER)]
        read_only = name not in definitions.BROKER or definitions.BROKER[name].mode is Mode.READ_ONLY
        yield _entry(setting, name, value, synonyms, read_only=read_only)


_TASK_ASSIGNORS = "group.streams.assignors"
"""Its first is the default of a group's `streams.assignor.name`."""


def group_entries(config: EffectiveConfig, overrides: Mapping[str, str]) -> Iterator[Entry]:
    """Every setting of a group, given its own; the defaults are the node's `group.` settings of the same name.

    Internal ones are described where the group or the node has a value of them, as Kafka does.
    """
    from ottla.config.group_settings import task_assignors  # few groups have settings

    given = {*config.static, *config.cluster_wide, *config.per_broker}
    for name, setting in definitions.GROUP.items():
        broker_name = _TASK_ASSIGNORS if name == "streams.assignor.name" else f"group.{name}"
        if setting.internal and name not in overrides and broker_name not in given:
            continue
        if broker_name in definitions.BROKER:
            is_assignor = broker_name == _TASK_ASSIGNORS
            default = task_assignors(config)[0] if is_assignor else config.text(broker_name)
            synonyms = _broker_synonyms(config, broker_name)
        else:
            default = setting.default
            synonyms = [_synonym(name, default, Source.DEFAULT)]
        value = _shown(setting, overrides.get(name, default))
        if name in overrides:
            synonyms.insert(0, _synonym(name, value, Source.GROUP))
        yield _entry(setting, name, value, synonyms)


def client_metrics_entries(overrides: Mapping[str, str]) -> Iterator[Entry]:
    """Every setting of a client metrics subscription (KIP-714), given its own."""
    for name, setting in definitions.CLIENT_METRICS.items():
        value = _shown(setting, overrides.get(name, setting.default))
        synonyms = [_synonym(name, value, Source.CLIENT_METRICS)] if name in overrides else []
        yield _entry(setting, name, value, synonyms)


def logger_entries(levels: Iterable[tuple[str, str]]) -> Iterator[Entry]:
    """The loggers of the process, given their names and levels."""
    for name, level in levels:
        yield {**_entry(None, name, level, []), "config_source": Source.BROKER_LOGGER, "is_sensitive": False}


def _entry(
    setting: Setting | None, name: str, value: str | None, synonyms: list[Synonym], *, read_only: bool = False
) -> Entry:
    """An unknown setting may hold a secret, so that its value never shows (`KafkaConfig.maybeSensitive`)."""
    return {
        "name": name,
        "value": value,
        "read_only": read_only,
        "config_source": synonyms[0]["source"] if synonyms else Source.DEFAULT,
        "is_sensitive": setting is None or setting.sensitive,
        "synonyms": synonyms,
        "config_type": 0 if setting is None else setting.type,
        "documentation": None if setting is None else setting.doc,
    }


def _synonym(name: str, value: str | None, source: Source) -> Synonym:
    return {"name": name, "value": value, "source": source}


def _shown(setting: Setting | None, text: str | None) -> str | None:
    """A value in the form that parsing and printing gives it; as it is where it does not parse."""
    if setting is None or setting.sensitive or text is None:
        return None
    try:
        return setting.render(setting.parse(text))
    except InvalidValue:
        return text


def _broker_synonyms(config: EffectiveConfig, name: str) -> list[Synonym]:
    """Everything that decides on a broker setting, the deciding one first.

    Kafka drops what stands before the first entry of the setting's own name, and so everything if it has none.
    """
    names = _BROKER_SYNONYMS.get(name, (name,))
    defaults = {each: setting.default for each in names if (setting := definitions.BROKER.get(each)) is not None}
    layers: tuple[tuple[Mapping[str, str | None], Source], ...] = (
        (config.per_broker, Source.DYNAMIC_BROKER),
        (config.cluster_wide, Source.DYNAMIC_CLUSTER),
        (config.static, Source.STATIC_BROKER),
        (defaults, Source.DEFAULT),
    )
    found: list[Synonym] = []
    for values, source in layers:
        for each in names:
            text = values.get(each)
            if text is not None and (found or each == name):
                setting = _KNOWN.get(each)
                hidden = setting is None or setting.sensitive or type(text) is not str
                found.append(_synonym(each, None if hidden else text, source))
    return found
