"""How a micro-batch is written exactly once: who decides, what is repeated, what is undone.

`docs/inside/exactly-once.md` says why it is right, and `tests/unit/spark/test_exactly_once.py` walks its crash points.

Each attempt of a task writes in a transaction of its own and leaves it open. The driver then *decides*: one record, in
a compacted topic, names the batch and the transactions that are its result. Whatever is decided is committed, by this
driver or by the next one; whatever is not is aborted. A decision is written in a transaction of the query's own
transactional id, so that of two drivers only the last to claim it can decide.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

AGE_S_MIN = 60.0
"""Age at which an open transaction of a run that is neither this nor the one before counts as left over: such a run may
also be a later one, of another driver with another clock."""
_NO_BATCH = -1
_VERSION = 1


class Written(NamedTuple):
    """What an attempt of a task has written: a transaction that is complete but for its end.

    `digest` tells attempts apart whose rows differ: it goes over all rows in their order.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    task: int
    """The number of the task in its stage: the same for all its attempts."""
    rows: int
    digest: str


class Dropped(NamedTuple):
    """A transaction of another run that is taken for left over: nobody decides about it any more, so that it may be
    aborted."""

    producer_id: int
    epoch: int
    batch: int
    """The newest one that was decided then."""


class Decision(NamedTuple):
    """These transactions, and no others, are what `batch` wrote."""

    batch: int
    run: str
    """The run of the query, from one start to the next."""
    written: tuple[Written, ...]
    dropped: tuple[Dropped, ...] = ()

    def to_json(self) -> bytes:
        return json.dumps({"version": _VERSION, **self._asdict()}, separators=(",", ":")).encode()

    @classmethod
    def of_json(cls, text: bytes) -> Decision:
        """Raises ValueError for what a later version wrote."""
        given: dict[str, Any] = json.loads(text)
        if given.get("version") != _VERSION:
            raise ValueError(f"a decision of version {given.get('version')}; {_VERSION} is known here")
        written = tuple(Written(*row) for row in given["written"])
        return cls(given["batch"], given["run"], written, tuple(Dropped(*row) for row in given["dropped"]))

    def dropped_for(self, batch: int) -> tuple[Dropped, ...]:
        """Dropped transactions that may belong to a driver that writes `batch` or the one after it."""
        return tuple(one for one in self.dropped if one.batch >= batch - 1)


class Open(NamedTuple):
    """A transaction that its coordinator has as open."""

    written: Written
    run: str
    age_s: float


