"""One server of the model ensemble: it reads from a copy that may lag, and answers each connection in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from ottla.simulation.zookeeper.ensemble import Ensemble
from ottla.simulation.zookeeper.requests import (
    SetWatches,
    connect_response,
    notification,
    read_answer,
    read_connect_request,
    read_request,
    read_set_watches,
    reply,
    write_answer,
)
from ottla.simulation.zookeeper.tree import Change, Tree, Txn, parent_of
from ottla.testing.loop import SimulatedLoop
from ottla.testing.network import HostNetwork
from ottla.zookeeper.errors import Code
from ottla.zookeeper.jute import JuteReader
from ottla.zookeeper.messages import (
    AddWatch,
    AddWatchMode,
    Check,
    Create,
    Delete,
    EventType,
    Exists,
    GetChildren,
    GetData,
    Multi,
    Op,
    Request,
    SetACL,
    SetData,
    Stat,
    Sync,
    frame,
)

PORT = 2181
APPLY_S = 0.001, 0.02
"""From a commit to its place in a copy, where nothing is wrong."""
FORWARD_S = 0.0005, 0.01


@dataclass(slots=True, eq=False)
class _Asked:
    """A request in its connection's order."""

    xid: int
    op: int
    request: Request | SetWatches | None
    ready_at: int | None = None
    """The zxid that the copy must have; None while the leader has not decided."""
    txn: Txn | None = None
    stats: list[Stat | None] = field(default_factory=list)
    """Stats of the nodes that the txn changed, as they were then."""


@dataclass(slots=True)
class _Watched:
    data: dict[str, None] = field(default_factory=dict)
    child: dict[str, None] = field(default_factory=dict)
    persistent: dict[str, None] = field(default_factory=dict)
    recursive: dict[str, None] = field(default_factory=dict)


class Connection(asyncio.Protocol):
    def __init__(self, server: Server, number: int) -> None:
        self.server = server
        self.number = number
        self.session = 0
        self.watched = _Watched()
        self.asked: deque[_Asked] = deque()
        self.is_closed = False
        self._buffer = bytearray()
        self._greeted = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if not self.server.serves:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self.server.connections.pop(self, None)

    def close(self) -> None:
        """Send what is under way, and end."""
        self.is_closed = True
        self.server.connections.pop(self, None)
        if self._transport is not None:
            self._transport.close()

    def send(self, data: bytes) -> None:
        if not self.is_closed and self._transport is not None:
            self._transport.write(frame(data))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while not self.is_closed and len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < 4 + size:
                return
            message = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            if not self._greeted:
                self._greeted = True
                self.server.greet(self, message)
            else:
                self.server.asked(self, message)


