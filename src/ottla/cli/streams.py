"""Standard input, output and error of a command, whatever the process was started with.

A closed one is opened on /dev/null the wrong way round, so that its number is given to no file and its use fails as it
does for other programs; one that does not block is waited for; what cannot be encoded is written as an escape.
"""

from __future__ import annotations

import io
import os
import select
import sys
from typing import Any

from ottla.cli import interrupts

LAST_S = 0.5
"""How long a reader may take for the last output after a signal."""
PIPE_BYTES_SURE = 4096
"""PIPE_BUF: what a pipe that is ready takes without blocking."""

_WRONG_WAY = (os.O_WRONLY, os.O_RDONLY, os.O_RDWR)


class OutputFailed(OSError):
    """Standard output cannot be written to; `strerror` says why."""


class InputFailed(OSError):
    """Standard input cannot be read."""


class _Input(io.FileIO):
    def readinto(self, buffer: Any) -> int:
        while True:
            try:
                count = super().readinto(buffer)
            except OSError as error:
                raise InputFailed(error.errno, error.strerror) from error
            if count is not None:
                return count
            select.select([self.fileno()], [], [])


class _Output(io.FileIO):
    @interrupts.whole  # an exception behind the system call would forget what was written, and it would come twice
    def write(self, data: Any) -> int:
        number = self.fileno()
        try:
            while True:
                ended = interrupts.ending()
                if select.select([], [number], [], LAST_S)[1]:
                    count = super().write(memoryview(data)[:PIPE_BYTES_SURE])
                    if count is not None:
                        return count
                elif ended:
                    raise OutputFailed(None, "nothing reads from it")
        except (BrokenPipeError, OutputFailed):
            raise
        except OSError as error:
            raise OutputFailed(error.errno, error.strerror) from error


class _Complaints(io.FileIO):
    """Standard error: what nobody can read changes neither what a command does nor its exit code."""

    def write(self, data: Any) -> int:
        try:
            count = super().write(data)
            if count is None:
                select.select([], [self.fileno()], [], LAST_S)
                count = super().write(data)
        except OSError:
            return len(data)
        return len(data) if count is None else count


def prepare(*, serves: bool) -> None:
    """Make all three usable. A node that `serves` goes on where nobody takes its output: it is /dev/null then."""
    for number, flags in enumerate(_WRONG_WAY):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR if serves else flags)  # the lowest number that is free: this one
    sys.stdin = io.TextIOWrapper(io.BufferedReader(_Input(0, "rb", closefd=False)), errors="surrogateescape")
    kind = _Complaints if serves else _Output
    sys.stdout = _text(kind(1, "wb", closefd=False), sys.stdout)
    sys.stderr = _text(_Complaints(2, "wb", closefd=False), sys.stderr, line_buffering=True)


def _text(raw: io.RawIOBase, before: Any, *, line_buffering: bool = False) -> io.TextIOWrapper:
    """A text stream in the encoding that Python has chosen. A name that is not UTF-8 is shown as an escape, in JSON
    too."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(before, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=line_buffering or raw.isatty(),
    )
