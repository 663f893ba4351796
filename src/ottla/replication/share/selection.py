"""Selects the records that may be delivered, where a group's settings make some wait: a back-off between deliveries, a
time before which a record must not be delivered, or an order by key. Kafka's share groups have none of these.

Records are scanned once, in the order of their offsets, before they are delivered: those behind the window, and after
a change of leader or settings the whole window again. A scanned record is available, or has a `Hold`. Available ones
are in `_ready`, waiting ones in `_waits` or behind another record of their key in `KeyOrder`.

Two limits keep a window small. What members have or may have at once is limited by `share.partition.max.record.locks`,
which does not count what waits and what is done with. What waits is limited by the number of runs (`waiting_max`): one
record that waits for a day does not stop a million behind it, for neighbours that are done with become one run.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.model import Millis, Offset
from ottla.protocol.internal.share_records import DeliveryState
from ottla.replication.share.aborted import OffsetRange, ReadBatch
from ottla.replication.share.acquisition import Acquired, Wanted, append_acquired
from ottla.replication.share.config import SCANNED_MIN, ShareConfig, Times
from ottla.replication.share.in_flight import Hold, InFlightBatch, Run, counted
from ottla.replication.share.key_order import KeyOrder
from ottla.replication.share.window import Window

if TYPE_CHECKING:
    from ottla.replication.share.marks import Mark

BATCH_RUNS: Final = 64
"""Batches with fewer runs together become one: a window of thousands of runs has few batches to look through."""

WAIT_MAX_MS: Final = 60_000
"""A record that waits for a time of the day is looked at again after this, for the clock may have been set."""

_OFFSET = attrgetter("offset")


class _Piece(NamedTuple):
    """Offsets in a row that go the same way."""

    first: Offset
    last: Offset
    state: DeliveryState
    hold: Hold | None


class Selection:
    def __init__(self, window: Window, config: ShareConfig) -> None:
        self._window = window
        self.config = config
        self._scanned: Offset = window.start_offset
        """Records from here on were not looked at yet."""
        self._ready: list[Offset] = []
        """A heap of offsets with which available runs begin, or began."""
        self._waits: list[tuple[Millis, Offset, Offset]] = []
        """A heap of runs that wait until a time, some of which may not any more."""
        self._keys = KeyOrder()
        self._free = 0
        """Records that the running scan may still make available."""
        self._runs = 0
        """Runs that it may still make."""
        for run in [run for batch in window.batches for run in batch.runs if run.is_done]:
            run.drop_history()
        self.fold(window.start_offset, window.end_offset)

    # What there is

    @property
    def scan_from(self) -> Offset:
        return max(self._scanned, self._window.start_offset)

    def next_fetch_offset(self) -> Offset:
        ready = self._first_ready()
        return self.scan_from if ready is None else ready

    def can_acquire(self) -> bool:
        return self._first_ready() is not None or min(self._room()) > 0

    def next_wait(self) -> Millis | None:
        return self._waits[0][0] if self._waits else None

    def waiting(self) -> int:
        """Records that wait."""
        return sum(len(run) for batch in self._window.batches for run in batch.runs if run.hold is not None)

    def ready_until(self, first: Offset, records_max: int) -> Offset:
        """The last offset that a read of available records from `first` on has use for."""
        return min(first + records_max, self._scanned) - 1

    def _first_ready(self) -> Offset | None:
        ready, scanned, start = self._ready, self._scanned, self._window.start_offset
        while ready:
            if start <= ready[0] < scanned:
                found = self._find(ready[0])
                if found is not None and found[1].is_available:
                    return ready[0]
            heapq.heappop(ready)
        return None

    def _find(self, offset: Offset) -> tuple[InFlightBatch, Run] | None:
        window = self._window
        index = window.floor(offset)
        if index < 0 or window.batches[index].last < offset:
            return None
        return window.batches[index], window.batches[index].at(offset)

    def _room(self) -> tuple[int, int]:
        """Records that may still be made available, and runs that may be made."""
        in_flight = runs = 0
        window, scanned = self._window, self._scanned
        for batch in window.batches:
            runs += len(batch.runs)
            if batch.last < scanned:
                in_flight += window.census(batch).in_flight
            elif batch.first < scanned:
                in_flight += counted(batch.runs, max(batch.first, window.start_offset), scanned - 1).in_flight
        return self.config.partition_max_record_locks - in_flight, self.config.waiting_max - runs

    # Deliveries

    def acquire(
        self, wanted: Wanted, fetch_offset: Offset, batches: Sequence[ReadBatch], marks: Sequence[Mark] | None,
        aborted: Sequence[OffsetRange], deadline_ms: Millis, times: Times,
    ) -> list[Acquired]:  # fmt: skip
        """Give a member what it may have of the batches that were read from `fetch_offset` on. `marks` has what was
        read in them; None where nothing had to be."""
        if fetch_offset > self.scan_from:  # the scan has begun again since the read
            return []
        first, until = batches[0].base_offset, batches[-1].last_offset
        if fetch_offset == self.scan_from and (marks is not None or self.config.mark_settings is None):
            self._scan(until, marks, aborted, max(SCANNED_MIN, wanted.records_max), times)
        if fetch_offset < first:
            self._archive_compacted(fetch_offset, first - 1, times)
        return self._take(wanted, fetch_offset, until, deadline_ms)

    def _archive_compacted(self, first: Offset, last: Offset, times: Times) -> None:
        """Archive records to deliver that are no longer in the log."""
        window = self._window
        start = max(0, window.floor(first))
        window.archive(window.batches[start : window.floor(last) + 1], first, last, DeliveryState.AVAILABLE)
        self.sweep(times)

    def _take(self, wanted: Wanted, first: Offset, until: Offset, deadline_ms: Millis) -> list[Acquired]:
        """Acquire what is available. What was delivered often is delivered in ever smaller batches, and alone at last
        (`Acquisition._take`)."""
        config, taken = self.config, list[Acquired]()
        left, until = wanted.records_max, min(until, self._scanned - 1)
        not_read = []
        while left > 0 and (offset := self._first_ready()) is not None and offset <= until:
            heapq.heappop(self._ready)
            if offset < first:
                not_read.append(offset)
                continue
            found = self._find(offset)
            assert found is not None
            batch, run = found
            is_throttled = run.count >= config.throttled_from
            if is_throttled:
                if taken:
                    not_read.append(offset)
                    break
                alone = config.delivery_count_limit > 2 and run.count == config.delivery_count_limit - 1
                left = 1 if alone else max(1, min(left, len(batch) >> (run.count - config.throttled_from + 1)))
            end = run.last
            part = batch.cut(run, offset, min(end, offset + left - 1, until))
            part.acquire(wanted.member, deadline_ms)
            if part.last < end:
                heapq.heappush(self._ready, part.last + 1)
            append_acquired(taken, Acquired(part.first, part.last, part.count))
            left = 0 if is_throttled else left - len(part)
        for offset in not_read:
            heapq.heappush(self._ready, offset)
        return taken

    # Scanning

    def _scan(
        self, until: Offset, marks: Sequence[Mark] | None, aborted: Sequence[OffsetRange], records: int, times: Times
    ) -> None:
        """Look at records up to `until`, as long as there is room and `records` have not become available."""
        window = self._window
        room, self._runs = self._room()
        self._free = min(room, records)
        if marks is not None and aborted:
            marks = _without(marks, aborted)
        first = offset = self.scan_from
        while offset <= until and self._free > 0 and self._runs > 0:
            found = self._find(offset)
            if found is None:
                behind = window.floor(offset) + 1
                last = min(until, window.batches[behind].first - 1) if behind < len(window.batches) else until
                offset = self._scan_new(offset, last, marks, aborted, times)
            else:
                batch, run = found
                offset = self._scan_known(batch, run, offset, min(until, run.last), marks, times)
        if offset > first:
            self._scanned = offset
            window.end_offset = max(window.end_offset, offset - 1)
            window.narrow_gap(offset)
            self.fold(first, offset)
            window.settle()

    def _scan_new(
        self, first: Offset, last: Offset, marks: Sequence[Mark] | None, aborted: Sequence[OffsetRange], times: Times
    ) -> Offset:
        """Records that are not in the window. Returns where the scan goes on."""
        runs = []
        for piece in self._pieces(first, last, marks, 0, times):
            run = Run(piece.first, piece.last, piece.state, 0)
            run.hold = piece.hold
            if run.is_done:
                run.drop_history()
            self._begin(run)
            runs.append(run)
        batch = InFlightBatch(Run(runs[0].first, runs[-1].last, DeliveryState.AVAILABLE, 0))
        batch.runs = runs
        self._window.add(batch)
        if marks is None and aborted:
            for start, end in aborted:
                self._window.archive([batch], start, end, DeliveryState.AVAILABLE)
        return batch.last + 1

    def _scan_known(
        self, batch: InFlightBatch, run: Run, first: Offset, last: Offset, marks: Sequence[Mark] | None, times: Times
    ) -> Offset:
        """Records that are in the window since before this leader, or before the settings were changed."""
        if run.is_done:
            return last + 1
        if run.state is not DeliveryState.AVAILABLE or run.pending is not None:
            # Somebody has them. Those behind wait for them.
            for mark in _between(marks or (), first, last):
                if mark.key is not None:
                    self._keys.enter(mark.offset, mark.key)
            return last + 1
        offset = first
        for piece in self._pieces(first, last, marks, run.count, times):
            part = batch.cut(batch.at(piece.first), piece.first, piece.last)
            if piece.state is DeliveryState.ARCHIVED:
                part.archive()
            else:
                part.hold = piece.hold
                self._begin(part)
            offset = piece.last + 1
        return offset

    def _pieces(
        self, first: Offset, last: Offset, marks: Sequence[Mark] | None, count: int, times: Times
    ) -> Iterator[_Piece]:
        """How records go on that were delivered `count` times, up to `last` or as far as there is room, at least one.
        Offsets that have no record are archived."""
        wait_ms = self._backoff_until(count, times.now_ms)
        if marks is None:
            end = min(last, first + self._free - 1)
            self._free -= 0 if wait_ms else end - first + 1
            self._runs -= 1
            yield _Piece(first, end, DeliveryState.AVAILABLE, Hold(False, wait_ms, 0) if wait_ms else None)
            return
        piece: _Piece | None = None
        offset = first
        for mark in _between(marks, first, last):
            if self._free <= 0 or self._runs <= 0:
                break
            if mark.offset > offset:
                if piece is not None:
                    yield piece
                yield _Piece(offset, mark.offset - 1, DeliveryState.ARCHIVED, None)
                piece = None
                self._runs -= 1
            hold = self._hold(mark, wait_ms, times)
            self._free -= hold is None
            if piece is not None and piece.hold == hold:
                piece = piece._replace(last=mark.offset)
            else:
                if piece is not None:
                    yield piece
                piece = _Piece(mark.offset, mark.offset, DeliveryState.AVAILABLE, hold)
                self._runs -= 1
            offset = mark.offset + 1
        else:
            if piece is not None:
                yield piece
            if offset <= last:
                yield _Piece(offset, last, DeliveryState.ARCHIVED, None)
            return
        if piece is not None:
            yield piece

    def _hold(self, mark: Mark, wait_ms: Millis, times: Times) -> Hold | None:
        is_behind = mark.key is not None and not self._keys.enter(mark.offset, mark.key)
        due_ms = mark.due_ms if mark.due_ms > times.wall_ms else 0
        if not is_behind and not due_ms and not wait_ms:
            return None
        return Hold(is_behind, max(wait_ms, _look_at(due_ms, times)), due_ms)

    def _begin(self, run: Run) -> None:
        if run.hold is not None:
            self._wait(run, run.hold)
        elif run.state is DeliveryState.AVAILABLE:
            heapq.heappush(self._ready, run.first)

    # Waiting

    def _wait(self, run: Run, hold: Hold) -> None:
        run.hold = hold
        if not hold.is_behind_key:
            heapq.heappush(self._waits, (hold.wait_ms, run.first, run.last))
            if len(self._waits) > 2 * self.config.waiting_max:
                self._drop_stale_waits()

    def _drop_stale_waits(self) -> None:
        """Records that were archived while they waited, as the log was cut, leave their waits behind."""
        self._waits = [
            (run.hold.wait_ms, run.first, run.last)
            for batch in self._window.batches
            for run in batch.runs
            if run.hold is not None and not run.hold.is_behind_key
        ]
        heapq.heapify(self._waits)

    def _backoff_until(self, count: int, now_ms: Millis) -> Millis:
        backoff_ms = self.config.backoff_ms(count)
        return now_ms + backoff_ms if backoff_ms else 0

    def available(self, run: Run, now_ms: Millis) -> None:
        """A record was given back, or its lock has ended."""
        wait_ms = self._backoff_until(run.count, now_ms)
        if wait_ms:
            self._wait(run, Hold(False, wait_ms, 0))
        else:
            heapq.heappush(self._ready, run.first)

    def advance(self, times: Times) -> None:
        """End the waits whose time has come."""
        while self._waits and self._waits[0][0] <= times.now_ms:
            _, first, last = heapq.heappop(self._waits)
            offset = first
            while offset <= last and (found := self._find(offset)) is not None:
                batch, run = found
                hold = run.hold
                if hold is not None and not hold.is_behind_key and hold.wait_ms <= times.now_ms:
                    batch.changed()
                    self._go_on(run, hold, times)
                offset = run.last + 1

    def _go_on(self, run: Run, hold: Hold, times: Times) -> None:
        """Nothing but time keeps a run from its delivery; perhaps that neither."""
        due_ms = hold.due_ms if hold.due_ms > times.wall_ms else 0
        wait_ms = max(hold.wait_ms if hold.wait_ms > times.now_ms else 0, _look_at(due_ms, times))
        if wait_ms:
            self._wait(run, Hold(False, wait_ms, due_ms))
        else:
            run.hold = None
            heapq.heappush(self._ready, run.first)

    # What is done with

    def done(self, first: Offset, last: Offset, times: Times) -> None:
        """Records between two offsets are perhaps done with: those behind them, by their keys, go on."""
        if not self._keys:
            return
        for offset in range(first, last + 1):
            found = self._find(offset)
            if found is None or found[1].is_done:
                self._leave(offset, times)

    def sweep(self, times: Times) -> None:
        """Records were archived without anybody's acknowledgement: the log was cut or compacted."""
        for offset in self._keys:
            found = self._find(offset)
            if found is None or found[1].is_done:
                self._leave(offset, times)

    def _leave(self, offset: Offset, times: Times) -> None:
        following = self._keys.leave(offset)
        found = None if following is None else self._find(following)
        if following is None or found is None:
            return
        batch, run = found
        if run.hold is not None and run.hold.is_behind_key:
            part = batch.cut(run, following, following)
            assert part.hold is not None
            self._go_on(part, part.hold, times)

    def fold(self, first: Offset, last: Offset) -> None:
        """Make small batches one, between two offsets and beside them, and what is done with in a row one run."""
        batches = self._window.batches
        index = max(0, self._window.floor(first) - 1)
        while index + 1 < len(batches) and batches[index].first <= last + 1:
            batch, behind = batches[index], batches[index + 1]
            are_done = _is_one_and_done(batch) and _is_one_and_done(behind)
            if batch.last + 1 == behind.first and (are_done or len(batch.runs) + len(behind.runs) <= BATCH_RUNS):
                batch.last = behind.last
                batch.runs += behind.runs
                batch.join()
                del batches[index + 1]
            else:
                index += 1

    def lift(self) -> None:
        """The settings have changed: nothing waits for what they said."""
        for batch in self._window.batches:
            for run in batch.runs:
                run.hold = None
            batch.join()
        self._window.look_for_available = True


def _is_one_and_done(batch: InFlightBatch) -> bool:
    return len(batch.runs) == 1 and batch.runs[0].is_done


def _look_at(due_ms: Millis, times: Times) -> Millis:
    """When to look again at what is due at a time of the day, on the timer clock."""
    return times.now_ms + min(due_ms - times.wall_ms, WAIT_MAX_MS) if due_ms else 0


def _between(marks: Sequence[Mark], first: Offset, last: Offset) -> Iterator[Mark]:
    for index in range(bisect_left(marks, first, key=_OFFSET), len(marks)):
        if marks[index].offset > last:
            return
        yield marks[index]


def _without(marks: Sequence[Mark], aborted: Sequence[OffsetRange]) -> list[Mark]:
    """The records that do not belong to aborted transactions."""
    left: list[Mark] = []
    ranges = iter(aborted)
    current = next(ranges, None)
    for mark in marks:
        while current is not None and current.last_offset < mark.offset:
            current = next(ranges, None)
        if current is None or mark.offset < current.first_offset:
            left.append(mark)
    return left
