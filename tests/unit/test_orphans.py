"""What a failed test leaves running is ended; what a fixture holds for later tests, and what passed, is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import subprocess, pytest

started = {}

def start(name):
    started[name] = subprocess.Popen(["sleep", "60"])

@pytest.fixture(scope="module")
def held():
    start("held")
    yield
    for name in ("held", "passed"):
        started[name].kill()

def test_passes(held):
    start("passed")

def test_fails(held):
    start("left")
    assert False

def test_later(held):
    assert started["left"].wait(30) == -9
    assert started["held"].poll() is started["passed"].poll() is None
"""


def test_a_failed_test_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.orphans", "test_it.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
