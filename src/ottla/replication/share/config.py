"""What a share group's settings say of its deliveries, with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.model import Millis, Offset
from ottla.protocol.internal.share_records import DeliveryState

THROTTLED_FROM_MIN: Final = 2
DOUBLINGS_MAX: Final = 40
SCANNED_MIN: Final = 100
"""Records that one scan of `selection.py` looks for at least, if they were read: a fetch of one record leaves the
others available."""


Mark = tuple[Offset, int | None, Millis]
"""One record as the selection of a share group sees it: its offset; a hash of its key, None if it has none (records of
two keys with one hash are delivered as if of one key); when it may be delivered, in milliseconds since 1970, 0 for at
once. A plain tuple, for there is one for each record."""


class MarkSettings(NamedTuple):
    """What has to be read from records before they are delivered."""

    time_header: bytes
    """The header that says when a record may be delivered; empty for none."""
    by_key: bool


@dataclass(frozen=True, slots=True)
class ShareConfig:
    """The broker's settings (`group.share.*`), or those of the group (`share.*`) where it has its own. They may change
    between two calls."""

    record_lock_duration_ms: Millis = 30_000
    delivery_count_limit: int = 5
    partition_max_record_locks: int = 2_000
    renew_acknowledge: bool = True
    """Whether a member may renew its locks (KIP-1222)."""
    retry_backoff_ms: Millis = 0
    retry_backoff_max_ms: Millis = 60_000
    delivery_time_header: bytes = b""
    """The header that says when a record may be delivered; empty for none."""
    is_ordered_by_key: bool = False
    waiting_max: int = 10_000
    """Runs of records of a window that wait, if any of the four settings before is used."""
    dead_letters: bool = False
    """Whether the group names a topic for its dead letters, and the cluster's share.version allows it (KIP-1191)."""

    @property
    def selects(self) -> bool:
        """Whether records may have to wait, which Kafka's share groups do not know (`selection.py`)."""
        return bool(self.retry_backoff_ms or self.delivery_time_header or self.is_ordered_by_key)

    @property
    def mark_settings(self) -> MarkSettings | None:
        """What is to be read from records; None for nothing."""
        if self.delivery_time_header or self.is_ordered_by_key:
            return MarkSettings(self.delivery_time_header, self.is_ordered_by_key)
        return None

    def backoff_ms(self, deliveries: int) -> Millis:
        """How long a record waits that was delivered so often: doubling from the first back-off to the last."""
        if not self.retry_backoff_ms or deliveries < 1:
            return 0
        longest = max(self.retry_backoff_ms, self.retry_backoff_max_ms)
        return min(self.retry_backoff_ms << min(deliveries - 1, DOUBLINGS_MAX), longest)

    @property
    def throttled_from(self) -> int:
        """The number of deliveries from which records are delivered in ever smaller batches, so that one that kills its
        consumer does not take the others of its batch with it: half of the limit, rounded up."""
        return max(THROTTLED_FROM_MIN, (self.delivery_count_limit + 1) // 2)

    @property
    def dead_state(self) -> DeliveryState:
        """State of a record that was rejected, or delivered as often as it may be."""
        return DeliveryState.ARCHIVING if self.dead_letters else DeliveryState.ARCHIVED


class Times(NamedTuple):
    """One moment by two clocks."""

    now_ms: Millis
    """By the timer clock."""
    wall_ms: Millis
    """In milliseconds since 1970."""
