"""What each test costs, as properties of its case in the JUnit XML; `python -m tools.durations` makes tables of it.

`cpu` is the processor time of the worker and of all below it (nodes, JVMs, consumers), which hangs little on what
else the machine does; `worker` and `began` tell what ran beside it. `shared` is what the processes of the whole run
spent meanwhile, of those that this worker has started: tests of every worker use them.

A process whose parent ends before it, as the JVM of a driver of Spark, is lost here: `tests/suite.py` tells of all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_BEGUN = pytest.StashKey[tuple[float, float]]()
_ended: list[float] = []
"""What was spent when the last test had ended, where the next one begins."""
shared: set[str] = set()
"""Processes of the whole run, as Apache Kafka that tests of all workers compare with: children that are no test's."""
_of_shared: list[float] = [0.0]
"""What they had spent when the last test had ended."""
_TICKS = os.sysconf("SC_CLK_TCK")


def spent() -> float:
    """Seconds of processor time of this process, of its living descendants, and of those that they have waited for."""
    return sum(os.times()[:4]) + sum(_spent_of(pid) for pid in _children("self") if pid not in shared)


def _spent_of(pid: str) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0.0  # it has just ended, and is in the times of its parent
    return sum(map(int, fields[11:15])) / _TICKS + sum(_spent_of(child) for child in _children(pid))


def _children(pid: str) -> list[str]:
    found = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += (task / "children").read_text().split()
    except OSError:
        pass
    return found


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    item.stash[_BEGUN] = time.time(), _ended.pop() if _ended else spent()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    finally:
        if _BEGUN in item.stash:
            began, before = item.stash[_BEGUN]
            _ended[:] = [spent()]
            of_shared = sum(map(_spent_of, shared))
            item.user_properties += [
                ("cpu", f"{max(_ended[0] - before, 0.0):.2f}"),  # less, where living ones were lost with their parent
                ("began", f"{began:.2f}"),
                ("worker", os.environ.get("PYTEST_XDIST_WORKER", "")),
            ]
            if shared:
                item.user_properties.append(("shared", f"{of_shared - _of_shared.pop():.2f}"))
                _of_shared.append(of_shared)
