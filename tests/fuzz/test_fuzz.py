"""Some seconds of the fuzzer, from a seed; `python -m tests.fuzz` goes on for as long as it is told to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import uvloop

from tests.fuzz.clients import VERSIONS
from tests.fuzz.mutations import KINDS
from tests.fuzz.run import Plan, attack, short_of, shown

STEPS = 1500
"""Steps of all clients together, before and after a restart of the node."""


@pytest.mark.parametrize("seed", [os.environ.get("OTTLA_SEED", "1")])
def test_wrong_requests_harm_nobody(tmp_path: Path, seed: str) -> None:
    done = uvloop.run(attack(Plan(tmp_path, seed, steps=STEPS)))
    print(f"seed {seed}: {shown(done)}")
    assert done.problems == []
    assert short_of(done) == []
    # Each start draws STEPS times, and tries every mutation on every API.
    assert done.requests > STEPS + len(VERSIONS) * len(KINDS)
    assert min(done.streams[each] for each in ("whole", "pieces", "wrong size", "gone", "half-closed")) > 10
    assert len(done.codes) > 25, "kinds of errors that were answered"
    assert done.batches > 20, "that were accepted, and can be read"
