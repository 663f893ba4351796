"""When a signal is acted upon: never within a call that must not be broken, always while something blocks in C."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from ottla.cli import interrupts, main

END_LATE = interrupts._end_late


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (*interrupts.SIGNALS, signal.SIGALRM)}
    monkeypatch.setattr(interrupts, "_state", interrupts._State())
    monkeypatch.setattr(interrupts, "_end_late", lambda code: None)
    interrupts.install()
    interrupts.send_again()
    interrupts.command_begins()
    yield
    interrupts.hand_over()
    for number, handler in before.items():
        signal.signal(number, handler)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_call_comes_to_its_end_first() -> None:
    done = []

    def work(number: int) -> None:
        interrupt()
        done.append(number)

    assert interrupts.call(int, "3") == 3
    with pytest.raises(interrupts.Interrupted):
        interrupts.call(work, 7)
    assert done == [7]
    assert interrupts.call(int, "3") == 3


@pytest.mark.parametrize("number", interrupts.SIGNALS)
def test_every_signal_raises_with_its_code(number: signal.Signals) -> None:
    with pytest.raises(interrupts.Interrupted) as raised:
        os.kill(os.getpid(), number)
    assert raised.value.exit_code == interrupts.code_of_end() == 128 + number
    assert interrupts.ending()


def test_what_blocks_in_c_is_left() -> None:
    blocked = threading.Event()

    def work() -> None:
        interrupt()
        blocked.wait(60)

    with pytest.raises(interrupts.Interrupted):
        interrupts.in_thread(work)
    blocked.set()


def test_a_thread_gives_its_result_its_exception_or_a_timeout() -> None:
    assert interrupts.in_thread(int, "3") == 3
    with pytest.raises(ValueError, match="x"):
        interrupts.in_thread(int, "x")
    forever = threading.Event()
    with pytest.raises(TimeoutError):
        interrupts.in_thread(forever.wait, 60, limit_s=0.01)
    forever.set()


def test_a_signal_just_before_a_call_that_blocks_ends_it() -> None:
    """Python's own handler runs after the call then; so it does where another thread gets the signal, as here."""
    mine, theirs = socket.socketpair()
    mine.settimeout(60)
    begun = threading.Event()

    def strike() -> None:
        begun.wait()
        signal.pthread_kill(threading.get_ident(), signal.SIGHUP)

    threading.Thread(target=strike).start()
    with mine, theirs, pytest.raises(interrupts.Interrupted):
        begun.set()
        mine.recv(1)


def test_a_destructor_is_not_broken() -> None:
    """What is raised in one is printed and lost; the signal comes again a moment later."""
    ended = []

    class Thing:
        def __del__(self) -> None:
            interrupt()
            ended.append(True)

    with pytest.raises(interrupts.Interrupted):
        Thing()
        threading.Event().wait(60)
    assert ended == [True]


def test_what_was_ignored_stays_ignored() -> None:
    """As `nohup` and shells do for what they start in the background."""
    code = (
        "import os, signal, sys; from ottla.cli import interrupts; interrupts.install()\n"
        "os.kill(os.getpid(), signal.SIGHUP); print('here', flush=True); os.kill(os.getpid(), signal.SIGTERM)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, "here\n", "")


OUTPUT_SCRIPT = """
import os, signal, sys
from ottla.cli import interrupts, streams

interrupts.install()
streams.prepare(serves=False)
interrupts.command_begins()

def strike(frame, event, function):
    name = getattr(function, "__name__", "")
    if event == "c_return" and name == "write" and frame.f_code.co_filename.endswith("streams.py"):
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)

sys.setprofile(strike)
try:
    print("once", flush=True)
    signal.pause()
except KeyboardInterrupt:
    interrupts.leave(interrupts.code_of_end())
"""


def test_what_was_written_when_a_signal_came_is_not_written_again() -> None:
    done = subprocess.run([sys.executable, "-c", OUTPUT_SCRIPT], capture_output=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"once\n", b"")


def test_a_report_may_take_longer_than_the_end_of_other_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    ended: list[int] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 1:
            interrupts.allow(300.0)

    monkeypatch.setattr(interrupts, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: sum(slept)))
    monkeypatch.setattr(interrupts, "end", ended.append)
    END_LATE(130)
    assert (slept, ended) == ([interrupts.GRACE_S, 300.0 - interrupts.GRACE_S], [130])


def test_while_an_error_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def complain(*_: object) -> int:
        interrupt()
        return 2

    monkeypatch.setattr(main, "_complain", complain)
    monkeypatch.setattr(interrupts._state, "installed", False)  # the process does not end
    assert main.main(["nonsense"]) == 130
