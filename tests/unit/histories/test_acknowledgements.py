"""Times of acknowledgements: how many, and the longest time without any."""

from __future__ import annotations

from ottla.histories.acknowledgements import Acknowledgements


def test_gaps_reach_from_the_first_moment_to_the_last() -> None:
    found = Acknowledgements()
    for at_s in (1.0, 2.0, 5.0, 6.0):
        found.note(0, at_s)
    found.note(1, 3.0)
    assert found.count() == 5
    assert [found.since(0, start_s) for start_s in (0.0, 2.0, 6.0)] == [4, 2, 0]
    assert found.gap_s(0, 1.5, 6.5) == 3.0
    assert found.gap_s(0, 5.5, 9.0) == 3.0, "and none came until the end"
    assert found.gap_s(1, 0.0, 4.0) == 3.0
    assert found.gap_s(2, 0.0, 4.0) == 4.0
