"""A listening socket and the connections that came through it: limits, idleness, the shared receive buffer."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import os
import socket
from collections import Counter
from typing import TYPE_CHECKING

from ottla.drivers.cooperative import scheduler_of
from ottla.errors import OttlaError
from ottla.logs import fields
from ottla.metrics.instruments import NodeMetrics
from ottla.protocol.messages import ApiKey
from ottla.server.connection import RECEIVE_BUFFER_BYTES, Connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.server.api import RequestContext
    from ottla.server.node import Node

BACKLOG = 1024
"""Pending connects; a thousand clients that reconnect together after a restart should not see refusals."""

ACCEPTS_MAX = 64
"""Clients accepted at once before those that are there already get their turn."""

ACCEPT_PAUSE_SECONDS = 1.0
"""How long to wait for descriptors to become free."""

MEANT_TO_WAIT = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""Not slow, however long they take: they wait for records or for other members."""

_NETWORK = logging.getLogger("ottla.network")
_REQUESTS = logging.getLogger("ottla.requests")

GIVE_BACK_BYTES_MIN = 16 << 20
"""A rush of clients has left more behind than a busy node takes and drops all the time."""

GIVE_BACK_SECONDS = 1.0
"""How long after it free memory is given back, at most that often."""

SWEEPS_PER_IDLE_TIME = 8
"""How often, within `connections.max.idle.ms`, silent connections are looked for."""


class ConnectionLimits:
    """Counts of open connections, shared by all listeners of a node (`max.connections`, `max.connections.per.ip`)."""

    def __init__(self, total_max: int, per_host_max: int, host_overrides: dict[str, int]) -> None:
        self._total_max = total_max
        self._per_host_max = per_host_max
        self._overrides = host_overrides
        self._by_host: Counter[str] = Counter()

    def take(self, host: str) -> bool:
        if self._by_host[host] >= self._overrides.get(host, self._per_host_max):
            return False
        if self._by_host.total() >= self._total_max:
            return False
        self._by_host[host] += 1
        return True

    def give_back(self, host: str) -> None:
        self._by_host[host] -= 1
        if self._by_host[host] <= 0:
            del self._by_host[host]


async def check_address(host: str, port: int) -> None:
    """Raises OttlaError if the address cannot be bound at the moment."""
    server = await _open(asyncio.get_running_loop(), asyncio.Protocol, host, port)
    server.close()
    await server.wait_closed()


async def _open(
    loop: asyncio.AbstractEventLoop, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
) -> asyncio.Server:
    """The bound sockets of an address, which do not accept yet. Raises OttlaError."""
    try:
        return await loop.create_server(
            protocol, host or None, port, backlog=BACKLOG, reuse_address=True, start_serving=False
        )
    except OSError as error:
        raise cannot_listen(f"{host or '*'}:{port}", error, " with --listen HOST:PORT") from error


def cannot_listen(where: str, error: OSError, how: str = "") -> OttlaError:
    """Why an address cannot be bound and what to do; `how` says where another is chosen."""
    code = error.errno or 0
    reason = os.strerror(code).lower() if code > 0 else f"{error.strerror}"  # negative: the name is unknown
    in_use = code == errno.EADDRINUSE
    advice = "stop what uses the port or choose another" if in_use else "choose an address of this machine"
    return OttlaError(f"cannot listen on {where}: {reason}; {advice}{how}")


