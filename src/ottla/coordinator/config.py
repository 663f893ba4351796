"""The settings that groups depend on, under Kafka's names in snake case and with its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla.config import definitions
from ottla.config.effective import EffectiveConfig
from ottla.config.typed import TypedSettings
from ottla.metadata.image import ConfigResourceType, MetadataImage
from ottla.model import Millis

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""A new member may wait this long in its first rebalance, however short its session (Kafka has no setting for it)."""


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
    consumer_heartbeat_interval_ms: Millis = 5_000
    consumer_assignment_interval_ms: Millis = 1_000
    """Between two target assignments of a group at least."""
    consumer_max_size: int = 2_147_483_647
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The first is the default."""
    consumer_regex_refresh_interval_ms: Millis = 600_000
    migration_policy: str = "bidirectional"
    share_session_timeout_ms: Millis = 45_000
    share: Mapping[str, Any] = field(default_factory=lambda: _settings_of("share", EffectiveConfig({}, {}, {})))
    """The broker's settings of share groups (`group.share.*`)."""
    streams_max_size: int = 2_147_483_647
    streams: Mapping[str, Any] = field(default_factory=lambda: _settings_of("streams", EffectiveConfig({}, {}, {})))
    """The broker's settings of streams groups (`group.streams.*`) that groups may have others for."""

    @classmethod
    def from_settings(cls, settings: TypedSettings) -> GroupConfig:
        """From a node's typed settings."""
        return cls(
            min_session_timeout_ms=settings.group_min_session_timeout_ms,
            max_session_timeout_ms=settings.group_max_session_timeout_ms,
            max_size=settings.group_max_size,
            initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
            offsets_retention_check_interval_ms=settings.offsets_retention_check_interval_ms,
            offset_metadata_max_bytes=settings.offset_metadata_max_bytes,
            consumer_session_timeout_ms=settings.group_consumer_session_timeout_ms,
            consumer_heartbeat_interval_ms=settings.group_consumer_heartbeat_interval_ms,
            consumer_assignment_interval_ms=settings.group_consumer_assignment_interval_ms,
            consumer_max_size=settings.group_consumer_max_size,
            consumer_regex_refresh_interval_ms=settings.group_consumer_regex_refresh_interval_ms,
            migration_policy=settings.group_consumer_migration_policy,
            share_session_timeout_ms=settings.group_share_session_timeout_ms,
            streams_max_size=settings.group_streams_max_size,
            offsets_retention_ms=settings.offsets_retention_minutes * 60_000,
            share=_settings_of("share", settings),
            streams=_settings_of("streams", settings),
            consumer_assignors=tuple(assignor_name(each) for each in settings.group_consumer_assignors),
        )

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group becomes a consumer group when a consumer of the new protocol joins."""
        return self.migration_policy.lower() in ("upgrade", "bidirectional")

    @property
    def may_downgrade(self) -> bool:
        """Whether a consumer group becomes a classic one when all that are left use the classic protocol."""
        return self.migration_policy.lower() in ("downgrade", "bidirectional")

    def of_group(self, image: MetadataImage, group_id: str) -> ConsumerGroupConfig:
        """The settings of one consumer group: its own, and those of the node where it has none."""
        own = image.config(ConfigResourceType.GROUP, group_id)
        if not own:
            return ConsumerGroupConfig(
                self.consumer_session_timeout_ms,
                self.consumer_heartbeat_interval_ms,
                self.consumer_assignment_interval_ms,
            )
        return ConsumerGroupConfig(
            int(own.get("consumer.session.timeout.ms", self.consumer_session_timeout_ms)),
            int(own.get("consumer.heartbeat.interval.ms", self.consumer_heartbeat_interval_ms)),
            int(own.get("consumer.assignment.interval.ms", self.consumer_assignment_interval_ms)),
        )

    def of_share_group(self, image: MetadataImage, group_id: str) -> ShareGroupConfig:
        """The settings of one share group: its own, within the node's bounds, else the node's."""
        from ottla.config.group_settings import group_setting  # for who has such groups

        own = image.config(ConfigResourceType.GROUP, group_id)
        return ShareGroupConfig(
            group_setting(own, self.share, "share.session.timeout.ms"),
            group_setting(own, self.share, "share.heartbeat.interval.ms"),
            group_setting(own, self.share, "share.assignment.interval.ms"),
            self.share["group.share.max.size"],
            self.share["group.share.initialize.retry.interval.ms"],
        )

    def of_streams_group(self, image: MetadataImage, group_id: str) -> StreamsGroupConfig:
        """The settings of one streams group: its own, within the node's bounds, else the node's."""
        from ottla.config.group_settings import group_setting, task_assignors  # for who has such groups

        own = image.config(ConfigResourceType.GROUP, group_id)
        return StreamsGroupConfig(
            group_setting(own, self.streams, "streams.session.timeout.ms"),
            group_setting(own, self.streams, "streams.heartbeat.interval.ms"),
            group_setting(own, self.streams, "streams.assignment.interval.ms"),
            group_setting(own, self.streams, "streams.initial.rebalance.delay.ms"),
            group_setting(own, self.streams, "streams.num.standby.replicas"),
            group_setting(own, self.streams, "streams.task.offset.interval.ms"),
            group_setting(own, self.streams, "streams.num.warmup.replicas"),
            group_setting(own, self.streams, "streams.acceptable.recovery.lag"),
            group_setting(own, self.streams, "streams.rack.aware.assignment.tags"),
            _task_assignor(own.get("streams.assignor.name"), task_assignors(self.streams)),
        )


class ShareGroupConfig(NamedTuple):
    session_timeout_ms: Millis
    heartbeat_interval_ms: Millis
    assignment_interval_ms: Millis
    max_size: int
    initialize_retry_ms: Millis


class StreamsGroupConfig(NamedTuple):
    session_timeout_ms: Millis
    heartbeat_interval_ms: Millis
    assignment_interval_ms: Millis
    initial_rebalance_delay_ms: Millis
    standby_replicas: int
    task_offset_interval_ms: Millis
    warmup_replicas: int
    acceptable_recovery_lag: int
    """In records."""
    rack_aware_tags: tuple[str, ...]
    assignor: str


def _task_assignor(wanted: str | None, known: tuple[str, ...]) -> str:
    """The default where the broker does not have the assignor that the group is to use."""
    return wanted if wanted in known else known[0]


def _settings_of(kind: str, settings: TypedSettings) -> dict[str, Any]:
    return {name: settings[name] for name in definitions.BROKER if name.startswith(f"group.{kind}.")}


class ConsumerGroupConfig(NamedTuple):
    session_timeout_ms: Millis
    heartbeat_interval_ms: Millis
    assignment_interval_ms: Millis


_ASSIGNOR_CLASSES: Final = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


def assignor_name(setting: str) -> str:
    """The name of the assignor in an entry of `group.consumer.assignors`, which may also be one of Kafka's classes."""
    return _ASSIGNOR_CLASSES.get(setting, setting)
