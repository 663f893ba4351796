"""What holds for one group: its own settings (IncrementalAlterConfigs of a GROUP), brought within the bounds that the
broker has now; where it has none, the broker's (Kafka's `GroupConfig.evaluate`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.config import definitions


class Bounds(NamedTuple):
    """The broker's settings that a group's has its value from, or lies between; None where there is none."""

    default: str | None
    low: str | None
    high: str | None


def _bounds(name: str) -> Bounds:
    kind, _, rest = name.partition(".")
    rest = rest.removeprefix("num.")
    names = (f"group.{name}", f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}")
    return Bounds(*(each if each in definitions.BROKER else None for each in names))


BOUNDS: Final[Mapping[str, Bounds]] = {name: _bounds(name) for name in definitions.GROUP}


def group_setting(own: Mapping[str, str], config: Mapping[str, Any], name: str) -> Any:
    """The typed value of `name` ("share.record.lock.duration.ms") for a group whose own settings are `own`."""
    setting, bounds = definitions.GROUP[name], BOUNDS[name]
    text = own.get(name)
    if text is None:
        if bounds.default is not None:
            return config[bounds.default]
        return None if setting.default is None else setting.parse(setting.default)
    value: Any = setting.parse(text)
    if bounds.low is not None:
        value = max(value, config[bounds.low])
    return value if bounds.high is None else min(value, config[bounds.high])


_TASK_ASSIGNOR_CLASSES: Final = {"org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor": "sticky"}


def task_assignors(broker: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the task assignors in `group.streams.assignors`, which may also name Kafka's class."""
    return tuple(dict.fromkeys(_TASK_ASSIGNOR_CLASSES.get(each, each) for each in broker["group.streams.assignors"]))
