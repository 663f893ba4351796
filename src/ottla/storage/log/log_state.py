"""The numbers of a log, each with its invariant: where it starts and ends, what is committed, what is on disk.

The parts of a `Log` share one `LogState`. All changes of offsets are made here, so that dependent values follow.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.model import Millis, Offset


class LogState:
    """Offsets of one log: log_start <= high_watermark <= log_end, recovery_point <= durable <= log_end."""

    __slots__ = (
        "cleaned", "durable", "high_watermark", "log_end", "log_start", "now_ms", "on_start_moved",
        "recovery_point", "truncations",
    )  # fmt: skip

    def __init__(self, now_ms: Millis) -> None:
        self.now_ms = now_ms
        """The latest time that a caller told."""
        self.log_start: Offset = 0
        """The first record that is served; may lie inside the first segment."""
        self.log_end: Offset = 0
        """The offset of the next record."""
        self.high_watermark: Offset = 0
        """Records below it are committed; goes down only with a truncation."""
        self.durable: Offset = 0
        """Everything below is on disk as far as the records go."""
        self.recovery_point: Offset = 0
        """Everything below is on disk, indexes included: what recovery need not check."""
        self.cleaned: Offset | None = None
        """Compacted up to here; None if it never was."""
        self.truncations = 0
        """How often the log was cut since it was loaded."""
        self.on_start_moved: Callable[[], None] | None = None
        """Called after the log start has moved up."""

    def holds_nothing(self, offset: Offset, high_watermark: Offset, log_start: Offset) -> bool:
        """Whether a reader at `offset` gets neither records nor an error, and both watermarks are still these."""
        return (
            self.high_watermark == high_watermark
            and self.log_start == log_start
            and high_watermark <= offset <= self.log_end
        )

    def advance_log_start(self, offset: Offset) -> None:
        """Records below `offset` are not served any more; they count as committed."""
        self.log_start = offset
        self.high_watermark = max(self.high_watermark, offset)
        if self.on_start_moved is not None:
            self.on_start_moved()

    def truncate(self, offset: Offset) -> None:
        """Records from `offset` on are gone."""
        self.truncations += 1
        self.log_end = offset
        self.log_start = min(self.log_start, offset)
        self.high_watermark = max(min(self.high_watermark, offset), self.log_start)
        self.recovery_point = min(self.recovery_point, offset)
        self.durable = min(self.durable, offset)
        if self.cleaned is not None:
            self.cleaned = min(self.cleaned, offset)

    def restart_at(self, offset: Offset) -> None:
        """All records are gone; the log starts and ends at `offset`."""
        self.truncations += 1
        self.log_start = self.log_end = self.high_watermark = self.durable = offset
        self.recovery_point = 0  # until the name of the new file is on disk
        if self.cleaned is not None:
            self.cleaned = offset

    def note_fsynced(self, end: Offset, truncations: int, *, with_indexes: bool) -> None:
        """An fsync of everything below `end` is over that began when the log had been cut `truncations` times."""
        if truncations == self.truncations:
            self.durable = max(self.durable, end)
            if with_indexes:
                self.recovery_point = max(self.recovery_point, end)
