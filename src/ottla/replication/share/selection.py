"""Selects the records that may be delivered, where a group's settings make some wait: a back-off between deliveries, a
time before which a record must not be delivered, or an order by key. Kafka's share groups have none of these.

Records are scanned once, in the order of their offsets, before they are delivered: those behind the window, and after
a change of leader or settings the whole window again. A scanned record is available, or has a `Hold`. Available ones
are in `_ready`, waiting ones in `_waits` or behind another record of their key in `KeyOrder`.

Two limits keep a window small. What members have or may have at once is limited by `share.partition.max.record.locks`,
which does not count what waits and what is done with. What waits is limited by the number of runs (`waiting_max`): one
record that waits for a day does not stop a million behind it, for neighbours that are done with become one run.

A fetch costs what it delivers, not what waits: counts are kept up to date (`Window.counts`), and nothing here looks
through the window but where the settings or the leader have changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from ottla.model import Millis, Offset
from ottla.protocol.internal.share_records import DeliveryState
from ottla.replication.share.aborted import OffsetRange, ReadBatch
from ottla.replication.share.acquisition import Acquired, Wanted
from ottla.replication.share.config import SCANNED_MIN, Mark, ShareConfig, Times
from ottla.replication.share.in_flight import Hold, InFlightBatch, Run, counted, may_close, may_take, new_run
from ottla.replication.share.key_order import KeyOrder
from ottla.replication.share.ranges import index_of, marks_outside
from ottla.replication.share.waits import Backoff, Waits, hold_until, look_at
from ottla.replication.share.window import Window

if TYPE_CHECKING:
    from ottla.replication.share.acknowledgement import Row

_LAST_OFFSET = attrgetter("last_offset")

PARTS_MAX: Final = 8
"""Places of the log that are read for one fetch."""

NEAR: Final = 500
"""Records to deliver that are no further apart are read at once."""

AHEAD_MAX: Final = 2_000
"""Records whose marks are kept until they are scanned: a batch is not read twice."""

_AVAILABLE: Final = DeliveryState.AVAILABLE
_ARCHIVED: Final = DeliveryState.ARCHIVED

_new: Final = tuple.__new__
"""Makes an `OffsetRange` at a third of what its own constructor takes."""

_BEHIND: Final = Hold(True, 0, 0)
"""The hold of a record that waits only for another one of its key."""


class Selection:
    __slots__ = (
        "_first_run", "_free", "_keys", "_ready", "_scanned", "_waited", "_waiting_left", "_window", "ahead", "config",
        "goes_on", "marked_until", "waits",
    )  # fmt: skip

    def __init__(self, window: Window, config: ShareConfig) -> None:
        self._window = window
        self.config = config
        self._scanned: Offset = window.start_offset
        """Records from here on were not looked at yet."""
        self._ready: list[Offset] = []
        """A heap of offsets with which available runs begin, or began."""
        self._first_run: Run | None = None
        """What `_first_ready` has found in its batch."""
        self.waits = Waits(window)
        self._keys = KeyOrder()
        self._free = 0
        """Records that the running scan may still make available."""
        self._waiting_left = 0
        """Runs that it may still find to wait."""
        self._waited = 0
        """Records that the last scan has found to wait: the next one may find as many, and reads so many more."""
        self.ahead: list[Mark] = []
        """Records that were read and not scanned."""
        self.marked_until: Offset = -1
        """The last offset that was read for that."""
        self.goes_on = True
        """Whether a member may have more with what the last delivery brought: not with records that were delivered
        often (`_take`)."""
        for run in [run for batch in window.batches for run in batch.runs if run.is_done]:
            run.drop_history()
        window.fold(window.start_offset, window.end_offset)

    # What there is

    @property
    def scan_from(self) -> Offset:
        return max(self._scanned, self._window.start_offset)

    def next_fetch_offset(self) -> Offset:
        return self.scan_from if self._first_ready() is None else self._ready[0]

    def can_acquire(self) -> bool:
        return self._first_ready() is not None or self._has_room()

    def next_wait(self) -> Millis | None:
        return self.waits.next_ms()

    def waiting(self) -> int:
        """Records that wait."""
        return self._window.counts().waiting

    def parts(self, records_max: int) -> list[OffsetRange]:
        """What a fetch is to read, in order: records that are available, and behind them those that were not scanned
        yet. What follows in the log is read as far as one batch has it."""
        found: list[OffsetRange] = []
        popped: list[Offset] = []
        first = last = -1  # the last place, which may go on
        left, count = records_max, 0
        while left > 0 and count < PARTS_MAX and self._first_ready() is not None:
            offset = self._ready[0]
            assert self._first_run is not None
            until = min(self._first_run.last, offset + left - 1, self._scanned - 1)
            left -= until - offset + 1
            if last >= 0 and offset - last <= NEAR:
                last = max(last, until)
            else:
                if last >= 0:
                    found.append(_new(OffsetRange, (first, last)))
                first, last = offset, until
                count += 1
            if left > 0:
                popped.append(heappop(self._ready))
        for offset in popped:
            heappush(self._ready, offset)
        if last < 0 or (left > 0 and count < PARTS_MAX and self._has_room()):
            scan_from = max(self._scanned, self._window.start_offset)
            if last < 0 or scan_from - last > NEAR:
                if last >= 0:
                    found.append(_new(OffsetRange, (first, last)))
                first = scan_from
            last = scan_from + max(SCANNED_MIN, left + min(self._waited, left)) - 1
        found.append(_new(OffsetRange, (first, last)))
        return found

    def _first_ready(self) -> InFlightBatch | None:
        """The batch of the first record that is available, which is the first of `_ready` then, in `_first_run`."""
        ready, scanned, window = self._ready, self._scanned, self._window
        start = window.start_offset
        while ready:
            offset = ready[0]
            if start <= offset < scanned:
                index = window.floor(offset)
                if index >= 0:
                    batch = window.batches[index]
                    if batch.last >= offset and may_take(run := batch.at(offset)):
                        self._first_run = run
                        return batch
            heappop(ready)
        return None

    def _room(self) -> tuple[int, int]:
        """Records that may still be made available, and runs that may still wait."""
        window, scanned = self._window, self._scanned
        # `share.partition.max.record.locks` (KIP-932) limits what members have or may have, `waiting_max` what waits.
        counts = window.counts()
        in_flight, waiting_runs = counts.in_flight, counts.waiting_runs
        if window.batches and window.batches[-1].last >= scanned:  # loaded, and not looked at yet
            for batch in window.batches[max(0, window.floor(scanned)) :]:
                counts = counted(batch.runs, max(batch.first, scanned), batch.last)
                in_flight -= counts.in_flight
                waiting_runs -= counts.waiting_runs
        return self.config.partition_max_record_locks - in_flight, self.config.waiting_max - waiting_runs

    def _has_room(self) -> bool:
        free, waiting_runs = self._room()
        return free > 0 and waiting_runs > 0

    # Deliveries

    def acquire(
        self,
        wanted: Wanted,
        parts: Sequence[OffsetRange],
        batches: Sequence[ReadBatch],
        marks: Sequence[Mark] | None,
        aborted: Sequence[OffsetRange],
        deadline_ms: Millis,
        times: Times,
    ) -> list[Acquired]:
        """Give a member what it may have of the batches that were read. `parts` are the offsets that they cover, each
        from where the read began; none begins right behind another. `marks` has what was read in the records that were
        not scanned; None where nothing had to be."""
        if parts[-1].first_offset > self.scan_from:  # the scan has begun again since the read
            return []
        until = parts[-1].last_offset
        if self.scan_from <= until and (marks is not None or self.config.mark_settings is None):
            self._scan(until, marks, aborted, max(SCANNED_MIN, wanted.records_max), times)
        self._archive_compacted(parts, batches, times)
        if aborted:
            self._archive_aborted(aborted, times)
        return self._take(wanted, parts, deadline_ms)

    def _archive_aborted(self, aborted: Sequence[OffsetRange], times: Times) -> None:
        """Archive what was scanned before it was aborted: the group may have read what was not committed then."""
        # A group that reads committed records is shown none of them (`filterAbortedTransactionalAcquiredRecords`).
        window = self._window
        for first, last in aborted:
            window.archive_between(first, last, _AVAILABLE)
            self.done(first, last, times)

    def _archive_compacted(self, parts: Sequence[OffsetRange], batches: Sequence[ReadBatch], times: Times) -> None:
        """Archive records to deliver that are no longer in the log: a read began at them, and found later ones
        (Kafka's `maybeArchiveStaleBatches`)."""
        window = self._window
        for first, last in parts:
            index = bisect_left(batches, first, key=_LAST_OFFSET)
            if index == len(batches) or batches[index].base_offset <= first:
                continue
            end = min(last, batches[index].base_offset - 1)
            window.archive_between(first, end, _AVAILABLE)
            self.done(first, end, times)

    def _take(self, wanted: Wanted, parts: Sequence[OffsetRange], deadline_ms: Millis) -> list[Acquired]:
        """Acquire what is available. What was delivered often is delivered in ever smaller batches, and alone at last
        (`Acquisition._take`)."""
        config, member = self.config, wanted.member
        taken: list[Acquired] = []
        first = last = -1
        """What was acquired and is not in `taken` yet, for it may go on."""
        count, throttled_from = 0, config.throttled_from
        self.goes_on = True
        left, index = wanted.records_max, 0
        not_read: list[Offset] = []
        part_first, part_last = parts[0]
        while left > 0 and (batch := self._first_ready()) is not None:
            offset = self._ready[0]
            while part_last < offset and index + 1 < len(parts):
                index += 1
                part_first, part_last = parts[index]
            if part_last < offset:
                break
            heappop(self._ready)
            if offset < part_first:
                not_read.append(offset)
                continue
            run = self._first_run
            assert run is not None
            # The more often, the fewer at once, so that one bad record fails alone (`throttleRecordsDeliveryLimit`).
            is_throttled = run.count >= throttled_from
            if is_throttled:
                self.goes_on = False
                if last >= 0:
                    not_read.append(offset)
                    break
                alone = config.delivery_count_limit > 2 and run.count == config.delivery_count_limit - 1
                left = 1 if alone else max(1, min(left, len(batch) >> (run.count - throttled_from + 1)))
            # A limit in both modes of acquisition (KIP-1206): batches of the log do not matter to what was scanned.
            end = run.last
            until = min(part_last, self._scanned - 1)
            part = batch.cut(run, offset, min(end, offset + left - 1, until))
            part.acquire(member, deadline_ms)
            if part.last < end:
                heappush(self._ready, part.last + 1)
            if last >= 0 and (last + 1 != part.first or count != part.count):
                taken.append((first, last, count))
                first = part.first
            elif last < 0:
                first = part.first
            last, count = part.last, part.count
            left = 0 if is_throttled else left - (part.last - part.first + 1)
        if last >= 0:
            taken.append((first, last, count))
        for offset in not_read:
            heappush(self._ready, offset)
        return taken

    # Scanning

    def _scan(
        self, until: Offset, marks: Sequence[Mark] | None, aborted: Sequence[OffsetRange], records: int, times: Times
    ) -> None:
        """Look at records up to `until`, as long as there is room and `records` have not become available."""
        window = self._window
        room, self._waiting_left = self._room()
        self._free = min(room, records)
        self._waited = 0
        first = offset = self.scan_from
        read = marks
        if marks is not None and aborted:
            marks = marks_outside(marks, aborted)
        while offset <= until and self._free > 0 and self._waiting_left > 0:
            index = window.floor(offset)
            if index < 0 or window.batches[index].last < offset:
                behind = index + 1
                last = min(until, window.batches[behind].first - 1) if behind < len(window.batches) else until
                offset = self._scan_new(offset, last, marks, aborted, times)
            else:
                batch = window.batches[index]
                run = batch.at(offset)
                offset = self._scan_known(batch, run, offset, min(until, run.last), marks, times)
        self._keep_ahead(read, offset, until)
        if offset > first:
            self._scanned = offset
            window.end_offset = max(window.end_offset, offset - 1)
            window.narrow_gap(offset)
            window.fold(first, offset)
            window.settle()

    def _scan_new(
        self, first: Offset, last: Offset, marks: Sequence[Mark] | None, aborted: Sequence[OffsetRange], times: Times
    ) -> Offset:
        """Records that are not in the window. Returns where the scan goes on."""
        runs = self._pieces(first, last, marks, 0, times)
        for run in runs:
            if run.state is _ARCHIVED:
                run.drop_history()
            else:
                self._begin(run)
        batch = InFlightBatch(runs[0])
        batch.last = runs[-1].last
        batch.runs = runs
        self._window.add(batch)
        if marks is None and aborted:
            for start, end in aborted:
                self._window.archive([batch], start, end, _AVAILABLE)
        return batch.last + 1

    def _scan_known(
        self, batch: InFlightBatch, run: Run, first: Offset, last: Offset, marks: Sequence[Mark] | None, times: Times
    ) -> Offset:
        """Records that are in the window since before this leader, or before the settings were changed."""
        if run.is_done:
            return last + 1
        if run.state is not _AVAILABLE or run.pending is not None:
            # A member has them, or a write decides what becomes of them (KIP-932). Those behind, by their keys, wait.
            for offset, key, _ in marks[index_of(marks, first) : index_of(marks, last + 1)] if marks else ():
                if key is not None:
                    self._keys.enter(offset, key)
            return last + 1
        now_ms = times.now_ms
        if run.hold is None:
            wait_ms = self._backoff_until(run.count, now_ms)
        else:  # it was given back before it was scanned, or waited already when its last reader left
            wait_ms = run.hold.wait_ms if run.hold.wait_ms > now_ms else 0
        offset = first
        for piece in self._pieces(first, last, marks, wait_ms, times):
            part = batch.cut(batch.at(piece.first), piece.first, piece.last)
            if piece.state is _ARCHIVED:
                part.archive()
            else:
                part.hold = piece.hold
                self._begin(part)
            offset = piece.last + 1
        return offset

    def _pieces(
        self, first: Offset, last: Offset, marks: Sequence[Mark] | None, wait_ms: Millis, times: Times
    ) -> list[Run]:
        """How records go on whose back-off ends at `wait_ms`, 0 for none, up to `last` or as far as there is room, at
        least one: runs that nobody has. Offsets that have no record are archived."""
        if marks is None:
            end = min(last, first + self._free - 1)
            if wait_ms:
                self._waiting_left -= 1
                return [new_run(first, end, _AVAILABLE, 0, Hold(False, wait_ms, 0))]
            self._free -= end - first + 1
            return [new_run(first, end, _AVAILABLE, 0, None)]
        found: list[Run] = []
        wall_ms, keys, is_held = times.wall_ms, self._keys, wait_ms != 0
        start = following = first
        """Where a piece begins that may go on, and the offset behind what there is of it."""
        hold: Hold | None = None
        index, end = index_of(marks, first), len(marks)
        while index < end and self._free > 0 and self._waiting_left > 0:
            offset, key, due_ms = marks[index]
            if offset > last:
                break
            index += 1
            is_behind = key is not None and not keys.enter(offset, key)
            held: Hold | None = None
            if is_held or due_ms > wall_ms:
                held = hold_until(is_behind, due_ms, wait_ms, times)
            elif is_behind:
                held = _BEHIND
            # Two holds are compared only where there are two: most records have none.
            if offset != following or (
                hold is not held and following > start and (hold is None or held is None or hold != held)
            ):
                if following > start:
                    found.append(new_run(start, following - 1, _AVAILABLE, 0, hold))
                # Offsets without a record are done with, so that no member has to acknowledge them as gaps (KIP-932).
                if offset > following:
                    found.append(new_run(following, offset - 1, _ARCHIVED, 0, None))
                start = offset
            if held is None:
                self._free -= 1
            else:
                self._waited += 1
                if start == offset:
                    self._waiting_left -= 1
            hold, following = held, offset + 1
        if following > start:
            found.append(new_run(start, following - 1, _AVAILABLE, 0, hold))
        if following <= last and (index == end or marks[index][0] > last):
            found.append(new_run(following, last, _ARCHIVED, 0, None))
        return found

    def _keep_ahead(self, marks: Sequence[Mark] | None, offset: Offset, until: Offset) -> None:
        """Keep what was read of records that were not scanned, so that it is not read again."""
        self.ahead, self.marked_until = [], offset - 1
        if marks is not None and offset <= until:
            index = index_of(marks, offset)
            if len(marks) - index <= AHEAD_MAX:
                self.ahead = [*marks[index:]]
                self.marked_until = max(until, self.ahead[-1][0]) if self.ahead else until

    def _begin(self, run: Run) -> None:
        if run.hold is not None:
            self._wait(run, run.hold)
        elif run.state is _AVAILABLE:
            heappush(self._ready, run.first)

    # Waiting

    def _wait(self, run: Run, hold: Hold) -> None:
        run.hold = hold
        if not hold.is_behind_key:
            self.waits.add(hold.wait_ms, run.first, run.last, 2 * self.config.waiting_max)

    def _backoff_until(self, count: int, now_ms: Millis) -> Millis:
        backoff_ms = self.config.backoff_ms(count)
        return now_ms + backoff_ms if backoff_ms else 0

    def available(self, run: Run, now_ms: Millis) -> None:
        """A record was given back, or its lock has ended."""
        wait_ms = self._backoff_until(run.count, now_ms)
        if wait_ms:
            self._wait(run, Hold(False, wait_ms, 0))
        else:
            heappush(self._ready, run.first)

    def resume(self, backoffs: Iterable[Backoff]) -> None:
        """Have records of which nothing was scanned yet wait no longer than they were to before."""
        for wait_ms, first, last in backoffs:
            found = self._window.find(max(first, self.scan_from))
            if found is not None:
                batch, run = found
                if may_take(run):
                    batch.changed()
                    self._wait(batch.cut(run, first, last), Hold(False, wait_ms, 0))

    def advance(self, times: Times) -> None:
        """End the waits whose time has come."""
        while (ended := self.waits.pop_ended(times.now_ms)) is not None:
            _, offset, last = ended
            while offset <= last and (found := self._window.find(offset)) is not None:
                batch, run = found
                hold = run.hold
                if hold is not None and not hold.is_behind_key and hold.wait_ms <= times.now_ms:
                    batch.changed()
                    self._go_on(run, hold, times)
                offset = run.last + 1

    def _go_on(self, run: Run, hold: Hold, times: Times) -> None:
        """Nothing but time keeps a run from its delivery; perhaps that neither."""
        due_ms = hold.due_ms if hold.due_ms > times.wall_ms else 0
        wait_ms = max(hold.wait_ms if hold.wait_ms > times.now_ms else 0, look_at(due_ms, times))
        if wait_ms:
            self._wait(run, Hold(False, wait_ms, due_ms))
        else:
            run.hold = None
            heappush(self._ready, run.first)

    # What is done with

    def done(self, first: Offset, last: Offset, times: Times) -> None:
        """Records between two offsets are perhaps done with: those behind them, by their keys, go on."""
        if not self._keys:
            return
        window, offset = self._window, first
        index = max(0, window.floor(first))
        while offset <= last and index < len(window.batches):
            batch = window.batches[index]
            if batch.first > offset:
                self._leave(offset, min(last, batch.first - 1), times)
            for run in batch.seen(first, last):
                if may_close(run):
                    self._leave(max(first, run.first), min(last, run.last), times)
            offset = max(offset, batch.last + 1)
            index += 1
        if offset <= last:
            self._leave(offset, last, times)

    def done_all(self, rows: Sequence[Row], times: Times) -> None:
        """The same for the rows of a write, which are in order; what is done with becomes one run."""
        for first, last, _, _ in rows:
            self.done(first, last, times)
        window, folded = self._window, -1
        for first, last, _, _ in rows:
            if last > folded:
                folded = window.fold(first, last)

    def sweep(self, times: Times) -> None:
        """The log was cut: records before its start are done with, but for those that a member has."""
        window = self._window
        if self._keys:
            first = min(self._keys.first(), window.start_offset)
            self.done(first, window.start_offset - 1, times)

    def _leave(self, first: Offset, last: Offset, times: Times) -> None:
        for following in self._keys.leave_all(first, last):
            found = self._window.find(following)
            if found is None:
                continue
            batch, run = found
            if run.hold is not None and run.hold.is_behind_key:
                part = batch.cut(run, following, following)
                assert part.hold is not None
                self._go_on(part, part.hold, times)
