"""The settings that transactions depend on, with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.typed import TypedSettings
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
    def from_settings(cls, settings: TypedSettings) -> TransactionConfig:
        """From a node's typed settings."""
        return cls(
            max_timeout_ms=settings.transaction_max_timeout_ms,
            id_expiration_ms=settings.transactional_id_expiration_ms,
            abort_interval_ms=settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            expiry_interval_ms=settings.transaction_remove_expired_transaction_cleanup_interval_ms,
            two_phase_commit=settings.transaction_two_phase_commit_enable,
        )
