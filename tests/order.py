"""Which worker runs which tests, and in which order, when the tests run on several workers.

A file's tests stay together, for they share what its fixtures start. All that uses Spark is one piece for one worker,
so that the run has one JVM of Spark, and comes first; then the longest of the other files (`tests/durations.json`,
which `python -m tools.durations --write` replaces), so that none of them is the last one, alone on a machine of several
cores. Files that take no time, or are new, come at the end.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tools import durations

SPARK = "tests/spark/"


def piece_of(test: str) -> str:
    """What one worker runs as a whole: a file, or all of Spark."""
    file = test.partition("::")[0]
    return SPARK if file.startswith(SPARK) else file


@functools.cache
def seconds() -> dict[str, float]:
    """Recorded duration of each piece of the run, in seconds."""
    import json

    found: dict[str, float] = {SPARK: float("inf")}
    for file, each in json.loads(durations.KEPT.read_text()).items():
        found[piece_of(file)] = found.get(piece_of(file), 0.0) + each
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first; the order of what takes no time, and that within a file, stay."""
    known = seconds()
    items.sort(key=lambda item: -known.get(piece_of(item.nodeid), 0.0))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The scheduler of `--dist loadfile`. Imported here: a run without xdist has none."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return piece_of(nodeid)

        def _reschedule(self, node: Any) -> None:
            # One test is enough for a worker to go on with, and a piece that waits behind two may wait for minutes.
            if not node.shutting_down and self.workqueue and self._pending_of(self.assigned_work[node]) > 1:
                return
            super()._reschedule(node)
            # A worker in place of one that has crashed waits for what comes after its last test, or for the end.
            if not self.workqueue and not node.shutting_down:
                node.shutdown()

        def remove_node(self, node: Any) -> str | None:
            """The test in which a worker has crashed failed; xdist's own would run it again and again."""
            units = self.assigned_work.pop(node)
            crashed = next((test for unit in units.values() for test, done in unit.items() if not done), None)
            if crashed is None:
                return None
            for scope, unit in units.items():
                if crashed in unit:
                    unit[crashed] = True
                if not all(unit.values()):
                    self.workqueue[scope] = unit
            for each in list(self.assigned_work):
                self._reschedule(each)
            return crashed

    return Scheduling(config, log)
