"""What `make test` runs: the suite, and once more by themselves the few tests that failed beside others.

    python -m tests.suite [PYTEST'S ARGUMENTS]

Tests of directories in `OF_PROCESSES` drive JVMs, foreign clients and nodes, beside each other on all cores: one of
thousands now and then fails for what a neighbour took from it. Such a one must pass `TIMES` times in a row with nothing
beside it, and is named at the end: it passes, but not on every machine, and is to be mended. More than `FAILED_MAX`
are no accident; a test of any other directory, whose result hangs on nothing but the code, is never asked again; nor
is one whose failure speaks of lost records.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tools import durations

FAILED = "OTTLA_TEST_FAILED"
"""Names the file into which a run writes a line for each failed test: `AGAIN` or `NEVER`, and its id."""
AGAIN, NEVER = "again", "never"
OF_PROCESSES = ("tests/conformance/", "tests/cluster/", "tests/spark/", "tests/bench/", "tests/deploy/")
COSTS = Path(".cache/test.xml")
"""What each test cost, for `tools/durations.py`."""
FAILED_MAX = 3
TIMES = 2
_OF_RECORDS = re.compile(r"\b(lost|(un)?sound)\b", re.IGNORECASE)
"""What a failure speaks of that may be a lost record: `ottla check` found something, or the test did."""


def noted(test: str, failure: str) -> str:
    """The line for a failed test."""
    may = test.startswith(OF_PROCESSES) and not _OF_RECORDS.search(failure)
    return f"{AGAIN if may else NEVER} {test}"


class Failures:
    """A plugin of the run's controller: writes the failed tests down for `main`."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            with self.path.open("a") as file:
                file.write(noted(report.nodeid, report.longreprtext) + "\n")


def askable(failed: Sequence[str]) -> list[str]:
    """The ids of the tests to ask again, of the lines of a run: none if one of them may not be, or they are many."""
    tests = {line.partition(" ")[2]: None for line in failed}
    if len(tests) > FAILED_MAX or any(line.startswith(NEVER) for line in failed):
        return []
    return list(tests)


def main(arguments: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="ottla-tests-") as directory:
        failed = Path(directory) / "failed"
        failed.touch()
        code = _pytest([f"--junitxml={COSTS}", *arguments], {FAILED: str(failed)})
        tests = askable(failed.read_text().splitlines())
    durations.main([str(COSTS), "--top", "10"])
    if code != 1 or not tests:  # 1 is "tests failed"; anything else is no result at all
        return code
    for time in range(TIMES):
        print(f"\n== once more with nothing beside them, {time + 1} of {TIMES}: {', '.join(tests)}", flush=True)
        if _pytest(tests, {}):
            return code
    print(f"\n== failed beside others and passed alone {TIMES} times, which is to be mended: {', '.join(tests)}")
    return 0


def _pytest(arguments: Sequence[str], environment: dict[str, str]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], env={**os.environ, **environment}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
