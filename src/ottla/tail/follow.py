"""Which files are open, and what rotation did to them: renamed, copied and truncated, written over, deleted, or
behind a link that leads elsewhere. Nothing is sent here; `agent.py` reads what this opens.

Two rules decide what a file is that was not there before. Under a name that a pattern matches and that is no rotated
name of another followed file it is new, and read from its beginning. Beside a followed file, under a rotated name, it
is a generation of that file: one that is known by its inode; or by its bytes a copy, of which what was not read yet is
read; or else one that nobody has read. Where nothing decides, it is read: twice rather than never.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from ottla.tail.copies import Copies
from ottla.tail.files import LogFile, Position, ends_with_line, now_ms, position_at_end
from ottla.tail.finder import (
    LISTINGS_MAX,
    FileId,
    FileStat,
    Finder,
    Originals,
    file_id,
    look,
    places,
    siblings,
)
from ottla.tail.lines import Line
from ottla.tail.neighbours import Neighbours, newer
from ottla.tail.positions import STDIN, Positions
from ottla.tail.relations import Relations, is_beside, is_cut

CLOSED_S = 300.0
"""A file that was renamed is closed when nothing was added for so long; one that was deleted after the flush time."""


@dataclass
class Follower:
    finder: Finder
    warn: Callable[[str], None]
    line_bytes_max: int
    start: re.Pattern[bytes] | None
    flush_s: float
    positions: Positions
    files: dict[FileId, LogFile] = field(default_factory=dict)
    rest: list[tuple[str, list[Line]]] = field(default_factory=list)
    """Paths, and what was held of files that were truncated or written over, for the next batch."""
    truncations: int = 0
    files_seen: int = 0
    _neighbours: Neighbours = field(default_factory=Neighbours)
    _lay: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Real path of each path that a pattern found."""
    _later: dict[FileId, tuple[str, str]] = field(default_factory=dict)
    """Rotated files that could not be judged at the last scan: their paths, and what they were called."""
    _looked_ms: int = 0

    def __post_init__(self) -> None:
        self._relations = Relations(self.finder, self.files, self.positions.stored)
        self._copies = Copies(self._relations)

    def scan(self, first: bool = False, from_end: bool = False) -> None:
        """Opens what is new, and notices what was renamed or deleted. `from_end`: files without a position are new."""
        now = now_ms()
        before_ms, before = (now, dict(self.positions.stored)) if first else (self._looked_ms, {})
        found = self.finder.matches()
        if first:
            self._looked_ms = now
            self._lay = {
                path: places(path) for path in [*self.finder.patterns, *(each.path for each in before.values())]
            }
        for file in list(self.files.values()):
            file.is_new = False
            self._look_where(file, found)
        self._judge_later()
        missing = [path for at, path in found.items() if at not in self.files]
        names = self._relations.names() if missing else Originals[bool]()
        unknown = [path for path in missing if not self._open_known(path, names)]
        opened = self._open_new(unknown, before, from_end)
        if first:
            for path in self.finder.patterns:
                self._neighbours.remember({place: siblings([place]) for place in places(path)})
            self._open_moved_meanwhile(before)
            self._open_rotated_meanwhile(before)
        else:
            for file in opened:
                self._open_unseen(file.places, file.position.path, before_ms)
        self._follow_links(found, before_ms)
        self._copies.keep(found)
        open_keys = {file.position.key for file in self.files.values()}
        self.positions.drop_gone(open_keys, self._looked_ms, self._relations.moved)
        if self._is_complete(found):
            self._looked_ms = now
            for file in self.files.values():
                file.looked_ms = now

    def truncated(self, file: LogFile) -> None:
        """A file holds no longer what was read from it: it is read from its beginning, or closed."""
        self.truncations += 1
        since_ms = now_ms()
        owner = self._relations.owner(file) if file.rotated or file.is_copy else None
        if owner is not None and not file.is_deleted():
            self._written_over(file, owner)
            return
        # A copy goes on with what is held; where there is none, it is sent as it is.
        if not self._take_copies(file):
            self._finish(file)
        file.restart(since_ms)
        self.positions.note(file.position)

    def begun(self, file: LogFile, since_ms: int) -> None:
        """Something was read, or it was touched, of a file of which nothing was read since the time `since_ms`.

        A truncation is not noticed while nothing was read: generations may have come and gone.
        """
        if not file.is_copy and not file.rotated:
            file.is_new &= not file.read_to
            self._open_unseen(file.places, file.position.path, since_ms)

    def drop(self, file: LogFile) -> None:
        for at in [at for at, each in self.files.items() if each is file]:
            del self.files[at]
        file.close()

    # Renamed, or gone.

    def _look_where(self, file: LogFile, found: dict[FileId, str]) -> None:
        """Whether it was renamed, replaced or deleted; what was rotated between two looks is opened too."""
        at = file.identity
        if file.is_left and at in found:
            file.current, file.is_left = found[at], False
        if file_id(file.current) == at:
            file.rotated, file.places = False, (file.current,) if file.is_left else places(file.current)
        elif file_id(file.places[-1]) == at:
            # A link leads elsewhere; the file lies where it did.
            file.current, file.is_left = file.places[-1], True
        elif not file.rotated:
            file.rotated = True
            self._open_unseen(file.places, file.position.path, self._looked_ms)
        if file.is_past and not file.splitter.held_bytes:
            deleted = file.is_deleted()
            quiet_s = self.flush_s if deleted else CLOSED_S
            if file.quiet_s() > quiet_s and at not in found:
                self.drop(file)
                if deleted:
                    self.positions.drop(file.position)

    def _open_unseen(
        self, originals: Sequence[str], name: str, since_ms: int, truncated: LogFile | None = None
    ) -> None:
        """Rotated files that were not there when these places were looked at, oldest first."""
        for _ in range(LISTINGS_MAX):
            beside = {place: siblings([place]) for place in originals}
            if self._open_generations(self._neighbours.unseen(beside, since_ms), name, truncated):
                break
        self._neighbours.remember(beside)

    def _is_complete(self, found: dict[FileId, str]) -> bool:
        """Whether all that was found is open. What was renamed before it could be opened is looked for."""
        missing = {
            at: path
            for at, path in found.items()
            if at not in self.files and at not in self._copies and path not in self.finder.unreadable
        }
        for path in dict.fromkeys(missing.values()):
            self._open_unseen(places(path), path, self._looked_ms)
            for each in siblings(places(path)):
                if each.at in missing:
                    self._open_generation(each, path)
        return all(at in self.files for at in missing) and not self.finder.has_vanished

    def _follow_links(self, found: dict[FileId, str], since_ms: int) -> None:
        """What was made, since the last look, where a link led to before it was moved, and where it leads to now."""
        there = {path: self.files.get(at) for at, path in found.items()}
        for path in [*there, *(each for each in self._lay if each not in there)]:
            file = there.get(path)
            lies = places(path) if file is None or file.current != path else file.places
            lay = self._lay.get(path, lies)
            for place in [each for each in lay if each not in lies]:
                left = look(place)
                if left is not None and left.at not in self.files:
                    self._open_generation(left, path)
            if lies != lay:
                self._open_unseen([*dict.fromkeys((*lay, *lies))], path, since_ms)
            self._lay[path] = lies
        kept = {*self.finder.patterns, *found.values(), *(file.position.path for file in self.files.values())}
        self._lay = {path: lies for path, lies in self._lay.items() if path in kept}

    # Found by a pattern.

    def _open_known(self, path: str, names: Originals[bool]) -> bool:
        """Goes on with a file whose position is stored. Whether it is one, or cannot be read.

        `names`: of all files that are known; a rotated one of theirs may be stored under its own name.
        """
        descriptor = self.finder.open(path)
        if descriptor is None:
            return True
        try:
            now = os.fstat(descriptor)
            position = self._relations.known(descriptor, path)
            if position is None or (now.st_dev, now.st_ino) in self.files:
                os.close(descriptor)
                return position is not None
            is_copy = names.of(path) is not None or (path != position.path and is_beside(places(path), position))
            self._follow(descriptor, path, position, is_copy=is_copy)
        except OSError as error:
            self._unreadable(descriptor, path, error)
        return True

    def _open_new(self, paths: list[str], before: dict[str, Position], from_end: bool) -> list[LogFile]:
        """Opens files without a position: first those that others may be rotated ones of. Returns those.

        `before`: the positions that an earlier agent left, at the first scan.
        """
        if not paths:
            return []
        originals = Originals[str]()
        for file in self.files.values():
            for place in () if file.is_copy else file.places:
                originals.add(place, place)
        for path in paths:
            for place in places(path):
                originals.add(place, place)
        rotated = {path for path in paths if any(originals.of(place) is not None for place in places(path))}
        opened = []
        for path in [each for each in paths if each not in rotated]:
            descriptor = self.finder.open(path)
            if descriptor is not None:
                try:
                    original = self._open_original(descriptor, path, from_end)
                    opened += [original] if original is not None else []
                except OSError as error:
                    self._unreadable(descriptor, path, error)
        followed = self._relations.originals()
        for path in [each for each in paths if each in rotated]:
            descriptor = self.finder.open(path)
            if descriptor is not None:
                try:
                    self._open_rotated(descriptor, path, followed, before, from_end)
                except OSError as error:
                    self._unreadable(descriptor, path, error)
        return opened

    def _open_original(self, descriptor: int, path: str, from_end: bool) -> LogFile | None:
        """Raises OSError, with the descriptor open."""
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) in self.files:  # another file has the path by now
            os.close(descriptor)
            return None
        stale = self.positions.stored.get(f"{found.st_dev}-{found.st_ino}")
        if stale is not None and stale.path == path and not stale.describes(descriptor):
            # Truncated while no agent ran, or an inode that is used again.
            since_ms = now_ms()
            file = self._follow(descriptor, path, stale, written_over=True)
            self._take_copies(file)
            file.restart(since_ms)
            self.positions.note(file.position)
            return file
        known = self._relations.known(descriptor, path)
        if known is not None:
            return self._follow(descriptor, path, known)
        new = Position(path, found.st_dev, found.st_ino)
        file = self._follow(descriptor, path, position_at_end(descriptor, path) if from_end else new)
        file.is_new = True
        return file

    def _open_rotated(
        self, descriptor: int, path: str, followed: Originals[LogFile], before: dict[str, Position], from_end: bool
    ) -> None:
        """Raises OSError, with the descriptor open."""
        found = os.fstat(descriptor)
        at = (found.st_dev, found.st_ino)
        # An empty one may be a copy that begins; there is nothing to read in it either way.
        if (
            at in self.files
            or not found.st_size
            or self._copies.is_read_elsewhere(descriptor, path, followed, self.truncations) is not False
        ):
            os.close(descriptor)
            return
        # Another file may have the path by now, one that is known.
        position = self._relations.known(descriptor, path) or self._relations.came_from(descriptor, path)
        position = position or Position(path, *at)
        if from_end or is_cut(descriptor, path, before):
            position = position_at_end(descriptor, path)
        self._follow(descriptor, path, position, is_copy=True)

    # Copies.

    def _take_copies(self, file: LogFile) -> bool:
        """After a truncation: goes on in the copy that holds what was read and more. Whether there is one.

        Other copies are taken as read. Generations that came and went between two looks are read from the beginning.
        """
        copies: list[tuple[int, str, int]] = []
        others: list[tuple[str, int]] = []
        own = file.identity
        for each in siblings(file.places):
            if each.at == own or self._is_kept(each.at, file):
                continue
            name, descriptor = self.finder.open_listed(each, file.places)
            if descriptor is None:
                continue
            try:
                known = self._relations.known(descriptor, name)
                further = 0 if known is None else known.offset
                if further < file.read_to and file.goes_on_in(descriptor):
                    copies.append((os.fstat(descriptor).st_size, name, descriptor))
                    continue
                if further:
                    os.close(descriptor)
                    continue
                if file.read_to and file.covers(descriptor) and not file.begins_like(descriptor):
                    others.append((name, descriptor))
                    continue
            except OSError as error:
                self.warn(f"{name}: {error.strerror}")
            os.close(descriptor)
        for rank, (_, name, descriptor) in enumerate(sorted(copies, reverse=True)):
            if rank == 0:
                self._follow(descriptor, name, file.position, is_copy=True)
            else:  # a copy of a copy, or one that is being made
                self._put_off(descriptor, name, file.position.path)
        for name, descriptor in others:
            if copies and not ends_with_line(descriptor):  # being made: where its end will be is not known
                self._put_off(descriptor, name, file.position.path)
            else:
                self._follow_to_end(descriptor, name, file)
        self._open_unseen(file.places, file.position.path, file.read_ms, truncated=file)
        return bool(copies)

    def _put_off(self, descriptor: int, path: str, name: str) -> None:
        found = os.fstat(descriptor)
        self._later[found.st_dev, found.st_ino] = path, name
        os.close(descriptor)

    def _is_kept(self, at: FileId, truncated: LogFile) -> bool:
        """Whether a file is open, and what it was. A rotated one that was written over is closed."""
        file = self.files.get(at)
        if file is None:
            return False
        try:
            is_copy = file.read_to < truncated.read_to and truncated.goes_on_in(file.descriptor)
            if not (file.is_copy or file.rotated) or (file.is_intact() and not is_copy):
                return True
        except OSError:
            pass
        self._let_go(file)
        return False

    def starts_again(self, file: LogFile) -> bool:
        """Whether a rotated file, of which nothing was read yet or all, is a copy now that was made over it.

        It has more than it had: a late writer's lines, or what its original holds still.
        """
        owner = self._relations.owner(file)
        if owner is None or owner.is_new or not owner.read_to:
            return False
        if not self._relations.holds_copy(owner, file.descriptor):
            return False
        self._later[file.identity] = file.current, file.position.path
        self._let_go(file)
        self.positions.drop(file.position)  # else its inode is known, and what it holds now is read as its rest
        return True

    def _written_over(self, file: LogFile, owner: LogFile) -> None:
        """A rotated file holds something else: a copy of its original or of another rotated file, or a new log.

        Files are copied from the oldest on, so that several may hold something else: what one of them held is looked
        for in the others. What is left is judged like a file that was not there before.
        """
        for each in [file, *self._relations.rotated_of(owner)]:
            if each.is_closed or (each is not file and each.is_intact()):
                continue
            path, name, at = each.current, each.position.path, each.identity
            self._let_go(each)
            if owner.is_intact() and at not in self.files:
                self._later[at] = path, name

    def _let_go(self, file: LogFile) -> None:
        if not self._open_moved(file.position):
            self._finish(file)
            self.positions.note(file.position)
        self.drop(file)

    def _finish(self, file: LogFile) -> None:
        self.rest.append((file.position.path, file.finish(unfinished=True)))

    def _follow_to_end(self, descriptor: int, path: str, original: LogFile) -> None:
        end = position_at_end(descriptor, original.position.path)
        self._follow(descriptor, path, replace(end, real=original.places[-1]), is_copy=True)

    # Rotated.

    def _open_generations(self, found: Iterable[FileStat], name: str, truncated: LogFile | None = None) -> bool:
        """Whether all were still where they were found."""
        missed = [each for each in found if not self._open_generation(each, name, truncated)]
        return not missed

    def _open_generation(self, found: FileStat, name: str, truncated: LogFile | None = None) -> bool:
        """A rotated file that nobody has read, unless it is known or a copy. `name` is what it was called.

        `truncated`: its original, if that was truncated just now. False if another file has this path by now, or none.
        """
        path, at = found.path, found.at
        descriptor = self.finder.open(path)
        if descriptor is None:
            return False
        try:
            now = os.fstat(descriptor)
            if (now.st_dev, now.st_ino) != at or at in self.files or not now.st_size:
                os.close(descriptor)
                if (now.st_dev, now.st_ino) == at and not now.st_size:
                    self._later[at] = path, name  # a late writer may add to it, or a copy begins
                return (now.st_dev, now.st_ino) == at
            position = self._relations.known(descriptor, path)
            if position is None or position.offset < now.st_size:
                elsewhere = self._copies.is_read_elsewhere(
                    descriptor, path, self._relations.originals(), self.truncations, truncated
                )
                if elsewhere is not False:
                    os.close(descriptor)
                    if elsewhere is None:
                        self._later[at] = path, name
                    return True
            position = position or self._relations.came_from(descriptor, path)
            lies = places(name)
            new = Position(name, *at, real=lies[-1])
            is_there = path in lies  # created again, and no rotated file
            self._follow(descriptor, name if is_there else path, position or new, is_copy=not is_there)
        except OSError as error:
            self._unreadable(descriptor, path, error)
        return True

    def _judge_later(self) -> None:
        later, self._later = self._later, {}
        for at, (path, name) in later.items():
            found = look(path)
            if found is None or found.at != at:
                # A link may lead elsewhere: it is looked for where the file lay, too.
                lay = os.path.join(os.path.dirname(path), os.path.basename(name))
                found = next((each for each in siblings([*places(name), lay]) if each.at == at), None)
            if found is not None and (not found.size or not self._open_generation(found, name)):
                self._later[at] = found.path, name

    def _open_moved_meanwhile(self, before: dict[str, Position]) -> None:
        """The rest of files that were rotated while no agent ran, and of those that a link led to."""
        open_keys = {file.position.key for file in self.files.values()}
        for position in before.values():
            if position.key not in open_keys and position.path != STDIN:
                self._open_moved(position)

    def _open_rotated_meanwhile(self, before: dict[str, Position]) -> None:
        """Files made and rotated while no agent ran: unknown, and newer than the last look at what is beside them."""
        last_ms: dict[str, int] = {}
        originals: dict[str, list[str]] = {}
        for position in before.values():
            path = position.path
            last_ms[path] = max(position.time_ms, last_ms.get(path, 0))
            originals.setdefault(path, [*places(path)]).append(position.real)
        for path, time_ms in last_ms.items():
            if path == STDIN:
                continue
            there = [*filter(None, originals[path])]
            for _ in range(LISTINGS_MAX):
                # What a link led to may have been made again before the link was moved.
                found = [*siblings(there), *filter(None, map(look, there))]
                if self._open_generations(newer(found, time_ms), path):
                    break

    def _open_moved(self, position: Position) -> bool:
        """The rest of a file that was rotated, under the name it has now. Whether there is one."""
        path = self._relations.moved(position)
        descriptor = None if path is None else self.finder.open(path)
        if path is None or descriptor is None:
            return False
        found = os.fstat(descriptor)
        there = self.files.get((found.st_dev, found.st_ino))
        if there is not None and (there.read_to >= position.offset or not (there.is_copy or there.rotated)):
            os.close(descriptor)
            return True
        try:
            if there is not None:
                self.drop(there)  # more of it was read from another
            own = self._relations.known(descriptor, path)
            further = position if own is None or own.offset < position.offset else own
            file = self._follow(descriptor, path, further, is_copy=True)
            if found.st_ino == position.inode and self._relations.is_left(path, position):
                file.is_copy, file.is_left, file.places = False, True, (path,)  # a link leads elsewhere
        except OSError as error:
            self._unreadable(descriptor, path, error)
        return True

    # Opened, and closed.

    def _follow(
        self, descriptor: int, path: str, position: Position, is_copy: bool = False, written_over: bool = False
    ) -> LogFile:
        """`written_over`: the file is known not to hold what its position says. Raises OSError."""
        found = os.fstat(descriptor)
        at = (found.st_dev, found.st_ino)
        stale = self.positions.stored.get(f"{at[0]}-{at[1]}")
        if not written_over and stale is not None and not stale.describes(descriptor):
            self._open_moved(stale)  # an inode that is used again, or a rotated file that was written over
            if at in self.files:
                os.close(descriptor)
                return self.files[at]
        file = LogFile.open(descriptor, position, path, self.line_bytes_max, self.start)
        file.places, file.is_copy = places(path), is_copy
        file.looked_ms = self._looked_ms
        lay = position.real if is_copy and position.real else file.places[-1]
        file.position = replace(position, device=at[0], inode=at[1], real=lay, time_ms=self._looked_ms)
        self.files[at] = file
        self.files_seen += 1
        if not is_copy:
            for place in file.places:
                self._neighbours.begin(place)
        self.positions.note(file.position)
        return file

    def _unreadable(self, descriptor: int, path: str, error: OSError) -> None:
        os.close(descriptor)
        self.warn(f"{path}: {error.strerror}")
