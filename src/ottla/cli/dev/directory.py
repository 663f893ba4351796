"""The data of `ottla dev` without a directory: in memory where there is room, and gone when the command is.

The process holds a lock on its directory (`flock`). A directory whose lock is free is of a process that was killed: the
next one removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PREFIX = "ottla-dev-"
MEMORY = Path("/dev/shm")
"""Linux's tmpfs for everybody. Containers often have one of 64 MB, which a few minutes of records fill."""
MEMORY_BYTES_MIN = 512 << 20


@dataclass(frozen=True)
class Temporary:
    """A directory of this process."""

    path: Path
    in_memory: bool


@contextlib.contextmanager
def temporary() -> Iterator[Temporary]:
    """Removes those of killed processes first, and its own at the end. Raises OSError."""
    parent = _parent()
    for place in {MEMORY, parent, Path(tempfile.gettempdir())}:
        _sweep(place)
    path, descriptor = _locked(parent)
    try:
        yield Temporary(path, parent == MEMORY)
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def _parent() -> Path:
    try:
        found = os.statvfs(MEMORY)
        roomy = found.f_bavail * found.f_frsize >= MEMORY_BYTES_MIN
    except OSError:
        roomy = False
    return MEMORY if roomy and os.access(MEMORY, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())


def _locked(parent: Path) -> tuple[Path, int]:
    """A new directory and the descriptor that holds its lock. Another process may sweep it before it is locked."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        descriptor = _lock(path)
        if descriptor is not None:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                    return path, descriptor
            os.close(descriptor)


def _lock(path: Path) -> int | None:
    """None where another process has the lock, or the directory is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _sweep(parent: Path) -> None:
    """Remove what killed processes of this user have left."""
    for path in parent.glob(f"{PREFIX}*"):
        descriptor = _lock(path)
        if descriptor is None:
            continue
        if os.fstat(descriptor).st_uid == os.getuid():
            shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)
