"""A fault that a test injects has to happen, else the test shows nothing of what it is about.

`watch` notes each fault and each crash that is planned on a `SimulatedFileSystem`, by the line of the test that does;
in the end a line whose faults never struck, in no round of its loop, is an error of the test.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from ottla.testing.disk import Fault, PlannedCrash, SimulatedFileSystem

Line = tuple[str, int, str]
"""File, line, and what was to fail."""


class Injected:
    """Which lines injected faults, and which of them struck."""

    def __init__(self) -> None:
        self._by_line: dict[Line, list[Fault | PlannedCrash]] = {}

    def add(self, fault: Fault | PlannedCrash, frame: Any) -> None:
        what = fault.operation if isinstance(fault, Fault) else "crash"
        line = (Path(frame.f_code.co_filename).name, frame.f_lineno, what)
        faults = self._by_line.setdefault(line, [])
        if not faults or not faults[0].fired:  # one that struck is enough
            faults.insert(0, fault)

    def never_struck(self) -> list[str]:
        silent = (line for line, faults in self._by_line.items() if not any(fault.fired for fault in faults))
        return [f"{file}:{line} {what}" for file, line, what in sorted(silent)]


@contextmanager
def watch() -> Iterator[Injected]:
    """Note what is injected meanwhile."""
    injected = Injected()
    fail, crash_after = SimulatedFileSystem.fail, SimulatedFileSystem.crash_after

    def noting_fail(self: SimulatedFileSystem, *args: Any, **options: Any) -> Fault:
        fault = fail(self, *args, **options)
        injected.add(fault, sys._getframe(1))
        return fault

    def noting_crash_after(self: SimulatedFileSystem, steps: int) -> PlannedCrash:
        crash = crash_after(self, steps)
        injected.add(crash, sys._getframe(1))
        return crash

    with (
        mock.patch.object(SimulatedFileSystem, "fail", noting_fail),
        mock.patch.object(SimulatedFileSystem, "crash_after", noting_crash_after),
    ):
        yield injected
