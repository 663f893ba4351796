"""The settings of a node that are in effect, as a value: static ones with the dynamic ones of the metadata on top."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.config import definitions
from ottla.config.checks import InvalidValue, Value
from ottla.config.setting import Mode
from ottla.config.typed import TypedSettings


def setting_of(config: TypedSettings, attribute: str) -> Any:
    """The value of the setting that `TypedSettings` names so. Raises AttributeError for a name that is none."""
    name = attribute.replace("_", ".")  # Kafka's names have no underscores
    if name not in definitions.BROKER:
        raise AttributeError(f"{type(config).__name__} has no attribute {attribute}")
    return config[name]


class EffectiveConfig(TypedSettings):
    """Never changes: a dynamic change makes another one."""

    def __init__(
        self, static: Mapping[str, str], cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]
    ) -> None:
        """Names to texts, which have been checked; `per_broker` decides before `cluster_wide` before `static`."""
        self.static = static
        self.cluster_wide = cluster_wide
        self.per_broker = per_broker
        self.parsed: dict[str, Any] = {}
        """Values that somebody asked for before."""
        self._topic_defaults: dict[str, str | None] | None = None

    def __getitem__(self, name: str) -> Any:
        """The typed value, None where there is neither value nor default. Raises KeyError for an unknown name."""
        try:
            return self.parsed[name]
        except KeyError:
            value = self.parsed[name] = self._effective(name)
            return value

    if not TYPE_CHECKING:  # else every attribute would exist

        def __getattr__(self, attribute: str) -> Any:
            value = setting_of(self, attribute)
            self.__dict__[attribute] = value
            return value

    def __iter__(self) -> Iterator[str]:
        return iter(definitions.BROKER)

    def __len__(self) -> int:
        return len(definitions.BROKER)

    def _effective(self, name: str) -> Value:
        setting = definitions.BROKER[name]
        for source in (self.per_broker, self.cluster_wide):
            text = source.get(name)
            if text is not None and setting.mode is not Mode.READ_ONLY:
                try:
                    return setting.parse(text)
                except InvalidValue:  # a record of a newer controller; Kafka too keeps what it had
                    continue
        text = self.static.get(name, setting.default)
        return None if text is None else setting.parse(text)

    def text(self, name: str) -> str | None:
        """The value as DescribeConfigs shows it."""
        return definitions.BROKER[name].render(self[name])

    def topic_defaults(self) -> Mapping[str, str | None]:
        """Every topic setting's default on this node, as text: from its broker synonyms, else from the table."""
        if self._topic_defaults is None:
            self._topic_defaults = {
                name: next(self._synonym_texts(name), setting.default) for name, setting in definitions.TOPIC.items()
            }
        return self._topic_defaults

    def _synonym_texts(self, topic_setting: str) -> Iterator[str | None]:
        for synonym in definitions.TOPIC_SYNONYMS.get(topic_setting, ()):
            value = self[synonym.name]
            if value is None:
                continue
            if synonym.millis is not None:
                yield str(value * synonym.millis if value >= 0 else value)
            else:
                yield definitions.BROKER[synonym.name].render(value)
