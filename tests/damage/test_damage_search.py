"""The searching test, bounded: `python -m tests.damage.run --seeds N` goes on."""

from __future__ import annotations

import pytest

from tests.damage.search import HOW, KINDS, counted, search

SEEDS = range(3)
DETECTED_MIN = {".log": 30}
"""Of the damages to this kind of file so many are seen at the start; the others are mended, or cannot be known."""


@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_never_silent_and_never_deletes_what_is_whole(kind: str) -> None:
    outcomes = [search(seed, kind, how, clean=clean) for seed in SEEDS for how in HOW for clean in (True, False)]
    found = counted(outcomes)
    assert found[kind, "fired"] >= len(SEEDS) * (2 if kind == ".kafka_cleanshutdown" else 3)
    assert found[kind, "detected"] >= DETECTED_MIN.get(kind, 0), found