class Server:
    """`stop` and `start` are its process; its copy is on disk."""

    def __init__(self, loop: SimulatedLoop, network: HostNetwork, ensemble: Ensemble, random: Random) -> None:
        self.loop = loop
        self.network = network
        self.ensemble = ensemble
        self.random = random
        self.tree = Tree()
        self.connections: dict[Connection, None] = {}
        self.is_up = False
        self.lags_until_s = 0.0
        self._applied = 0
        """Entries of the log that the copy has."""
        self._applied_due_s = 0.0
        self._forward_due_s = 0.0

    @property
    def serves(self) -> bool:
        return self.is_up and not self.ensemble.is_down

    async def start(self) -> None:
        acceptor = await self.network.listen(self._accept, "", PORT)
        acceptor.start()
        self.is_up = True

    def _accept(self) -> Connection:
        made = Connection(self, self.ensemble.new_connection())
        self.connections[made] = None
        return made

    def drop_all(self) -> None:
        for each in list(self.connections):
            each.close()

    # The copy.

    def committed(self) -> None:
        """The log is longer: apply it soon, in order."""
        now_s = self.loop.simulation.now_s
        due_s = max(self._applied_due_s, self.lags_until_s, now_s + self.random.uniform(*APPLY_S))
        self._applied_due_s = due_s
        self.loop.exactly_at(due_s, self._apply, len(self.ensemble.log))

    def _apply(self, end: int) -> None:
        if self.loop.simulation.now_s < self.lags_until_s:
            self.loop.exactly_at(self.lags_until_s, self._apply, end)
            return
        while self._applied < end:
            self._apply_one(self.ensemble.log[self._applied])
            self._applied += 1
        for each in list(self.connections):
            self._answer(each)

    def _apply_one(self, txn: Txn) -> None:
        stats: list[Stat | None] = []
        for change in txn.changes:
            self.tree.apply(change, txn.zxid, txn.now_ms)
            node = self.tree.nodes.get(change.path)
            stats.append(node.stat() if node is not None else None)
            self._notify(change, txn.zxid)
        self.tree.zxid = txn.zxid
        for each in list(self.connections):
            for asked in each.asked:
                if asked.txn is txn:
                    asked.stats = stats
            if txn.ends and each.session == txn.ends:
                self._answer(each)
                each.close()

    def _notify(self, change: Change, zxid: int) -> None:
        if change.acl_only:
            return
        parent = parent_of(change.path)
        for each in list(self.connections):
            watched = each.watched
            hit = watched.data.pop(change.path, 0) is None
            if change.kind is EventType.NODE_DELETED:
                hit = (watched.child.pop(change.path, 0) is None) or hit
            if hit or change.path in watched.persistent or _is_below(change.path, watched.recursive):
                each.send(notification(change.kind, change.path, zxid))
            if change.kind is EventType.NODE_DATA_CHANGED:
                continue
            if (watched.child.pop(parent, 0) is None) or parent in watched.persistent:
                each.send(notification(EventType.NODE_CHILDREN_CHANGED, parent, zxid))

    # Clients.

    def _forward(self, work: Callable[[], None]) -> None:
        """Let the leader do something, behind what this server has handed on before."""
        now_s = self.loop.simulation.now_s
        self._forward_due_s = max(self._forward_due_s, now_s + self.random.uniform(*FORWARD_S))
        self.loop.exactly_at(self._forward_due_s, lambda: None if self.ensemble.is_down else work())

    def greet(self, connection: Connection, message: bytes) -> None:
        """The first message. A client that has seen more than this copy has is sent away."""
        asked = read_connect_request(message)
        if asked.last_zxid > self.tree.zxid or not self.serves:
            connection.close()
            return

        def decide() -> None:
            if asked.session_id:
                found = self.ensemble.take(asked.session_id, asked.password, connection.number)
            else:
                found = self.ensemble.open(asked.timeout_ms, connection.number)
            if found is None:
                connection.send(connect_response(0, 0, bytes(16)))
                connection.close()
                return
            connection.session = found.id
            connection.send(connect_response(found.timeout_ms, found.id, found.password))

        self._forward(decide)

    def asked(self, connection: Connection, message: bytes) -> None:
        reader = JuteReader(message)
        xid, op = reader.i32(), reader.i32()
        if not self.ensemble.is_down:
            self.ensemble.touch(connection.session, connection.number)
        if op in (Op.PING, Op.AUTH):
            connection.send(reply(xid, self.tree.zxid if op == Op.PING else 0, 0))
            return
        request: Request | SetWatches | None = None
        if op == Op.SET_WATCHES2:
            request = read_set_watches(reader)
        elif op != Op.CLOSE_SESSION:
            request = read_request(op, reader)
        item = _Asked(xid, op, request)
        connection.asked.append(item)
        if op == Op.CLOSE_SESSION or isinstance(request, _WRITES | Sync):
            self._forward(lambda: self._decide(connection, item))
        else:
            item.ready_at = 0
            self._answer(connection)

    def _decide(self, connection: Connection, item: _Asked) -> None:
        """The leader's part of a request. Nobody may wait for it any more, and it counts all the same."""
        if item.op == Op.CLOSE_SESSION:
            item.txn = self.ensemble.end(connection.session)
        elif isinstance(item.request, Sync):
            item.ready_at = self.ensemble.tree.zxid
            self._answer(connection)
            return
        else:
            request = item.request
            ops = request.ops if isinstance(request, Multi) else (request,)
            item.txn = self.ensemble.write(connection.session, connection.number, ops)  # type: ignore[arg-type]
        item.ready_at = item.txn.zxid

    def _answer(self, connection: Connection) -> None:
        """Answer what can be answered, in order."""
        while connection.asked and not connection.is_closed:
            item = connection.asked[0]
            if item.ready_at is None or item.ready_at > self.tree.zxid:
                return
            connection.asked.popleft()
            code, body = Code.OK, b""
            if isinstance(item.request, SetWatches):
                self._set_watches(connection, item.request)
            elif isinstance(item.request, Sync):
                body = frame(item.request.path.encode())
            elif item.txn is not None and item.request is not None:
                code, body = write_answer(item.request, item.txn, _for_each(item.request, item.stats))
            elif item.request is not None:
                code, body = read_answer(item.request, self.tree)
                _watch(connection.watched, item.request, code)
            zxid = item.txn.zxid if item.txn is not None else self.tree.zxid
            connection.send(reply(item.xid, zxid, code, body))

    def _set_watches(self, connection: Connection, asked: SetWatches) -> None:
        nodes, watched = self.tree.nodes, connection.watched

        def tell(kind: EventType, path: str) -> None:
            connection.send(notification(kind, path, self.tree.zxid))

        for path in asked.data:
            node = nodes.get(path)
            if node is None:
                tell(EventType.NODE_DELETED, path)
            elif node.mzxid > asked.zxid:
                tell(EventType.NODE_DATA_CHANGED, path)
            else:
                watched.data[path] = None
        for path in asked.exists:
            if path in nodes:
                tell(EventType.NODE_CREATED, path)
            else:
                watched.data[path] = None
        for path in asked.child:
            node = nodes.get(path)
            if node is None:
                tell(EventType.NODE_DELETED, path)
            elif node.pzxid > asked.zxid:
                tell(EventType.NODE_CHILDREN_CHANGED, path)
            else:
                watched.child[path] = None
        watched.persistent.update(dict.fromkeys(asked.persistent))
        watched.recursive.update(dict.fromkeys(asked.recursive))


_WRITES = Create | Delete | SetData | SetACL | Multi


def _for_each(request: Request, stats: list[Stat | None]) -> list[Stat | None]:
    """One stat for each operation: a check changes nothing and has none."""
    if not isinstance(request, Multi):
        return stats
    left = iter(stats)
    return [None if isinstance(op, Check) else next(left, None) for op in request.ops]


def _watch(watched: _Watched, request: Request, code: Code) -> None:
    """Set the watch that a request asks for."""
    path = request.path
    if isinstance(request, AddWatch):
        is_recursive = request.mode is AddWatchMode.PERSISTENT_RECURSIVE
        (watched.recursive if is_recursive else watched.persistent)[path] = None
    elif isinstance(request, GetChildren):
        if request.watch and code is Code.OK:
            watched.child[path] = None
    elif isinstance(request, GetData | Exists) and request.watch and (code is Code.OK or isinstance(request, Exists)):
        watched.data[path] = None


def _is_below(path: str, watched: dict[str, None]) -> bool:
    return any(path == each or path.startswith(each.rstrip("/") + "/") for each in watched)
