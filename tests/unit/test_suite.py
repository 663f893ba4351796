"""`make test` asks again, alone, what failed beside others; and never what may have lost records."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import suite

CLI, UNIT = "tests/conformance/cli/test_cli.py::test_a", "tests/unit/test_compiled.py::test_b[x y]"


def test_what_is_asked_again() -> None:
    slow = suite.noted(CLI, "TimeoutError: no answer in 30 s")
    assert suite.askable([slow, slow]) == [CLI]
    text = ">   wait(until='the lost ensemble is back')\nE   TimeoutError: no answer in 30 s\n\na.py:3: TimeoutError"
    assert suite.askable([suite.noted(CLI, text)]) == [CLI]
    assert suite.askable([]) == []
    assert suite.askable([suite.noted(f"{CLI}{number}", "slow") for number in range(suite.FAILED_MAX)]) != []
    assert suite.askable([suite.noted(f"{CLI}{number}", "slow") for number in range(suite.FAILED_MAX + 1)]) == []


@pytest.mark.parametrize(
    "test, failure", [(UNIT, "slow"), (CLI, "E  assert not report['sound']"), (CLI, "3 records are LOST")]
)
def test_what_never_is(test: str, failure: str) -> None:
    assert suite.askable([suite.noted(test, failure), suite.noted(CLI, "slow")]) == []


FAILS_TIMES = """
from pathlib import Path

def test_counted():
    with (Path(__file__).parent / "runs").open("a+") as file:
        file.write("x")
    assert len((Path(__file__).parent / "runs").read_text()) > {times}

def test_other():
    pass
"""


@pytest.mark.parametrize("fails, code, runs", [(0, 0, 1), (1, 0, 3), (2, 1, 2)])
def test_the_second_run(tmp_path: Path, fails: int, code: int, runs: int) -> None:
    tests = tmp_path / "tests" / "conformance"
    tests.mkdir(parents=True)
    (tests / "test_it.py").write_text(FAILS_TIMES.format(times=fails))
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_configure\n")
    root = Path(suite.__file__).parents[1]
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {root}\naddopts = -p no:cacheprovider\n")
    done = subprocess.run(
        [sys.executable, "-m", "tests.suite", "-q", "tests"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert len((tests / "runs").read_text()) == runs
    assert ("which is to be mended: tests/conformance/test_it.py::test_counted" in done.stdout) == (fails == 1)


CRASHES = """
import os

def test_before():
    pass

def test_crashes():
    os._exit(1)

def test_after():
    pass
"""


def test_a_worker_that_crashes_fails_one_test_and_the_rest_are_run(tmp_path: Path) -> None:
    """Also where a single test is left for the worker in its place."""
    (tmp_path / "test_it.py").write_text(CRASHES)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "1", "--dist", "loadfile", "-p", "tests.order", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(suite.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
