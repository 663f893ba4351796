"""What holds for one group: its own settings (IncrementalAlterConfigs of a GROUP), brought within the bounds that the
broker has now; where it has none, the broker's (Kafka's `GroupConfig.evaluate`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla.config import definitions


class Bounds(NamedTuple):
    """The broker's settings that a group's has its value from, or lies between."""

    default: str
    low: str | None = None
    high: str | None = None


_BOUNDS: Final = {
    "share.session.timeout.ms": Bounds(
        "group.share.session.timeout.ms",
        "group.share.min.session.timeout.ms",
        "group.share.max.session.timeout.ms",
    ),
    "share.heartbeat.interval.ms": Bounds(
        "group.share.heartbeat.interval.ms",
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
    ),
    "share.assignment.interval.ms": Bounds(
        "group.share.assignment.interval.ms",
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
    ),
    "share.record.lock.duration.ms": Bounds(
        "group.share.record.lock.duration.ms",
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    "share.delivery.count.limit": Bounds(
        "group.share.delivery.count.limit",
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    ),
    "share.partition.max.record.locks": Bounds(
        "group.share.partition.max.record.locks",
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
    "streams.session.timeout.ms": Bounds(
        "group.streams.session.timeout.ms",
        "group.streams.min.session.timeout.ms",
        "group.streams.max.session.timeout.ms",
    ),
    "streams.heartbeat.interval.ms": Bounds(
        "group.streams.heartbeat.interval.ms",
        "group.streams.min.heartbeat.interval.ms",
        "group.streams.max.heartbeat.interval.ms",
    ),
    "streams.assignment.interval.ms": Bounds(
        "group.streams.assignment.interval.ms",
        "group.streams.min.assignment.interval.ms",
        "group.streams.max.assignment.interval.ms",
    ),
    "streams.num.standby.replicas": Bounds(
        "group.streams.num.standby.replicas", high="group.streams.max.standby.replicas"
    ),
    "streams.initial.rebalance.delay.ms": Bounds("group.streams.initial.rebalance.delay.ms"),
}


def group_setting(own: Mapping[str, str], config: Mapping[str, Any], name: str) -> Any:
    """The typed value of `name` ("share.record.lock.duration.ms") for a group whose own settings are `own`."""
    setting = definitions.GROUP[name]
    text, bounds = own.get(name), _BOUNDS.get(name)
    if bounds is None:
        return setting.parse(str(setting.default) if text is None else text)
    if text is None:
        return config[bounds.default]
    value: Any = setting.parse(text)
    if bounds.low is not None:
        value = max(value, config[bounds.low])
    return value if bounds.high is None else min(value, config[bounds.high])
