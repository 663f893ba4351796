"""The network, behind an interface so that a simulation can delay, cut and lose connections.

These are the only callers of sockets in a node. Both ends of a connection are asyncio's: a protocol that is driven
(`Protocol` or `BufferedProtocol`), a transport that writes, pauses and closes. A server that sends slices of files
writes past the transport, through a `Sender`.

    acceptor = await network.listen(lambda: Connection(...), host, port)
    acceptor.start()
    transport = await network.connect(lambda: Client(...), host, port)
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import select
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from ottla.filesystem import File
from ottla.model import Buffer

BACKLOG = 1024
"""Pending connects; a thousand clients that reconnect together after a restart should not see refusals."""

ACCEPTS_MAX = 64
"""Clients accepted at once before those that are there already get their turn."""

ACCEPT_PAUSE_SECONDS = 1.0
"""How long to wait for descriptors to become free."""

SENDFILE_BYTES_MAX = 1 << 20
"""Bytes that one call sends, in 0.2 ms: a connection's buffer grows to some megabytes, and others wait meanwhile."""

COPY_BYTES_MAX = 262_144
"""Bytes of a file without a descriptor read for one send."""

MORE: Final = socket.MSG_MORE
"""A flag of `Sender.sendmsg`: more follows at once."""

MakeProtocol = Callable[[], asyncio.BaseProtocol]
AcceptFailed = Callable[[OSError], None]


class Address(NamedTuple):
    """Where another node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Sender(Protocol):
    """The sending half of a connection, for who writes past its transport and sees how much the peer takes.

    What sends raises BlockingIOError when nothing can be taken now, and OSError when the connection is broken.
    """

    def send(self, data: Buffer, /) -> int:
        """Returns the bytes taken."""
        ...

    def sendmsg(self, buffers: Sequence[Buffer], ancillary: Sequence[Any], flags: int, /) -> int:
        """Send buffers one after the other; `flags` is 0 or `MORE`. Returns the bytes taken."""
        ...

    def send_file(self, file: File, position: int, length: int) -> int:
        """Send a range of a file, or a part of it: without copying it where the file has a descriptor. Returns the
        bytes taken; 0 at the end of the file."""
        ...

    def watch(self, writable: Callable[[], None]) -> None:
        """Call `writable` whenever something can be taken, until `unwatch`."""
        ...

    def unwatch(self) -> None: ...
    def release(self) -> None:
        """Done with; the connection itself belongs to the transport."""
        ...


class Acceptor(Protocol):
    """An address that was taken."""

    port: int
    """The one that the system chose, where 0 was asked for."""

    def start(self) -> None:
        """Serve clients from now on."""
        ...

    def close(self) -> None:
        """Accept nobody any more and give the address back. What was accepted stays."""
        ...

    async def wait_closed(self) -> None:
        """Returns when the address can be taken again."""
        ...


class Network(Protocol):
    async def listen(
        self, protocol: MakeProtocol, host: str, port: int, accept_failed: AcceptFailed | None = None
    ) -> Acceptor:
        """Take an address; "" is every address of this machine. Raises OSError if it cannot be had.

        `accept_failed` is told when no clients can be accepted for a while (ACCEPT_PAUSE_SECONDS).
        """
        ...

    async def connect(
        self, protocol: MakeProtocol, host: str, port: int, *, receive_buffer_bytes: int = -1
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to a peer. Raises OSError, and waits as long as the system does: give it a timeout.

        `receive_buffer_bytes` is SO_RCVBUF; a negative one leaves it to the system.
        """
        ...

    def sender(self, transport: asyncio.BaseTransport) -> Sender:
        """The sending half of a connection that this network made."""
        ...


