"""Copies of followed files: which ones need not be read, as their originals hold all of it still."""

from __future__ import annotations

import os
from collections.abc import Container

from ottla.tail.files import LogFile
from ottla.tail.finder import FileId, Originals, places
from ottla.tail.relations import Relations

Seen = tuple[int, int, int]
"""A copy's size and time of its last change, and how many truncations there had been."""


class Copies:
    """Copies of files that hold all of it themselves: they are not read."""

    def __init__(self, relations: Relations) -> None:
        self._relations = relations
        self._seen: dict[FileId, Seen] = {}

    def __contains__(self, at: FileId) -> bool:
        return at in self._seen

    def keep(self, found: Container[FileId]) -> None:
        """Drop those that are not among the files found."""
        self._seen = {at: seen for at, seen in self._seen.items() if at in found}

    def is_read_elsewhere(
        self,
        descriptor: int,
        path: str,
        followed: Originals[LogFile],
        truncations: int,
        truncated: LogFile | None = None,
    ) -> bool | None:
        """Whether it is a copy of a followed file that holds all of it still, or of another rotated one.

        None if it is too early to say: it is written just now, or what its original holds was not read yet. `truncated`
        is an original that is read from its beginning next. Raises OSError.
        """
        found = os.fstat(descriptor)
        at, seen = (found.st_dev, found.st_ino), (found.st_size, found.st_mtime_ns, truncations)
        original = next((each for place in places(path) if (each := followed.of(place))), None)
        if original is None:
            return False
        is_intact = original.is_intact()
        if original.begins_like(descriptor) if original is truncated else not is_intact:
            return None
        if self._seen.get(at) == seen:
            return True
        if not self._relations.holds_copy(original, descriptor):
            if not all(file.is_intact() for file in self._relations.rotated_of(original)):
                return None
            now = os.fstat(descriptor)
            is_same = (now.st_size, now.st_mtime_ns) == seen[:2] and original.is_intact() is is_intact
            return False if is_same else None
        if is_intact and not original.read_to:
            return None
        self._seen[at] = seen
        return True
