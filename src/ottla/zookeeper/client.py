"""A client of ZooKeeper on the event loop: one session, driven on `ottla.network`.

    async with ZooKeeper(network, "zk1:2181,zk2:2181/kafka", random=random) as client:
        data, stat = await client.get("/controller_epoch")
        await client.multi([Check("/controller_epoch", stat.version), Create("/a", b"")])

Requests may be made at once and are answered in order. Those made while there is no connection wait for one, as long as
`request_timeout_ms`. A watcher is called before the answer that shows what it was told of, and may be called before the
reader that set it is resumed: note that something has changed before the read, not behind it. A client is one session:
when it has expired, every call raises SessionExpiredError, and a new session needs a new client.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Final

from ottla.logs import fields
from ottla.network import Network
from ottla.zookeeper.errors import Code, NoNodeError, ZooKeeperError, error_of
from ottla.zookeeper.messages import (
    ACL,
    ANY_VERSION,
    OPEN_ACL_UNSAFE,
    Acls,
    AddWatch,
    AddWatchMode,
    Children,
    Create,
    Created,
    CreateFlag,
    Data,
    Delete,
    Exists,
    GetACL,
    GetChildren,
    GetData,
    Multi,
    Request,
    SetACL,
    SetData,
    Stat,
    Sync,
    Write,
)
from ottla.zookeeper.session import (
    FRAME_BYTES_MAX,
    REQUESTS_MAX,
    Answered,
    Connect,
    Disconnect,
    Effect,
    Failed,
    Host,
    Login,
    Notified,
    Prepared,
    Send,
    Session,
    StateChanged,
)
from ottla.zookeeper.watches import State, WatchedEvent, Watcher

_LOG = logging.getLogger("ottla.zookeeper")

PORT: Final = 2181
CLOSE_SECONDS_MAX: Final = 5.0
"""How long `close` waits for the ensemble's answer. Without it the session ends by its timeout."""


def parse_connect(text: str) -> tuple[list[Host], str]:
    """Hosts and chroot of a `zookeeper.connect`, such as `zk1:2181,[::1]:2182/kafka`. Raises ValueError."""
    servers, slash, rest = text.strip().partition("/")
    hosts = []
    for each in servers.split(","):
        if not (each := each.strip()):
            continue
        if each.startswith("["):
            name, _, port = each[1:].partition("]")
            port = port.removeprefix(":")
        else:
            name, _, port = each.partition(":")
        if not name or (port and not port.isdecimal()) or not 0 < int(port or PORT) < 65536:
            raise ValueError(f"{each!r} is not a host and a port of a ZooKeeper server")
        hosts.append(Host(name, int(port or PORT)))
    if not hosts:
        raise ValueError(f"{text!r} names no ZooKeeper server")
    chroot = slash + rest if rest else ""
    try:
        Exists(chroot or "/").check()
    except ZooKeeperError as error:
        raise ValueError(f"the chroot of {text!r}: {error}") from None
    return hosts, chroot


class _Connection(asyncio.Protocol):
    """One connection's bytes for the client, as long as it is the client's."""

    def __init__(self, client: ZooKeeper) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client._received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._client._lost(self, str(exc) if exc else "closed by the server")


class _Turn:
    """A caller that waits for room."""

    def __init__(self) -> None:
        self.woken: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self.woken is not None and not self.woken.done():
            self.woken.set_result(None)


