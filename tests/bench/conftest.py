from __future__ import annotations

from pathlib import Path

import pytest

from bench.method.steady import Rule
from bench.tables import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(
        ["ottla", "kafka"],
        seconds=3.0,
        rounds=3,
        base=tmp_path,
        rule=Rule(windows=3, window_s=2.0, seconds_min=6.0, requests_min=1, seconds_max=20.0),
    )
