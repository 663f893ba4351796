"""Up to where a copy in another log directory agrees with its log after a restart, by their leader epochs."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest

from ottla.drivers.logs.log_mover import common_end


class Epochs:
    """A log of which only the epochs of its records count."""

    def __init__(self, records: list[int], start: int = 0) -> None:
        self.records = records
        self.log_start_offset = start

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    @property
    def latest_epoch(self) -> int | None:
        found = self.records[self.log_start_offset :]
        return found[-1] if found else None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """As OffsetForLeaderEpoch: the largest epoch up to this one, and where it ends."""
        found = [each for each in self.records[self.log_start_offset :] if each <= epoch]
        return (found[-1], self.log_start_offset + len(found)) if found else (-1, -1)


def agreed(log: Epochs, copy: Epochs) -> int | None:
    """What is left of the copy, after as many cuts as it takes; None where it starts over."""
    for _ in range(100):
        end = common_end(cast("Any", log), cast("Any", copy))
        if end is None:
            return None
        if end == copy.log_end_offset:
            return end
        assert end < copy.log_end_offset, "each cut takes something"
        copy = Epochs(copy.records[:end], copy.log_start_offset)
    raise AssertionError("it does not end")


@pytest.mark.parametrize(
    ("log", "copy", "left"),
    [
        ([0, 0, 1], [0, 0], 2),
        ([0, 0, 1], [], 0),
        ([0, 0, 1], [0, 0, 1], 3),
        ([0, 0], [0, 0, 0, 0], 2),
        ([0, 0, 3], [0, 0, 1, 1], 2),
        ([0, 0, 3, 3], [0, 0, 0, 1, 2], 2),
        ([4, 4], [0, 0], None),
        ([], [0, 0], None),
    ],
)
def test_what_is_left_of_a_copy(log: list[int], copy: list[int], left: int | None) -> None:
    assert agreed(Epochs(log), Epochs(copy)) == left


def test_a_copy_that_ends_before_its_log_begins_starts_over() -> None:
    assert agreed(Epochs([0, 0, 0, 1, 1], start=4), Epochs([0, 0])) is None


def test_what_is_left_is_in_both() -> None:
    """For any two logs that have the same records where they have the same epoch at an offset."""
    random = Random(7)
    seen = set()
    for _ in range(3000):
        common = sorted(random.choices(range(3), k=random.randrange(4)))
        first = max(common, default=0)
        tails = [sorted(random.choices(range(first + 1 + side, 12, 2), k=random.randrange(4))) for side in (0, 1)]
        if random.random() < 0.3:
            tails[random.randrange(2)] = []
        log, copy = (Epochs(common + tail) for tail in tails)
        left = agreed(log, copy)
        assert (left or 0) == len(common)
        seen.add((bool(tails[0]), bool(tails[1]), left is None))
    assert len(seen) >= 6
