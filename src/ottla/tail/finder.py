"""Which files there are: those that the patterns name, where links lead, and the names that rotation gives to files."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

DIGITS = r"[0-9][0-9:._+TZ-]*"
BEHIND = re.compile(r"[._-][0-9][0-9A-Za-z:._+-]*|\.(?:old|bak|prev)")
"""What rotation adds behind a name: `.1`, `-20261125`, `.2026-11-25_09`, `.20261127-101010`, `.old`."""
BEFORE_EXTENSION = rf"[._-]{DIGITS}"
"""What rotation puts before the extension: `app-20261127.log`, `app.2026-11-27.log`, `app.1.log`."""
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".Z", ".zip", ".tmp", ".swp")
LINKS_MAX = 40
"""Links from one to the next that are followed, as Linux does."""
LISTINGS_MAX = 6
"""Times that a directory is listed while files in it are renamed."""
REPLACED_NAMES_MAX = 4096
"""Compiled forms of names that are kept."""

T = TypeVar("T")
FileId = tuple[int, int]
"""Device and inode."""


class FileStat(NamedTuple):
    path: str
    at: FileId
    size: int
    changed_ns: int


@dataclass
class Finder:
    """`warn` gets a sentence about each file that cannot be read, once until it can."""

    patterns: Sequence[str]
    warn: Callable[[str], None]
    unreadable: set[str] = field(default_factory=set)
    """Paths of files that are there, and cannot be opened."""
    has_vanished: bool = False
    """A file was renamed or removed while `matches` looked."""

    def matches(self) -> dict[FileId, str]:
        """Regular files that the patterns name, each once. Links are followed."""
        found: dict[FileId, str] = {}
        self.has_vanished = False
        for pattern in self.patterns:
            paths = sorted(glob.iglob(pattern, recursive=True)) if glob.has_magic(pattern) else [pattern]
            for path in paths:
                at = file_id(path)
                if at is not None and not (glob.has_magic(pattern) and path.endswith(COMPRESSED)):
                    found.setdefault(at, path)
                self.has_vanished |= at is None and glob.has_magic(pattern) and not os.path.lexists(path)
        return found

    def open(self, path: str) -> int | None:
        """A descriptor of the file, or None with a warning."""
        try:
            # O_NONBLOCK: a pipe that has taken the name must not block the agent.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            if path not in self.unreadable:
                self.unreadable.add(path)
                self.warn(f"{path}: {error.strerror}; retrying")
            return None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return None
        self.unreadable.discard(path)
        return descriptor

    def open_listed(self, found: FileStat, originals: Iterable[str]) -> tuple[str, int | None]:
        """Path and descriptor of a file that may have been renamed since it was listed."""
        path = found.path
        for _ in range(LISTINGS_MAX):
            descriptor = self.open(path)
            if descriptor is not None:
                now = os.fstat(descriptor)
                if (now.st_dev, now.st_ino) == found.at:
                    return path, descriptor
                os.close(descriptor)
            path = next((each.path for each in siblings(originals) if each.at == found.at), path)
        return path, None


def look(path: str) -> FileStat | None:
    """The regular file that has this path, or a link with this path leads to."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return FileStat(path, (found.st_dev, found.st_ino), found.st_size, found.st_mtime_ns)


def file_id(path: str) -> FileId | None:
    """Device and inode of a regular file, or None."""
    found = look(path)
    return None if found is None else found.at


def places(path: str) -> tuple[str, ...]:
    """Where `path` lies, without links to directories, then where it leads to, link by link; the last is no link.

    Rotation renames a link, or what a link leads to, and leaves the old file beside it: each place is looked at.
    """
    found: list[str] = []
    while len(found) < LINKS_MAX:
        directory, base = os.path.split(path)
        place = os.path.join(os.path.realpath(directory or "."), base)
        if place in found:
            break
        found.append(place)
        try:
            target = os.readlink(place)
        except (OSError, ValueError):
            break
        path = os.path.join(os.path.dirname(place), target)
    return tuple(found)


@lru_cache(maxsize=REPLACED_NAMES_MAX)
def _rotated_names(base: str) -> re.Pattern[str]:
    stem, extension = os.path.splitext(base)
    names = re.escape(base) + f"(?:{BEHIND.pattern})"
    if extension:
        names += f"|{re.escape(stem)}{BEFORE_EXTENSION}{re.escape(extension)}(?:{BEHIND.pattern})?"
    return re.compile(names)


def is_rotated_name(name: str, base: str) -> bool:
    """Whether rotation gives the name `name` to a file that is called `base`; both without a directory."""
    if not name.startswith(os.path.splitext(base)[0]) or name.endswith(COMPRESSED):
        return False
    return _rotated_names(base).fullmatch(name) is not None


class Originals(Generic[T]):
    """Places of followed files, by the names that rotation makes of them. A look does not depend on their number."""

    def __init__(self) -> None:
        self._by_beginning: dict[tuple[str, str], dict[str, T]] = {}

    def add(self, place: str, value: T) -> None:
        directory, base = os.path.split(place)
        for beginning in {base, os.path.splitext(base)[0]}:
            self._by_beginning.setdefault((directory, beginning), {})[base] = value

    def of(self, place: str) -> T | None:
        """The value of a file that lies beside this place, which has a name that rotation gives to that file."""
        directory, name = os.path.split(place)
        for end, letter in enumerate(name):
            if letter in "._-" and end:
                for base, value in self._by_beginning.get((directory, name[:end]), {}).items():
                    if is_rotated_name(name, base):
                        return value
        return None


def siblings(originals: Iterable[str]) -> list[FileStat]:
    """Files beside each of these places with a name that rotation gives; each once.

    Listed until nothing was renamed meanwhile: a file that gets another name is seen under one of both.
    """
    before: list[tuple[str, FileId]] = []
    for _ in range(LISTINGS_MAX):
        found: dict[FileId, FileStat] = {}
        for place in dict.fromkeys(originals):
            directory, base = os.path.split(place)
            stem = os.path.splitext(base)[0]
            try:
                names = [name for name in os.listdir(directory or ".") if name.startswith(stem)]
            except OSError:
                continue
            for name in sorted(name for name in names if is_rotated_name(name, base)):
                each = look(os.path.join(directory, name))
                if each is not None:
                    found.setdefault(each.at, each)
        now = [(each.path, each.at) for each in found.values()]
        if now == before or not now:
            break
        before = now
    return [*found.values()]
