"""Ctrl-C within a call that must not be broken waits for its end."""

from __future__ import annotations

import os
import signal

import pytest

from ottla.cli.ctrl_c import CtrlC


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_call_comes_to_its_end_first() -> None:
    done = []

    def work(number: int) -> int:
        interrupt()
        done.append(number)
        return number

    before = signal.getsignal(signal.SIGINT)
    with CtrlC() as ctrl_c:
        assert ctrl_c.call(int, "3") == 3
        with pytest.raises(KeyboardInterrupt):
            ctrl_c.call(work, 7)
        assert ctrl_c.call(int, "3") == 3
        with pytest.raises(KeyboardInterrupt):
            interrupt()
    assert done == [7]
    assert signal.getsignal(signal.SIGINT) is before
