"""The protocol of exactly-once writes, walked: crashes before and after each call, replays, lost tasks, zombies.

The cluster is a model (`World`): transactions with their states, decisions fenced by claims. Spark is one too
(`Query.run`): tasks, then commit, then abort if that failed, then its own commit log; a restart replays a batch that is
not in it. What runs between them is the real `Committer`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from ottla.spark.exactly_once import (
    AGE_S_MIN,
    CheckpointWentBack,
    Committer,
    Decision,
    Dropped,
    Fenced,
    HalfCommitted,
    Open,
    State,
    WriteFailed,
    Written,
)

TASKS = 2
BATCHES = 3


class Crash(BaseException):
    """The driver is killed."""


class Lost(OSError):
    """A connection is, before or after the request was done."""


@dataclass
class Transaction:
    run: str
    written: Written
    rows: list[str]
    state: State = State.OPEN
    age_s: float = 0.0


@dataclass
class World:
    """A cluster."""

    transactions: dict[tuple[str, int], Transaction] = field(default_factory=dict)
    """By id and epoch."""
    epochs: dict[str, int] = field(default_factory=dict)
    claims: int = 0
    decisions: list[Decision] = field(default_factory=list)
    age_s: float = 0.0
    """Age of transactions, as the coordinator reports it: tasks may take long."""

    def begin(self, run: str, task: int, attempt: int, rows: list[str]) -> Written:
        """InitProducerId, which aborts what the id has open, then a transaction with `rows`, all sent."""
        name = f"{run}-{task}-{attempt}"
        epoch = self.epochs.get(name, -1) + 1
        before = self.transactions.get((name, epoch - 1))
        if before is not None and before.state is State.OPEN:
            before.state = State.ABORTED
        self.epochs[name] = epoch
        written = Written(name, hash(name) & 0xFFFF, epoch, task, len(rows), "|".join(rows))
        self.transactions[name, epoch] = Transaction(run, written, rows, age_s=self.age_s)
        return written

    def time_out(self) -> None:
        for one in self.transactions.values():
            if one.state is State.OPEN:
                one.state = State.ABORTED

    def visible(self) -> list[str]:
        """What a reader of committed records sees."""
        return [row for one in self.transactions.values() if one.state is State.COMMITTED for row in one.rows]

    def of(self, one: Written) -> Transaction:
        return self.transactions[one.transactional_id, one.epoch]

    def open(self) -> int:
        """Open transactions of runs that have decided something: others may be drivers that have just begun."""
        known = {one.run for one in self.decisions}
        return sum(one.state is State.OPEN and one.run in known for one in self.transactions.values())


Event = Callable[[], None]


class Calls:
    """Counts the calls of drivers and strikes at one of them, before or after it is done."""

    def __init__(self, at: int | None = None, strike: Event | None = None, *, after: bool = False) -> None:
        self.at, self.strike, self.after = at, strike, after
        self.count = 0

    def around(self, call: Callable[[], object]) -> object:
        here = self.count == self.at
        self.count += 1
        if here and not self.after and self.strike is not None:
            self.strike()
        result = call()
        if here and self.after and self.strike is not None:
            self.strike()
        return result


class ModelPort:
    """One driver's way to the world."""

    def __init__(self, world: World, calls: Calls) -> None:
        self.world, self.calls, self.epoch = world, calls, -1

    def claim(self) -> None:
        def claim() -> None:
            self.world.claims += 1
            self.epoch = self.world.claims

        self.calls.around(claim)

    def decision(self) -> Decision | None:
        decisions = self.world.decisions
        found = self.calls.around(lambda: decisions[-1] if decisions else None)
        assert found is None or isinstance(found, Decision)
        return found and Decision.of_json(found.to_json())

    def decide(self, decision: Decision) -> None:
        def decide() -> None:
            if self.epoch != self.world.claims:
                raise Fenced
            self.world.decisions.append(decision)

        self.calls.around(decide)

    def states(self, written: Sequence[Written]) -> list[State]:
        found = self.calls.around(lambda: [self.world.of(one).state for one in written])
        assert isinstance(found, list)
        return found

    def end(self, written: Written, commit: bool) -> State:
        def end() -> State:
            transaction = self.world.of(written)
            if transaction.state is State.OPEN:
                transaction.state = State.COMMITTED if commit else State.ABORTED
            return transaction.state

        state = self.calls.around(end)
        assert isinstance(state, State)
        return state

    def open_transactions(self) -> list[Open]:
        def all_open() -> list[Open]:
            return [
                Open(one.written, one.run, one.age_s)
                for one in self.world.transactions.values()
                if one.state is State.OPEN
            ]

        found = self.calls.around(all_open)
        assert isinstance(found, list)
        return found

    def open_if_known(self) -> list[Open]:
        return self.open_transactions()


