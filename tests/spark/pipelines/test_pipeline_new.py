"""What `ottla pipeline new` makes of each pipeline: its own test passes, as it stands."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.pipeline.new import create
from ottla.cli.pipeline.new_tests import _BODIES, EXAMPLES
from ottla.pipelines.runner import load
from ottla.pipelines.runner.pipeline import names

ROOT = Path(__file__).parents[3]


KINDS = ("ticks", "lake", "postgres", "mirror")
"""One for each kind of test that is written: of a stream, of a table, of a database, of two clusters."""
OTHERS = sorted(set(names()) - set(KINDS))


def test_each_has_an_example() -> None:
    assert set(EXAMPLES) == set(names())
    assert set(_BODIES) < set(KINDS)


@pytest.mark.parametrize("name", names())
def test_what_is_written_can_be_read(name: str, tmp_path: Path) -> None:
    written = create(tmp_path / "mine", load(name))
    for path in written:
        if path.suffix == ".py":
            compile(path.read_text(), path, "exec")
        elif path.suffix == ".toml":
            assert tomllib.loads(path.read_text())["settings"].keys() == {each.name for each in load(name).settings}


@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("delta")
@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(KINDS, id="a-kind"),
        pytest.param(
            OTHERS,
            id="others",
            marks=pytest.mark.nightly("tests/spark/pipelines/test_pipeline_new.py::test_its_own_test_passes"),
        ),
    ],
)
def test_its_own_test_passes(chosen: Sequence[str], tmp_path: Path, postgres: Any) -> None:
    """All in one process, so that Java starts once."""
    for name in chosen:
        create(tmp_path / f"my_{name}", load(name))
    environment = {**os.environ, "TEST_DATABASE": postgres.url, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert f"{len(chosen)} passed" in done.stdout, done.stdout + done.stderr
