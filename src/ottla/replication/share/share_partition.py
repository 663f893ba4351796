"""One partition as one share group sees it, on the partition's leader (Kafka's SharePartition, KIP-932).

    calls in     what a fetch has read (`acquire`), acknowledgements, the end of a member's session (`release`), a log
                 that begins later (`move_start`), time (`advance`), what became of a write (`written`)
    writes out   each call that changes what must outlive this leader returns the StateWrite that the share coordinator
                 is to keep; until it has, the change is pending, and if it cannot, it is undone

What members have acquired is in memory only: a new leader delivers it again, and counts the delivery that it does not
know of as none. Times are of the timer clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.errors import KafkaError
from ottla.model import LeaderEpoch, Millis, Offset
from ottla.protocol.internal.share_records import DeliveryState
from ottla.protocol.schemas.records import StateBatch
from ottla.replication.share.aborted import OffsetRange, ReadBatch
from ottla.replication.share.acknowledgement import (
    Acknowledgement,
    StateWrite,
    acknowledge,
    commit,
    join,
    touched,
)
from ottla.replication.share.acquisition import Acquired, Acquisition, Wanted, without
from ottla.replication.share.config import Mark, ShareConfig, Times
from ottla.replication.share.dead_letters import DeadRecords, Reason, add_dead, left_by_the_last_leader
from ottla.replication.share.in_flight import InFlightBatch, Run
from ottla.replication.share.ranges import spans
from ottla.replication.share.window import Window

if TYPE_CHECKING:
    from ottla.replication.share.selection import Selection


NEAR: Final = 500
"""Locks of one delivery that are no further apart end by one timer."""


@dataclass(frozen=True, slots=True)
class LoadedState:
    """What the share coordinator has kept (ReadShareGroupState). A start offset of -1 (the group is new) is the
    caller's to replace, by `share.auto.offset.reset`."""

    state_epoch: int
    start_offset: Offset
    batches: Sequence[StateBatch] = ()


