"""The watches of a session: which watchers are told of an event, and what is set again after a reconnect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.zookeeper.errors import Code
from ottla.zookeeper.messages import (
    AddWatch,
    AddWatchMode,
    EventType,
    Exists,
    GetChildren,
    GetData,
    Request,
)

SET_WATCHES_BYTES: Final = 131_072
"""Paths in one SetWatches2, as Java's client has it: all of them may be more than `jute.maxbuffer`."""


class State(IntEnum):
    """States of a session. The last three are final."""

    CONNECTING = 0
    CONNECTED = 1
    EXPIRED = 2
    AUTH_FAILED = 3
    CLOSED = 4


class WatchedEvent(NamedTuple):
    """`type` NONE is about the session: its watcher sees nothing more where `state` is final. A persistent watcher
    gets one with CONNECTED after a reconnect, because it was not told of what changed meanwhile: read again."""

    type: EventType
    path: str
    state: State


Watcher = Callable[[WatchedEvent], None]
"""Called on the loop with each event; two watches of one watcher on one path are one."""


class Kind(IntEnum):
    """Kinds of watches, in the order of SetWatches2."""

    DATA = 0
    EXISTS = 1
    CHILD = 2
    PERSISTENT = 3
    RECURSIVE = 4


_ONE_TIME: Final = {
    EventType.NODE_CREATED: (Kind.DATA, Kind.EXISTS),
    EventType.NODE_DATA_CHANGED: (Kind.DATA, Kind.EXISTS),
    EventType.NODE_CHILDREN_CHANGED: (Kind.CHILD,),
    EventType.NODE_DELETED: (Kind.DATA, Kind.EXISTS, Kind.CHILD),
}
"""Which watches an event takes away (`ZKWatchManager.materialize`)."""


def kind_of(request: Request, code: int) -> Kind | None:
    """Kind of the watch that an answered request has set; None where it set none."""
    if isinstance(request, Exists):
        return {Code.OK: Kind.DATA, Code.NO_NODE: Kind.EXISTS}.get(Code(code)) if code in (0, Code.NO_NODE) else None
    if code != Code.OK:
        return None
    if isinstance(request, GetData):
        return Kind.DATA
    if isinstance(request, GetChildren):
        return Kind.CHILD
    if isinstance(request, AddWatch):
        return Kind.RECURSIVE if request.mode is AddWatchMode.PERSISTENT_RECURSIVE else Kind.PERSISTENT
    return None


class Watches:
    """Paths are the client's, without the chroot. The order is that in which watches were set."""

    def __init__(self) -> None:
        self._kinds: tuple[dict[str, dict[Watcher, None]], ...] = tuple({} for _ in Kind)

    def __len__(self) -> int:
        return sum(map(len, self._kinds))

    def answered(self, request: Request, code: int, watcher: Watcher | None) -> None:
        """Keep the watch that a request has set."""
        if watcher is not None and (kind := kind_of(request, code)) is not None:
            self._kinds[kind].setdefault(request.path, {})[watcher] = None

    def take(self, kind: EventType, path: str) -> list[Watcher]:
        """Watchers that are told of an event, each once. One-time watches are gone then."""
        found: dict[Watcher, None] = {}
        for each in _ONE_TIME.get(kind, ()):
            found.update(self._kinds[each].pop(path, {}))
        found.update(self._kinds[Kind.PERSISTENT].get(path, {}))
        if kind is not EventType.NODE_CHILDREN_CHANGED and self._kinds[Kind.RECURSIVE]:
            for parent in _parents(path):
                found.update(self._kinds[Kind.RECURSIVE].get(parent, {}))
        return list(found)

    def persistent(self) -> list[Watcher]:
        found: dict[Watcher, None] = {}
        for kind in (Kind.PERSISTENT, Kind.RECURSIVE):
            for watchers in self._kinds[kind].values():
                found.update(watchers)
        return list(found)

    def drop_all(self) -> list[Watcher]:
        """Every watcher, once. None is kept."""
        found: dict[Watcher, None] = {}
        for paths in self._kinds:
            for watchers in paths.values():
                found.update(watchers)
            paths.clear()
        return list(found)

    def batches(self) -> Iterator[list[list[str]]]:
        """Paths of each kind, in batches that fit into a request."""
        batch: list[list[str]] = [[] for _ in Kind]
        size = 0
        for kind in Kind:
            for path in self._kinds[kind]:
                batch[kind].append(path)
                size += len(path)
                if size >= SET_WATCHES_BYTES:
                    yield batch
                    batch, size = [[] for _ in Kind], 0
        if size:
            yield batch


def _parents(path: str) -> Iterator[str]:
    """The path, and every path above it."""
    yield path
    while len(path) > 1:
        path = path[: path.rindex("/")] or "/"
        yield path
