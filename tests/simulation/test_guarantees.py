"""Some cells of `docs/reference/guarantees.md`, measured again (all: `python -m tools.guarantees_page --measure 1`)."""

from __future__ import annotations

import json

import pytest

from ottla.simulation.checks.history import ACKS_ALL
from tools import guarantees
from tools.guarantees import Configuration
from tools.guarantees_page import RESULTS

SAFE = Configuration(ACKS_ALL, 2, is_unclean=False, is_flushed=True)

CELLS = (
    (SAFE, "power loss of all brokers"),
    (SAFE, "leader cut off from the others"),
    (Configuration(1, 1, is_unclean=False, is_flushed=False), "leader cut off from the others"),
)


@pytest.mark.parametrize(("configuration", "event"), CELLS, ids=lambda each: str(each))
def test_a_cell_of_the_page(configuration: Configuration, event: str) -> None:
    """Whether something is lost; the figures move with every change of the code."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    (row,) = [row for row in rows if row["event"] == event and {**row, **configuration._asdict()} == row]
    found = guarantees.measure(1, configuration, event)
    assert not found.failure
    assert found.acknowledged > 100
    assert (found.lost > 0) == (row["lost"] > 0)
