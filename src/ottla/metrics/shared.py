"""What a node counts of share groups: of all of them, of each, and of each partition that one reads (Kafka's
`ShareGroupMetrics` and `SharePartitionMetrics`). Loaded by the first share group; the event loop's thread changes it.
"""

from __future__ import annotations

from ottla.metrics.instruments import LOOP_SECONDS, REQUEST_SECONDS, Histogram

PERCENT = (0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 100.0)
BATCH_RECORDS = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2000.0)

ACKNOWLEDGE_TYPES = {1: "Accept", 2: "Release", 3: "Reject", 4: "Renew"}
"""Acknowledgement types that members send; gaps, which have no record, are not counted."""


class DeadLetterCounts:
    __slots__ = ("failed", "records", "requests")

    def __init__(self) -> None:
        self.records = 0
        """Letters written."""
        self.requests = 0
        """Produce requests for them, repeated ones included."""
        self.failed = 0
        """Times that letters were given up."""


class ShareMetrics:
    __slots__ = ("_acquire_seconds", "_fetch_ratio", "acknowledged", "letters", "load_seconds")

    def __init__(self) -> None:
        self.acknowledged = dict.fromkeys(ACKNOWLEDGE_TYPES, 0)
        """Records, by type (`ranges.count_types`)."""
        self.load_seconds = Histogram(REQUEST_SECONDS)
        """Load times of share-partitions from the share coordinator."""
        self.letters: dict[str, DeadLetterCounts] = {}
        """Dead letters of each group that has had one here."""
        self._fetch_ratio: dict[str, Histogram] = {}
        self._acquire_seconds: dict[str, Histogram] = {}

    def fetched(self, group_id: str, found: int, wanted: int, seconds: float) -> None:
        """Count a fetch that got `found` of `wanted` partitions, after a time."""
        self._of(self._fetch_ratio, group_id, PERCENT).add(100 * found / wanted)
        self._of(self._acquire_seconds, group_id, REQUEST_SECONDS).add(seconds)

    def letters_of(self, group_id: str) -> DeadLetterCounts:
        found = self.letters.get(group_id)
        if found is None:
            found = self.letters[group_id] = DeadLetterCounts()
        return found

    def groups(self) -> list[tuple[str, Histogram, Histogram]]:
        """Each group's percentages of partitions fetched, and the seconds that it took."""
        return [(group_id, each, self._acquire_seconds[group_id]) for group_id, each in self._fetch_ratio.items()]

    def remove_group(self, group_id: str) -> None:
        """Remove a group without members on this node."""
        self._fetch_ratio.pop(group_id, None)
        self._acquire_seconds.pop(group_id, None)
        self.letters.pop(group_id, None)

    def _of(self, of: dict[str, Histogram], group_id: str, bounds: tuple[float, ...]) -> Histogram:
        found = of.get(group_id)
        if found is None:
            found = of[group_id] = Histogram(bounds)
        return found


class SharePartitionMetrics:
    __slots__ = (
        "_begun_s", "_ended_s", "_idle_s", "archived", "bad_delivery_times", "batch_records", "lock_ratio",
        "lock_seconds", "locks_ended",
    )  # fmt: skip

    def __init__(self) -> None:
        self.locks_ended = 0
        """Records whose lock ended before their member was done."""
        self.archived = 0
        """Records that were given up: rejected, or delivered as often as they may be."""
        self.bad_delivery_times = 0
        """Records whose header for the time of delivery is none."""
        self.batch_records = Histogram(BATCH_RECORDS)
        """Records that were acquired at once."""
        self.lock_seconds = Histogram(LOOP_SECONDS)
        """For how long a fetch kept others from reading for the share-partition."""
        self.lock_ratio = Histogram(PERCENT)
        """The percentage of that, of the time since the fetch before."""
        self._begun_s = self._ended_s = self._idle_s = 0.0

    def fetch_begins(self, now_s: float) -> None:
        self._begun_s = now_s
        self._idle_s = now_s - self._ended_s if self._ended_s else 0.0

    def fetch_ends(self, now_s: float) -> None:
        held_s = now_s - self._begun_s
        self._ended_s = now_s
        self.lock_seconds.add(held_s)
        total_s = held_s + self._idle_s
        self.lock_ratio.add(100 * held_s / total_s if total_s > 0 else 100.0)
