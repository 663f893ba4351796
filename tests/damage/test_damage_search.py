"""The searching test, bounded: `python -m tests.damage.run --seeds N` goes on."""

from __future__ import annotations

import pytest

from tests.damage.metadata_search import METADATA_KINDS, search_metadata
from tests.damage.search import HOW, KINDS, counted, search

SEEDS = range(3)
DETECTED_MIN = {".log": 30}
"""Minimum number of damages to this kind of file that are detected at the start; the others are repaired, or cannot be
detected."""


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_never_silent_and_never_deletes_what_is_whole(kind: str) -> None:
    outcomes = [search(seed, kind, how, clean=clean) for seed in SEEDS for how in HOW for clean in (True, False)]
    found = counted(outcomes)
    assert found[kind, "fired"] >= len(SEEDS) * (2 if kind == ".kafka_cleanshutdown" else 3)
    assert found[kind, "detected"] >= DETECTED_MIN.get(kind, 0), found


REFUSED_MIN = {".log": 12, ".checkpoint": 5}


@pytest.mark.parametrize("kind", METADATA_KINDS)
def test_damaged_metadata_is_refused_or_mended_and_never_lost_silently(kind: str) -> None:
    outcomes = [
        search_metadata(seed, kind, how, clean=clean) for seed in (0, 1) for how in HOW for clean in (True, False)
    ]
    fired, refused = sum(each.fired for each in outcomes), sum(each.warned for each in outcomes)
    assert fired >= (0 if kind == ".index" else 8)
    assert refused >= REFUSED_MIN.get(kind, 0), refused