class State(Enum):
    """State of a transaction of a given producer id and epoch, as its coordinator reports it."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """The coordinator does not have it, or the producer has begun another one since."""


class Fenced(Exception):
    """Another driver has claimed the query since."""


class Port(Protocol):
    """The cluster, as the protocol needs it. Every call may fail with an OSError or KafkaError, done or not."""

    def claim(self) -> None:
        """Claim the query: from here on no earlier claimant can decide; its undecided decision is dropped."""

    def decision(self) -> Decision | None:
        """The newest decision about this query. Only after `claim`."""

    def decide(self, decision: Decision) -> None:
        """Durable when it returns, and unknown when it fails. Raises Fenced."""

    def states(self, written: Sequence[Written]) -> list[State]: ...

    def end(self, written: Written, commit: bool) -> State:
        """Commit or abort; the state that the transaction is in now, where it could not be ended so too."""

    def open_transactions(self) -> list[Open]:
        """All of this query that are open, of whichever run."""

    def open_if_known(self) -> list[Open]:
        """The same for before a batch is committed, which a node that does not answer must not keep from being done:
        none then, and they are aborted later, when they are old."""


class WriteFailed(Exception):
    """Nothing of the batch is visible; it can be run again."""


class HalfCommitted(Exception):
    """A part of a decided batch was aborted by its timeout, and what was written now is not the same: a person has to
    choose."""


class CheckpointWentBack(Exception):
    """A later batch of this query is committed."""


@dataclass
class Committer:
    """Commits one run of a query, in its driver. After an exception it can be called again."""

    port: Port
    run: str
    is_only: bool = False
    """Whether the query has one batch: once that is decided, nothing else of it can be."""
    claimed: bool = False
    last: Decision | None = None
    """Meaningful while `claimed`: nobody else can have decided since, or `decide` says so."""
    run_before: str | None = None
    """The run whose decision was the newest when this run first claimed the query."""
    at_first: frozenset[tuple[int, int]] = frozenset()
    """What others had open when nothing was decided yet: they can only be at the batch that is decided first."""

    def commit(self, batch: int, written: Sequence[Written]) -> None:
        """Make what the tasks of `batch` wrote its result, or find that this has been done before.

        Raises WriteFailed, HalfCommitted, CheckpointWentBack; KafkaError and OSError where the cluster cannot be asked.
        """
        try:
            try:
                self._commit(batch, written)
            except Fenced:
                self.claimed = False
                self._commit(batch, written)
        except BaseException as error:
            self.claimed = False
            if isinstance(error, Fenced):
                raise WriteFailed(f"batch {batch}: two drivers of this query are running") from error
            raise

    def _commit(self, batch: int, written: Sequence[Written]) -> None:
        last = self._last()
        if last is not None and last.batch > batch:
            raise CheckpointWentBack(
                f"batch {batch} was to be written, but batch {last.batch} of this query is committed already: its "
                f"checkpoint is older than its output. Start with a new checkpoint, from offsets of your choice"
            )
        if last is not None and last.batch == batch:
            self._repeat(last, written)
            return
        self._check_open(batch, written)
        dropped = last.dropped_for(batch) if last is not None else ()
        lost = self._carry_out(Decision(batch, self.run, tuple(written), dropped))
        if lost:
            raise WriteFailed(f"batch {batch}: {_aborted(lost)} after it was decided; the batch has to be run again")

    def _last(self) -> Decision | None:
        if not self.claimed:
            self.port.claim()
            self.last = self.port.decision()
            if not self._is_any_decided() and not self.is_only:
                others = [one.written for one in self.port.open_if_known() if one.run != self.run]
                self.at_first = frozenset((one.producer_id, one.epoch) for one in others)
            self.claimed = True
            if self.last is not None and self.last.run != self.run and self.run_before is None:
                self.run_before = self.last.run
        return self.last

    def _check_open(self, batch: int, written: Sequence[Written]) -> None:
        """Before it is decided, a transaction that is gone costs no more than running the batch again."""
        states = self.port.states(written)
        dropped = {(one.producer_id, one.epoch) for one in self.last.dropped} if self.last is not None else set()
        if gone := [
            one
            for one, state in zip(written, states, strict=True)
            if state is not State.OPEN or (one.producer_id, one.epoch) in dropped
        ]:
            raise WriteFailed(
                f"batch {batch}: {_aborted(gone)} before the batch was complete; if tasks take long, raise"
                " kafka.transaction.timeout.ms"
            )

    def _carry_out(self, decision: Decision) -> list[Written]:
        """Decide, and commit; returns what was aborted nevertheless."""
        self.port.decide(decision)
        self.last = decision
        return self._complete(decision)

    def _complete(self, decision: Decision) -> list[Written]:
        lost = []
        for one in decision.written:
            state = self.port.end(one, commit=True)
            if state is State.UNKNOWN:
                raise HalfCommitted(
                    f"batch {decision.batch} was decided, but the coordinator no longer knows the outcome of "
                    f"transaction {one.transactional_id}. {_CHOICE}"
                )
            if state is not State.COMMITTED:
                lost.append(one)
        return lost

    def _repeat(self, decision: Decision, written: Sequence[Written]) -> None:
        """The batch is decided. What was written this time is dropped, but for what takes the place of transactions
        that timed out between the decision and their commit."""
        lost = self._complete(decision)
        mine = {one.task: one for one in written if one not in decision.written}
        if lost and len(mine) < len(written):
            raise WriteFailed(f"batch {decision.batch}: {_aborted(lost)} after it was decided; it must be run again")
        if lost:
            is_any_visible = len(lost) < len(decision.written)
            taken = self._substitutes(decision, lost, mine) if is_any_visible else list(mine.values())
            kept = [one for one in decision.written if one not in lost]
            self._check_open(decision.batch, taken)
            still = self._carry_out(decision._replace(run=self.run, written=(*kept, *taken)))
            if still:
                raise WriteFailed(f"batch {decision.batch}: {_aborted(still)} after it was decided; run it again")
            mine = {task: one for task, one in mine.items() if one not in taken}
        for one in mine.values():
            self.port.end(one, commit=False)

    def _substitutes(self, decision: Decision, lost: Sequence[Written], mine: dict[int, Written]) -> list[Written]:
        """Sound only where every task wrote the same rows again: rows may have moved from task to task otherwise."""
        before = {one.task: (one.rows, one.digest) for one in decision.written}
        after = {task: (one.rows, one.digest) for task, one in mine.items()}
        if before != after:
            raise HalfCommitted(
                f"batch {decision.batch} was decided, then {_aborted(lost)} before the driver could commit, and "
                f"rerunning the batch gives different rows or tasks. {_CHOICE}"
            )
        return [mine[one.task] for one in lost]

    def abort(self, written: Iterable[Written]) -> None:
        """The batch has failed, perhaps in `commit`, and perhaps after the decision: what is decided is left for the
        next run to commit."""
        decided = self._decided()
        for one in written:
            if (one.producer_id, one.epoch) not in decided:
                self.port.end(one, commit=False)

    def clean(self) -> int:
        """Abort what lost tasks and killed drivers have left open, so that readers of committed records go on; returns
        how many. Between two batches only, when all that this run and the one before it have open is left over.
        Another driver's that has just begun are not to be touched, unless they came too late; and none that a driver,
        however late, can still decide about: what is another run's is dropped by a decision first.
        """
        decided = self._decided()
        is_any_decided = self._is_any_decided()
        found = []
        for one in self.port.open_transactions():
            place = one.written.producer_id, one.written.epoch
            is_left = one.run in (self.run, self.run_before) or one.age_s >= AGE_S_MIN
            is_late = is_any_decided and (self.is_only or place in self.at_first)
            if place not in decided and (is_left or is_late):
                found.append(one)
        try:
            others = [one for one in found if one.run != self.run]
            if others:
                self._drop([one.written for one in others])
        except BaseException as error:
            self.claimed = False
            if not isinstance(error, Fenced):
                raise
            found = [one for one in found if one.run == self.run]  # the others are for whoever has claimed it since
        for one in found:
            self.port.end(one.written, commit=False)
        return len(found)

    def _drop(self, others: Sequence[Written]) -> None:
        """Record transactions as dropped. A driver that claims the query later sees the record; one that has claimed it
        since makes this fail."""
        last = self.last if self.last is not None else Decision(_NO_BATCH, self.run, ())
        more = tuple(Dropped(one.producer_id, one.epoch, last.batch) for one in others)
        decision = last._replace(run=self.run, dropped=(*last.dropped_for(last.batch), *more))
        self.port.decide(decision)
        self.last = decision

    def _is_any_decided(self) -> bool:
        """Batches, that is: transactions may have been dropped before."""
        return self.last is not None and self.last.batch != _NO_BATCH

    def _decided(self) -> set[tuple[int, int]]:
        last = self._last()
        return {(one.producer_id, one.epoch) for one in last.written} if last is not None else set()


_CHOICE = (
    "A part of it is visible to readers. Nothing else was committed; to continue, compare the output with the input"
    " of this batch, and start with a new checkpoint. A larger kafka.transaction.timeout.ms (and the broker's"
    " transaction.max.timeout.ms) leaves a killed driver more time"
)


def _aborted(lost: Sequence[Written]) -> str:
    names = ", ".join(one.transactional_id for one in lost[:3])
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    return f"transactions {names}{more} were aborted, by their timeout or by another driver,"
