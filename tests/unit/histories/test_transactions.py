"""What `ottla check --transactions` finds in a history: each kind of anomaly, planted in one that is sound."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from ottla.histories.findings import counts
from ottla.histories.transactions import History, Kind, Seen, Transaction, Value, findings


def sound() -> History:
    """Three writers' transactions, one of them aborted and one of which nobody heard, and two that consume them."""
    history = History(log={0: [], 1: []})

    def transaction(appends: list[int], committed: bool | None, reads: list[Value], *, there: bool = True) -> None:
        number = len(history.transactions)
        made = Transaction(number, f"writer-{number}", appends, reads, committed is not False, committed)
        history.transactions[number] = made
        for index, partition in enumerate(appends):
            if there:
                history.log[partition].append(Value(partition, 10 * number + index, number, index))

    transaction([0, 1, 0], True, [])
    transaction([0, 1], False, [], there=False)
    transaction([1, 1], None, [])
    first = [*history.log[0], *history.log[1]]
    transaction([1], True, first)
    transaction([0, 1], True, [history.log[1][-1]])
    history.seen = [Seen("reader", each, True) for values in history.log.values() for each in values]
    return history


def lose(history: History) -> None:
    history.log[1].pop()
    history.seen = [each for each in history.seen if each.value.transaction != 4]


def abort(history: History) -> None:
    history.transactions[2].committed = False


def show_aborted(history: History) -> None:
    history.seen.append(Seen("reader", Value(0, 10, 1, 0), True))


def show_early(history: History) -> None:
    history.seen[0] = history.seen[0]._replace(asked=False)


def show_half(history: History) -> None:
    gone = history.log[1].pop(1)
    history.seen = [each for each in history.seen if each.value != gone]
    history.transactions[3].reads.remove(gone)


def commit_by_itself(history: History) -> None:
    history.transactions[2].asked = False


def write_late(history: History) -> None:
    history.transactions[0].late[2] = None


def show_late(history: History) -> None:
    history.log[0] = [each for each in history.log[0] if (each.transaction, each.place) != (0, 2)]
    write_late(history)


def duplicate(history: History) -> None:
    history.log[1].append(history.log[1][0]._replace(offset=90))


def reorder(history: History) -> None:
    log = history.log[0]
    log[0], log[1] = log[0]._replace(place=2), log[1]._replace(place=0)
    history.seen = []


def vanish(history: History) -> None:
    history.seen.append(Seen("reader", Value(0, 95, 0, 0), True))


def invent(history: History) -> None:
    history.log[0].append(Value(0, 96, 77, 0))


def write_elsewhere(history: History) -> None:
    history.transactions[4].appends[0] = 1


def circle(history: History) -> None:
    """The first has read what the third wrote, who had read what the first wrote."""
    history.transactions[0].reads.append(history.log[1][-1])
    history.transactions[4].reads = [history.log[0][0]]
    history.transactions[3].reads = []


def circle_with_writes(history: History) -> None:
    """The first was read by the fifth, which wrote before it in a partition that both write to."""
    history.log[0].sort(key=lambda each: each.transaction != 4)
    history.log[0] = [each._replace(offset=at) for at, each in enumerate(history.log[0])]
    history.seen = []
    history.transactions[3].reads = []
    history.transactions[4].reads = [history.log[0][1]]


def consume_twice(history: History) -> None:
    history.transactions[4].reads.append(history.transactions[3].reads[0])


def pass_over(history: History) -> None:
    del history.transactions[3].reads[0]


def stand_still(history: History) -> None:
    history.unstable[1] = "stable up to 5 of 9"


PLANTED: list[tuple[Callable[[History], None], Kind]] = [
    (lose, Kind.LOST),
    (abort, Kind.ABORTED),
    (show_aborted, Kind.ABORTED),
    (show_early, Kind.INTERMEDIATE),
    (show_half, Kind.INTERMEDIATE),
    (commit_by_itself, Kind.INTERMEDIATE),
    (write_late, Kind.ABORTED),
    (show_late, Kind.ABORTED),
    (duplicate, Kind.DUPLICATED),
    (reorder, Kind.REORDERED),
    (vanish, Kind.PHANTOM),
    (invent, Kind.PHANTOM),
    (write_elsewhere, Kind.PHANTOM),
    (circle, Kind.CYCLE),
    (circle_with_writes, Kind.CYCLE),
    (consume_twice, Kind.REPEATED),
    (pass_over, Kind.PASSED_OVER),
    (stand_still, Kind.UNSTABLE),
]


def test_a_sound_history_has_no_findings() -> None:
    assert findings(sound()) == []


@pytest.mark.parametrize(("plant", "kind"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_what_is_planted_is_found(plant: Callable[[History], None], kind: Kind) -> None:
    history = sound()
    plant(history)
    assert counts(Kind, findings(history))[kind], findings(history)


def test_each_kind_that_is_a_fault_is_planted() -> None:
    assert {kind for _, kind in PLANTED} == {kind for kind in Kind if not kind.is_allowed}


def history_of(order: dict[int, list[int]], reads: dict[int, list[int]]) -> History:
    """By partition, who wrote there in which order; by transaction, from whom it read."""
    history = History()
    for partition, writers in order.items():
        for number in writers:
            made = history.transactions.setdefault(number, Transaction(number, "w", asked=True, committed=True))
            index = len(made.appends)
            made.appends.append(partition)
            values = history.log.setdefault(partition, [])
            values.append(Value(partition, len(values), number, index))
    for number, writers in reads.items():
        for writer in writers:
            value = next(each for values in history.log.values() for each in values if each.transaction == writer)
            history.transactions[number].reads.append(value)
    return history


def cycles(order: dict[int, list[int]], reads: dict[int, list[int]]) -> dict[Kind, int]:
    found = counts(Kind, findings(history_of(order, reads)))
    return {kind: found[kind] for kind in (Kind.CYCLE, Kind.WRITE_CYCLE) if found[kind]}


def test_orders_of_writes_alone_may_go_round() -> None:
    assert cycles({0: [1, 2], 1: [2, 1]}, {}) == {Kind.WRITE_CYCLE: 1}


def test_two_orders_of_writes_in_succession_prove_nothing() -> None:
    """The third, in between, wrote to one partition before the first began, to the other when the second was over."""
    assert cycles({0: [3, 1], 1: [2, 3], 2: [1]}, {2: [1]}) == {}


def test_a_read_and_a_write_go_round() -> None:
    """The transaction that read from the first wrote after its end."""
    assert cycles({0: [2, 1]}, {2: [1]}) == {Kind.CYCLE: 1}


def test_long_circles_are_found_among_many_transactions() -> None:
    """Each has read from the one before it; that the first has read from the last is the fault."""
    numbers = list(range(2000))
    order = {partition: numbers[partition::4] for partition in range(4)}
    reads = {number: [number - 1] for number in numbers[1:]}
    assert cycles(order, reads) == {}
    assert cycles(order, {**reads, 100: [99, 300]}) == {Kind.CYCLE: 1}


@pytest.mark.parametrize("seed", range(20))
def test_histories_of_any_serial_run_have_no_cycle(seed: int) -> None:
    """One transaction after the other: whatever they write and read, nothing goes round."""
    rng = random.Random(seed)
    order: dict[int, list[int]] = {partition: [] for partition in range(3)}
    reads: dict[int, list[int]] = {}
    for number in range(60):
        reads[number] = rng.sample(range(number), min(number, rng.randint(0, 3)))
        for _ in range(rng.randint(1, 3)):
            order[rng.randrange(3)].append(number)
    assert cycles(order, reads) == {}
