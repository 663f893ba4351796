"""The ensemble as its leader sees it: what is committed, in order, and which sessions live.

A server hands writes on with the session's id and its connection's number. A session belongs to the connection that
took it last: what arrives from an older one is refused with SESSION_MOVED, as ZooKeeper's leader does. So a request of
a lost connection is applied before the session goes on elsewhere, or never.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from ottla.simulation.zookeeper.tree import Change, Refused, Tree, Txn
from ottla.testing.loop import SimulatedLoop
from ottla.zookeeper.errors import Code
from ottla.zookeeper.messages import EventType, SetACL, Write

TICK_S = 0.2


@dataclass(slots=True)
class SessionState:
    id: int
    password: bytes
    timeout_ms: int
    owner: int
    """The connection that has it."""
    heard_s: float


class Ensemble:
    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.tree = Tree()
        self.log: list[Txn] = []
        self.sessions: dict[int, SessionState] = {}
        self.expired: list[int] = []
        self.is_down = False
        """Without a leader: nothing is committed, and no session expires."""
        self.epoch = 1
        self.on_commit: Callable[[Txn], None] = lambda txn: None
        self._counter = 0
        self._session_ids = 0x1000
        self._connections = 0
        self._tick()

    def new_connection(self) -> int:
        """A number for a connection of any server."""
        self._connections += 1
        return self._connections

    # Sessions.

    def open(self, timeout_ms: int, connection: int) -> SessionState:
        self._session_ids += 1
        password = self.random.randbytes(16)
        made = SessionState(self._session_ids, password, timeout_ms, connection, self.loop.simulation.now_s)
        self.sessions[made.id] = made
        self._commit(Txn(self._next_zxid(), self._now_ms(), made.id, ()))
        return made

    def take(self, session_id: int, password: bytes, connection: int) -> SessionState | None:
        """The session goes on with another connection. None: it has expired, or the password is wrong."""
        found = self.sessions.get(session_id)
        if found is None or found.password != password:
            return None
        found.owner = connection
        found.heard_s = self.loop.simulation.now_s
        return found

    def touch(self, session_id: int, connection: int) -> None:
        found = self.sessions.get(session_id)
        if found is not None and found.owner == connection:
            found.heard_s = self.loop.simulation.now_s

    def end(self, session_id: int, *, expired: bool = False) -> Txn:
        """Close a session: its ephemeral nodes are deleted in one step."""
        self.sessions.pop(session_id, None)
        if expired:
            self.expired.append(session_id)
        paths = [path for path, node in self.tree.nodes.items() if node.owner == session_id]
        changes = tuple(Change(EventType.NODE_DELETED, path) for path in paths)
        return self._commit(Txn(self._next_zxid(), self._now_ms(), session_id, changes, ends=session_id))

    # Writes.

    def write(self, session_id: int, connection: int, ops: tuple[Write | SetACL, ...]) -> Txn:
        """Decide a request: all of its operations, or none."""
        session = self.sessions.get(session_id)
        error = Code.OK if session else Code.SESSION_EXPIRED
        if session is not None and session.owner != connection:
            error = Code.SESSION_MOVED
        changes: list[Change] = []
        paths: list[str] = []
        failed_at = -1
        zxid, now_ms = self._next_zxid(), self._now_ms()
        if error is Code.OK:
            tried = self.tree if len(ops) == 1 else self.tree.undo_point()
            try:
                for op in ops:
                    failed_at += 1
                    change, path = tried.plan(op, session_id)
                    paths.append(path)
                    if change is not None:
                        changes.append(change)
                        if tried is not self.tree:
                            tried.apply(change, zxid, now_ms)
                failed_at = -1
            except Refused as refused:
                error, changes = refused.code, []
        return self._commit(Txn(zxid, now_ms, session_id, tuple(changes), error, failed_at, tuple(paths)))

    def _commit(self, txn: Txn) -> Txn:
        for change in txn.changes:
            self.tree.apply(change, txn.zxid, txn.now_ms)
        self.tree.zxid = txn.zxid
        self.log.append(txn)
        self.on_commit(txn)
        return txn

    # The leader.

    def lose_leader(self) -> None:
        self.is_down = True

    def elect(self) -> None:
        """A new leader gives every session its whole timeout again."""
        self.is_down = False
        self.epoch += 1
        self._counter = 0
        for each in self.sessions.values():
            each.heard_s = self.loop.simulation.now_s

    def _next_zxid(self) -> int:
        self._counter += 1
        return (self.epoch << 32) + self._counter

    def _now_ms(self) -> int:
        return int(self.loop.simulation.now_s * 1000)

    def _tick(self) -> None:
        if not self.is_down:
            now_s = self.loop.simulation.now_s
            for each in list(self.sessions.values()):
                if now_s - each.heard_s > each.timeout_ms / 1000:
                    self.end(each.id, expired=True)
        self.loop.exactly_in(TICK_S, self._tick)