class ZooKeeper:
    """All methods belong to the event loop's thread."""

    def __init__(
        self,
        network: Network,
        connect: str,
        *,
        random: Random,
        session_timeout_ms: int = 18_000,
        request_timeout_ms: int = 30_000,
        auth: Sequence[tuple[str, bytes]] = (),
        login: Login | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        requests_max: int = REQUESTS_MAX,
    ) -> None:
        """`connect` is as in `zookeeper.connect`: hosts and a chroot. A `TlsNetwork` makes TLS of it; `login` is
        for SASL. Raises ValueError."""
        hosts, chroot = parse_connect(connect)
        self._network = network
        self._request_timeout_ms = request_timeout_ms
        self._session = Session(
            hosts,
            random=random,
            chroot=chroot,
            session_timeout_ms=session_timeout_ms,
            auth=auth,
            login=login,
            frame_bytes_max=frame_bytes_max,
            requests_max=requests_max,
        )
        self._listeners: list[Callable[[State], None]] = []
        self._effects: deque[Effect] = deque()
        self._carrying_out = False
        self._connection: _Connection | None = None
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_ms: int | None = None
        self._changed: asyncio.Future[None] | None = None
        """Done when the state changes."""
        self._queue: deque[_Turn] = deque()
        """Callers that wait for room, in order."""

    # The session.

    @property
    def state(self) -> State:
        return self._session.state

    @property
    def session_id(self) -> int:
        """0 before the first connection."""
        return self._session.id

    @property
    def session_timeout_ms(self) -> int:
        """The negotiated one, once connected."""
        return self._session.timeout_ms

    @property
    def last_failure(self) -> str:
        """Why the last connection was of no use; empty at first."""
        return self._session.last_failure

    @property
    def waiting(self) -> int:
        """Requests that were sent and wait for their answers."""
        return self._session.waiting

    def on_state(self, listener: Callable[[State], None]) -> None:
        """Call `listener` with each new state, in order with watchers."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Begin to connect; requests may be made at once."""
        self._do(self._session.start(self._now_ms()))

    async def wait_connected(self, timeout_ms: int) -> None:
        """Raises ConnectionLossError after `timeout_ms`, and ZooKeeperError where the session has ended."""
        deadline_ms = self._now_ms() + timeout_ms
        while self.state is not State.CONNECTED:
            self._session.raise_if_ended()
            if not await self._wait_change(deadline_ms):
                detail = f"no ZooKeeper server is connected within {timeout_ms} ms"
                last = f": {self.last_failure}" if self.last_failure else ""
                raise error_of(Code.CONNECTION_LOSS, "", detail + last)

    async def close(self) -> None:
        """End the session at the ensemble too: its ephemeral nodes are deleted. Returns after CLOSE_SECONDS_MAX in any
        case."""
        self._do(self._session.close(self._now_ms()))
        deadline_ms = self._now_ms() + int(CLOSE_SECONDS_MAX * 1000)
        while self.state < State.EXPIRED and await self._wait_change(deadline_ms):
            pass
        self.abort()

    def abort(self) -> None:
        """Let go of the connection at once. The ensemble ends the session by its timeout."""
        self._do(self._session.disconnected("aborted", self._now_ms()))
        self._do(self._session.close(self._now_ms()))
        self._disconnect()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def __aenter__(self) -> ZooKeeper:
        self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # Requests. Each raises ZooKeeperError.

    async def get(self, path: str, watcher: Watcher | None = None) -> Data:
        found: Data = await self.request(GetData(path, watcher is not None), watcher)
        return found

    async def exists(self, path: str, watcher: Watcher | None = None) -> Stat | None:
        """None where there is no such node; a watcher is told when it is created."""
        try:
            found: Stat = await self.request(Exists(path, watcher is not None), watcher)
        except NoNodeError:
            return None
        return found

    async def children(self, path: str, watcher: Watcher | None = None) -> Children:
        """Names, in no order."""
        found: Children = await self.request(GetChildren(path, watcher is not None), watcher)
        return found

    async def acl(self, path: str) -> Acls:
        found: Acls = await self.request(GetACL(path))
        return found

    async def set_acl(self, path: str, acl: Iterable[ACL], version: int = ANY_VERSION) -> Stat:
        found: Stat = await self.request(SetACL(path, tuple(acl), version))
        return found

    async def create(
        self,
        path: str,
        data: bytes = b"",
        acl: Iterable[ACL] = OPEN_ACL_UNSAFE,
        *,
        ephemeral: bool = False,
        sequence: bool = False,
    ) -> Created:
        """The path has its number where `sequence` is set."""
        flag = CreateFlag(int(ephemeral) + 2 * int(sequence))
        found: Created = await self.request(Create(path, data, tuple(acl), flag))
        return found

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        found: Stat = await self.request(SetData(path, data, version))
        return found

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.request(Delete(path, version))

    async def multi(self, ops: Iterable[Write]) -> list[Any]:
        """One result for each operation: Created, Stat or None. An error has the results in `results`."""
        found: list[Any] = await self.request(Multi.of(ops))
        return found

    async def sync(self, path: str = "/") -> None:
        """Reads that follow show all that was committed before."""
        await self.request(Sync(path))

    async def add_watch(self, path: str, watcher: Watcher, *, recursive: bool = False) -> None:
        """Tell `watcher` of every event of the path from now on; see `WatchedEvent` for what it misses."""
        mode = AddWatchMode.PERSISTENT_RECURSIVE if recursive else AddWatchMode.PERSISTENT
        await self.request(AddWatch(path, mode), watcher)

    async def request(self, request: Request, watcher: Watcher | None = None) -> Any:
        prepared = self._session.prepare(request, watcher)
        deadline_ms = self._now_ms() + self._request_timeout_ms
        if self._queue or not self._session.has_room(prepared):
            await self._room(prepared, deadline_ms)
        return await self._answer(prepared, deadline_ms)

    async def read_many(self, requests: Sequence[Request]) -> list[Any]:
        """The answers of many reads, in their order, each an error where it is one. They share a deadline, a write to
        the connection and one waiting caller: a third of the CPU of a call for each."""
        rows = deque(self._session.prepare(each, None) for each in requests)
        deadline_ms = self._now_ms() + self._request_timeout_ms
        futures: list[asyncio.Future[Any]] = []
        try:
            while rows:
                if self._queue or not self._session.has_room(rows[0]):
                    await self._room(rows[0], deadline_ms)
                futures += self._submit_many(rows)
            left_ms = max(deadline_ms - self._now_ms(), 0)
            await asyncio.wait(futures, timeout=left_ms / 1000) if futures else None
        finally:
            late = [future for future in futures if not future.done()]
            for future in late:
                self._abandon(future)
        for future in late:
            future.set_exception(self._timed_out(requests[futures.index(future)], maybe_applied=False))
        return [future.exception() or future.result() for future in futures]

    def _submit_many(self, rows: deque[Prepared]) -> list[asyncio.Future[Any]]:
        """Submit as many as there is room for; at least one."""
        loop, now_ms = asyncio.get_running_loop(), self._now_ms()
        futures: list[asyncio.Future[Any]] = []
        effects: list[Effect] = []
        sent: list[bytes] = []
        while rows and (not futures or self._session.has_room(rows[0])):
            futures.append(loop.create_future())
            for effect in self._session.submit(rows.popleft(), futures[-1], now_ms):
                if isinstance(effect, Send):
                    sent.append(effect.data)
                else:
                    effects.append(effect)
        self._do([*effects, Send(b"".join(sent))] if sent else effects)
        return futures

    async def _room(self, prepared: Prepared, deadline_ms: int) -> None:
        """Wait until a request may be submitted. Only the first of the queue is woken, so that the order stays."""
        turn = _Turn()
        self._queue.append(turn)
        try:
            while self._queue[0] is not turn or not self._session.has_room(prepared):
                self._session.raise_if_ended(prepared.request.path)
                turn.woken = asyncio.get_running_loop().create_future()
                left_ms = max(deadline_ms - self._now_ms(), 0)
                if not (await asyncio.wait((turn.woken,), timeout=left_ms / 1000))[0]:
                    raise self._timed_out(prepared.request, maybe_applied=False)
        except BaseException:
            self._queue.remove(turn)
            self._wake_first()
            raise
        self._queue.popleft()

    def _wake_first(self) -> None:
        if self._queue and not self._session.is_full:
            self._queue[0].wake()

    async def _answer(self, prepared: Prepared, deadline_ms: int) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._do(self._session.submit(prepared, future, self._now_ms()))
        try:
            done, _ = await asyncio.wait((future,), timeout=max(deadline_ms - self._now_ms(), 0) / 1000)
        except asyncio.CancelledError:
            self._abandon(future)
            raise
        if not done:
            raise self._timed_out(prepared.request, maybe_applied=self._abandon(future))
        return future.result()

    def _abandon(self, future: asyncio.Future[Any]) -> bool:
        maybe_applied = self._session.abandon(future)
        self._do([])  # there may be room now
        return maybe_applied

    def _timed_out(self, request: Request, *, maybe_applied: bool) -> ZooKeeperError:
        why = f"no answer within {self._request_timeout_ms} ms" + (
            f": {self.last_failure}" if self.last_failure else ""
        )
        return error_of(Code.OPERATION_TIMEOUT, request.path, why, maybe_applied=maybe_applied)

    # Inside.

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    async def _wait_change(self, deadline_ms: int) -> bool:
        """Whether something changed before the deadline."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        left_ms = deadline_ms - self._now_ms()
        if left_ms <= 0:
            return False
        done, _ = await asyncio.wait((self._changed,), timeout=left_ms / 1000)
        return bool(done)

    def _signal_change(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)
        if self.state in (State.EXPIRED, State.AUTH_FAILED, State.CLOSED):
            for turn in self._queue:
                turn.wake()

    def _do(self, effects: list[Effect]) -> None:
        """Carry out effects in their order. A watcher that makes a request adds to their end."""
        self._effects.extend(effects)
        if self._carrying_out:
            return
        self._carrying_out = True
        try:
            while self._effects:
                self._carry_out(self._effects.popleft())
        finally:
            self._carrying_out = False
        self._set_timer()
        self._wake_first()  # and when that one submits, the next one

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send(data):
                if self._transport is not None:
                    self._transport.write(data)
            case Answered(handle, result):
                assert isinstance(handle, asyncio.Future)
                if not handle.done():
                    handle.set_result(result)
            case Failed(handle, error):
                assert isinstance(handle, asyncio.Future)
                if not handle.done():
                    handle.set_exception(error)
                    handle.exception()  # maybe nobody waits for it any more
            case Notified(event, watchers):
                for watcher in watchers:
                    self._tell(watcher, event)
            case StateChanged(state):
                _LOG.info(
                    "the ZooKeeper session is %s",
                    state.name.lower().replace("_", " "),
                    extra=fields(session=f"{self._session.id:#x}", reason=self._session.last_failure),
                )
                for listener in list(self._listeners):
                    self._tell(listener, state)
                self._signal_change()
            case Connect(host):
                self._connecting = asyncio.get_running_loop().create_task(self._connect(host))
            case Disconnect(reason):
                _LOG.debug("a connection to ZooKeeper is closed", extra=fields(reason=reason))
                self._disconnect()

    def _tell(self, listener: Callable[[Any], None], what: State | WatchedEvent) -> None:
        try:
            listener(what)
        except Exception:  # a bug of its own, which the others must not suffer from
            _LOG.exception("a watcher of ZooKeeper failed", extra=fields(event=str(what)))

    async def _connect(self, host: Host) -> None:
        connection = self._connection = _Connection(self)
        try:
            transport, _ = await self._network.connect(lambda: connection, host.host, host.port)
        except (OSError, UnicodeError) as error:  # the latter: no name of a host
            if self._connection is connection:
                self._connection = None
                self._do(self._session.disconnected(f"{host}: {error}", self._now_ms()))
            return
        if self._connection is not connection:
            transport.abort()
            return
        self._transport = transport
        self._do(self._session.connected(self._now_ms()))

    def _disconnect(self) -> None:
        self._connection = None
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        task, self._connecting = self._connecting, None
        if task is not None and not task.done():
            task.cancel()

    def _received(self, connection: _Connection, data: bytes) -> None:
        if connection is self._connection:
            self._do(self._session.received(data, self._now_ms()))

    def _lost(self, connection: _Connection, reason: str) -> None:
        if connection is self._connection:
            self._connection = self._transport = None
            self._do(self._session.disconnected(reason, self._now_ms()))

    def _set_timer(self) -> None:
        """One timer for the session's next tick. It is left where it is earlier than needed: a tick too early does
        nothing."""
        next_ms = self._session.next_tick_ms()
        if self._timer is not None:
            if next_ms is not None and self._timer_ms is not None and self._timer_ms <= next_ms:
                return
            self._timer.cancel()
            self._timer = None
        if next_ms is not None:
            self._timer_ms = next_ms
            delay_s = max(next_ms - self._now_ms(), 1) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._do(self._session.tick(self._now_ms()))
