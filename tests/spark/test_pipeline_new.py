"""What `ottla pipeline new` makes of each pipeline: its own test passes, as it stands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.pipeline_new import create
from ottla.cli.pipeline_tests import EXAMPLES
from ottla.pipelines.runner import load
from ottla.pipelines.runner.pipeline import names

ROOT = Path(__file__).parents[2]


def test_each_has_an_example() -> None:
    assert set(EXAMPLES) == set(names())


@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("delta")
def test_its_own_test_passes(tmp_path: Path, postgres: Any) -> None:
    """All in one process, so that Java starts once."""
    for name in names():
        create(tmp_path / f"my_{name}", load(name))
    environment = {**os.environ, "TEST_DATABASE": postgres.url, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1200, check=False,
    )  # fmt: skip
    assert f"{len(names())} passed" in done.stdout, done.stdout + done.stderr