@dataclass
class Query:
    """Spark's side: a checkpoint that outlives its runs."""

    world: World
    committed: int = -1
    """The last batch in Spark's commit log."""
    runs: int = 0
    is_stable: bool = True
    """Whether a batch that runs again gives the same rows in the same tasks."""
    lose_task: int | None = None
    """The batch whose first attempts write, and are lost."""

    def rows(self, batch: int, task: int, run: int) -> list[str]:
        rows = [f"{batch}-{at}" for at in range(4)]
        split = 2 if self.is_stable else 1 + run % 3
        return rows[:split] if task == 0 else rows[split:]

    def run(self, calls: Calls, until: int = BATCHES) -> None:
        """A start of the query, up to its end or failure. Raises what stopped it."""
        number = self.runs
        self.runs += 1
        committer = Committer(ModelPort(self.world, calls), f"run{number}")
        while self.committed + 1 < until:
            self.batch(committer, self.committed + 1, number, calls)

    def batch(self, committer: Committer, batch: int, number: int, calls: Calls) -> None:
        written = []
        for task in range(TASKS):
            rows = self.rows(batch, task, number)
            attempt = 0
            if self.lose_task == batch:
                self.world.begin(committer.run, task, attempt, rows)
                attempt = 1
            begun = calls.around(
                lambda task=task, attempt=attempt, rows=rows: self.world.begin(  # type: ignore[misc]
                    committer.run, task, attempt, rows
                )
            )
            assert isinstance(begun, Written)
            written.append(begun)
        try:
            committer.commit(batch, written)
        except Exception:
            committer.abort(written)
            raise
        committer.clean()
        self.committed = max(batch, self.committed)


def expected(batches: int = BATCHES) -> list[str]:
    return [f"{batch}-{at}" for batch in range(batches) for at in range(4)]


def finish(query: Query) -> None:
    """Restarts until it gets through, as a supervisor would."""
    for _ in range(6):
        try:
            query.run(Calls())
            return
        except (WriteFailed, Lost, Fenced):
            continue
    raise AssertionError("it does not get through")


def calls_of_a_run(**query: object) -> int:
    calls = Calls()
    Query(World(), **query).run(calls)  # type: ignore[arg-type]
    return calls.count


def crash() -> None:
    raise Crash


def lose() -> None:
    raise Lost


def strikes(strike: Event, **query: object) -> list[tuple[int, bool]]:
    return list(itertools.product(range(calls_of_a_run(**query)), (False, True)))


def test_without_faults() -> None:
    world = World()
    Query(world).run(Calls())
    assert world.visible() == expected()
    assert world.open() == 0


@pytest.mark.parametrize("strike", [crash, lose])
@pytest.mark.parametrize("lose_task", [None, 1])
@pytest.mark.parametrize("is_stable", [True, False])
def test_a_fault_at_each_call(strike: Event, lose_task: int | None, is_stable: bool) -> None:
    struck = 0
    for at, after in strikes(strike, lose_task=lose_task):
        world = World()
        query = Query(world, lose_task=lose_task, is_stable=is_stable)
        with pytest.raises((Crash, Lost)):
            query.run(Calls(at, strike, after=after))
        struck += 1
        finish(query)
        assert sorted(world.visible()) == expected(), (at, after)
        assert world.open() == 0, (at, after)
    assert struck >= 40


