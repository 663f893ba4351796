"""The window of a share-partition: the offsets from the first that is not done with to the last that was delivered.

Batches in flight lie in it, with natural gaps (offsets that compaction or control batches left empty) between them.
After loading there may be gaps that are none: records that were delivered, not acknowledged, and therefore not
written. Until the window has grown beyond what was loaded they are fetched again (`gap_start`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from ottla.model import Offset
from ottla.protocol.internal.share_records import DeliveryState
from ottla.protocol.schemas.records import StateBatch
from ottla.replication.share.in_flight import Counts, InFlightBatch, Run, counted, may_close, may_take

BATCH_RUNS: Final = 16
"""Batches with fewer runs together become one: a window of thousands of runs has few batches to look through."""

_FIRST = attrgetter("first")
_NO_GAP: Final = -1


class Window:
    __slots__ = (
        "_changes", "_counts", "_gap_end", "batches", "end_offset", "gap_start", "look_for_available", "start_offset",
    )  # fmt: skip

    def __init__(self, start_offset: Offset, loaded: Sequence[StateBatch] = ()) -> None:
        """`loaded` as it was written: in order. Raises ValueError for what no leader writes."""
        self.start_offset = start_offset
        self.end_offset = start_offset
        """The last offset in flight; without a batch in flight, the next one to fetch."""
        self.batches: list[InFlightBatch] = []
        """**Invariant**: in the order of their offsets, which do not overlap. Changed by `add`, `merge` and `_drop`."""
        self._counts = Counts()
        """The sums over all batches, those of `_changes` as they were counted before they changed."""
        self._changes: list[InFlightBatch] = []
        self.look_for_available = bool(loaded)
        """Whether a batch may have records to deliver again; if not, the next to fetch is behind the window."""
        self.gap_start: Offset = _NO_GAP
        """The first offset that was delivered, as far as we know, and of which nothing was loaded."""
        self._gap_end: Offset = _NO_GAP
        following = start_offset
        for batch in loaded:  # an acquired record is not written: a new leader delivers it again (KIP-932)
            if batch.first_offset < following or batch.last_offset < batch.first_offset:
                raise ValueError(f"offsets {batch.first_offset} to {batch.last_offset} do not follow {following}")
            if self.gap_start == _NO_GAP and batch.first_offset > following:
                self.gap_start = following
            following = batch.last_offset + 1
            state = DeliveryState(batch.delivery_state)
            self.add(InFlightBatch(Run(batch.first_offset, batch.last_offset, state, batch.delivery_count)))
        if self.batches:
            self.end_offset = self.batches[-1].last
            self._gap_end = self.end_offset if self.gap_start != _NO_GAP else _NO_GAP
            self.settle()

    # What there is

    @property
    def count(self) -> int:
        """Offsets in the window, in flight or done with before others."""
        return self.end_offset - self.start_offset + 1 if self.batches else 0

    @property
    def gap_is_open(self) -> bool:
        """Whether offsets between batches may have records that have to be fetched."""
        return self.gap_start != _NO_GAP and self._gap_end == self.end_offset

    def complete_count(self) -> int:
        """Offsets of the window that are done with, pending changes included, as Kafka counts them."""
        return self.counts().terminal

    def counts(self) -> Counts:
        """How many records of the window stand how. The work depends on how many batches have changed since the last
        call, not on how many there are."""
        counts = self._counts
        if self._changes:
            for batch in self._changes:
                batch.recount(counts)
            self._changes.clear()
        start = self.start_offset
        if not self.batches or self.batches[0].first >= start:
            return counts
        inside = Counts()
        inside.add(counts)
        for batch in self.batches:
            if batch.first >= start:
                break
            inside.add(counted(batch.runs, batch.first, min(batch.last, start - 1)), -1)
        return inside

    def held(self) -> tuple[int, int]:
        """Offsets of the window that a member has acquired, and those not done with that were delivered more than
        once."""
        start, held, redelivered = self.start_offset, 0, 0
        for batch in self.batches:
            for run in batch.runs:
                if run.last < start or run.state.is_terminal:
                    continue
                length = run.last - max(run.first, start) + 1
                held += length * (run.state is DeliveryState.ACQUIRED)
                redelivered += length * (run.count > 1)
        return held, redelivered

    def floor(self, offset: Offset) -> int:
        """The index of the last batch that begins at or before an offset; -1 if none does. Those near the end are asked
        for most: the search goes there from the end, in steps that grow."""
        batches = self.batches
        low = high = len(batches)
        step = 1
        while low > 0:
            low = max(low - step, 0)
            batch = batches[low]
            if batch.first <= offset:
                low += 1
                break
            high = low
            step += step
        while low < high:
            middle = (low + high) >> 1
            batch = batches[middle]
            if batch.first <= offset:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def find(self, offset: Offset) -> tuple[InFlightBatch, Run] | None:
        """The batch and the run that have an offset."""
        index = self.floor(offset)
        if index < 0:
            return None
        batch = self.batches[index]
        return (batch, batch.at(offset)) if batch.last >= offset else None

    def between(self, first: Offset, last: Offset) -> list[InFlightBatch]:
        """The batches that begin between two offsets, both included."""
        start = bisect_left(self.batches, first, key=_FIRST)
        return self.batches[start : bisect_right(self.batches, last, lo=start, key=_FIRST)]

    def next_fetch_offset(self) -> Offset:
        """Where a fetch is to begin: at what is to be delivered again, else behind the window."""
        if not self.batches or self.start_offset > self.batches[-1].last:
            self.look_for_available = False
            return self.end_offset
        if self.look_for_available:
            gap = self.gap_start if self.gap_is_open else None
            for batch in self.batches:
                if gap is not None:
                    if batch.first > gap:  # nobody knows what became of them: fetched as if never delivered
                        return gap
                    # The gap may begin behind this batch already (`SharePartition.nextFetchOffset`).
                    gap = max(batch.last + 1, gap)
                for run in batch.runs:
                    if may_take(run):
                        return run.first
            self.look_for_available = False
        return self.end_offset + 1

    # Changes

    def add(self, batch: InFlightBatch) -> None:
        if not self.batches or self.batches[-1].first < batch.first:
            self.batches.append(batch)
        else:
            insort(self.batches, batch, key=_FIRST)
        batch.enters(self._changes)

    def merge(self, index: int) -> None:
        """Make the batch at an index and the one behind it a single batch."""
        batch, behind = self.batches[index], self.batches[index + 1]
        batch.last = behind.last
        batch.runs += behind.runs
        batch.join()
        self._drop(index + 1, index + 2)

    def fold(self, first: Offset, last: Offset) -> Offset:
        """Make small batches one, between two offsets and beside them, and what is done with in a row one run. Returns
        the offset up to which there is nothing left to do."""
        batches = self.batches
        index = max(0, self.floor(first) - 1)
        folded: Offset = -1
        while index + 1 < len(batches):
            batch = batches[index]
            if batch.first > last + 1:
                break
            behind = batches[index + 1]
            are_done = _is_one_and_done(batch) and _is_one_and_done(behind)
            if batch.last + 1 == behind.first and (are_done or len(batch.runs) + len(behind.runs) <= BATCH_RUNS):
                self.merge(index)
            else:
                folded = batch.last
                index += 1
        return folded

    def _drop(self, start: int, end: int) -> None:
        for batch in self.batches[start:end]:
            batch.leaves()
        del self.batches[start:end]

    def narrow_gap(self, offset: Offset) -> None:
        """Shrink the gap: records before `offset` were fetched."""
        if self.gap_start == _NO_GAP:
            return
        # `maybeUpdatePersisterGapWindowStartOffset`: beyond what was loaded, gaps are natural ones.
        if self.gap_is_open and offset <= self._gap_end:
            self.gap_start = offset
        else:
            self.gap_start = self._gap_end = _NO_GAP

    def archive(self, batches: Iterable[InFlightBatch], first: Offset, last: Offset, state: DeliveryState) -> None:
        """Never deliver again the records between two offsets that are in `state`."""
        for batch in batches:
            for run in batch.between(first, last):
                if run.state is state:
                    batch.cut(run, first, last).archive()
                    self.look_for_available = True

    def archive_between(self, first: Offset, last: Offset, state: DeliveryState) -> None:
        """The same for all batches that may have one of these offsets."""
        self.archive(self.batches[max(0, self.floor(first)) : self.floor(last) + 1], first, last, state)

    def lift_holds(self) -> None:
        """The settings have changed: nothing waits for what they said."""
        for batch in self.batches:
            for run in batch.runs:
                run.hold = None
            batch.join()
        self.look_for_available = True

    def move_start(self, log_start_offset: Offset) -> None:
        """The log begins behind the start of the window now. What somebody has acquired stays theirs until they
        release it or its lock ends; nothing is written for this."""
        # `SharePartition.updateCacheAndOffsets`: only what is AVAILABLE is archived.
        if log_start_offset <= self.start_offset:
            return
        if not self.batches:
            self.start_offset = self.end_offset = log_start_offset
            return
        head = self.batches[: bisect_left(self.batches, log_start_offset, key=_FIRST)]
        self.archive(head, self.start_offset, log_start_offset - 1, DeliveryState.AVAILABLE)
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)

    def settle(self) -> bool:
        """Move the start over what is done with, and drop the batches before it; returns whether it could."""
        if not self._may_move():
            return False
        done_until = self._done_until()
        if done_until is None:
            return False
        # `maybeUpdateCachedStateAndOffsets`: the start may lie inside a batch, which is dropped only as a whole.
        if done_until == self.batches[-1].last:
            # The log may have been cut behind all that was in flight; the window never moves back.
            self.start_offset = self.end_offset = max(done_until + 1, self.start_offset)
            self._drop(0, len(self.batches))
            return True
        index = self.floor(done_until)
        if done_until == self.batches[index].last:
            # Over a natural gap to the next batch, but not over one that has to be fetched.
            start = max(self.batches[index + 1].first, self.start_offset)
            self.start_offset = min(self.gap_start, start) if self.gap_is_open else start
            index += 1
        else:
            self.start_offset = max(done_until + 1, self.start_offset)
        self._drop(0, index)
        return True

    def _may_move(self) -> bool:
        index = self.floor(self.start_offset)  # -1 where the window begins with a gap that has to be fetched
        return index >= 0 and may_close(self.batches[index].at(self.start_offset))

    def _done_until(self) -> Offset | None:
        """The last offset up to which nothing has to be delivered, acknowledged, or committed any more."""
        until = None
        for batch in self.batches:
            if self.gap_is_open and batch.last >= self.gap_start:  # behind it are records that were never acknowledged
                return until
            for run in batch.runs:
                if not may_close(run):
                    return until
                until = run.last
        return until


def _is_one_and_done(batch: InFlightBatch) -> bool:
    return len(batch.runs) == 1 and may_close(batch.runs[0])
