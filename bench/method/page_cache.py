"""A full page cache, as on a server that has run for days, so that files are written to memory that was used before.

A virtual machine that gives free memory back to its host has to ask for each page again when it is written: a gigabyte
of a log then costs up to nine times the CPU, whoever writes it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_STEP: Final = 256 << 20
_PIECE: Final = 1 << 20


def free_bytes() -> int:
    """Memory in no use at all, as Linux says; 0 where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemFree:")), 0)


class PageCache:
    """Fills free memory with pages of a file that has only a hole; the kernel evicts them before any others."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "page-cache"
        self._read_bytes = 0

    def fill(self) -> int:
        """Read on in the file while that takes free memory, and return how many bytes were read.

        It ends where the kernel begins to evict pages, because memory is full, or at once in a file system
        that keeps no pages for holes.
        """
        start = self._read_bytes
        piece = bytearray(_PIECE)
        free = free_bytes()
        with open(self.path, "ab+", buffering=0) as file:
            while free:
                os.truncate(file.fileno(), self._read_bytes + _STEP)
                for _ in range(_STEP // _PIECE):
                    os.preadv(file.fileno(), [piece], self._read_bytes)
                    self._read_bytes += _PIECE
                before, free = free, free_bytes()
                if before - free < _STEP // 2:
                    break
        return self._read_bytes - start
