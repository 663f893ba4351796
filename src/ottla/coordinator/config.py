"""The settings that groups depend on, under Kafka's names in snake case and with its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

from ottla.model import Millis

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""A new member may wait this long in its first rebalance, however short its session (Kafka has no setting for it)."""


class Settings(Protocol):
    def __getitem__(self, name: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class GroupConfig:
    min_session_timeout_ms: Millis = 6_000
    max_session_timeout_ms: Millis = 1_800_000
    max_size: int = 2_147_483_647
    """Members of one group."""
    initial_rebalance_delay_ms: Millis = 3_000
    """How long an empty group waits for more members after the first."""
    offsets_retention_ms: Millis = 7 * 24 * 3_600_000
    offsets_retention_check_interval_ms: Millis = 600_000
    offset_metadata_max_bytes: int = 4_096
    consumer_session_timeout_ms: Millis = 45_000
    share_session_timeout_ms: Millis = 45_000
    streams_session_timeout_ms: Millis = 45_000
    """How long the members that Kafka left in a group of a newer protocol stay in it."""

    @classmethod
    def from_settings(cls, settings: Settings) -> GroupConfig:
        """From a node's typed settings."""
        found = {field: settings[name] for field, name in _SETTINGS.items()}
        return cls(offsets_retention_ms=settings["offsets.retention.minutes"] * 60_000, **found)


_SETTINGS: Final = {
    "min_session_timeout_ms": "group.min.session.timeout.ms",
    "max_session_timeout_ms": "group.max.session.timeout.ms",
    "max_size": "group.max.size",
    "initial_rebalance_delay_ms": "group.initial.rebalance.delay.ms",
    "offsets_retention_check_interval_ms": "offsets.retention.check.interval.ms",
    "offset_metadata_max_bytes": "offset.metadata.max.bytes",
    "consumer_session_timeout_ms": "group.consumer.session.timeout.ms",
    "share_session_timeout_ms": "group.share.session.timeout.ms",
    "streams_session_timeout_ms": "group.streams.session.timeout.ms",
}