def test_two_faults_one_in_the_recovery() -> None:
    """Every pair: the second strikes while the first is recovered from."""
    walked = 0
    for (at, after), (again, after_again) in itertools.product(strikes(crash), strikes(crash)):
        world = World()
        query = Query(world)
        with pytest.raises(Crash):
            query.run(Calls(at, crash, after=after))
        try:
            query.run(Calls(again, crash, after=after_again))
        except Crash:
            walked += 1
        finish(query)
        assert sorted(world.visible()) == expected(), (at, after, again, after_again)
    assert walked > 1000


@pytest.mark.parametrize("is_stable", [True, False])
def test_a_driver_that_is_down_until_transactions_time_out(is_stable: bool) -> None:
    """Exactly once where a batch that runs again is the same; where it is not, never silently anything else."""
    refused = 0
    for (at, after), (again, after_again) in itertools.product(strikes(crash), [(None, False), *strikes(crash)]):
        world = World()
        query = Query(world, is_stable=is_stable)
        with pytest.raises(Crash):
            query.run(Calls(at, crash, after=after))
        world.time_out()
        try:
            query.run(Calls(again, crash, after=after_again))
        except Crash:
            world.time_out()
        except HalfCommitted:
            pass
        try:
            finish(query)
        except HalfCommitted:
            refused += 1
            assert not is_stable
            visible = world.visible()
            assert len(set(visible)) == len(visible), "nothing twice"
            continue
        assert sorted(world.visible()) == expected(), (at, after, again, after_again)
    assert (refused > 0) is (not is_stable)


@pytest.mark.parametrize("is_stable", [True, False])
def test_timeouts_in_the_middle_of_a_run(is_stable: bool) -> None:
    refused = 0
    for at, after in strikes(crash):
        world = World()
        query = Query(world, is_stable=is_stable)
        decided = []

        def time_out(world: World = world, decided: list[bool] = decided) -> None:
            of_the_last = world.decisions[-1].written if world.decisions else ()
            decided.append(any(world.of(one).state is State.OPEN for one in of_the_last))
            world.time_out()

        try:
            query.run(Calls(at, time_out, after=after))
        except WriteFailed:
            pass
        try:
            finish(query)
        except HalfCommitted:
            assert not is_stable
            assert decided == [True], "before the decision it costs nothing"
            refused += 1
            continue
        assert sorted(world.visible()) == expected(), (at, after)
    assert (refused > 0) is (not is_stable)


@pytest.mark.parametrize(("age_s", "is_stable"), [(0.0, True), (AGE_S_MIN, True), (AGE_S_MIN, False)])
def test_another_driver_while_one_is_paused(age_s: float, is_stable: bool) -> None:
    """One is paused at each call, another gets through one batch or all, or is killed; then the first goes on. Where
    tasks take long, each takes what the other has open for left over."""
    walked = 0
    for (at, after), until, kill in itertools.product(strikes(crash), (1, 2, BATCHES), (None, *range(36))):
        world = World(age_s=age_s)
        first = Query(world, is_stable=is_stable)
        others: list[Query] = []

        def other(
            world: World = world,
            first: Query = first,
            until: int = until,
            kill: int | None = kill,
            others: list[Query] = others,
        ) -> None:
            second = Query(world, committed=first.committed, runs=first.runs, is_stable=is_stable)
            try:
                second.run(Calls(kill, crash), until)
            except (Crash, WriteFailed, CheckpointWentBack):
                pass
            first.runs = second.runs
            others.append(second)

        try:
            first.run(Calls(at, other, after=after))
        except (WriteFailed, CheckpointWentBack):
            pass
        walked += 1
        # The checkpoint is one: a batch in the commit log of either is done.
        done = max(first.committed, *(one.committed for one in others))
        last = Query(world, committed=done, runs=first.runs, is_stable=is_stable)
        finish(last)
        assert sorted(world.visible()) == expected(), (at, after, until, kill)
    assert walked > 500


