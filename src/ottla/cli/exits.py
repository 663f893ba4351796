"""Exit codes, and the exception that carries one. Scripts rely on them; `ottla --help` lists them."""

from __future__ import annotations

OK = 0
FAILED = 1
"""The broker refused, a file is damaged, or the output cannot be written: the sentence on stderr says which."""
MISUSED = 2
"""The command line itself is wrong, or a setting of `server start`, wherever it was given."""
UNREACHABLE = 3
"""No broker answered: worth a retry."""
INTERRUPTED = 130
"""Ctrl-C, as a shell reports it (128 + SIGINT); SIGTERM is 143, SIGHUP 129."""


class CommandFailed(Exception):
    """Ends a command with a sentence for the person who typed it."""

    def __init__(self, sentence: str, exit_code: int = FAILED) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code
