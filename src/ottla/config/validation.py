"""What may be written into the settings of a topic, a broker, a group: used by the controller before it records them.

Refusals are `KafkaError(INVALID_CONFIG)` with Kafka's sentences (`LogConfig.validate`, `ConfigDef`).
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.config import definitions
from ottla.config.checks import InvalidValue, Value
from ottla.config.setting import Setting
from ottla.errors import ErrorCode, KafkaError


def validate_topic_config(name: str, value: str) -> Value:
    """The typed value of one topic setting. Raises KafkaError INVALID_CONFIG."""
    return _validate(definitions.TOPIC, name, value, f"Unknown topic config name: {name}")


def validate_topic_configs(configs: Mapping[str, str], defaults: Mapping[str, str | None]) -> None:
    """Check all overrides of a topic, alone and together with the node's `defaults` for the rest.

    Raises KafkaError INVALID_CONFIG.
    """
    for name, value in configs.items():
        validate_topic_config(name, value)
    effective = {**{name: text for name, text in defaults.items() if text is not None}, **configs}
    shortest, longest = effective["min.compaction.lag.ms"], effective["max.compaction.lag.ms"]
    if int(shortest) > int(longest):
        raise _invalid(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
        )


def _validate(table: Mapping[str, Setting], name: str, value: str, unknown: str) -> Value:
    setting = table.get(name)
    if setting is None:
        raise _invalid(unknown)
    try:
        return setting.parse(value)
    except InvalidValue as error:
        raise _invalid(str(error)) from error


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_config, message)
