"""Records in flight, by the batch that they were delivered in: runs of neighbours that stand alike.

Kafka's InFlightBatch has one state, or one for each offset. Here a batch has runs, and one that nobody took apart has
a single one; what can be seen from outside is the same, and costs what differs, not what there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ottla.model import Millis, Offset
from ottla.protocol.internal.share_records import DeliveryState
from ottla.replication.share.config import ShareConfig

DONE_COUNT: Final = 0x7FFF
"""Stands for any number of deliveries, where it no longer matters."""

NOBODY: Final = ""
"""Stands for no member that has acquired the record."""

_AVAILABLE: Final = DeliveryState.AVAILABLE
_ACQUIRED: Final = DeliveryState.ACQUIRED
_ACKNOWLEDGED: Final = DeliveryState.ACKNOWLEDGED
_ARCHIVED: Final = DeliveryState.ARCHIVED
"""Members of an enumeration are slow to look up, and these are looked up for each run."""


class Hold(NamedTuple):
    """Why available records may not be delivered yet (see `selection.py`)."""

    is_behind_key: bool
    """Another record of the key is not done with."""
    wait_ms: Millis
    """When to look again, on the timer clock; 0 for no wait."""
    due_ms: Millis
    """The time before which the record must not be delivered, in milliseconds since 1970; 0 for none."""


class Span:
    """Offsets in a row, both ends included."""

    __slots__ = ("first", "last")

    first: Offset
    last: Offset

    def __len__(self) -> int:
        return self.last - self.first + 1


class Run(Span):
    """Offsets of one batch that stand alike."""

    __slots__ = ("count", "deadline_ms", "hold", "member", "pending", "previous", "state")

    def __init__(
        self,
        first: Offset,
        last: Offset,
        state: DeliveryState,
        count: int,
        member: str = NOBODY,
        deadline_ms: Millis | None = None,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        """How often it was delivered, the running delivery included."""
        self.member = member
        """**Invariant**: NOBODY unless it is ACQUIRED."""
        self.deadline_ms = deadline_ms
        """When the lock ends, on the timer clock; kept while a change is pending, for that may be undone."""
        self.pending: Any = None
        """The write that has to be committed for the change of state to count; nobody touches the run until then."""
        self.previous: tuple[DeliveryState, str] | None = None
        """State and member to go back to if it fails."""
        self.hold: Hold | None = None
        """**Invariant**: None unless it is AVAILABLE and nothing is pending."""

    @property
    def is_available(self) -> bool:
        return may_take(self)

    @property
    def is_done(self) -> bool:
        """Whether the window may close over it."""
        return may_close(self)

    def acquire(self, member: str, deadline_ms: Millis) -> None:
        assert may_take(self)
        self.state = _ACQUIRED
        self.count += 1
        self.member = member
        self.deadline_ms = deadline_ms

    def begin(self, state: DeliveryState, config: ShareConfig, pending: Any) -> None:
        """Leave ACQUIRED once `pending` is committed. What was delivered as often as it may be is not AVAILABLE again,
        but ARCHIVED, or ARCHIVING until its dead letter is written."""
        assert self.state is _ACQUIRED and self.pending is None
        # KIP-932: an acknowledgement counts once the share coordinator has kept it (`startStateTransition`).
        self.previous = (self.state, self.member)
        self.pending = pending
        self.state = _limited(state, self.count, config)
        self.member = NOBODY

    def undo(self, config: ShareConfig, now_ms: Millis) -> None:
        """Take the change back; a lock that ended meanwhile has ended."""
        # `InFlightState.completeStateTransition`. The count stays: the records were delivered.
        previous, self.pending, self.previous = self.previous, None, None
        if previous is None:  # archived meanwhile
            self.deadline_ms = None
        elif self.deadline_ms is not None and self.deadline_ms <= now_ms:
            self.state = _limited(DeliveryState.AVAILABLE, self.count, config)
            self.deadline_ms = None
        else:
            self.state, self.member = previous

    def expire(self, state: DeliveryState, config: ShareConfig) -> None:
        """The lock has ended."""
        assert self.state is _ACQUIRED and self.pending is None
        self.state = _limited(state, self.count, config)
        self.member = NOBODY
        self.deadline_ms = None

    def archive(self) -> None:
        """Whatever becomes of a pending change, it will not be delivered again."""
        self.state = _ARCHIVED
        self.member = NOBODY
        self.deadline_ms = None
        self.previous = self.hold = None

    def drop_history(self) -> None:
        """How it came to be done with no longer matters, so that neighbours are one run."""
        assert may_close(self)
        self.state = _ARCHIVED
        self.count = DONE_COUNT

    def part(self, first: Offset, last: Offset) -> Run:
        """A copy of some of its offsets."""
        copy = new_run(first, last, self.state, self.count, self.hold)
        copy.member, copy.deadline_ms = self.member, self.deadline_ms
        copy.pending, copy.previous = self.pending, self.previous
        return copy

    def is_like(self, other: Run) -> bool:
        return (
            self.state is other.state
            and self.count == other.count
            and self.member == other.member
            and self.pending is other.pending
            and (self.hold is other.hold or self.hold == other.hold)
            and self.deadline_ms == other.deadline_ms
            and self.previous == other.previous
        )


def _limited(state: DeliveryState, count: int, config: ShareConfig) -> DeliveryState:
    # KIP-932: `group.share.delivery.count.limit`; with a topic for dead letters ARCHIVING comes first (KIP-1191).
    is_dead = state is _AVAILABLE and count >= config.delivery_count_limit
    return config.dead_state if is_dead else state


def new_run(first: Offset, last: Offset, state: DeliveryState, count: int, hold: Hold | None) -> Run:
    """Make a run that nobody has. The same as `Run`, without the cost of a call with arguments in compiled code."""
    run = Run.__new__(Run)
    run.first, run.last, run.state, run.count, run.hold = first, last, state, count, hold
    run.member = NOBODY
    run.deadline_ms = run.pending = run.previous = None
    return run


def may_close(run: Run) -> bool:
    """`Run.is_done` for compiled code, which calls a function at less cost than a property."""
    return (run.state is _ARCHIVED or run.state is _ACKNOWLEDGED) and run.pending is None


def may_take(run: Run) -> bool:
    """`Run.is_available` for compiled code."""
    return run.state is _AVAILABLE and run.pending is None and run.hold is None


class Counts:
    """How many records and runs stand how."""

    __slots__ = ("in_flight", "terminal", "waiting", "waiting_runs")

    def __init__(self) -> None:
        self.in_flight = 0
        """Records that a member has, or may have, or of which a change is not yet kept."""
        self.terminal = 0
        """Records done with, pending changes included."""
        self.waiting = 0
        """Records with a `Hold`."""
        self.waiting_runs = 0

    def add(self, other: Counts, sign: int = 1) -> None:
        self.in_flight += sign * other.in_flight
        self.terminal += sign * other.terminal
        self.waiting += sign * other.waiting
        self.waiting_runs += sign * other.waiting_runs


def counted(runs: list[Run], first: Offset, last: Offset) -> Counts:
    """The records of `runs` between two offsets."""
    found = Counts()
    for run in runs:
        if run.first > last or run.last < first:
            continue
        count = min(run.last, last) - max(run.first, first) + 1
        if run.state is _ARCHIVED or run.state is _ACKNOWLEDGED:
            found.terminal += count  # KIP-1226: the lag counts them as done with before they are kept
            if run.pending is not None:
                found.in_flight += count
        elif run.hold is None:
            found.in_flight += count
        else:
            found.waiting += count
            found.waiting_runs += 1
    return found


class InFlightBatch(Span):
    """Records acquired at once, in batches as the log's batches suggest."""

    __slots__ = ("_is_changed", "_window_changes", "counts", "runs")

    def __init__(self, run: Run) -> None:
        self.first = run.first
        self.last = run.last
        self.runs = [run]
        """**Invariant**: in the order of their offsets, without a gap, from `first` to `last`."""
        self.counts = Counts()
        """As the window has last counted them."""
        self._is_changed = True
        """Whether a run may have changed since."""
        self._window_changes: list[InFlightBatch] | None = None
        """The changed batches of the window that it is in."""

    def changed(self) -> None:
        """A run changes; `between`, `cut` and `join` say so themselves."""
        if not self._is_changed:
            self._is_changed = True
            if self._window_changes is not None:
                self._window_changes.append(self)

    def enters(self, window_changes: list[InFlightBatch]) -> None:
        """It is in a window now, which has not counted it yet."""
        self._window_changes = window_changes
        self._is_changed = True
        window_changes.append(self)

    def leaves(self) -> None:
        self.changed()
        self._window_changes = None

    def recount(self, total: Counts) -> None:
        """Bring a sum of the counts of all batches up to date. A batch that has left counts as nothing."""
        total.add(self.counts, -1)
        self.counts = Counts() if self._window_changes is None else counted(self.runs, self.first, self.last)
        total.add(self.counts)
        self._is_changed = False

    def between(self, first: Offset, last: Offset) -> list[Run]:
        """The runs that have some of these offsets. They may be cut on the way (`cut`)."""
        self.changed()
        return self.seen(first, last)

    def seen(self, first: Offset, last: Offset) -> list[Run]:
        """The same, for one that changes nothing."""
        runs = self.runs
        if len(runs) == 1:
            return [runs[0]] if runs[0].first <= last and runs[0].last >= first else []
        start, count = floor(runs, first), len(runs)
        if start < 0:
            start = 0
        else:
            run = runs[start]
            if run.last >= last:
                return [run]
            if run.last < first:
                start += 1
        end = start
        while end < count:
            run = runs[end]
            if run.first > last:
                break
            end += 1
        return runs[start:end]

    def at(self, offset: Offset) -> Run:
        """The run that has an offset; the last one for what is behind the batch."""
        return self.runs[max(0, floor(self.runs, offset))]

    def cut(self, run: Run, first: Offset, last: Offset) -> Run:
        """Make `run` these offsets only, as far as it has them; what it had beside them are new runs."""
        self.changed()
        if run.first >= first and run.last <= last:
            return run
        index = floor(self.runs, run.first)
        assert self.runs[index] is run
        pieces = [run]
        if run.first < first:
            pieces.insert(0, run.part(run.first, first - 1))
            run.first = first
        if run.last > last:
            pieces.append(run.part(last + 1, run.last))
            run.last = last
        self.runs[index : index + 1] = pieces
        return run

    def commit(self, pending: Any, drops_history: bool) -> list[Run]:
        """Commit the changes that wait for a write. Returns the runs that are to be delivered again; the caller has
        neighbours joined once it is known whether these wait."""
        freed: list[Run] = []
        for run in self.runs:
            if run.pending is pending:
                run.pending = run.previous = run.deadline_ms = None
                if run.state is _AVAILABLE:
                    freed.append(run)
            if drops_history and may_close(run):  # Ottla's own: windows with records that wait are long
                run.drop_history()
        return freed

    def join(self) -> None:
        """Make neighbours that stand alike one run again."""
        self.changed()
        runs = self.runs
        joined = [runs[0]]
        before = runs[0]
        for index in range(1, len(runs)):
            run = runs[index]
            if before.is_like(run):
                before.last = run.last
            else:
                joined.append(run)
                before = run
        self.runs = joined


def floor(runs: Sequence[Run], offset: Offset) -> int:
    """The index of the last of some runs, which are in order, that begins at or before an offset; -1 if none does."""
    low, high = 0, len(runs)
    while low < high:
        middle = (low + high) >> 1
        run = runs[middle]
        if run.first <= offset:
            low = middle + 1
        else:
            high = middle
    return low - 1
