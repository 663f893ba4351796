"""`ottla pipeline logs`: the end of a log, and what is written to it from then on."""

from __future__ import annotations

import sys
import time
from collections import deque
from pathlib import Path
from typing import Final

from ottla.cli.output import print_json_line, visible

POLL_S: Final = 0.25


def show(log: Path, lines: int, *, follow: bool, as_json: bool) -> None:
    """Print the last `lines` lines; with `follow` go on until KeyboardInterrupt. Raises OSError."""
    with log.open(encoding="utf-8", errors="replace") as file:
        for line in deque(file, maxlen=lines):
            _print(line, as_json)
        sys.stdout.flush()
        begun = ""
        while follow:
            begun += file.readline()
            if begun.endswith("\n"):
                _print(begun, as_json)
                sys.stdout.flush()
                begun = ""
            else:  # a line that is being written, or none
                time.sleep(POLL_S)


def _print(line: str, as_json: bool) -> None:
    text = line.rstrip("\n")
    if as_json:
        print_json_line({"line": text})
    else:
        print(visible(text.expandtabs(4)))  # Java's stack traces begin with a tab
