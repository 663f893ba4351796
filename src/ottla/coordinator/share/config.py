"""The settings that the share coordinator depends on (`share.coordinator.*`), with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.coordinator.config import Settings
from ottla.model import Millis


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    updates_per_snapshot: int = 500
    """Updates of a share-partition after which its next record has all that is known."""
    cold_snapshot_interval_ms: Millis = 300_000
    """Age of a snapshot that is written again while others are busy, so that what is before them can be deleted."""
    prune_interval_ms: Millis = 300_000

    @classmethod
    def from_settings(cls, settings: Settings) -> ShareCoordinatorConfig:
        """From a node's typed settings."""
        return cls(**{field: settings[name] for field, name in _SETTINGS.items()})


_SETTINGS: Final = {
    "updates_per_snapshot": "share.coordinator.snapshot.update.records.per.snapshot",
    "cold_snapshot_interval_ms": "share.coordinator.cold.partition.snapshot.interval.ms",
    "prune_interval_ms": "share.coordinator.state.topic.prune.interval.ms",
}
