"""What clients are asked to push: the subscriptions, resources of the type CLIENT_METRICS (Kafka's
`ClientMetricsManager`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from ottla.config import definitions
from ottla.protocol.crc32c import crc32c
from ottla.protocol.regular_expression import InvalidRegularExpression, RegularExpression

INTERVAL_MS_DEFAULT: Final = 5 * 60 * 1000
ALL: Final = "*"
"""Subscribes to all metrics of a client."""

_MASK: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Subscription:
    """One, as its settings say."""

    metrics: tuple[str, ...]
    """Prefixes of names of metrics."""
    interval_ms: int
    match: Mapping[str, RegularExpression] | None
    """By the attribute of the client that has to match; None: a pattern that this node cannot match, so no client."""

    def is_for(self, attributes: Mapping[str, str | None]) -> bool:
        if self.match is None:
            return False
        for name, pattern in self.match.items():
            value = attributes.get(name)
            if value is None or not pattern.matches(value):
                return False
        return True


def subscription(configs: Mapping[str, str]) -> Subscription:
    """A subscription from its settings, which were checked when they were set; but Kafka takes patterns that RE2 does
    not."""
    values: dict[str, Any] = {
        name: setting.parse(configs.get(name, setting.default or "")) for name, setting in _SETTINGS.items()
    }
    match: dict[str, RegularExpression] = {}
    try:
        for each in values["match"]:
            selector, _, expression = each.partition("=")
            match[selector.strip()] = RegularExpression(expression.rstrip("=").strip())
    except InvalidRegularExpression:
        return Subscription(values["metrics"], values["interval.ms"], None)
    return Subscription(values["metrics"], values["interval.ms"], match)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What all subscriptions together want of one client."""

    metrics: tuple[str, ...]
    interval_ms: int
    id: int
    """The same for the same metrics, interval and client, on every broker (of Kafka's too)."""


def wanted(subscriptions: Mapping[str, Subscription], attributes: Mapping[str, str | None], instance: UUID) -> Wanted:
    interval_ms = INTERVAL_MS_DEFAULT
    metrics: dict[str, None] = {}
    for name in in_javas_order(subscriptions):
        each = subscriptions[name]
        if each.is_for(attributes):
            metrics.update(dict.fromkeys(each.metrics))
            interval_ms = min(interval_ms, each.interval_ms)
    chosen = (ALL,) if ALL in metrics else in_javas_order(metrics)
    text = f"[{', '.join(chosen)}]{interval_ms}"
    number = crc32c(text.encode()) ^ javas_hash(instance)
    return Wanted(chosen, interval_ms, number - (1 << 32) if number >> 31 else number)


def javas_hash(instance: UUID) -> int:
    """`Uuid.hashCode`, without a sign."""
    mixed = (instance.int >> 64) ^ (instance.int & (1 << 64) - 1)
    return ((mixed >> 32) ^ mixed) & _MASK


def in_javas_order(names: Iterable[str]) -> tuple[str, ...]:
    """In the order of Java's `HashSet`, given that of their insertion. Kafka's brokers sum up in it what is subscribed
    to: a client that goes from one of them to this broker keeps the id of its subscription."""
    each = [*names]
    buckets = 16
    while len(each) > buckets * 3 // 4:
        buckets *= 2

    def bucket(name: str) -> int:
        number = 0
        raw = name.encode("utf-16-be", "surrogatepass")
        for position in range(0, len(raw), 2):
            number = (31 * number + (raw[position] << 8 | raw[position + 1])) & _MASK
        return (number ^ number >> 16) & (buckets - 1)

    return tuple(sorted(each, key=bucket))


_SETTINGS: Final = definitions.CLIENT_METRICS
