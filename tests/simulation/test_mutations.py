"""The simulation finds bugs that are planted: a few here, all of them by `python -m tests.simulation.mutations`."""

from __future__ import annotations

import pytest

from tests.simulation import mutations
from tests.simulation.mutations import MUTATIONS

BOUNDED = ("skip-fsync", "reader-leaves-a-segment-early", "producers-forgotten-at-restart", "leader-epoch-not-checked")
"""The first seed finds each of them."""


def test_every_bug_can_still_be_planted() -> None:
    """The sources move on: a mutation whose place is gone would show nothing."""
    assert len(MUTATIONS) >= 12
    for mutation in MUTATIONS:
        compile(mutation.source(), str(mutation.path), "exec")


@pytest.mark.parametrize("name", BOUNDED)
def test_a_planted_bug_is_found(name: str) -> None:
    mutation = next(each for each in MUTATIONS if each.name == name)
    seed, what = mutations.find(mutation)
    assert mutation.first <= seed < mutation.first + mutation.seeds, what
