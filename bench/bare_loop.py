"""`bench/bare.py` as a side: started as a process of its own, with the same load as the brokers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "bare loop"


@contextmanager
def bare_loop(directory: Path, *arguments: str) -> Iterator[tuple[int, int]]:
    """(port, pid) of a bare loop that writes to files below `directory`, or sends one with `arguments`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.bare", str(directory / "bare"), *arguments], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline()), process.pid
    finally:
        process.terminate()
        process.wait()
        for path in directory.glob("bare*"):
            path.unlink()
