"""A session with a ZooKeeper ensemble as a pure state machine: bytes and ticks in, effects out.

    session = Session(hosts, random=random)
    effects = session.start(now_ms)            # Connect(address)
    effects = session.connected(now_ms)        # Send(the ConnectRequest)
    effects = session.received(data, now_ms)   # StateChanged(CONNECTED), Send(...)
    effects = session.submit(session.prepare(GetData("/a"), watcher), handle, now_ms)

Effects are carried out in their order: a watcher is told of a change before the answer that shows it. A connection that
breaks fails every request that waits (CONNECTION_LOSS; `maybe_applied` says whether it was sent), and none is ever sent
twice. The session goes on at another server of the list, with its id and password and the last zxid that it saw, so
that a server which is behind refuses it; its watches are set again before anything else is sent. Only the ensemble says
that a session has expired, and then nothing of it is acted on any more: a new session is a new `Session`.

The rules are those of Java's `ClientCnxn` 3.9: a ping when nothing was sent for a third of the negotiated timeout, the
connection is given up when nothing was heard for two thirds, answers come in the order of the requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Any, Final, NamedTuple

from ottla.zookeeper.digest_md5 import NONCE_BYTES, DigestMd5, LoginRefused
from ottla.zookeeper.errors import Code, SessionClosedError, ZooKeeperError, error_of
from ottla.zookeeper.jute import JuteReader, JuteWriter, MalformedMessage
from ottla.zookeeper.messages import (
    Create,
    Delete,
    EventType,
    Multi,
    Op,
    Request,
    SetACL,
    SetData,
    check_path,
    frame,
    read_connect,
    read_reply_header,
    read_watcher_event,
    strip_chroot,
    write_auth,
    write_connect,
    write_request,
    write_sasl,
    write_set_watches,
)
from ottla.zookeeper.watches import State, WatchedEvent, Watcher, Watches

FRAME_BYTES_MAX: Final = 0xFFFFF
"""`jute.maxbuffer` of clients and servers that set nothing."""

REQUESTS_MAX: Final = 1000
"""Requests that wait to be sent or answered. A server stops reading from a client at as many (`globalOutstandingLimit`
is 1000 too)."""

REQUEST_BYTES_MAX: Final = 16 << 20
"""Their bytes, which the transport may have to keep."""

PING_MS_MAX: Final = 10_000
PING_MS_MIN: Final = 10
"""Whatever timeout a server answers with."""

BACKOFF_MS: Final = 100
BACKOFF_MS_MAX: Final = 1_000
"""Pause when no server of the list was of use, doubled with each round."""

XID_MAX: Final = 0x7FFFFFFF
XID_NOTIFICATION, XID_PING, XID_AUTH, XID_SET_WATCHES = -1, -2, -4, -8

_WRITES: Final = (Create, Delete, SetData, SetACL, Multi)
_FINAL: Final = (State.EXPIRED, State.AUTH_FAILED, State.CLOSED)


class Host(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Login(NamedTuple):
    """Name and password of a login by SASL DIGEST-MD5."""

    name: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.name!r})"


class Connect(NamedTuple):
    host: Host


class Disconnect(NamedTuple):
    """Close the connection, or stop making it. The session is told nothing more of it."""

    reason: str


class Send(NamedTuple):
    data: bytes


class Answered(NamedTuple):
    handle: object
    result: Any


class Failed(NamedTuple):
    handle: object
    error: ZooKeeperError


class Notified(NamedTuple):
    event: WatchedEvent
    watchers: Sequence[Watcher]


class StateChanged(NamedTuple):
    state: State


Effect = Connect | Disconnect | Send | Answered | Failed | Notified | StateChanged


class Phase(Enum):
    """Where the session is with its connection."""

    IDLE = "idle"
    WAITING = "waiting"
    CONNECTING = "connecting"
    HANDSHAKE = "handshake"
    LOGIN = "login"
    CONNECTED = "connected"
    CLOSING = "closing"
    ENDED = "ended"


_TALKING: Final = (Phase.HANDSHAKE, Phase.LOGIN, Phase.CONNECTED, Phase.CLOSING)
_WITH_CONNECTION: Final = (Phase.CONNECTING, *_TALKING)


class Prepared(NamedTuple):
    """A request that was found to be in order, with its bytes."""

    request: Request
    body: bytes
    """Without the xid."""
    watcher: Watcher | None


@dataclass(slots=True, eq=False)
class _Waiting:
    prepared: Prepared
    handle: object
    """The caller's; None once the request is abandoned."""
    xid: int = 0


