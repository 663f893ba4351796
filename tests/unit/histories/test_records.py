"""What `ottla check` finds in a history: each kind of fault in a table, then planted in sound runs of any shape."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.histories.findings import counts
from ottla.histories.records import History, Kind, Record, Session, Write, Writer, findings


def sound(sequences: int = 6) -> History:
    """Two producers, the second without idempotence, that wrote to one partition in alternation; one group read it."""
    history = History({0: Writer(True), 1: Writer(False)}, groups=("g",), starts={0: 0})
    log = [Record(2 * number + producer, producer, number) for number in range(sequences) for producer in (0, 1)]
    history.writes = {(each.producer, each.sequence): Write(0, True, each.offset) for each in log}
    history.log = {0: log}
    history.sessions = [Session("g", "a", 0, None, log[:5]), Session("g", "b", 0, 5, log[5:])]
    return history


def lose(history: History) -> None:
    history.log[0].pop()
    history.sessions[1].reads.pop()


def lose_what_was_read(history: History) -> None:
    history.log[0].pop()


def put_another_in_its_place(history: History) -> None:
    history.log[0][-1] = Record(history.log[0][-1].offset, 0, 99)


def move(history: History) -> None:
    history.writes[0, 3].offset = 40


def write_twice(producer: int) -> Callable[[History], None]:
    def change(history: History) -> None:
        again = Record(50, producer, 4)
        history.log[0].append(again)
        history.sessions[1].reads.append(again)

    return change


def swap(producer: int) -> Callable[[History], None]:
    def change(history: History) -> None:
        one, other = producer, producer + 2
        first, second = history.log[0][one], history.log[0][other]
        for number, record in ((one, second), (other, first)):
            placed = history.log[0][number]._replace(producer=record.producer, sequence=record.sequence)
            history.log[0][number] = history.sessions[0].reads[number] = placed
            history.writes[placed.producer, placed.sequence].offset = placed.offset

    return change


def never_write(history: History) -> None:
    history.writes.pop((1, 2))


def send_elsewhere(history: History) -> None:
    history.writes[1, 2].partition = 7


def read_again(history: History) -> None:
    history.sessions[1].reads.append(history.sessions[1].reads[0])


def pass_over(history: History) -> None:
    del history.sessions[1].reads[2]


def never_read_the_end(history: History) -> None:
    history.sessions[1].reads.pop()


def go_on_too_early(history: History) -> None:
    history.sessions[1].promised = 7


def acknowledge_without_an_offset(history: History) -> None:
    lose(history)
    history.writes[1, 5].offset = None


def lose_more_than_promised(history: History) -> None:
    lose(history)
    history.writes[0, 0].offset = 40
    history.holds = lambda write: False


def write_twice_in_doubt(history: History) -> None:
    write_twice(0)(history)
    history.writes[0, 4].is_unique = False


def swap_unacknowledged(strict: bool) -> Callable[[History], None]:
    def change(history: History) -> None:
        swap(0)(history)
        history.writes[0, 0].acknowledged = history.writes[0, 1].acknowledged = False
        history.writers = {**history.writers, 0: Writer(True, is_strict=strict)}

    return change


def not_be_read(history: History) -> None:
    history.unreadable[0] = "no answer"
    history.log.clear()


TABLE: list[tuple[Callable[[History], None], set[Kind]]] = [
    (lambda history: None, set()),
    (lose, {Kind.LOST}),
    (lose_what_was_read, {Kind.LOST, Kind.PHANTOM}),
    (put_another_in_its_place, {Kind.LOST, Kind.PHANTOM}),
    (move, {Kind.MOVED}),
    (write_twice(0), {Kind.DUPLICATED}),
    (write_twice(1), {Kind.REPEATED}),
    (swap(0), {Kind.REORDERED}),
    (swap(1), {Kind.OVERTAKEN}),
    (never_write, {Kind.PHANTOM}),
    (send_elsewhere, {Kind.PHANTOM}),
    (read_again, {Kind.BACKWARD}),
    (pass_over, {Kind.SKIPPED, Kind.MISSED}),
    (never_read_the_end, {Kind.MISSED}),
    (go_on_too_early, {Kind.REWOUND}),
    (not_be_read, {Kind.UNREADABLE}),
    (acknowledge_without_an_offset, {Kind.LOST}),
    (lose_more_than_promised, {Kind.UNPROMISED}),
    (write_twice_in_doubt, {Kind.REPEATED}),
    (swap_unacknowledged(strict=True), {Kind.REORDERED}),
    (swap_unacknowledged(strict=False), set()),
]


@pytest.mark.parametrize(("change", "expected"), TABLE)
def test_what_is_found(change: Callable[[History], None], expected: set[Kind]) -> None:
    history = sound()
    change(history)
    found = findings(history)
    assert {each.kind for each in found} == expected
    assert all(each.text for each in found)


def test_every_kind_is_in_the_table() -> None:
    assert set().union(*(kinds for _, kinds in TABLE)) == set(Kind)


def test_without_acknowledgements_nothing_is_promised() -> None:
    history = sound()
    history.writers = {0: Writer(False, "0"), 1: Writer(False, "0")}
    for write in history.writes.values():
        write.offset = None
    lose(history)
    assert counts(Kind, findings(history)) == {kind: int(kind is Kind.UNPROMISED) for kind in Kind}


def test_what_was_not_acknowledged_may_be_there_or_not_and_anywhere() -> None:
    history = sound()
    for key in ((0, 0), (1, 5)):
        history.writes[key] = Write(0)
    lose(history)
    history.log[0].append(Record(60, 0, 0))
    history.log[0].pop(0)
    history.sessions[0].reads.pop(0)
    history.sessions[1].reads.append(Record(60, 0, 0))
    assert findings(history) == []


def test_what_retention_took_is_not_lost() -> None:
    history = sound()
    del history.log[0][:4]
    assert {each.kind for each in findings(history)} == {Kind.LOST, Kind.PHANTOM}
    history.starts[0] = 4
    assert findings(history) == []


def test_records_of_others_are_a_fault_in_a_topic_of_our_own_only() -> None:
    history = sound()
    history.log[0].append(Record(70, -1, -1))
    history.sessions[1].reads.append(Record(70, -1, -1))
    assert {each.kind for each in findings(history)} == {Kind.PHANTOM}
    history.others_write = True
    assert findings(history) == []


@st.composite
def runs(draw: st.DrawFn) -> History:
    """A sound run: producers, partitions, refusals, retries of plain producers, rebalances, whatever they draw."""
    writers = {n: Writer(draw(st.booleans())) for n in range(draw(st.integers(1, 3)))}
    partitions = draw(st.integers(1, 3))
    history = History(writers, groups=("g", "h"), starts=dict.fromkeys(range(partitions), 0))
    history.log = {number: [] for number in range(partitions)}
    ends = dict.fromkeys(range(partitions), 0)
    sequences = dict.fromkeys(writers, 0)
    for _ in range(draw(st.integers(0, 30))):
        producer, place = draw(st.sampled_from(sorted(writers))), draw(st.integers(0, partitions - 1))
        key = (producer, sequences[producer])
        sequences[producer] += 1
        history.writes[key] = write = Write(place)
        kind = draw(st.sampled_from(["ok", "ok", "ok", "refused", "unanswered", "retried", "gap"]))
        if kind == "refused":
            continue
        ends[place] += kind == "gap"  # a marker of a transaction, or what compaction took
        for _ in range(2 if kind == "retried" and not writers[producer].idempotent else 1):
            history.log[place].append(Record(ends[place], *key))
            write.offset = ends[place]
            ends[place] += 1
        write.acknowledged = kind != "unanswered"
    for group in history.groups:
        for place, log in history.log.items():
            at = 0
            while at < len(log):
                upto, again = draw(st.integers(at + 1, len(log))), draw(st.integers(0, at))
                promised = log[again].offset if draw(st.booleans()) else None
                history.sessions.append(Session(group, "m", place, promised, log[again:upto]))
                at = upto
    return history


@settings(max_examples=200, deadline=None)
@given(runs())
def test_nothing_is_found_in_a_sound_run(history: History) -> None:
    assert [each for each in findings(history) if not each.kind.is_allowed] == []


@settings(max_examples=200, deadline=None)
@given(runs(), st.data())
def test_each_planted_fault_is_found(history: History, data: st.DataObject) -> None:
    acknowledged = [(place, each) for place, log in history.log.items() for each in log]
    acknowledged = [each for each in acknowledged if history.writes[each[1][1:]].acknowledged]
    if not acknowledged:
        return
    place, record = data.draw(st.sampled_from(acknowledged))
    before = copy.deepcopy(history)
    everywhere: list[Any] = [history.log[place], *(s.reads for s in history.sessions if s.partition == place)]
    fault = data.draw(st.sampled_from(["lost", "vanished", "unread", "never sent", "twice"]))
    expected = {"lost": Kind.LOST, "vanished": Kind.PHANTOM, "unread": Kind.MISSED, "never sent": Kind.PHANTOM}
    if fault in ("lost", "vanished"):
        for each in everywhere if fault == "lost" else everywhere[:1]:
            each[:] = [other for other in each if other[1:] != record[1:]]
    elif fault == "unread":
        for each in everywhere[1:]:
            each[:] = [other for other in each if other.offset != record.offset]
    elif fault == "never sent":
        del history.writes[record.producer, record.sequence]
    else:
        history.log[place].append(record._replace(offset=history.log[place][-1].offset + 1))
    kind = Kind.REPEATED if fault == "twice" and not history.writers[record.producer].idempotent else Kind.DUPLICATED
    assert expected.get(fault, kind) in {each.kind for each in findings(history)}, (before, history)
