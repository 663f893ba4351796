"""What a share group's settings say of its deliveries, with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.model import Millis
from ottla.protocol.internal.share_records import DeliveryState

THROTTLED_FROM_MIN: Final = 2


@dataclass(frozen=True, slots=True)
class ShareConfig:
    """The broker's settings (`group.share.*`), or those of the group (`share.*`) where it has its own. They may change
    between two calls."""

    record_lock_duration_ms: Millis = 30_000
    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2_000
    renew_acknowledge: bool = True
    """Whether a member may renew its locks (KIP-1222)."""
    dead_letters: bool = False
    """Whether the group names a topic for its dead letters, and the cluster's share.version allows it (KIP-1191)."""

    @property
    def throttled_from(self) -> int:
        """The number of deliveries from which records are delivered in ever smaller batches, so that one that kills its
        consumer does not take the others of its batch with it: half of the limit, rounded up."""
        return max(THROTTLED_FROM_MIN, (self.delivery_count_limit + 1) // 2)

    @property
    def dead_state(self) -> DeliveryState:
        """State of a record that was rejected, or delivered as often as it may be."""
        return DeliveryState.ARCHIVING if self.dead_letters else DeliveryState.ARCHIVED