class Session:
    """One session. All times are milliseconds of one clock that never goes back."""

    def __init__(
        self,
        hosts: Iterable[Host],
        *,
        random: Random,
        chroot: str = "",
        session_timeout_ms: int = 18_000,
        auth: Sequence[tuple[str, bytes]] = (),
        login: Login | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        requests_max: int = REQUESTS_MAX,
    ) -> None:
        """`random` shuffles the hosts, so that clients spread. `auth` are schemes and credentials, such as
        `("digest", b"user:password")`; with a `login` each connection begins by SASL."""
        self._hosts = list(hosts)
        if not self._hosts:
            raise ValueError("no host of a ZooKeeper server is given")
        if chroot:
            check_path(chroot)
        random.shuffle(self._hosts)
        self._random = random
        self.chroot = "" if chroot == "/" else chroot
        self._auth = auth
        self._login = login
        self._logging_in: DigestMd5 | None = None
        """In the phase LOGIN."""
        self._again = False
        """In the phase LOGIN: whether the session had a connection before this one."""
        self._frame_bytes_max = frame_bytes_max
        self._requests_max = requests_max
        self.state = State.CONNECTING
        self.phase = Phase.IDLE
        self.id = 0
        self._password = bytes(16)
        self.timeout_ms = session_timeout_ms
        """The one that is asked for; once connected, the negotiated one."""
        self._asked_timeout_ms = session_timeout_ms
        self.last_zxid = 0
        """The newest that an answer has shown. No server that is behind it may serve this session."""
        self.watches = Watches()
        self._next_host = 0
        self._failures = 0
        """Connections in a row that were of no use."""
        self._due_ms = 0
        """When a phase WAITING, CONNECTING or HANDSHAKE ends."""
        self._sent_ms = self._heard_ms = 0
        self._buffer = bytearray()
        """Bytes of a frame that has not arrived whole: at most `frame_bytes_max` and one piece."""
        self._xid = 0
        self._unsent: deque[_Waiting] = deque()
        self._sent: deque[_Waiting] = deque()
        self._bytes = 0
        """Bytes of all requests that wait."""
        self._effects: list[Effect] = []
        self.last_failure = ""
        """Why the last connection was of no use."""

    @property
    def waiting(self) -> int:
        """Requests that were sent and wait for their answers."""
        return len(self._sent)

    @property
    def is_full(self) -> bool:
        """Whether no request at all may be submitted now."""
        waiting = len(self._unsent) + len(self._sent)
        return waiting >= self._requests_max or (waiting > 0 and self._bytes >= REQUEST_BYTES_MAX)

    # Inputs.

    def start(self, now_ms: int) -> list[Effect]:
        assert self.phase is Phase.IDLE
        self._connect(now_ms)
        return self._take()

    def connected(self, now_ms: int) -> list[Effect]:
        """The connection that was asked for is made."""
        if self.phase is Phase.CONNECTING:
            self.phase = Phase.HANDSHAKE
            self._buffer.clear()
            request = write_connect(self.last_zxid, self._asked_timeout_ms, self.id, self._password)
            self._send(request, now_ms)
        return self._take()

    def disconnected(self, reason: str, now_ms: int) -> list[Effect]:
        """The connection could not be made, or is closed."""
        if self.phase in _WITH_CONNECTION:
            self._lost(reason, now_ms)
        return self._take()

    def received(self, data: bytes, now_ms: int) -> list[Effect]:
        """Bytes of the connection. What is no message of ZooKeeper's ends it."""
        self._buffer += data
        self._heard_ms = now_ms
        position = 0
        try:
            while self.phase in _TALKING:
                if len(self._buffer) - position < 4:
                    break
                size = int.from_bytes(self._buffer[position : position + 4], "big", signed=True)
                if not 0 < size <= self._frame_bytes_max:
                    raise MalformedMessage(f"a frame of {size} bytes; at most {self._frame_bytes_max} are allowed")
                if len(self._buffer) - position - 4 < size:
                    break
                message = bytes(self._buffer[position + 4 : position + 4 + size])
                position += 4 + size
                if self.phase is Phase.HANDSHAKE:
                    self._welcome(message, now_ms)
                elif self.phase is Phase.LOGIN:
                    self._login_answered(message, now_ms)
                else:
                    self._message(message, now_ms)
        except MalformedMessage as error:
            self._drop(f"not understood: {error}", now_ms)
        if self.phase in _TALKING:
            del self._buffer[:position]
        else:
            self._buffer.clear()
        return self._take()

    def tick(self, now_ms: int) -> list[Effect]:
        """Time has passed. To be called at `next_tick_ms`; earlier is harmless."""
        if self.phase is Phase.WAITING:
            if now_ms >= self._due_ms:
                self._connect(now_ms)
        elif self.phase in (Phase.CONNECTING, Phase.HANDSHAKE, Phase.LOGIN):
            if now_ms >= self._due_ms:
                self._drop("no answer in time", now_ms)
        elif self.phase in (Phase.CONNECTED, Phase.CLOSING):
            if now_ms - self._heard_ms >= self._read_timeout_ms:
                self._drop(f"nothing heard for {now_ms - self._heard_ms} ms", now_ms)
            elif self.phase is Phase.CONNECTED and now_ms - self._sent_ms >= self._ping_ms:
                self._send(write_request(XID_PING, Op.PING), now_ms)
        return self._take()

    def next_tick_ms(self) -> int | None:
        """When `tick` has something to do, if nothing else happens before. None: never."""
        if self.phase in (Phase.IDLE, Phase.ENDED):
            return None
        if self.phase in (Phase.WAITING, Phase.CONNECTING, Phase.HANDSHAKE, Phase.LOGIN):
            return self._due_ms
        given_up = self._heard_ms + self._read_timeout_ms
        return given_up if self.phase is Phase.CLOSING else min(given_up, self._sent_ms + self._ping_ms)

    def prepare(self, request: Request, watcher: Watcher | None = None) -> Prepared:
        """Raises ZooKeeperError for a request that no server would take, or that is larger than a frame may be."""
        request.check()
        writer = JuteWriter()
        writer.i32(request.op)
        request.with_chroot(self.chroot).write(writer)
        if len(writer.data) + 4 > self._frame_bytes_max:
            detail = f"{len(writer.data) + 4} bytes; jute.maxbuffer is {self._frame_bytes_max}"
            raise error_of(Code.MARSHALLING_ERROR, request.path, detail)
        return Prepared(request, bytes(writer.data), watcher)

    def has_room(self, prepared: Prepared) -> bool:
        """Whether a request may be submitted now."""
        waiting = len(self._unsent) + len(self._sent)
        return waiting == 0 or (waiting < self._requests_max and self._bytes + len(prepared.body) <= REQUEST_BYTES_MAX)

    def submit(self, prepared: Prepared, handle: object, now_ms: int) -> list[Effect]:
        """Send a request, once connected. Its `handle` is answered or failed once. Raises ZooKeeperError where the
        session has ended."""
        self.raise_if_ended(prepared.request.path)
        assert self.has_room(prepared) and handle is not None
        self._unsent.append(_Waiting(prepared, handle))
        self._bytes += len(prepared.body)
        if self.phase is Phase.CONNECTED:
            self._send_waiting(now_ms)
        return self._take()

    def abandon(self, handle: object) -> bool:
        """Stop waiting for an answer. Returns whether the request may be applied; one that was not sent is removed."""
        for waiting in self._unsent:
            if waiting.handle is handle:
                self._unsent.remove(waiting)
                self._bytes -= len(waiting.prepared.body)
                return False
        for waiting in self._sent:
            if waiting.handle is handle:
                waiting.handle = None  # its answer still comes, in its place
                return isinstance(waiting.prepared.request, _WRITES)
        return False

    def close(self, now_ms: int) -> list[Effect]:
        """End the session, here and at the ensemble, behind what was sent before."""
        if self.phase is Phase.CONNECTED:
            self._fail(self._unsent, Code.CONNECTION_LOSS, "the session is closed")
            self.phase = Phase.CLOSING
            self._send(write_request(self._new_xid(), Op.CLOSE_SESSION), now_ms)
        elif self.phase is not Phase.CLOSING and self.state not in _FINAL:
            self._end(State.CLOSED, "closed")
        return self._take()

    def raise_if_ended(self, path: str = "") -> None:
        if self.phase is Phase.CLOSING or self.state is State.CLOSED:
            raise SessionClosedError(Code.SESSION_EXPIRED, path, "the session was closed")
        if self.state is State.EXPIRED:
            raise error_of(Code.SESSION_EXPIRED, path)
        if self.state is State.AUTH_FAILED:
            raise error_of(Code.AUTH_FAILED, path, self.last_failure)

    # Inside.

    @property
    def _read_timeout_ms(self) -> int:
        return max(self.timeout_ms * 2 // 3, PING_MS_MIN)

    @property
    def _ping_ms(self) -> int:
        return min(max(self.timeout_ms // 3, PING_MS_MIN), PING_MS_MAX)

    def _take(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _connect(self, now_ms: int) -> None:
        host = self._hosts[self._next_host]
        self._next_host = (self._next_host + 1) % len(self._hosts)
        self.phase = Phase.CONNECTING
        self._due_ms = now_ms + max(self._asked_timeout_ms // len(self._hosts), 1)
        self._effects.append(Connect(host))

    def _send(self, data: bytes, now_ms: int) -> None:
        self._sent_ms = now_ms
        self._effects.append(Send(frame(data)))

    def _new_xid(self) -> int:
        self._xid = 1 if self._xid == XID_MAX else self._xid + 1
        return self._xid

    def _send_waiting(self, now_ms: int) -> None:
        while self._unsent:
            waiting = self._unsent.popleft()
            waiting.xid = self._new_xid()
            self._sent.append(waiting)
            self._send(waiting.xid.to_bytes(4, "big") + waiting.prepared.body, now_ms)

    def _drop(self, reason: str, now_ms: int) -> None:
        """End the connection from this side."""
        self._effects.append(Disconnect(reason))
        self._lost(reason, now_ms)

    def _lost(self, reason: str, now_ms: int) -> None:
        self.last_failure = reason
        if self.phase is Phase.CLOSING:
            self._fail(self._sent, Code.CONNECTION_LOSS, reason)
            self._end(State.CLOSED, reason)
            return
        was_connected = self.phase is Phase.CONNECTED
        self._failures += 1
        self.phase = Phase.WAITING
        self._due_ms = now_ms + self._pause_ms()
        if was_connected:
            self.state = State.CONNECTING
            self._effects.append(StateChanged(self.state))
            # Those that were not sent too: one that follows a lost one in the order of the caller must not be applied
            # without it.
            self._fail(self._sent, Code.CONNECTION_LOSS, reason)
            self._fail(self._unsent, Code.CONNECTION_LOSS, reason)

    def _pause_ms(self) -> int:
        rounds = self._failures // len(self._hosts)
        if rounds == 0:
            return 0
        pause = min(BACKOFF_MS << min(rounds - 1, 10), BACKOFF_MS_MAX)
        return self._random.randint(pause // 2, pause)

    def _fail(self, requests: deque[_Waiting], code: Code, reason: str) -> None:
        sent = requests is self._sent
        while requests:
            waiting = requests.popleft()
            self._bytes -= len(waiting.prepared.body)
            if waiting.handle is not None:
                request = waiting.prepared.request
                maybe = sent and isinstance(request, _WRITES)
                error = error_of(code, request.path, reason, maybe_applied=maybe)
                self._effects.append(Failed(waiting.handle, error))

    def _end(self, state: State, reason: str) -> None:
        """The session is over: its requests fail, and its watchers are told."""
        if self.phase in _WITH_CONNECTION:
            self._effects.append(Disconnect(reason))
        self.phase, self.state = Phase.ENDED, state
        self._fail(self._sent, Code.CONNECTION_LOSS, reason)
        code = {State.EXPIRED: Code.SESSION_EXPIRED, State.AUTH_FAILED: Code.AUTH_FAILED}.get(state)
        self._fail(self._unsent, Code.CONNECTION_LOSS if code is None else code, reason)
        watchers = self.watches.drop_all()
        if watchers:
            self._effects.append(Notified(WatchedEvent(EventType.NONE, "", state), watchers))
        self._effects.append(StateChanged(state))

    def _welcome(self, message: bytes, now_ms: int) -> None:
        """The answer to the ConnectRequest."""
        timeout_ms, session_id, password = read_connect(message)
        if timeout_ms <= 0 or (self.id and session_id != self.id):
            self._end(State.EXPIRED, f"the session {self.id:#x} has expired")
            return
        again = self.id != 0
        self.id, self._password, self.timeout_ms = session_id, password, timeout_ms
        if self._login is None:
            self._begin(now_ms, again=again)
            return
        self.phase, self._again = Phase.LOGIN, again
        nonce = self._random.randbytes(NONCE_BYTES).hex()
        self._logging_in = DigestMd5(self._login.name, self._login.password, nonce)
        self._login_step(b"", now_ms)

    def _login_step(self, said: bytes, now_ms: int) -> None:
        assert self._logging_in is not None
        try:
            token = self._logging_in.step(said)
        except LoginRefused as error:
            self.last_failure = f"login by SASL: {error}"
            self._end(State.AUTH_FAILED, self.last_failure)
            return
        if token is None:
            self._logging_in = None
            self._begin(now_ms, again=self._again)
        else:
            self._send(write_request(self._new_xid(), Op.SASL, write_sasl(token)), now_ms)

    def _login_answered(self, message: bytes, now_ms: int) -> None:
        """Nothing else is asked for before the login is done, so nothing else is answered. A server that knows no login
        answers without a word."""
        reader = JuteReader(message)
        header = read_reply_header(reader)
        if header.xid != self._xid:
            raise MalformedMessage(f"an answer to request {header.xid} where {self._xid}, the login, is awaited")
        if header.error:
            self.last_failure = f"login by SASL: the ensemble does not accept {self._login!r}"
            self._end(State.AUTH_FAILED, self.last_failure)
            return
        self._login_step(reader.buffer() or b"", now_ms)

    def _begin(self, now_ms: int, *, again: bool) -> None:
        """The session may be used; `again`: it has been before."""
        self.phase, self.state = Phase.CONNECTED, State.CONNECTED
        for scheme, credentials in self._auth:
            self._send(write_request(XID_AUTH, Op.AUTH, write_auth(scheme, credentials)), now_ms)
        for batch in self.watches.batches():
            lists = [[self._server_path(path) for path in paths] for paths in batch]
            write = write_set_watches(self.last_zxid, lists)
            self._send(write_request(XID_SET_WATCHES, Op.SET_WATCHES2, write), now_ms)
        self._effects.append(StateChanged(self.state))
        persistent = self.watches.persistent() if again else ()
        if persistent:
            self._effects.append(Notified(WatchedEvent(EventType.NONE, "", self.state), persistent))
        self._send_waiting(now_ms)

    def _server_path(self, path: str) -> str:
        return path if not self.chroot else self.chroot if path == "/" else self.chroot + path

    def _message(self, message: bytes, now_ms: int) -> None:
        reader = JuteReader(message)
        header = read_reply_header(reader)
        if header.xid == XID_NOTIFICATION:
            self._notified(reader)
            return
        self._failures = 0
        if header.xid == XID_AUTH:
            if header.error:
                self._end(State.AUTH_FAILED, "the credentials are not accepted")
        elif header.xid == XID_SET_WATCHES:
            if header.error:
                raise MalformedMessage(f"watches could not be set again: {error_of(header.error)}")
        elif header.xid != XID_PING:
            self._answered(header.xid, header.error, header.zxid, reader, now_ms)

    def _notified(self, reader: JuteReader) -> None:
        found = read_watcher_event(reader)
        try:
            kind = EventType(found.type)
        except ValueError:
            raise MalformedMessage(f"an event of type {found.type}") from None
        path = strip_chroot(self.chroot, found.path)
        watchers = self.watches.take(kind, path)
        if watchers:
            self._effects.append(Notified(WatchedEvent(kind, path, self.state), watchers))

    def _answered(self, xid: int, code: int, zxid: int, reader: JuteReader, now_ms: int) -> None:
        if not self._sent:
            if self.phase is Phase.CLOSING and xid == self._xid:
                self._end(State.CLOSED, "closed")
                return
            raise MalformedMessage(f"an answer to request {xid} where none is awaited")
        waiting = self._sent[0]
        if xid != waiting.xid:
            raise MalformedMessage(f"an answer to request {xid} where {waiting.xid} is awaited")
        request = waiting.prepared.request
        outcome: Effect
        try:
            if code:
                raise error_of(code, request.path)
            outcome = Answered(waiting.handle, request.read(reader, self.chroot))
        except ZooKeeperError as error:
            outcome = Failed(waiting.handle, error)
        self._sent.popleft()
        self._bytes -= len(waiting.prepared.body)
        self.last_zxid = max(self.last_zxid, zxid)
        self.watches.answered(request, code, waiting.prepared.watcher)
        if waiting.handle is not None:
            self._effects.append(outcome)
        if code == Code.SESSION_EXPIRED:
            self._end(State.EXPIRED, f"the session {self.id:#x} has expired")
