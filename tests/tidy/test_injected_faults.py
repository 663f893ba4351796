"""The guard over injected faults (tests/faults.py): it sees those that never happen, by the line that injects them."""

from __future__ import annotations

from random import Random

import pytest

from ottla.testing.disk import SimulatedCrash, SimulatedFileSystem
from tests import faults


@pytest.fixture(autouse=True)
def injected_faults_strike() -> None:
    """The guard itself is off here: what it is about does not strike."""


def disk() -> SimulatedFileSystem:
    fs = SimulatedFileSystem(Random(1))
    fs.makedirs("/d")
    return fs


def test_a_fault_that_never_struck_is_named() -> None:
    with faults.watch() as injected:
        fs = disk()
        fs.fail("fsync", path=".log")
        fs.open("/d/x", create=True).fsync()
    (found,) = injected.never_struck()
    assert found.startswith("test_injected_faults.py:") and found.endswith(" fsync")


def test_one_round_of_a_loop_is_enough() -> None:
    with faults.watch() as injected:
        for path in ("/d/x", "/d/y", "/d/z"):
            fs = disk()
            fault = fs.fail("create", path="y")
            if path == "/d/y":
                with pytest.raises(OSError):
                    fs.open(path, create=True)
            else:
                fs.open(path, create=True)
            assert fault.fired == (path == "/d/y")
    assert injected.never_struck() == []


@pytest.mark.parametrize("comes", [True, False])
def test_a_crash_that_was_planned_has_to_come(comes: bool) -> None:
    with faults.watch() as injected:
        fs = disk()
        crash = fs.crash_after(0 if comes else 1)
        if comes:
            with pytest.raises(SimulatedCrash):
                fs.open("/d/x", create=True)
        else:
            fs.open("/d/x", create=True)
        assert crash.fired == comes
    assert bool(injected.never_struck()) == (not comes)


def test_what_cannot_fail_is_refused() -> None:
    with pytest.raises(ValueError, match="fsnyc is not one of"):
        disk().fail("fsnyc")
