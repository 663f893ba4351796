"""The compiled modules and their sources do the same, number for number, byte for byte: one walk in two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.property import compiled_walk

SEEDS, STEPS = 60, 80


def walked(first: int, **environment: str) -> list[str]:
    command = [sys.executable, "-m", "tests.property.compiled_walk", str(first), str(SEEDS), str(STEPS)]
    kept = {name: value for name, value in os.environ.items() if name != "OTTLA_INTERPRETED"}
    done = subprocess.run(command, env={**kept, **environment}, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout.splitlines()


@pytest.mark.skipif(compiled_walk.log_module.__file__.endswith(".py"), reason="nothing is compiled here")
@pytest.mark.parametrize("first", [0, 1000])
def test_compiled_and_interpreted_walk_alike(first: int) -> None:
    compiled = walked(first, PYTHONHASHSEED="1")
    interpreted = walked(first, OTTLA_INTERPRETED="1", PYTHONHASHSEED="2")
    assert (compiled[0], interpreted[0]) == ("log is compiled", "log is source")
    for mine, theirs in zip(compiled[1:], interpreted[1:], strict=True):
        assert mine == theirs
    done = Counter(line.split()[1] for line in compiled[1:])
    assert done["append"] > 400 and done["read"] > 400 and done["follow"] > 100 and done["reload"] > 40, done
    refused = [line for line in compiled if "Error: " in line]
    assert not refused, "an error that is no KafkaError"
