"""Ctrl-C, SIGTERM and SIGHUP: one way to end, from the first instruction to the last.

- Until a command begins there is nothing to undo: the process ends in the handler (an exception would break an import).
- While it runs, `Interrupted` is raised, at a point where exceptions are not lost: not in an import, in a destructor,
  in a function marked `whole` or within `call`, which is for librdkafka's callbacks. What blocks in C runs in a
  thread: `in_thread`.
- A signal that comes just before a system call that blocks would be heard when the call returns: it is sent again.
- A command that has not ended `GRACE_S` after that (longer where it may), or at a second signal, is ended as it stands.

Signals are the process's, so this module keeps its state itself. Without `install` (a test, say) Python's own handlers
stay, and `call` and `held` hold nothing back.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, NoReturn, TypeVar, cast

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_S = 10.0
"""Longer than what commands do at their end: leave a group, wait for the last acknowledgements."""
REPEAT_S = 0.3
"""Signals that are closer are one: a terminal that closes and its shell send one each."""
RETRY_S = 0.02
_UNSAFE = frozenset({"__del__", "__dealloc__"})
_WHOLE: set[Any] = set()
"""Code of functions whose result must not be lost."""

SHOW_CURSOR = b"\x1b[?25h"
LEAVE_SCREEN = b"\x1b[?1049l"


class Interrupted(KeyboardInterrupt):
    """A signal asked for the end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = exit_code(number)


class _State:
    """`code` is what an end before the command exits with, None for 128 + the signal, which Ctrl-C's always is; `final`
    at the end of all."""

    def __init__(self) -> None:
        self.installed = False
        self.running = False
        self.code: int | None = None
        self.final: int | None = None
        self.held = 0
        self.waiting: int | None = None
        self.said: int | None = None
        self.came: int | None = None
        self.came_at_s = 0.0
        self.grace_s = GRACE_S
        self.restore = b""
        self.terminal = 1


_state = _State()


def exit_code(number: int) -> int:
    """The exit code as a shell reports it: 130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
    return 128 + number


def install(code: int | None = None) -> None:
    """Take the signals, but for those that whoever started the process wants ignored (`nohup`, jobs of scripts)."""
    _state.installed, _state.code = True, code
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _on_signal)


def send_again() -> None:
    """Let no signal wait for a system call that it came just before. It takes descriptors, so the standard streams have
    to be open; and who serves needs none of it, for its event loop hears of all signals."""
    heard, said = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(said, False)
    signal.set_wakeup_fd(said, warn_on_full_buffer=False)
    _state.said = said
    _thread.start_new_thread(_send_again, (heard, _thread.get_ident(), _state))


def hand_over() -> None:
    """Another takes the signals from here on, and wants no thread beside it, for it forks."""
    if _state.said is not None:
        signal.set_wakeup_fd(-1)
        os.close(_state.said)
        _state.said = None


def _send_again(heard: int, main_thread: int, state: _State) -> None:
    """Send each signal again until its handler has run. Python looks for signals between its instructions: one that
    comes between such a look and a system call (of `socket.recv`, say) does not end the call. Sending one is heard
    here, too."""
    while numbers := os.read(heard, 1):
        time.sleep(RETRY_S)
        if state.came is None and state.final is None and numbers[0] in SIGNALS:
            signal.pthread_kill(main_thread, numbers[0])
    os.close(heard)


def command_begins() -> None:
    """From here on there may be something to clean up."""
    _state.running = True


def ending() -> bool:
    """Whether a signal has come: what is left should not wait for others."""
    return _state.came is not None


def allow(seconds: float) -> None:
    """The end may take so long after the signal that came: there is a report to make. A second signal ends at once."""
    _state.grace_s = max(_state.grace_s, seconds)


def code_of_end() -> int:
    """The exit code for the signal that came, Ctrl-C's where Python's own handler took it."""
    return exit_code(signal.SIGINT if _state.came is None else _state.came)


def restore_at_end(sequences: bytes, terminal: int = 1) -> None:
    """What an abrupt end writes to the terminal (b"" for nothing) while a cursor is hidden or another screen shown."""
    _state.restore, _state.terminal = sequences, terminal


def _on_signal(number: int, frame: Any) -> None:
    if _state.final is not None:
        end(_state.final)
    if not _state.running:
        end(exit_code(number) if _state.code is None or number == signal.SIGINT else _state.code)
    if _state.came is None:
        _state.came, _state.came_at_s = number, time.monotonic()
        _thread.start_new_thread(_end_late, (exit_code(number),))
        _raise_or_wait(number, frame)
    elif time.monotonic() - _state.came_at_s > REPEAT_S:
        end(exit_code(number))


def _raise_or_wait(number: int, frame: Any) -> None:
    if _state.final is not None:
        end(_state.final)
    if _state.held:
        _state.waiting = number
    elif _is_unsafe(frame):
        signal.signal(signal.SIGALRM, lambda _, there: _raise_or_wait(number, there))
        signal.setitimer(signal.ITIMER_REAL, RETRY_S)
    else:
        raise Interrupted(number)


def _is_unsafe(frame: Any) -> bool:
    """Whether the frame must not be interrupted: an import, whose locks are released by callbacks that swallow
    exceptions, a destructor, or an atomic section."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib") or code.co_name in _UNSAFE or code in _WHOLE:
            return True
        frame = frame.f_back
    return False


def whole(work: F) -> F:
    """Mark a function that no signal interrupts: it ends by itself soon after `ending` says so, and what it has done
    is known to its caller."""
    _WHOLE.add(cast(FunctionType, work).__code__)
    return work


def _end_late(code: int) -> None:
    while (left_s := _state.came_at_s + _state.grace_s - time.monotonic()) > 0:
        time.sleep(left_s)
    end(code)


def end(code: int) -> NoReturn:
    """Now: threads, clients and buffers are left as they are, the terminal is not."""
    if _state.restore:
        try:
            os.write(_state.terminal, _state.restore)
        except OSError:
            pass
    os._exit(code)


def leave(code: int) -> int:
    """Ends the process where `install` was called: the command is over, and taking down what it used may block."""
    if _state.installed:
        _state.final = code
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError, KeyboardInterrupt):
                continue
        end(code)
    return code


@contextmanager
def held() -> Iterator[None]:
    """A signal within is acted upon at the end. What is done there should not take long."""
    _state.held += 1
    try:
        yield
    finally:
        _state.held -= 1
    if _state.waiting is not None and not _state.held:
        number, _state.waiting = _state.waiting, None
        raise Interrupted(number)


def call(work: Callable[..., T], *arguments: Any) -> T:
    """What `work` returns; it may run callbacks of librdkafka, which an exception would break. It must be short."""
    with held():
        return work(*arguments)


def in_thread(work: Callable[..., T], *arguments: Any, limit_s: float | None = None) -> T:
    """What `work` returns or raises, waited for so that a signal is heard though `work` blocks in C.

    After `limit_s`, raises TimeoutError; the thread is left to itself.
    """
    import threading

    done = threading.Event()
    result: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work(*arguments))
        except BaseException as error:
            failure.append(error)
        done.set()

    threading.Thread(target=run, daemon=True).start()
    if not done.wait(limit_s):
        raise TimeoutError
    if failure:
        raise failure[0]
    return result[0]