def test_what_was_decided_and_is_lost_is_not_taken_for_an_empty_batch() -> None:
    """A decision that is made, answered as fenced, and whose transactions are aborted: they are no substitutes."""
    world = World()
    query = Query(world)
    port = ModelPort(world, Calls())
    committer = Committer(port, "run0")
    written = [world.begin("run0", task, 0, query.rows(0, task, 0)) for task in range(TASKS)]
    decide = port.decide

    def answered_as_fenced(decision: Decision) -> None:
        decide(decision)
        world.time_out()
        raise Fenced

    port.decide = answered_as_fenced  # type: ignore[method-assign]
    with pytest.raises(WriteFailed, match="run again"):
        committer.commit(0, written)
    query.runs = 1
    finish(query)
    assert sorted(world.visible()) == expected()


def test_a_checkpoint_that_went_back_is_refused() -> None:
    world = World()
    Query(world).run(Calls())
    with pytest.raises(CheckpointWentBack, match="batch 2 of this query is committed already"):
        Query(world, runs=1).run(Calls())
    assert world.visible() == expected()


def test_what_older_runs_left_open_is_aborted_when_it_is_old() -> None:
    world = World()
    query = Query(world)
    query.run(Calls(), 1)
    stranger = world.begin("run-of-nobody-knows-whom", 0, 0, ["x"])
    query.run(Calls(), 2)
    transaction = world.transactions[stranger.transactional_id, 0]
    assert transaction.state is State.OPEN, "it may be a driver that has just begun"
    transaction.age_s = AGE_S_MIN
    query.run(Calls(), 3)
    assert transaction.state is State.ABORTED


def test_what_is_open_of_the_only_batch_is_aborted_once_it_is_decided() -> None:
    """A write with an id whose driver was killed: nothing comes after it that would look for what that left open."""
    world = World()
    query = Query(world)
    killed = world.begin("killed", 0, 0, query.rows(0, 0, 0))
    committer = Committer(ModelPort(world, Calls()), "again", is_only=True)
    assert committer.clean() == 0, "it can still be decided"
    committer.commit(0, [world.begin("again", task, 0, query.rows(0, task, 1)) for task in range(TASKS)])
    assert committer.clean() == 1
    assert world.of(killed).state is State.ABORTED
    assert world.visible() == expected(1)


def test_what_was_open_before_the_first_batch_is_aborted_once_that_is_decided() -> None:
    """A run was killed before it had decided anything, so its name is unknown."""
    world = World()
    query = Query(world)
    killed = world.begin("killed", 0, 0, query.rows(0, 0, 0))
    committer = Committer(ModelPort(world, Calls()), "again")
    assert committer.clean() == 0, "it can still be decided"
    query.batch(committer, 0, 1, Calls())
    assert world.of(killed).state is State.ABORTED
    stranger = world.begin("run-of-nobody-knows-whom", 0, 0, ["x"])
    query.batch(committer, 1, 1, Calls())
    assert world.of(stranger).state is State.OPEN, "it may be a driver that has just begun"
    assert world.visible() == expected(2)


def test_what_was_dropped_before_is_not_a_batch_that_was_decided() -> None:
    """A run may be killed that has aborted what was old, and then there is a record, but of no batch."""
    world = World()
    query = Query(world)
    old = world.begin("old", 0, 0, ["x"])
    world.transactions[old.transactional_id, 0].age_s = AGE_S_MIN
    assert Committer(ModelPort(world, Calls()), "killed").clean() == 1
    younger = world.begin("younger", 1, 0, query.rows(0, 1, 0))
    only = Committer(ModelPort(world, Calls()), "only", is_only=True)
    assert only.clean() == 0, "it can still be decided"
    query.batch(Committer(ModelPort(world, Calls()), "again"), 0, 1, Calls())
    assert world.of(younger).state is State.ABORTED
    assert world.visible() == expected(1)


