"""Schedules the fsyncs of logs that nobody waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.errors import KafkaError
from ottla.model import Millis
from ottla.storage.config import LONG_MAX
from ottla.storage.log.log import Log

IDLE_FSYNC_AFTER_MS = 60_000
IDLE_FSYNCS_MAX = 20
"""Logs that were not written for that long are fsynced, so many per call of `flush_due`: a crash then finds little to
check and a stop little to fsync, and as the kernel has written their pages by then it costs next to nothing."""


class FlushScheduler:
    """`is_served` says whether the node still has the log, `report` hears of one that fails."""

    def __init__(self, is_served: Callable[[Log], bool], report: Callable[[Log, KafkaError], None]) -> None:
        self._is_served = is_served
        self._report = report
        self.has_timer = False
        """A `FlushTimer` sees to `flush.ms`."""

    async def flush_due(self, logs: Iterable[Log], now_ms: Millis) -> None:
        """Fsync the logs that rolled or were recovered, whose `flush.ms` is over, or that are idle. One at a time."""
        due = []
        idle: list[Log] = []
        for log in logs:
            flush_ms = log.config.flush_ms
            late = not self.has_timer and flush_ms != LONG_MAX and log.durable_offset < log.log_end_offset
            if log.flusher.is_due or (late and now_ms - log.flusher.last_flush_ms >= flush_ms):
                due.append(log)
            elif log.recovery_point < log.log_end_offset and now_ms - log.last_append_ms >= IDLE_FSYNC_AFTER_MS:
                idle.append(log)
        for log in due + idle[:IDLE_FSYNCS_MAX]:
            if log.is_open and self._is_served(log):
                try:
                    await log.flush_all_async()
                    log.flusher.last_flush_ms = now_ms
                except KafkaError as error:
                    if self._is_served(log):
                        self._report(log, error)
