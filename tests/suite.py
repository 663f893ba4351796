"""What `make test` runs: the suite, and once more by themselves the few tests that failed beside others.

    python -m tests.suite [PYTEST'S ARGUMENTS]

Tests of directories in `OF_PROCESSES` drive JVMs, foreign clients and nodes, beside each other on all cores: one of
thousands now and then fails for what a neighbour took from it. Such a one must pass `TIMES` times in a row with nothing
beside it, and is named at the end: it passes, but not on every machine, and is to be mended. More than `FAILED_MAX`
are no accident; a test of any other directory, whose result hangs on nothing but the code, is never asked again; nor
is one whose failure speaks of lost records.

A process that its parent leaves behind becomes a child of this one, so that this one knows what the run cost in all.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import orphans
from tools import durations

FAILED = "OTTLA_TEST_FAILED"
"""Names the file into which a run writes a line for each failed test: `AGAIN` or `NEVER`, and its id."""
AGAIN, NEVER = "again", "never"
OF_PROCESSES = ("tests/conformance/", "tests/cluster/", "tests/spark/", "tests/bench/", "tests/deploy/")
COSTS = Path(".cache/test.xml")
"""What each test cost, for `tools/durations.py`."""
FAILED_MAX = 3
TIMES = 2
END_S = 20.0
_PR_SET_CHILD_SUBREAPER = 36
_OF_RECORDS = re.compile(r"\b(lost|(un)?sound)\b", re.IGNORECASE)
"""What a failure speaks of that may be a lost record: `ottla check` found something, or the test did."""


def noted(test: str, failure: str) -> str:
    """The line for a failed test. What pytest marks with an E is what failed; the rest is the test's own text."""
    raised = "\n".join(line for line in failure.splitlines() if line.startswith("E ")) or failure
    may = test.startswith(OF_PROCESSES) and not _OF_RECORDS.search(raised)
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
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"\n{spent.ru_utime + spent.ru_stime:.0f} CPU s in all: with collection, and what tests left behind")
    if code != 1 or not tests:  # 1 is "tests failed"; anything else is no result at all
        return code
    for attempt in range(TIMES):
        print(f"\n== once more with nothing beside them, {attempt + 1} of {TIMES}: {', '.join(tests)}", flush=True)
        if _pytest(tests, {}):
            return code
    print(f"\n== failed beside others and passed alone {TIMES} times, which is to be mended: {', '.join(tests)}")
    return 0


def _pytest(arguments: Sequence[str], environment: dict[str, str]) -> int:
    _adopt()
    with subprocess.Popen([sys.executable, "-m", "pytest", *arguments], env={**os.environ, **environment}) as run:
        while run.returncode is None:
            pid, status = os.waitpid(-1, 0)  # at once: tests wait for the end of what is nobody's child
            if pid == run.pid:
                run.returncode = os.waitstatus_to_exitcode(status)
    _reap()
    return run.returncode


def _adopt() -> None:
    """Make this process the parent of what descendants leave behind, where the system has that."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _reap() -> None:
    """The keeper of the run's Kafka ends a moment after the run. What goes on for longer is not waited for."""
    deadline = time.monotonic() + END_S
    with contextlib.suppress(ChildProcessError):
        while (left := deadline - time.monotonic()) > 0:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                ends = [os.pidfd_open(int(child)) for child, _ in orphans.children()]
                select.select(ends, [], [], left)
                for each in ends:
                    os.close(each)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
