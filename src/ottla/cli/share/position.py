"""How far the dead letters of a share group are put back: in each partition an offset up to which all are, and behind
it ranges that are.

Kept as the committed offset of a consumer group, with the ranges as its metadata, in the transaction that puts the
letters back: so that no letter is put back twice, whatever was filtered before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable
from typing import NamedTuple

METADATA_BYTES_MAX = 4_000
"""Below the default of offset.metadata.max.bytes, 4,096."""
_MARK = "redrive/1 "


class Position(NamedTuple):
    offset: int = 0
    """All letters before this are put back."""
    ranges: tuple[tuple[int, int], ...] = ()
    """First and last offsets of those behind it, in order."""

    def has(self, offset: int) -> bool:
        """Whether a letter was put back."""
        index = bisect_right(self.ranges, offset, key=lambda each: each[0]) - 1
        return offset < self.offset or (index >= 0 and offset <= self.ranges[index][1])

    def metadata(self) -> str:
        """Offsets as differences, which are short. Raises ValueError for more than a commit can have."""
        words, at = [], self.offset
        for first, last in self.ranges:
            words.append(f"{first - at}" if first == last else f"{first - at}+{last - first}")
            at = last
        text = _MARK + ",".join(words)
        if len(text) > METADATA_BYTES_MAX:
            raise ValueError(f"{len(self.ranges)} gaps between letters that are put back")
        return text


def parse(offset: int, metadata: str | None) -> Position:
    """The position of a commit; the start where nothing was committed. Raises ValueError for another's commit."""
    if offset < 0:
        return Position()
    if not metadata:
        return Position(offset)
    if not metadata.startswith(_MARK):
        raise ValueError(f"not a position: {metadata[:40]!r}")
    ranges, at = [], offset
    for word in filter(None, metadata.removeprefix(_MARK).split(",")):
        before, _, length = word.partition("+")
        first = at + int(before)
        at = first + int(length or 0)
        ranges.append((first, at))
    return Position(offset, tuple(ranges))


def position_of(letters: Iterable[tuple[int, bool]], end: int) -> Position:
    """The position when of letters, in the order of their offsets, some are put back; up to `end` there are no
    others."""
    base: int | None = None
    ranges: list[tuple[int, int]] = []
    is_open = False
    for offset, is_done in letters:
        if not is_done:
            base = offset if base is None else base
            is_open = False
        elif base is not None:
            if is_open:
                ranges[-1] = ranges[-1][0], offset
            else:
                ranges.append((offset, offset))
            is_open = True
    return Position(end if base is None else base, tuple(ranges))


class Progress:
    """What of a partition is put back, while its letters are read, in order, and some of them put back.

    Only offsets are kept, and of letters in a row that stay where they are only the first.
    """

    def __init__(self, before: Position) -> None:
        self.end = before.offset
        """The letters before this are read."""
        self._position = before
        self._left: list[int] = []
        """Offsets of letters that are not put back."""
        self._stays = False
        """Whether the newest letter is one that stays."""

    @property
    def start(self) -> int:
        """Where to read from: all before is put back."""
        return self._position.offset

    def read_to(self, offset: int) -> None:
        """Up to there are no further letters."""
        self.end = max(self.end, offset)

    def has(self, offset: int) -> bool:
        """Whether a letter was put back before. The letter is read now."""
        self.read_to(offset + 1)
        if not self._position.has(offset):
            return False
        self._stays = False
        return True

    def add(self, offset: int, *, stays: bool) -> None:
        """A letter that is not put back: it stays, or is put back later."""
        if not (stays and self._stays):
            self._left.append(offset)
        self._stays = stays

    def with_done(self, offsets: Collection[int]) -> Position:
        """The position when these letters are put back too."""
        done = frozenset(offsets)
        read = [each for each in self._position.ranges if each[0] < self.end]
        end = max(self.end, read[-1][1] + 1) if read else self.end
        known = [(offset, offset in done) for offset in self._left]
        known += [(edge, True) for each in read for edge in each]
        known.append((end, False))
        made = position_of(sorted(known), end)
        # Ranges behind are kept apart: what lies between them is not read yet.
        return Position(made.offset, (*made.ranges, *self._position.ranges[len(read) :]))

    def put_back(self, offsets: Collection[int], position: Position) -> None:
        """Committed: these letters are put back, and `position` says so."""
        done = frozenset(offsets)
        self._left = [offset for offset in self._left if offset not in done]
        self._position = position
