"""The scenarios in tests/scripts/groups_*.txt. After a wanted change, `OTTLA_REWRITE=1 pytest` writes new traces."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.coordinator.script import run_file

SCRIPTS = sorted((Path(__file__).parents[2] / "scripts").glob("groups_*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    text = path.read_text()
    trace = run_file(text)
    if os.environ.get("OTTLA_REWRITE"):
        path.write_text(trace)
    else:
        assert trace == text


def test_there_are_scenarios() -> None:
    assert len(SCRIPTS) >= 8
