"""How records that were read are given to a member: which of them, in which batches, how many.

What is in flight and available is delivered again by the batches of its first delivery; the rest is new. A fetch has a
number of records that it wants (`records_max`), which whole batches of the log may exceed unless it says `strict`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.model import Millis, Offset
from ottla.protocol.internal.share_records import DeliveryState
from ottla.replication.share.aborted import OffsetRange, ReadBatch
from ottla.replication.share.config import ShareConfig
from ottla.replication.share.in_flight import InFlightBatch, Run
from ottla.replication.share.window import Window

Acquired = tuple[Offset, Offset, int]
"""Records in a row that a member has now: the first and last offset, both included, and how often they were delivered.
Offsets without a record among them are gaps that it acknowledges as such. A plain tuple: compiled code reads a field of
a named one by a call of a slot in Python, at a hundred times the cost."""


class Wanted:
    """The fetching member, and how much it wants."""

    __slots__ = ("batch_size", "member", "records_max", "strict")

    def __init__(self, member: str, records_max: int, batch_size: int, strict: bool = False) -> None:
        self.member = member
        self.records_max = records_max
        self.batch_size = batch_size
        """About how many records a batch should have that is acknowledged as one (ShareFetch's BatchSize)."""
        self.strict = strict
        """Whether `records_max` is a limit (ShareAcquireMode record_limit, KIP-1206), not a size to be about."""


class Acquisition:
    """One fetch from one share-partition."""

    __slots__ = ("_batches", "_config", "_deadline_ms", "_left", "_until", "_wanted", "_window", "acquired")

    def __init__(
        self, window: Window, config: ShareConfig, wanted: Wanted, batches: Sequence[ReadBatch], deadline_ms: Millis
    ) -> None:
        self._window = window
        self._config = config
        self._wanted = wanted
        self._batches = batches
        self._deadline_ms = deadline_ms
        """When the locks end."""
        self._left = 0
        """Records that may still be acquired."""
        self._until: Offset = -1
        """The last offset that may."""
        self.acquired: list[Acquired] = []

    def run(self, fetch_offset: Offset) -> None:
        """Acquire what may be of the batches, which were read from `fetch_offset` on."""
        window = self._window
        first_batch, last_batch = self._batches[0], self._batches[-1]
        first, last = first_batch.base_offset, last_batch.last_offset
        if last < window.start_offset or not self._measure(fetch_offset, last):
            return
        self._archive_compacted(fetch_offset, first)
        base = first
        floor = window.floor(base)
        if floor < 0:  # the start may lie inside a batch of the log: what is before it is not delivered (`acquire`)
            base = max(base, window.start_offset)
        elif window.batches[floor].last >= base:  # what was delivered keeps the batches that it was delivered in
            base = window.batches[floor].first
        if base > self._until:  # there is no room behind the window, and what was read is all there
            return
        in_flight = window.between(min(first, base), self._until)
        if not in_flight:
            self._new(base, self._until)
            return
        self._again(in_flight, first, base)
        if self._left > 0 and in_flight[-1].last < self._until:
            self._new(in_flight[-1].last + 1, self._until)
        if self.acquired:
            window.narrow_gap(self.acquired[-1][1] + 1)

    def _measure(self, fetch_offset: Offset, last: Offset) -> bool:
        """How much there is room for; in a full window only what is in it and available again."""
        window = self._window
        # `lastOffsetAndMaxRecordsToAcquire`: what was released inside a full window is delivered again, so that the
        # window can close; nothing behind its end is (KAFKA-19555).
        self._until = last
        self._left = min(self._wanted.records_max, self._config.partition_max_record_locks - window.count)
        if self._left <= 0 and fetch_offset <= window.end_offset:
            self._left = min(self._wanted.records_max, window.end_offset - fetch_offset + 1)
            self._until = min(last, window.end_offset)
        return self._left > 0

    def _archive_compacted(self, fetch_offset: Offset, first: Offset) -> None:
        """Archive records to redeliver that are no longer in the log: they were compacted."""
        window = self._window
        # `maybeArchiveStaleBatches`: without this the start of the window (SPSO) would never pass them.
        if fetch_offset >= first:
            return
        index = window.floor(fetch_offset)
        start = fetch_offset
        if index >= 0 and window.batches[index].last >= fetch_offset:
            start = window.batches[index].first
        window.archive(window.between(start, first - 1), fetch_offset, first - 1, DeliveryState.AVAILABLE)

    # What was delivered before

    def _again(self, in_flight: Iterable[InFlightBatch], first: Offset, base: Offset) -> None:
        gap = base
        count_before = len(self.acquired)
        for batch in in_flight:
            if self._left <= 0:
                return
            if self._window.gap_is_open:  # else gaps are natural (`isPersisterReadGapWindowActive`)
                if gap < batch.first:
                    self._new(gap, batch.first - 1)
                gap = batch.last + 1
                if self._left <= 0:
                    return
            throttled = self._is_throttled(batch, first)
            if throttled and len(self.acquired) > count_before:
                # Alone, in the next fetch: one bad record must not archive a whole batch (KAFKA-17541).
                self._left = 0
                return
            count = self._take(batch, first)
            self._left = 0 if throttled and count else self._left - count

    def _is_throttled(self, batch: InFlightBatch, first: Offset) -> bool:
        limit = self._config.throttled_from  # `shouldThrottleRecordsDelivery`
        return any(run.is_available and run.count >= limit for run in batch.seen(first, self._until))

    def _take(self, batch: InFlightBatch, first: Offset) -> int:
        """Acquire what is available in a batch; returns how many records. Those that come to their last delivery go
        alone, and the closer to it, the fewer at once."""
        config, member = self._config, self._wanted.member
        limit, last_attempt = config.delivery_count_limit, config.delivery_count_limit - 1
        taken: list[Acquired] = []
        count, count_max = 0, 0
        for run in batch.between(first, self._until):
            if not run.is_available:
                continue
            alone = limit > 2 and run.count == last_attempt
            if alone and count:  # `acquireSubsetBatchRecords`: others would be archived with it if it is the bad one
                break
            if run.count >= config.throttled_from and not count_max:  # a half of the batch, then a quarter, an eighth
                count_max = max(1, len(batch) >> (run.count - config.throttled_from + 1))
            start = max(run.first, first)
            room = 1 if alone else min(run.last, self._until) - start + 1
            if self._wanted.strict:  # record_limit (KIP-1206) takes a batch apart, batch_optimized exceeds the number
                room = min(room, self._left - count)
            if count < count_max:
                room = min(room, count_max - count)
            part = batch.cut(run, start, start + room - 1)
            part.acquire(member, self._deadline_ms)
            append_acquired(taken, (part.first, part.last, part.count))
            count += room
            if alone or count == count_max or (self._wanted.strict and count == self._left):
                break
        self.acquired += taken
        return count

    # What is new

    def _new(self, first: Offset, last: Offset) -> None:
        window, left = self._window, self._left
        if not window.batches and window.end_offset > first:  # the same batch, read again after the window has closed
            first = window.end_offset
        until = last
        if left < last - first + 1:
            # The window has whole batches of the log, in both modes; those that were loaded need not be whole.
            until = self._end_of_batch(first + left - 1)
            if window.gap_is_open and until > last:
                until = last
        whole = first
        if window.batches:
            head = window.batches[0]
            whole = head.first
        made = self._split(first, until)
        for start, end, _ in made:
            window.add(self._in_flight(start, end))
        if first <= whole:
            window.start_offset = first
        window.end_offset = max(window.end_offset, until)
        if self._wanted.strict:  # KIP-1206: one batch, not split by size; the rest of it stays available
            until = min(until, first + left - 1)
            made = [(first, until, 1)]
        self.acquired += made
        self._left -= until - first + 1
        window.narrow_gap(until + 1)

    def _in_flight(self, first: Offset, last: Offset) -> InFlightBatch:
        wanted = self._wanted
        run = Run(first, last, DeliveryState.ACQUIRED, 1, wanted.member, self._deadline_ms)
        batch = InFlightBatch(run)
        if wanted.strict and len(run) > self._left:
            rest = Run(run.first + self._left, run.last, DeliveryState.AVAILABLE, 0)
            run.last = rest.first - 1
            batch.runs.append(rest)
            self._window.look_for_available = True
        return batch

    def _end_of_batch(self, offset: Offset) -> Offset:
        """The end of the log's batch that an offset is in, so that it is read once."""
        for batch in reversed(self._batches):
            if batch.base_offset <= offset:
                return max(offset, batch.last_offset)
        return offset

    def _split(self, first: Offset, last: Offset) -> list[Acquired]:
        """Batches that end where one of the log's does and are no shorter than the wanted size."""
        made = []
        size = self._wanted.batch_size
        if not self._wanted.strict and last - first + 1 > size:
            for batch in self._batches:
                if batch.base_offset > last:
                    break
                if batch.base_offset - first >= size:
                    made.append((first, batch.base_offset - 1, 1))
                    first = batch.base_offset
        return [*made, (first, last, 1)]


def without(acquired: Iterable[Acquired], ranges: Sequence[OffsetRange]) -> list[Acquired]:
    """The part of `acquired` without the offsets of `ranges`, both in order."""
    left = []
    for first, last, count in acquired:
        for start, end in ranges:
            if end < first:
                continue
            if start > last:
                break
            if first < start:
                left.append((first, start - 1, count))
            first = end + 1
        if first <= last:
            left.append((first, last, count))
    return left


def append_acquired(taken: list[Acquired], more: Acquired) -> None:
    """Add to a list what may continue its end."""
    if taken:
        first, last, count = taken[-1]
        if last + 1 == more[0] and count == more[2]:
            taken[-1] = (first, more[1], count)
            return
    taken.append(more)