class SharePartition:
    __slots__ = ("_dead", "_deadlines", "ahead_ms", "config", "leader_epoch", "selection", "state_epoch", "window")

    def __init__(self, loaded: LoadedState, leader_epoch: LeaderEpoch, config: ShareConfig) -> None:
        """Raises ValueError for state that no leader writes."""
        self.config = config
        self.state_epoch = loaded.state_epoch
        self.leader_epoch = leader_epoch
        self.window = Window(loaded.start_offset, loaded.batches)
        self._deadlines: list[tuple[Millis, Offset, Offset]] = []
        """A heap of when locks end, and of which records; some were given up before."""
        self._dead = [*left_by_the_last_leader(loaded.batches, config.delivery_count_limit)]
        self.selection: Selection | None = None
        """None unless the group's settings make records wait."""
        self.ahead_ms: Millis = 0
        """Milliseconds since 1970 less the timer clock, where there is a selection."""
        if config.selects:
            self._select()

    def use(self, config: ShareConfig, ahead_ms: Millis = 0) -> None:
        """The settings may have changed; what is locked stays so for as long as was said."""
        self.ahead_ms = ahead_ms
        if config is not self.config:
            self.config = config
            if config.selects or self.selection is not None:
                self._select()

    def _select(self) -> None:
        from ottla.replication.share.selection import Selection

        config, selection = self.config, self.selection
        if selection is not None and config.selects and selection.config.mark_settings == config.mark_settings:
            selection.config = config
            return
        if selection is not None:
            self.window.lift_holds()
        self.selection = Selection(self.window, config) if config.selects else None

    # What there is

    def next_fetch_offset(self) -> Offset:
        """Where the next fetch is to read."""
        if self.selection is not None:
            return self.selection.next_fetch_offset()
        return self.window.next_fetch_offset()

    def can_acquire(self) -> bool:
        """Whether there is room, or something to deliver again."""
        if self.selection is not None:
            return self.selection.can_acquire()
        if self.next_fetch_offset() != self.window.end_offset + 1:
            return True
        return self.window.count < self.config.partition_max_record_locks  # what is in flight is bounded (KIP-932)

    def next_deadline(self) -> Millis | None:
        """When to call `advance`; None while nothing is acquired and nothing waits for a time."""
        deadline = self._deadlines[0][0] if self._deadlines else None
        wait = None if self.selection is None else self.selection.next_wait()
        return deadline if wait is None else wait if deadline is None else min(wait, deadline)

    # Deliveries

    def parts(self, records_max: int) -> list[OffsetRange]:
        """What a fetch of so many records is to read: the places in the log where it may find them."""
        if self.selection is not None:
            return self.selection.parts(records_max)
        offset = self.window.next_fetch_offset()
        # Whatever is acquired lies before: in the window, or behind it no more than is wanted.
        return [OffsetRange(offset, max(offset, self.window.end_offset + 1) + records_max)]

    def acquire(
        self,
        wanted: Wanted,
        fetch_offset: Offset,
        batches: Sequence[ReadBatch],
        now_ms: Millis,
        aborted: Sequence[OffsetRange] = (),
        marks: Sequence[Mark] | None = None,
        parts: Sequence[OffsetRange] = (),
    ) -> list[Acquired]:
        """Give a member what it may have of the batches that were read from `fetch_offset` on, or in `parts`; its locks
        begin now. Those of `aborted` transactions are archived instead. `marks` has what was read in the records, if
        the settings ask for it and they were not scanned before."""
        if not batches or wanted.records_max <= 0:
            return []
        deadline_ms = now_ms + self.config.record_lock_duration_ms
        if self.selection is not None:
            parts = parts or (OffsetRange(fetch_offset, batches[-1].last_offset),)
            times = self._times(now_ms)
            acquired = self.selection.acquire(wanted, parts, batches, marks, aborted, deadline_ms, times)
            self._locked(acquired, deadline_ms)
            return acquired
        acquisition = Acquisition(self.window, self.config, wanted, batches, deadline_ms)
        acquisition.run(fetch_offset)
        acquired = acquisition.acquired
        if acquired and aborted:
            for first, last in aborted:
                self.window.archive_between(first, last, DeliveryState.ACQUIRED)  # none of it is shown (KIP-932)
            acquired = without(acquired, aborted)
        self._locked(acquired, deadline_ms)
        return acquired

    def _locked(self, acquired: Sequence[Acquired], deadline_ms: Millis) -> None:
        for first, last in spans(acquired, NEAR):
            heapq.heappush(self._deadlines, (deadline_ms, first, last))

    def still_held(self, member: str, acquired: Sequence[Acquired]) -> list[Acquired]:
        """What a member still has of the records that it has acquired: a lock may have ended since."""
        found: list[Acquired] = []
        for first, last, count in acquired:
            for batch in touched(self.window, [(first, last)]):
                found += [
                    (max(first, run.first), min(last, run.last), count)
                    for run in batch.seen(first, last)
                    if run.state is DeliveryState.ACQUIRED and run.member == member and run.count == count
                ]
        return found

    def acknowledge(
        self, member: str, acknowledgements: Iterable[Acknowledgement], now_ms: Millis
    ) -> StateWrite | None:
        """Begin what a member asks for; None if there is nothing to write. All or nothing, but for renewed locks:
        raises INVALID_REQUEST or INVALID_RECORD_STATE (see `acknowledgement.py`)."""
        write = self._new_write()
        deadline_ms = now_ms + self.config.record_lock_duration_ms
        acknowledgements = [*acknowledgements]
        try:
            renewed = acknowledge(self.window, self.config, member, acknowledgements, write, deadline_ms)
        except KafkaError:
            # Perhaps a lock was renewed before that.
            self._renewed(acknowledgements, deadline_ms)
            self._undo(write, now_ms)  # one record in a wrong state refuses all of them (`SharePartition`)
            self._done(write, now_ms)
            raise
        if renewed:
            self._renewed(acknowledgements, deadline_ms)
        return self._finished(write)

    def _renewed(self, acknowledgements: Iterable[Acknowledgement], deadline_ms: Millis) -> None:
        for first, last, _ in acknowledgements:
            heapq.heappush(self._deadlines, (deadline_ms, first, last))

    def release(self, member: str) -> StateWrite | None:
        """The session of a member has ended: what it has acquired is available again, or archived if it has been
        delivered as often as it may be or the log begins behind it."""
        write = self._new_write()
        for batch in self.window.batches:
            for run in batch.seen(batch.first, batch.last):
                if run.state is DeliveryState.ACQUIRED and run.pending is None and run.member == member:
                    batch.changed()
                    for part, state in self._around_start(batch, run):
                        part.begin(state, self.config, write)
                        write.add(part)
        return self._finished(write)

    def advance(self, now_ms: Millis) -> StateWrite | None:
        """End the locks that are past their deadline. This is not undone if the write fails: the member has lost its
        claim, and a new leader would deliver the records again just so."""
        if self.selection is not None:
            self.selection.advance(self._times(now_ms))
        if not self._deadlines or self._deadlines[0][0] > now_ms:
            return None
        write = self._new_write(stands=True)
        past = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            past.append(heapq.heappop(self._deadlines)[1:])
        for batch in touched(self.window, past):
            is_changed = False
            for run in batch.seen(batch.first, batch.last):
                if (
                    run.state is DeliveryState.ACQUIRED
                    and run.pending is None
                    and run.deadline_ms is not None
                    and run.deadline_ms <= now_ms
                ):
                    is_changed = True
                    for part, state in self._around_start(batch, run):
                        part.expire(state, self.config)
                        write.add(part)
                        self._is_available(part, now_ms)
            if is_changed:
                batch.join()
        return self._finished(write)

    def written(self, write: StateWrite, now_ms: Millis, *, committed: bool) -> bool:
        """The share coordinator has kept a write, or cannot; returns whether the window has changed such that fetches
        that wait should be looked at."""
        if committed or write.stands:
            self._dead += write.dead
        if not committed:
            undone = self._undo(write, now_ms)
            self._done(write, now_ms)
            return undone | self.window.settle()
        batches = self._touched(write)
        if freed := commit(batches, write, self.selection is not None):
            for run in freed:
                self._is_available(run, now_ms)
            join(batches)
        self._done(write, now_ms)
        self.window.settle()
        return True

    def move_start(self, log_start_offset: Offset, now_ms: Millis = 0) -> None:
        """The log was cut at its start: what was there is not delivered any more, and what members have of it is
        archived when they give it up."""
        self.window.move_start(log_start_offset)
        if self.selection is not None:
            self.selection.sweep(self._times(now_ms))

    # Dead letters

    def take_dead(self) -> list[DeadRecords]:
        """Records whose dead letters are to be written now. Each is handed out once, and is ARCHIVING until
        `archived`."""
        dead, self._dead = self._dead, []
        return dead

    def archived(self, dead: DeadRecords) -> StateWrite | None:
        """The letters of records are written, or cannot be. This is not undone if the write fails: a new leader would
        write the letters again."""
        write = self._new_write(stands=True)
        window = self.window
        start = max(0, window.floor(dead.first_offset))
        for batch in window.batches[start : window.floor(dead.last_offset) + 1]:
            for run in batch.between(dead.first_offset, dead.last_offset):
                if run.state is DeliveryState.ARCHIVING:
                    part = batch.cut(run, dead.first_offset, dead.last_offset)
                    part.archive()
                    write.add(part, None)
            batch.join()
        return self._finished(write)

    # Parts

    def _times(self, now_ms: Millis) -> Times:
        return Times(now_ms, now_ms + self.ahead_ms)

    def _is_available(self, run: Run, now_ms: Millis) -> None:
        """Note a run that is perhaps available again."""
        if run.state is DeliveryState.AVAILABLE:
            self.window.look_for_available = True
            if self.selection is not None:
                self.selection.available(run, now_ms)

    def _done(self, write: StateWrite, now_ms: Millis) -> None:
        """It is decided what becomes of the records of a write: those behind them, by their keys, go on."""
        if self.selection is not None and write.rows:
            self.selection.done_all(write.rows, self._times(now_ms))

    def _new_write(self, *, stands: bool = False) -> StateWrite:
        return StateWrite(self.state_epoch, self.leader_epoch, stands)

    def _finished(self, write: StateWrite) -> StateWrite | None:
        if not write.rows:
            return None
        write.start_offset = self.window.start_offset  # all below is done with: a new leader begins here (KIP-932)
        write.delivery_complete_count = self.window.complete_count()
        return write

    def _around_start(self, batch: InFlightBatch, run: Run) -> list[tuple[Run, DeliveryState]]:
        """A run that is given up, in parts: what is before the start of the window is archived."""
        start = self.window.start_offset
        if run.first >= start:
            return [(run, DeliveryState.AVAILABLE)]
        if run.last < start:
            return [(run, DeliveryState.ARCHIVED)]
        last = run.last
        return [
            (batch.cut(run, run.first, start - 1), DeliveryState.ARCHIVED),
            (batch.cut(batch.at(start), start, last), DeliveryState.AVAILABLE),
        ]

    def _touched(self, write: StateWrite) -> list[InFlightBatch]:
        """The batches that may have runs of a write."""
        return touched(self.window, write.rows)

    def _undo(self, write: StateWrite, now_ms: Millis) -> bool:
        """Returns whether something is available that was not."""
        found = False
        for batch in self._touched(write):
            for run in batch.runs:
                if run.pending is write:
                    run.undo(self.config, now_ms)
                    found |= run.state is DeliveryState.AVAILABLE
                    if run.state is DeliveryState.ARCHIVING:  # its lock has ended meanwhile
                        add_dead(self._dead, DeadRecords(run.first, run.last, run.count, Reason.DELIVERIES))
                    self._is_available(run, now_ms)
            batch.join()
        self.window.look_for_available |= found
        return found
