"""Which files there are: those that the patterns name, where a known one was moved, and copies that rotation made."""

from __future__ import annotations

import glob
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ottla.tail.files import HEAD_BYTES, Position

COPY_S = 5.0
"""A file that may be a copy under way is left alone until nothing was added to it for so long."""
ROTATED = re.compile(r"[.-][0-9][0-9A-Za-z:._-]*")
"""What logrotate and loggers add to the name of a file that they rotate: `.1`, `-20261125`, `.2026-11-25_09`."""
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".Z", ".zip", ".tmp", ".swp")

FileId = tuple[int, int]
"""Device and inode."""


@dataclass
class Finder:
    """`warn` gets a sentence about each file that cannot be read, once until it can."""

    patterns: Sequence[str]
    warn: Callable[[str], None]
    _siblings: dict[str, set[FileId]] = field(default_factory=dict)
    """By path: the rotated files beside it that were there when it was last looked at."""
    _unreadable: set[str] = field(default_factory=set)

    @property
    def unreadable(self) -> int:
        return len(self._unreadable)

    def matches(self) -> dict[FileId, str]:
        """Regular files that the patterns name, each once. Links are followed."""
        found: dict[FileId, str] = {}
        for pattern in self.patterns:
            paths = sorted(glob.iglob(pattern, recursive=True)) if glob.has_magic(pattern) else [pattern]
            for path in paths:
                at = file_id(path)
                if at is not None and not (glob.has_magic(pattern) and path.endswith(COMPRESSED)):
                    found.setdefault(at, path)
        return found

    def open(self, path: str) -> int | None:
        """A descriptor of the file, or None with a warning."""
        try:
            # O_NONBLOCK: a pipe that has taken the name must not block the agent.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            if path not in self._unreadable:
                self._unreadable.add(path)
                self.warn(f"{path}: {error.strerror}; it is tried again")
            return None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return None
        self._unreadable.discard(path)
        return descriptor

    def new_siblings(self, path: str) -> list[str]:
        """Rotated files beside `path` that were not there at the last call, oldest first: each was `path` meanwhile."""
        before = self._siblings.get(path)
        now = {at: name for name, at in siblings(path)}
        self._siblings[path] = set(now)
        if before is None:
            return []
        return sorted((name for at, name in now.items() if at not in before), key=changed_ns)

    def moved(self, position: Position) -> str | None:
        """Where the file with this position is now: renamed, or as the copy that was made before it was truncated."""
        copies = []
        for name, at in siblings(position.path):
            descriptor = self.open(name)
            if descriptor is None:
                continue
            try:
                if position.describes(descriptor):
                    if at[1] == position.inode:
                        return name
                    if position.offset:
                        copies.append(name)
            except OSError:
                continue
            finally:
                os.close(descriptor)
        return max(copies, key=changed_ns, default=None)


def file_id(path: str) -> FileId | None:
    """Device and inode of a regular file, or None."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def siblings(path: str) -> Iterator[tuple[str, FileId]]:
    """Files in the directory of `path` with its name and what rotation adds."""
    directory, base = os.path.split(path)
    try:
        with os.scandir(directory or ".") as entries:
            names = [entry.name for entry in entries if entry.name.startswith(base)]
    except OSError:
        return
    for name in sorted(names):
        if ROTATED.fullmatch(name[len(base) :]) and not name.endswith(COMPRESSED):
            place = os.path.join(directory, name)
            at = file_id(place)
            if at is not None:
                yield place, at


def changed_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def known_position(descriptor: int, path: str, stored: Mapping[str, Position]) -> Position | None:
    """What is known of an open file. Raises OSError.

    A device's number may be another after a restart: the inode and the bytes say that it is the same file then.
    """
    found = os.fstat(descriptor)
    position = stored.get(f"{found.st_dev}-{found.st_ino}")
    if position is not None:
        return position if position.describes(descriptor) else None
    for other in stored.values():
        if other.inode == found.st_ino and other.path == path and other.offset and other.describes(descriptor):
            return other
    return None


def may_be_copy(descriptor: int, known: Iterable[Position]) -> bool:
    """Whether it holds what was sent from another file: a copy that is made, or is made just now. Raises OSError.

    `copytruncate` copies the file and then truncates it: what the copy has more is read when the file is truncated.
    """
    found = os.fstat(descriptor)
    begin = os.pread(descriptor, HEAD_BYTES, 0)
    grows = time.time() - found.st_mtime < COPY_S
    for position in known:
        if position.offset and position.is_prefix_of(begin):
            if found.st_size < position.offset and grows:
                return True
            if position.describes(descriptor):
                return True
    return False
