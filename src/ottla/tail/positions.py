"""Positions of files: what is stored of them, and what the next batch changes about that."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from ottla.tail.files import Position

GONE_MS = 7 * 86_400_000
"""Positions of files that are nowhere any more are kept for so long: their disk may not be mounted yet."""
GONE_LOOKS = 4
"""Positions of files that are not open, of which each scan looks whether their files are still there."""
STDIN = "-"


@dataclass
class Positions:
    """The positions of all files, by their keys."""

    stored: dict[str, Position]
    """Positions as of the last batch, of files that are not open too."""
    changed: dict[str, Position] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    """Both are for the next batch."""
    _unlooked: deque[str] = field(default_factory=deque)
    """Keys of positions, in the order in which it is looked whether their files are still there."""

    def note(self, position: Position) -> None:
        if self.stored.get(position.key) != position:
            self.stored[position.key] = self.changed[position.key] = position
            self.gone.discard(position.key)

    def drop(self, position: Position) -> None:
        if self.stored.pop(position.key, None) is not None:
            self.changed.pop(position.key, None)
            self.gone.add(position.key)

    def drop_gone(self, open_keys: Collection[str], looked_ms: int, where: Callable[[Position], str | None]) -> None:
        """Drops positions whose files have been nowhere for long, some at a time. `where`: the path of a file now."""
        if not self._unlooked:
            self._unlooked.extend(self.stored)
        for _ in range(min(GONE_LOOKS, len(self._unlooked))):
            position = self.stored.get(self._unlooked.popleft())
            if position is None or position.path == STDIN or position.key in open_keys:
                continue
            if 0 < position.time_ms < looked_ms - GONE_MS and where(position) is None:
                self.drop(position)

    def take(self) -> tuple[dict[str, Position], set[str]]:
        """What the next batch stores, and which keys it removes; both are empty after that."""
        taken = self.changed, self.gone
        self.changed, self.gone = {}, set()
        return taken
