"""When a group may have its next assignment, also by a clock that goes back. The simulation (`streams`, seed 28) found
a group that waited for the clock of a coordinator before."""

from __future__ import annotations

import pytest

from ottla.coordinator.group.state import assignment_is_due


@pytest.mark.parametrize(
    ("last_ms", "interval_ms", "now_ms", "is_due"),
    [
        (0, 1000, 5, True),
        (5_000, 0, 5_000, True),
        (5_000, 1000, 5_000, False),
        (5_000, 1000, 5_999, False),
        (5_000, 1000, 6_000, True),
        (5_000, 1000, 4_999, True),
    ],
)
def test_an_assignment_waits_for_its_interval_and_for_no_other_clock(
    last_ms: int, interval_ms: int, now_ms: int, is_due: bool
) -> None:
    assert assignment_is_due(last_ms, interval_ms, now_ms) is is_due
