"""Rotated files beside the followed ones: which are new since they were last looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.tail.finder import FileId, FileStat, siblings
from ottla.tail.relations import changed

TICK_MS = 100
"""How far the clock of files may be behind ours: it goes by ticks."""


class Neighbours:
    """The rotated files beside each place, as of the last look at it."""

    def __init__(self) -> None:
        self._beside: dict[str, set[FileId]] = {}

    def begin(self, place: str) -> None:
        """Look at a place, unless that was done before."""
        self._beside.setdefault(place, {each.at for each in siblings([place])})

    def remember(self, beside: Mapping[str, Iterable[FileStat]]) -> None:
        self._beside.update((place, {each.at for each in files}) for place, files in beside.items())

    def unseen(self, beside: Mapping[str, Iterable[FileStat]], since_ms: int) -> list[FileStat]:
        """The files that were not there at the last look, or were changed since a time, oldest first: an inode may be
        used again, and a file may be written over."""
        found = {}
        for place, files in beside.items():
            before = self._beside.get(place)
            for each in files:
                if (before is not None and each.at not in before) or _is_newer(each, since_ms):
                    found[each.at] = each
        return sorted(found.values(), key=changed)


def newer(found: Iterable[FileStat], since_ms: int) -> list[FileStat]:
    """The files that were changed since a time, oldest first."""
    return sorted((each for each in found if _is_newer(each, since_ms)), key=changed)


def _is_newer(found: FileStat, since_ms: int) -> bool:
    return found.changed_ns >= (since_ms - TICK_MS) * 1_000_000
