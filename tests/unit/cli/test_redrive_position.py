"""How far dead letters are put back: no letter is forgotten, and none put back twice, in whatever order they were."""

from __future__ import annotations

import random

import pytest

from ottla.cli.share.position import Position, Progress, parse, position_of


def test_ranges_behind_the_first_that_is_left() -> None:
    letters = [(0, True), (3, False), (5, True), (6, True), (9, False), (12, True)]
    position = position_of(letters, 20)
    assert position == Position(3, ((5, 6), (12, 12)))
    assert [offset for offset, _ in letters if not position.has(offset)] == [3, 9]
    assert parse(position.offset, position.metadata()) == position


def test_all_are_put_back() -> None:
    assert position_of([(0, True), (4, True)], 9) == Position(9)
    assert parse(-1, None) == Position() and parse(7, "") == Position(7)


def test_a_position_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="not a position"):
        parse(3, "checkpoint")


def test_more_gaps_than_a_commit_can_have() -> None:
    scattered = position_of([(offset * 3, offset % 2 == 1) for offset in range(10_000)], 30_000)
    with pytest.raises(ValueError, match="gaps"):
        scattered.metadata()


def test_runs_with_different_filters() -> None:
    """Some chosen each time, with letters of others between; what is committed says which, at every step."""
    for seed in range(200):
        dice = random.Random(seed)
        offsets = sorted(dice.sample(range(60), 20))
        done: set[int] = set()
        position = Position()
        for _ in range(5):
            left = [offset for offset in offsets if not position.has(offset)]
            assert set(left) == set(offsets) - done, seed
            done |= {offset for offset in left if dice.random() < 0.4}
            known = [(offset, offset in done) for offset in left]
            known += [(edge, True) for each in position.ranges for edge in each]
            position = position_of(sorted(known), 60)
            position = parse(position.offset, position.metadata())


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_letters_that_are_put_back_while_they_are_read(at_once: int) -> None:
    """Runs with different filters, each interrupted at any commit: the position says which letters are put back."""
    cuts = 0
    for seed in range(150):
        dice = random.Random(seed)
        letters = sorted(dice.sample(range(90), 30))
        done: set[int] = set()
        position = Position()
        for _ in range(6):
            progress = Progress(position)
            chunk: list[int] = []
            commits_max = dice.choice([0, 1, 2, 100])
            commits = 0
            for offset in [each for each in letters if each >= progress.start]:
                progress.read_to(offset - 1 if offset else 0)
                was_done = progress.has(offset)
                assert was_done == (offset in done), (seed, offset)
                if was_done:
                    continue
                is_chosen = dice.random() < 0.5
                progress.add(offset, stays=not is_chosen)
                if is_chosen:
                    chunk.append(offset)
                if len(chunk) >= at_once and commits < commits_max:
                    some = [each for each in chunk if dice.random() < 0.8]
                    made = progress.with_done(some)
                    progress.put_back(some, made)
                    position = parse(made.offset, made.metadata())
                    done.update(some)
                    chunk, commits = [], commits + 1
            cuts += commits >= commits_max
            assert {each for each in letters if position.has(each)} == done, seed
    assert cuts > 100
