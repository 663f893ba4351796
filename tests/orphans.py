"""Ends the processes that a failed test has started and leaves behind: they would have the machine, or a lock, of the
tests after it. A test that passes ends its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

_STARTED = pytest.StashKey[set[tuple[str, str]]]()


def children() -> set[tuple[str, str]]:
    """Pid and start of each living child of this process; a pid alone may be given out again."""
    found = set()
    try:
        for task in Path("/proc/self/task").iterdir():
            for pid in (task / "children").read_text().split():
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
                if fields[0] != "Z":
                    found.add((pid, fields[19]))
    except OSError:
        pass  # one that has just ended, or a system without such files
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    before = children()
    try:
        return (yield)
    except BaseException:
        item.stash[_STARTED] = children() - before
        raise


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """After the fixtures, which may end their processes more gently."""
    try:
        return (yield)
    finally:
        for pid, _ in item.stash.get(_STARTED, set()) & children():
            os.kill(int(pid), signal.SIGKILL)
