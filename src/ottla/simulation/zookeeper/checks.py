"""What was committed, and what sessions were told of it.

A session never sees an older state than one that it has seen; a write is applied once at most, once when it was
acknowledged, and never when it was refused; a watch is told of a change before an answer shows it, once, and of nothing
else; it is not lost while the session lives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ottla.simulation.zookeeper.ensemble import Ensemble
from ottla.simulation.zookeeper.tree import Txn, parent_of
from ottla.zookeeper.messages import EventType
from ottla.zookeeper.watches import State, WatchedEvent


class Seen(NamedTuple):
    """A state of a node, or of its children, from `zxid` on. `value` None: there is no such node."""

    zxid: int
    value: object


UNKNOWN = Seen(-1, None)


class Committed:
    """States of every path in the order of commits, and how often each text was written."""

    def __init__(self, ensemble: Ensemble, violated: Callable[[str], Exception]) -> None:
        self.ensemble = ensemble
        self.violated = violated
        self.data: dict[str, list[Seen]] = {}
        self.children: dict[str, list[Seen]] = {"/": [Seen(0, ())]}
        self.writes: Counter[bytes] = Counter()
        ensemble.on_commit = self._committed

    def _committed(self, txn: Txn) -> None:
        paths: dict[str, None] = {}
        for change in txn.changes:
            paths[change.path] = None
            if change.kind is not EventType.NODE_DATA_CHANGED:
                paths[parent_of(change.path)] = None
            if change.data and not change.acl_only:
                self.writes[change.data] += 1
                if self.writes[change.data] > 1:
                    self.violated(f"the write {change.data!r} was applied twice")
        for path in paths:
            node = self.ensemble.tree.nodes.get(path)
            _append(self.data.setdefault(path, [Seen(0, None)]), txn.zxid, node and (node.mzxid, node.data))
            names = None if node is None else tuple(sorted(node.children))
            _append(self.children.setdefault(path, [Seen(0, None)]), txn.zxid, names)

    def states(self, path: str, *, children: bool) -> list[Seen]:
        return (self.children if children else self.data).setdefault(path, [Seen(0, None)])


def _append(states: list[Seen], zxid: int, value: object) -> None:
    if states[-1].value != value:
        states.append(Seen(zxid, value))


@dataclass(eq=False)
class Watch:
    """A one-time watch, from the state that it was set at."""

    view: View
    path: str
    children: bool
    since: Seen
    """UNKNOWN until the reader has its answer: a watcher may be called before the reader is resumed."""
    fired: bool = False
    ended: bool = False

    def __call__(self, event: WatchedEvent) -> None:
        violated = self.view.committed.violated
        if event.type is EventType.NONE:
            self.ended = True
            return
        if self.fired or self.ended:
            violated(f"a watch of {self.path} was told of {event}, and had been told before")
        self.fired = True
        self.view.counts["watches fired"] += 1
        if event.path != self.path:
            violated(f"a watch of {self.path} was told of {event}")
        if self.since is not UNKNOWN and not self.since_changed():
            violated(f"a watch of {self.path} was told of {event}, and nothing has changed since {self.since}")

    def since_changed(self) -> bool:
        return self.view.committed.states(self.path, children=self.children)[-1].zxid > self.since.zxid


class View:
    """What one session has seen."""

    def __init__(self, committed: Committed, name: str, counts: Counter[str]) -> None:
        self.committed = committed
        self.name = name
        self.counts = counts
        self.zxid = 0
        """Nothing older than this may be shown."""
        self.watches: list[Watch] = []
        self.session_id = 0
        self.refused: list[bytes] = []
        """Texts of writes that were said to have failed."""

    def read(self, path: str, value: object, *, children: bool) -> Seen:
        """Check an answer. Returns the state that it shows: the oldest that it can be."""
        states = self.committed.states(path, children=children)
        for number, state in enumerate(states):
            until = states[number + 1].zxid if number + 1 < len(states) else None
            if state.value == value and (until is None or until > self.zxid):
                self.zxid = max(self.zxid, state.zxid)
                self._shown(path, state, children=children)
                return state
        raise self.committed.violated(
            f"{self.name} was shown {path} as {value}, and had seen {self.zxid:#x}: {states[-3:]}"
        )

    def _shown(self, path: str, state: Seen, *, children: bool) -> None:
        for watch in self.watches:
            if watch.path != path or watch.children != children or watch.fired or watch.ended:
                continue
            if state.zxid > watch.since.zxid and state.value != watch.since.value:
                self.committed.violated(f"{self.name} was shown {path} as {state} before its watch was told")

    def watch(self, path: str, *, children: bool) -> Watch:
        """A watcher for a read; `set_at` keeps it once the answer is there."""
        return Watch(self, path, children, UNKNOWN)

    def set_at(self, watch: Watch, state: Seen) -> None:
        watch.since = state
        self.watches.append(watch)
        if watch.fired and not watch.since_changed():
            self.committed.violated(f"a watch of {watch.path} fired, and nothing has changed since {state}")

    def wrote(self, text: bytes) -> None:
        if self.committed.writes[text] != 1:
            self.committed.violated(f"{self.name}: {text!r} was acknowledged and is not there")

    def ended(self, state: State) -> None:
        """The session is over: every watch has been told, of a change or of the end."""
        sessions = self.committed.ensemble.sessions
        if state is State.EXPIRED and self.session_id in sessions:
            self.committed.violated(f"{self.name} takes session {self.session_id:#x} for expired, and it is not")
        silent = [each.path for each in self.watches if not each.fired and not each.ended]
        if silent:
            self.committed.violated(f"{self.name}: watches of {silent} were not told that the session is over")

    def settled(self) -> None:
        """All faults are healed, and everything is applied everywhere."""
        for each in self.watches:
            last = self.committed.states(each.path, children=each.children)[-1]
            if not each.fired and not each.ended and last.value != each.since.value:
                self.committed.violated(
                    f"{self.name}: a watch of {each.path}, set at {each.since}, never fired: {last}"
                )
        self.check_refused()

    def check_refused(self) -> None:
        for text in self.refused:
            if self.committed.writes[text]:
                self.committed.violated(f"{self.name}: {text!r} was said to have failed, and was applied")
