"""How files belong together: which one is known, where one was moved, and which is a rotated one of another."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from ottla.tail.files import HEAD_BYTES, LogFile, Position
from ottla.tail.finder import FileId, FileStat, Finder, Originals, is_rotated_name, look, places, siblings


@dataclass
class Relations:
    """Answers questions about the files that are followed and the positions that are stored; changes neither."""

    finder: Finder
    files: dict[FileId, LogFile]
    stored: dict[str, Position]

    def known(self, descriptor: int, path: str) -> Position | None:
        """The stored position of an open file. Raises OSError.

        A device's number may be another after a restart: the inode and the bytes say that it is the same file then.
        """
        found = os.fstat(descriptor)
        position = self.stored.get(f"{found.st_dev}-{found.st_ino}")
        if position is not None:
            return position if position.describes(descriptor) else None
        for other in self.stored.values():
            if other.inode == found.st_ino and other.path == path and other.offset and other.describes(descriptor):
                return other
        return None

    def came_from(self, descriptor: int, path: str) -> Position | None:
        """The position of a rotated file, not in its place any more, of which this is a copy. Raises OSError."""
        lies = places(path)
        for position in self.stored.values():
            if (
                position.offset
                and os.path.dirname(position.real) == os.path.dirname(lies[-1])
                and position.describes(descriptor)
                and (path == position.path or is_beside(lies, position))
                and self.moved(position, copies=False) is None
            ):
                return position
        return None

    def moved(self, position: Position, copies: bool = True) -> str | None:
        """Where the file with this position is now: renamed, or as the copy that was made before it was truncated."""
        found = []
        originals = originals_of(position)
        there = [each for each in map(look, originals) if each is not None and each.at[1] == position.inode]
        for each in [*there, *siblings(originals)]:
            descriptor = self.finder.open(each.path)
            if descriptor is None:
                continue
            try:
                if position.describes(descriptor):
                    if os.fstat(descriptor).st_ino == position.inode:
                        return each.path
                    if position.offset and copies:
                        found.append(each)
            except OSError:
                continue
            finally:
                os.close(descriptor)
        return max(found, key=changed).path if found else None

    def is_left(self, path: str, position: Position) -> bool:
        """Whether a file is still at its followed path, and not because rotation gave it that name."""
        directory, name = os.path.split(path)
        return path == position.real and not any(
            os.path.dirname(other.real) == directory and is_rotated_name(name, os.path.basename(other.real))
            for other in self.stored.values()
        )

    def originals(self) -> Originals[LogFile]:
        """Files that are followed since an earlier scan, by which copies of them are found."""
        found = Originals[LogFile]()
        for file in self.files.values():
            if not file.is_new and not file.rotated and not file.is_copy:
                for place in file.places:
                    found.add(place, file)
        return found

    def names(self) -> Originals[bool]:
        """Paths of all files that are known."""
        found = Originals[bool]()
        for position in self.stored.values():
            found.add(position.path, True)
        return found

    def owner(self, rotated: LogFile) -> LogFile | None:
        """The followed file that this is a rotated one of."""
        originals = Originals[LogFile]()
        for file in self.files.values():
            for place in () if file is rotated or file.rotated or file.is_copy else file.places:
                originals.add(place, file)
        return next((found for place in places(rotated.current) if (found := originals.of(place))), None)

    def rotated_of(self, original: LogFile) -> list[LogFile]:
        """Open rotated files of a followed one."""
        of_original = Originals[bool]()
        for place in original.places:
            of_original.add(place, True)
        return [
            file
            for file in self.files.values()
            if (file.is_copy or file.rotated)
            and file is not original
            and any(of_original.of(place) for place in file.places)
        ]

    def holds_copy(self, original: LogFile, descriptor: int) -> bool:
        """Whether a followed file, or one of its rotated ones, has all that another file holds. Raises OSError."""
        own = os.fstat(descriptor)
        return original.has_copy(descriptor) or any(
            file.read_to > 0 and file.identity != (own.st_dev, own.st_ino) and file.has_copy(descriptor)
            for file in self.rotated_of(original)
        )


def changed(found: FileStat) -> int:
    return found.changed_ns


def originals_of(position: Position) -> list[str]:
    """Where a file lay, and where its path leads to now."""
    return [*filter(None, [position.real]), *places(position.path)]


def is_beside(lies: Iterable[str], position: Position) -> bool:
    """Whether one of these places has a rotated name of the file with this position."""
    originals = Originals[bool]()
    for place in originals_of(position):
        originals.add(place, True)
    return any(originals.of(place) for place in lies)


def is_cut(descriptor: int, path: str, before: dict[str, Position]) -> bool:
    """Whether it is a copy that an earlier agent saw, of a file that was truncated since. Raises OSError."""
    found = os.fstat(descriptor)
    begin = os.pread(descriptor, HEAD_BYTES, 0)
    lies = places(path)
    for position in before.values():
        if (
            position.real
            and position.offset > found.st_size
            and found.st_mtime_ns < position.time_ms * 1_000_000
            and begin[: len(position.head)] == position.head[: len(begin)]
            and is_beside(lies, position)
        ):
            return True
    return False