class ReceiveBuffers:
    """The bytes of all buffers that connections have of their own."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.bytes = 0
        self._loop = loop
        self._bytes_max = 0
        """Since free memory was last given back."""
        self._waiting = False

    def taken(self, size: int) -> None:
        self.bytes += size
        if self.bytes > self._bytes_max:
            self._bytes_max = self.bytes

    def dropped(self, size: int) -> None:
        self.bytes -= size
        if self._bytes_max - self.bytes >= GIVE_BACK_BYTES_MIN and not self._waiting:
            self._waiting = True
            self._loop.call_later(GIVE_BACK_SECONDS, self._give_back)

    def _give_back(self) -> None:
        from ottla import memory

        self._waiting = False
        self._bytes_max = self.bytes
        memory.give_back()


class Listener:
    """Accepts clients on one address."""

    def __init__(
        self,
        node: Node,
        name: str,
        *,
        limits: ConnectionLimits,
        request_bytes_max: int,
        idle_ms_max: int,
        receive_buffer: bytearray,
        metrics: NodeMetrics | None = None,
        slow_ms: int = -1,
    ) -> None:
        self.node = node
        self.name = name
        self.loop = asyncio.get_running_loop()
        self.scheduler = scheduler_of(self.loop)
        self.request_bytes_max = request_bytes_max
        self.receive_buffer = receive_buffer
        self.receive_view = memoryview(receive_buffer)
        self.buffers = ReceiveBuffers(self.loop)
        self.metrics = NodeMetrics() if metrics is None else metrics
        self.slow_s = slow_ms / 1000 if slow_ms >= 0 else math.inf
        """Requests that take longer are logged (`ottla.log.slow.request.ms`)."""
        self.admitted = 0
        self.refused = 0
        """Clients, since the start."""
        self.began_s = 0.0
        """When the bytes came in that are being handled."""
        self.connections: set[Connection] = set()
        self.served: Connection | None = None
        """Whose bytes came last, and how many in a row."""
        self.served_bytes = 0
        self.tick = 0
        """Counts sweeps; a connection notes it with every byte received."""
        self._limits = limits
        self._counted: set[Connection] = set()
        self._unheard: set[asyncio.Task[None]] = set()
        """Requests still being handled whose clients are gone."""
        self._idle_ms_max = idle_ms_max
        self._server: asyncio.Server | None = None
        self._accepting: list[socket.socket] = []
        self._all_gone: asyncio.Event | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def bind(self, host: str, port: int) -> int:
        """Take the address; returns the port, which the system chose if `port` was 0.

        Raises OttlaError if the address cannot be bound.
        """
        self._server = await _open(self.loop, lambda: Connection(self), host, port)
        for sock in self._server.sockets:
            # Answers are whole frames: waiting for more to send only delays them. Accepted sockets inherit it.
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        name = self._server.sockets[0].getsockname()
        return int(name[1])

    async def accept(self) -> None:
        """Serve clients from now on."""
        assert self._server is not None
        for bound in self._server.sockets:
            # The loop would accept one client in each of its rounds, so that the last of a thousand waits for seconds.
            # A transport's own descriptor cannot be watched, hence the copy.
            sock = socket.socket(fileno=os.dup(bound.fileno()))
            sock.setblocking(False)
            sock.listen(BACKLOG)
            self._accepting.append(sock)
            self.loop.add_reader(sock.fileno(), self._accept, sock)
        self._schedule_sweep()

    def _accept(self, sock: socket.socket) -> None:
        for _ in range(ACCEPTS_MAX):
            try:
                client, _address = sock.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:  # out of descriptors: leave the clients in the queue for a while
                _NETWORK.warning("cannot accept clients", extra=fields(listener=self.name, error=error.strerror))
                self.loop.remove_reader(sock.fileno())
                self.loop.call_later(ACCEPT_PAUSE_SECONDS, self._resume_accepting, sock)
                return
            client.setblocking(False)
            self.let_finish(self.loop.create_task(self._connect(client)))

    def _resume_accepting(self, sock: socket.socket) -> None:
        if sock in self._accepting:
            self.loop.add_reader(sock.fileno(), self._accept, sock)

    async def _connect(self, client: socket.socket) -> None:
        try:
            await self.loop.connect_accepted_socket(lambda: Connection(self), client)
        except OSError:  # gone already
            client.close()

    def admit(self, connection: Connection) -> bool:
        if self._server is None or not self._limits.take(connection.client_host):
            self.refused += 1
            return False
        self.admitted += 1
        self._counted.add(connection)
        self.connections.add(connection)
        return True

    def answered(self, context: RequestContext, seconds: float) -> None:
        """Count a request, `seconds` after it came in."""
        self.metrics.api(context.api_key).answered(context.api_version, seconds)
        if seconds > self.slow_s and context.api_key not in MEANT_TO_WAIT:
            _REQUESTS.warning(
                "slow request",
                extra=fields(
                    api=ApiKey(context.api_key).name,
                    version=context.api_version,
                    ms=round(seconds * 1000),
                    client=context.client_host,
                    client_id=context.client_id,
                ),
            )

    def remove(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if self._all_gone is not None and not self.connections:
            self._all_gone.set()
        if connection in self._counted:
            self._counted.discard(connection)
            self._limits.give_back(connection.client_host)

    def let_finish(self, task: asyncio.Task[None]) -> None:
        """Keep a request going whose client is gone."""
        self._unheard.add(task)
        task.add_done_callback(self._unheard.discard)

    def stop_accepting(self) -> None:
        for sock in self._accepting:
            self.loop.remove_reader(sock.fileno())
            sock.close()
        self._accepting.clear()
        if self._server is not None:
            self._server.close()
            self._server = None

    async def stop(self, *, drain_seconds_max: float) -> None:
        """Answer what was begun, then close every connection."""
        self.stop_accepting()
        if self._sweeper is not None:
            self._sweeper.cancel()
        deadline = self.loop.time() + drain_seconds_max
        for connection in list(self.connections):
            connection.finish()
        if self.connections:
            self._all_gone = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._all_gone.wait()
        if self._unheard:
            await asyncio.wait(self._unheard, timeout=max(0, deadline - self.loop.time()))
        for connection in list(self.connections):
            connection.abort()
        for task in list(self._unheard):
            task.cancel()
        await asyncio.sleep(0)

    def _schedule_sweep(self) -> None:
        if self._idle_ms_max > 0:
            period = min(self._idle_ms_max / 1000 / SWEEPS_PER_IDLE_TIME, 60.0)
            self._sweeper = self.loop.call_later(period, self._sweep, max(1, round(self._idle_ms_max / 1000 / period)))

    def _sweep(self, ticks_max: int) -> None:
        self.tick += 1
        for connection in list(self.connections):
            connection.sweep(ticks_max)
        self._schedule_sweep()


def new_receive_buffer() -> bytearray:
    """The buffer that all listeners of a node share."""
    return bytearray(RECEIVE_BUFFER_BYTES)
