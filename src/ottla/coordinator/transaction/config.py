"""The settings that transactions depend on, with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.coordinator.config import Settings
from ottla.model import Millis


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    max_timeout_ms: Millis = 900_000
    id_expiration_ms: Millis = 7 * 24 * 3_600_000
    abort_interval_ms: Millis = 10_000
    """Between two looks for transactions that have timed out."""
    expiry_interval_ms: Millis = 3_600_000
    """Between two looks for ids that are not used any more."""
    two_phase_commit: bool = False

    @classmethod
    def from_settings(cls, settings: Settings) -> TransactionConfig:
        """From a node's typed settings."""
        return cls(**{field: settings[name] for field, name in _SETTINGS.items()})


_SETTINGS: Final = {
    "max_timeout_ms": "transaction.max.timeout.ms",
    "id_expiration_ms": "transactional.id.expiration.ms",
    "abort_interval_ms": "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    "expiry_interval_ms": "transaction.remove.expired.transaction.cleanup.interval.ms",
    "two_phase_commit": "transaction.two.phase.commit.enable",
}
