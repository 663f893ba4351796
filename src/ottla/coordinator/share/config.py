"""The settings that the share coordinator depends on (`share.coordinator.*`), with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.typed import TypedSettings
from ottla.model import Millis


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    updates_per_snapshot: int = 500
    """Updates of a share-partition after which its next record has all that is known."""
    cold_snapshot_interval_ms: Millis = 300_000
    """Age of a snapshot that is written again while others are busy, so that what is before them can be deleted."""
    prune_interval_ms: Millis = 300_000
    write_timeout_ms: Millis = 5_000
    """How long a request waits for the record before it."""

    @classmethod
    def from_settings(cls, settings: TypedSettings) -> ShareCoordinatorConfig:
        """From a node's typed settings."""
        return cls(
            updates_per_snapshot=settings.share_coordinator_snapshot_update_records_per_snapshot,
            cold_snapshot_interval_ms=settings.share_coordinator_cold_partition_snapshot_interval_ms,
            prune_interval_ms=settings.share_coordinator_state_topic_prune_interval_ms,
            write_timeout_ms=settings.share_coordinator_write_timeout_ms,
        )
