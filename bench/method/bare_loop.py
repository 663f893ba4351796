"""`bench/bare.py` as a side: started as a process of its own, with the same load as the brokers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.method import compare

NAME = compare.BARE
KEEPING = f"{NAME}, kept"
"""Its answers are not thrown away but written to files."""


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


def kept(directory: Path, port: int, size: int, count: int, files: int) -> tuple[float, float]:
    """Have another process keep `count` answers of `size` bytes from a bare loop in so many files; returns the seconds
    it took, and those of the processor."""
    path = directory / "kept"
    command = [sys.executable, "-m", "bench.bare", str(path), *map(str, (size, port, count, files))]
    try:
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        return float(said[0]), float(said[1])
    finally:
        for each in directory.glob("kept*"):
            each.unlink()