class SlowPeers:
    """The sockets that are full, in an epoll of their own, which the loop watches as one descriptor.

    A transport's own descriptor cannot be watched, and to watch a copy costs a loop nine system calls each time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._epoll = select.epoll()
        self._writable: dict[int, Callable[[], None]] = {}
        loop.add_reader(self._epoll.fileno(), self._ready)

    def watch(self, descriptor: int, writable: Callable[[], None]) -> None:
        self._epoll.register(descriptor, select.EPOLLOUT)
        self._writable[descriptor] = writable

    def unwatch(self, descriptor: int) -> None:
        del self._writable[descriptor]
        self._epoll.unregister(descriptor)

    def _ready(self) -> None:
        if len(self._writable) == 1:  # then it is this one
            next(iter(self._writable.values()))()
            return
        for descriptor, _ in self._epoll.poll(0):
            writable = self._writable.get(descriptor)
            if writable is not None:  # else one before it has closed it
                writable()


class SocketSender(socket.socket):
    """The socket of a transport, which itself only reads then."""

    __slots__ = ("_slow", "_watching")

    def __init__(self, slow: SlowPeers, descriptor: int) -> None:
        super().__init__(fileno=descriptor)
        self._slow = slow
        self._watching = False

    def send_file(self, file: File, position: int, length: int) -> int:
        try:
            descriptor = file.fileno()
        except io.UnsupportedOperation:
            return self.send(file.pread(min(length, COPY_BYTES_MAX), position))
        return os.sendfile(self.fileno(), descriptor, position, min(length, SENDFILE_BYTES_MAX))

    def watch(self, writable: Callable[[], None]) -> None:
        self._slow.watch(self.fileno(), writable)
        self._watching = True

    def unwatch(self) -> None:
        self._slow.unwatch(self.fileno())
        self._watching = False

    def release(self) -> None:
        if self._watching:
            self.unwatch()
        self.detach()


class SocketAcceptor:
    """Listening sockets of one address."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: MakeProtocol,
        server: asyncio.Server,
        accept_failed: AcceptFailed | None,
        send_buffer_bytes: int = -1,
    ) -> None:
        self._loop = loop
        self._protocol = protocol
        self._server = server
        self._accept_failed = accept_failed
        self._accepting: list[socket.socket] = []
        self._connecting: set[asyncio.Task[None]] = set()
        for sock in server.sockets:
            # Answers are whole frames: waiting for more to send only delays them. Accepted sockets inherit it.
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if send_buffer_bytes > 0:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        self.port = int(server.sockets[0].getsockname()[1])

    def start(self) -> None:
        for bound in self._server.sockets:
            # The loop would accept one client in each of its rounds, so that the last of a thousand waits for seconds.
            # A transport's own descriptor cannot be watched, hence the copy.
            sock = socket.socket(fileno=os.dup(bound.fileno()))
            sock.setblocking(False)
            sock.listen(BACKLOG)
            self._accepting.append(sock)
            self._loop.add_reader(sock.fileno(), self._accept, sock)

    def close(self) -> None:
        for sock in self._accepting:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._accepting.clear()
        self._server.close()

    async def wait_closed(self) -> None:
        await self._server.wait_closed()

    def _accept(self, sock: socket.socket) -> None:
        for _ in range(ACCEPTS_MAX):
            try:
                client, _address = sock.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:  # out of descriptors: leave the clients in the queue for a while
                if self._accept_failed is not None:
                    self._accept_failed(error)
                self._loop.remove_reader(sock.fileno())
                self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._resume, sock)
                return
            client.setblocking(False)
            task = self._loop.create_task(self._connect(client))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    def _resume(self, sock: socket.socket) -> None:
        if sock in self._accepting:
            self._loop.add_reader(sock.fileno(), self._accept, sock)

    async def _connect(self, client: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._protocol, client)
        except OSError:  # gone already
            client.close()


def send_datagram(address: str, data: bytes) -> None:
    """To a Unix socket: a path, or "@" and a name in Linux's abstract namespace. Raises OSError, and never blocks."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sock:
        sock.sendto(data, f"\0{address[1:]}" if address.startswith("@") else address)


def host_name() -> str:
    """The full name of this host, looked up."""
    return socket.getfqdn()


class SystemNetwork:
    """The operating system's TCP, on the running event loop."""

    def __init__(self, send_buffer_bytes: int = -1) -> None:
        """`send_buffer_bytes` is SO_SNDBUF of accepted connections; a negative one leaves it to the system."""
        self._send_buffer_bytes = send_buffer_bytes
        self._slow: SlowPeers | None = None

    async def listen(
        self, protocol: MakeProtocol, host: str, port: int, accept_failed: AcceptFailed | None = None
    ) -> SocketAcceptor:
        loop = self._slow_peers().loop
        server = await loop.create_server(
            protocol, host or None, port, backlog=BACKLOG, reuse_address=True, start_serving=False
        )
        return SocketAcceptor(loop, protocol, server, accept_failed, self._send_buffer_bytes)

    async def connect(
        self, protocol: MakeProtocol, host: str, port: int, *, receive_buffer_bytes: int = -1
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        loop = asyncio.get_running_loop()
        if receive_buffer_bytes <= 0:
            return await loop.create_connection(protocol, host, port)
        sock = await self._connected(loop, host, port, receive_buffer_bytes)
        try:
            return await loop.create_connection(protocol, sock=sock)
        except BaseException:
            sock.close()
            raise

    async def _connected(
        self, loop: asyncio.AbstractEventLoop, host: str, port: int, receive_buffer_bytes: int
    ) -> socket.socket:
        """The buffer is set before the peer is told how much fits in it (RFC 7323)."""
        failure = OSError(f"{host} has no address")
        for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            sock = socket.socket(family, kind, protocol)
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
                await loop.sock_connect(sock, address)
                return sock
            except OSError as error:
                failure = error
                sock.close()
            except BaseException:
                sock.close()
                raise
        raise failure

    def sender(self, transport: asyncio.BaseTransport) -> SocketSender:
        return SocketSender(self._slow_peers(), transport.get_extra_info("socket").fileno())

    def _slow_peers(self) -> SlowPeers:
        loop = asyncio.get_running_loop()
        if self._slow is None or self._slow.loop is not loop:
            self._slow = SlowPeers(loop)
        return self._slow
