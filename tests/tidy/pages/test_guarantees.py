"""`docs/reference/guarantees.md` is what was measured, and `ottla topic explain` promises no more than that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.config.topic_explained import Facts, explanation
from ottla.simulation.checks.history import ACKS_ALL
from tools import guarantees
from tools import guarantees_page as render

ROOT = Path(__file__).resolve().parents[3]
RESULTS: dict[str, Any] = json.loads(render.RESULTS.read_text(encoding="utf-8"))
ROWS: list[dict[str, Any]] = RESULTS["rows"]
POWER = "power loss of all brokers"
ALONE = "followers lost, then the leader; followers back"


def lost(event: str, *, acks: int = ACKS_ALL, min_isr: int = 1, is_unclean: bool, is_flushed: bool) -> int:
    (row,) = [
        row
        for row in ROWS
        if (row["event"], row["acks"], row["min_isr"]) == (event, acks, min_isr)
        and (row["is_unclean"], row["is_flushed"]) == (is_unclean, is_flushed)
    ]
    return int(row["lost"])


def words(*, min_isr: int, is_unclean: bool, is_flushed: bool) -> dict[str, str]:
    """What `ottla topic explain` says of a topic with three copies."""
    settings = {
        "min.insync.replicas": str(min_isr),
        "unclean.leader.election.enable": str(is_unclean).lower(),
        **({"flush.messages": "1"} if is_flushed else {}),
    }
    return dict(explanation(Facts("a", 3, [3], [3], [], settings)))


def test_the_page_is_what_was_measured() -> None:
    text = (ROOT / "docs" / "reference" / "guarantees.md").read_text(encoding="utf-8")
    assert text == render.page(RESULTS), "stale: run `python -m tools.guarantees_page docs/reference/guarantees.md`"
    measured = {(row["acks"], row["min_isr"], row["is_unclean"], row["is_flushed"], row["event"]) for row in ROWS}
    assert measured == {(*each, event) for each in guarantees.configurations() for event in guarantees.EVENTS}
    assert not [row for row in ROWS if row["failures"]], "a promise was broken"


@pytest.mark.parametrize("is_unclean", [False, True])
@pytest.mark.parametrize("min_isr", [1, 2])
def test_power_loss_in_words_and_figures(min_isr: int, is_unclean: bool) -> None:
    said = words(min_isr=min_isr, is_unclean=is_unclean, is_flushed=True)["power"]
    assert "acknowledged at acks=all survive a power loss, even of all machines at once" in said
    assert not lost(POWER, min_isr=min_isr, is_unclean=is_unclean, is_flushed=True)
    assert "acknowledged at acks=1 are on the leader's disk only, and are lost" in said
    assert lost(POWER, acks=1, is_unclean=is_unclean, is_flushed=True)
    said = words(min_isr=min_isr, is_unclean=is_unclean, is_flushed=False)["power"]
    assert "may be lost only if all machines with an in-sync copy lose power at once" in said
    assert lost(POWER, min_isr=min_isr, is_unclean=is_unclean, is_flushed=False)
    assert not lost("power loss of the leader", min_isr=min_isr, is_unclean=is_unclean, is_flushed=False)


@pytest.mark.parametrize("is_flushed", [False, True])
def test_unclean_elections_in_words_and_figures(is_flushed: bool) -> None:
    said = words(min_isr=1, is_unclean=True, is_flushed=is_flushed)
    assert "acknowledged records are lost" in " ".join(said.values())
    assert lost(ALONE, is_unclean=True, is_flushed=is_flushed)
    said = words(min_isr=1, is_unclean=False, is_flushed=is_flushed)
    assert "acknowledged records are lost" not in " ".join(said.values())
    assert not lost(ALONE, is_unclean=False, is_flushed=is_flushed)


def test_acks_in_words_and_figures() -> None:
    """acks=1 loses what followers had not fetched; a leader that is cut off is where that is most."""
    assert (
        "lost if the leader is lost before the others fetched it"
        in words(min_isr=1, is_unclean=False, is_flushed=True)["acks"]
    )
    assert lost("leader cut off from the others", acks=1, is_unclean=False, is_flushed=True)
    assert not lost("leader cut off from the others", min_isr=2, is_unclean=False, is_flushed=True)
