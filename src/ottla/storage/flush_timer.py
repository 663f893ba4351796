"""Keeps `flush.ms`: fsyncs a log when its oldest record that is not on disk is that old.

One timer of the event loop for all logs, at the earliest deadline. A log is noted at its first append after an fsync:
a topic without `flush.ms` costs nothing, one with it next to nothing.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from itertools import count

from ottla.errors import KafkaError
from ottla.storage.config import LONG_MAX
from ottla.storage.log.log import Log

FLUSHES_AT_ONCE = 2
"""Half of the threads that work for the disk: reads go on beside them. What is due beyond that waits its turn."""

STALE_ENTRIES_MAX = 1000
"""Logs that were deleted and are still in the heap: little memory, and seldom worth going through it."""


class FlushTimer:
    """`is_served` says whether the node still has a log, `report` hears of one that fails."""

    def __init__(self, is_served: Callable[[Log], bool], report: Callable[[Log, KafkaError], None]) -> None:
        self._is_served = is_served
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._deadlines: dict[Log, float] = {}
        """When each noted log is due, in the loop's time; every one is in the heap."""
        self._heap: list[tuple[float, int, Log]] = []
        """Heap by deadline. An entry whose deadline is no longer its log's is skipped."""
        self._numbers = count()
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        """What the timer is set to, in the loop's time: a handle of uvloop does not always know."""
        self._due: deque[Log] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def note(self, log: Log) -> None:
        """A log has a record that is not on disk; nothing happens if it is known."""
        if log not in self._deadlines:
            self._schedule(log, self._loop.time() + log.config.flush_ms / 1000)

    def settings_changed(self, log: Log) -> None:
        """The log's `flush.ms` may be another now."""
        deadline = self._loop.time() + log.config.flush_ms / 1000
        if not 0 < log.config.flush_ms < LONG_MAX:
            self._deadlines.pop(log, None)
        elif log.durable_offset < log.log_end_offset and deadline < self._deadlines.get(log, float("inf")):
            self._schedule(log, deadline)

    def discard(self, log: Log) -> None:
        """The node serves the log no more."""
        self._deadlines.pop(log, None)
        if len(self._heap) > 2 * len(self._deadlines) + STALE_ENTRIES_MAX:
            self._heap = [entry for entry in self._heap if self._deadlines.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def _schedule(self, log: Log, deadline: float) -> None:
        if self._is_closed:
            return
        self._deadlines[log] = deadline
        heapq.heappush(self._heap, (deadline, next(self._numbers), log))
        if self._timer is None or deadline < self._timer_at:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            self._timer_at = self._heap[0][0]
            self._timer = self._loop.call_at(self._timer_at, self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._heap and self._heap[0][0] <= now:
            deadline, _, log = heapq.heappop(self._heap)
            if self._deadlines.get(log) == deadline:
                self._due.append(log)
        self._set_timer()
        while len(self._workers) < min(FLUSHES_AT_ONCE, len(self._due)):
            worker = self._loop.create_task(self._flush_due())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    async def _flush_due(self) -> None:
        while self._due and not self._is_closed:
            log = self._due.popleft()
            began = self._loop.time()
            if log.is_open and self._is_served(log) and log.durable_offset < log.log_end_offset:
                try:
                    await log.flush_all_async()
                except KafkaError as error:
                    if self._is_served(log):
                        self._report(log, error)
            self._deadlines.pop(log, None)
            if log.is_open and log.durable_offset < log.log_end_offset:  # appended meanwhile, after `began`
                self._schedule(log, began + log.config.flush_ms / 1000)

    async def close(self) -> None:
        """Stop; what has begun is brought to an end."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._workers:
            await asyncio.wait(self._workers)