def test_a_driver_whose_transactions_were_dropped_does_not_decide_about_them() -> None:
    """One takes another's for left over, and is paused before it aborts them; the other goes on."""
    world = World(age_s=AGE_S_MIN)
    query = Query(world)
    query.run(Calls(), 1)
    written = [world.begin("late", task, 0, query.rows(1, task, 1)) for task in range(TASKS)]
    cleaning = Committer(ModelPort(world, Calls()), "run5")
    cleaning.port.end = lambda written, commit: State.ABORTED  # type: ignore[method-assign]
    assert cleaning.clean() == TASKS
    assert all(world.of(one).state is State.OPEN for one in written)
    late = Committer(ModelPort(world, Calls()), "late")
    with pytest.raises(WriteFailed):
        late.commit(1, written)
    assert world.decisions[-1].batch == 0 and len(world.decisions[-1].dropped) == TASKS
    late.commit(1, [world.begin("late", task, 1, query.rows(1, task, 1)) for task in range(TASKS)])
    assert len(world.decisions[-1].dropped) == TASKS
    late.commit(2, [world.begin("late", task, 1, query.rows(2, task, 1)) for task in range(TASKS)])
    assert world.decisions[-1].dropped == (), "nobody can be at their batch any more"
    assert world.visible() == expected()


def test_decisions_of_later_versions_are_refused() -> None:
    decision = Decision(3, "run", (Written("id", 1, 0, 0, 2, "d"),), (Dropped(1, 2, 3),))
    assert Decision.of_json(decision.to_json()) == decision
    with pytest.raises(ValueError, match="version 2"):
        Decision.of_json(decision.to_json().replace(b'"version":1', b'"version":2'))


class AbortsWhatIsDecided(Committer):
    """abort without looking whether the batch was decided."""

    def abort(self, written: Iterable[Written]) -> None:
        for one in written:
            self.port.end(one, commit=False)


class DecidesUnseen(Committer):
    """A replayed batch is decided again."""

    def _repeat(self, decision: Decision, written: Sequence[Written]) -> None:
        self._carry_out(decision._replace(written=tuple(written)))


class TakesAnyRows(Committer):
    """Substitutes without comparing what the tasks wrote."""

    def _substitutes(self, decision: Decision, lost: Sequence[Written], mine: dict[int, Written]) -> list[Written]:
        return [mine[one.task] for one in lost if one.task in mine]


class ReadsOnce(Committer):
    """Claims again, and believes what it knew before."""

    def _last(self) -> Decision | None:
        before = self.last
        last = super()._last()
        if before is not None:
            self.last = last = before
        return last


class CommitsFirst(Committer):
    """Commits the tasks' transactions before it is decided that they are the batch."""

    def _carry_out(self, decision: Decision) -> list[Written]:
        lost = self._complete(decision)
        self.port.decide(decision)
        self.last = decision
        return lost


class ChecksNothing(Committer):
    """Decides about transactions that may be gone."""

    def _check_open(self, batch: int, written: Sequence[Written]) -> None:
        pass


class CleansEverything(Committer):
    """Aborts all that is open, of whichever run, decided or not."""

    def clean(self) -> int:
        for one in self.port.open_transactions():
            self.port.end(one.written, commit=False)
        return 0


class CleansUnsaid(Committer):
    """Aborts what is another run's without having it dropped."""

    def _drop(self, others: Sequence[Written]) -> None:
        pass


WALKS: list[Callable[[], None]] = [
    test_without_faults,
    lambda: test_a_fault_at_each_call(crash, None, True),
    lambda: test_a_fault_at_each_call(lose, 1, True),
    lambda: test_a_fault_at_each_call(lose, None, False),
    lambda: test_timeouts_in_the_middle_of_a_run(False),
    lambda: test_a_driver_that_is_down_until_transactions_time_out(False),
    lambda: test_another_driver_while_one_is_paused(0.0, True),
    lambda: test_another_driver_while_one_is_paused(AGE_S_MIN, False),
    test_what_older_runs_left_open_is_aborted_when_it_is_old,
]


@pytest.mark.parametrize(
    "bug",
    [
        AbortsWhatIsDecided,
        DecidesUnseen,
        TakesAnyRows,
        ReadsOnce,
        CommitsFirst,
        ChecksNothing,
        CleansEverything,
        CleansUnsaid,
    ],
)
def test_the_walks_find_planted_bugs(bug: type[Committer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "Committer", bug)
    found = 0
    for walk in WALKS:
        try:
            walk()
        except (AssertionError, KeyError, WriteFailed, HalfCommitted, CheckpointWentBack):
            found += 1
    assert found, f"{bug.__doc__}: nothing noticed"
