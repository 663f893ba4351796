"""The scenarios in tests/scripts, of groups and transactions. After a wanted change, `OTTLA_REWRITE=1 pytest` writes
new traces."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.coordinator import script, transaction_script

FOLDER = Path(__file__).parents[2] / "scripts"
RUN = {"groups": script.run_file, "transactions": transaction_script.run_file}
SCRIPTS = sorted(path for kind in RUN for path in FOLDER.glob(f"{kind}_*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    text = path.read_text()
    trace = RUN[path.stem.partition("_")[0]](text)
    if os.environ.get("OTTLA_REWRITE"):
        path.write_text(trace)
    else:
        assert trace == text


def test_there_are_scenarios() -> None:
    assert len(SCRIPTS) >= 20
