"""A network in memory that delays, clogs, cuts and loses connections, on `ottla.testing.loop`'s virtual time.

It behaves as TCP does. Bytes of one direction arrive in order, in pieces of any size, late; between connections there
is no order. What cannot arrive (a link is cut, a machine has no power) is sent again until it can or the sender gives
up. A killed process's connections are closed by its system, those of a machine without power are half open: the peer
learns of it when it sends, and only once somebody is there to refuse.

    network = SimulatedNetwork(time)
    node = Node(config, disk, clock, random, network.of(loop, "node1"))
    network.cut("client", "node1")          # one way; `heal` mends all
    network.reset(network.connections()[0])
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from ottla.network import AcceptFailed, MakeProtocol
from ottla.testing.loop import SimulatedLoop, SimulatedTime, State
from ottla.testing.transport import (
    RETRANSMIT_SECONDS,
    RETRANSMIT_SECONDS_MAX,
    Link,
    SimulatedSender,
    SimulatedTransport,
)

WINDOWS = (3_000, 20_000, 200_000)
"""Bytes that may be under way and unread; a connection has one of these."""


def refused(code: int) -> OSError:
    return OSError(code, os.strerror(code))


class SimulatedNetwork:
    """All hosts and connections. Names of hosts are any strings; one is up while a process of it was announced."""

    def __init__(
        self,
        time: SimulatedTime,
        *,
        delay_s: tuple[float, float] = (0.0001, 0.003),
        trace: Callable[[str, str], None] = lambda who, what: None,
    ) -> None:
        self.time = time
        self.random = time.stream("network")
        self.loop = time.loop("network")
        self.trace = trace
        self.counts: Counter[str] = Counter()
        """What happened, by kind: a fault that met nothing shows nothing."""
        self._delay_s = delay_s
        self._links: dict[tuple[str, str], Link] = {}
        self._acceptors: dict[tuple[str, int], SimulatedAcceptor] = {}
        self._down: dict[str, None] = {}
        self._ends: dict[SimulatedTransport, None] = {}
        self._numbers = 0
        self._ports = 40_000

    def of(self, loop: SimulatedLoop, host: str) -> HostNetwork:
        """The network as a process on `host` sees it."""
        self._down.pop(host, None)
        return HostNetwork(self, loop, host)

    # What a test does to it.

    def link(self, source: str, target: str) -> Link:
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = Link(self._delay_s)
        return found

    def cut(self, source: str, target: str) -> None:
        """Nothing arrives any more that way."""
        self.link(source, target).is_cut = True

    def clog(self, source: str, target: str, seconds: float) -> None:
        """Nothing arrives that way for a while; then everything does."""
        self.link(source, target).clogged_until_s = self.time.now_s + seconds

    def heal(self) -> None:
        for link in self._links.values():
            link.is_cut = False
            link.clogged_until_s = 0.0

    def connections(self) -> list[SimulatedTransport]:
        """The connecting ends of what is open, oldest first."""
        return [end for end in self._ends if end.is_client and not end.lost]

    def reset(self, end: SimulatedTransport) -> None:
        """Both ends learn that the connection is broken."""
        self.counts["reset"] += 1
        for each in (end, end.peer):
            each.broke(ConnectionResetError(errno.ECONNRESET, "reset by the network"))

    def half_open(self, end: SimulatedTransport) -> None:
        """One end loses the connection; the other one learns of it when it sends."""
        self.counts["half open"] += 1
        end.broke(ConnectionResetError(errno.ECONNRESET, "lost by the network"))

    def strand(self, end: SimulatedTransport, seconds: float) -> None:
        """One end loses the connection, and what it had sent arrives at the other one `seconds` from now: behind what
        is sent again over a new connection. Then that end learns of it too."""
        if end.lost:
            return
        self.counts["stranded"] += 1
        late = b"".join(chunk.data for chunk in end._flight if chunk.data is not None)
        self.counts["stranded bytes"] += len(late)
        end.broke(ConnectionResetError(errno.ECONNRESET, "lost by the network"))
        end.peer.stray(late, seconds)

    def ended(self, loop: SimulatedLoop, host: str, *, power_loss: bool) -> None:
        """A process is gone. Its system closes what it had open, unless it is gone too."""
        for key in [key for key, acceptor in self._acceptors.items() if acceptor.loop is loop]:
            del self._acceptors[key]
        if power_loss:
            self._down[host] = None
        for end in [end for end in self._ends if end.loop is loop]:
            end.lost = end.gone = True
            self._ends.pop(end, None)
            if not power_loss:
                end.send_reset()

    # For what is on it.

    def is_up(self, host: str) -> bool:
        return host not in self._down

    def arrives_s(self, source: str, target: str) -> float:
        link = self.link(source, target)
        return max(self.time.now_s, link.clogged_until_s) + self.random.uniform(*link.delay_s)

    def passes(self, source: str, target: str) -> bool:
        return not self.link(source, target).is_cut and self.is_up(target)

    def take_port(self, host: str, port: int) -> int:
        if not port:
            self._ports += 1
            port = self._ports
        if (host, port) in self._acceptors:
            raise refused(errno.EADDRINUSE)
        return port

    def listening(self, host: str, port: int) -> SimulatedAcceptor | None:
        acceptor = self._acceptors.get((host, port))
        return acceptor if acceptor is not None and acceptor.started else None

    def took(self, acceptor: SimulatedAcceptor) -> None:
        self._acceptors[acceptor.host, acceptor.port] = acceptor

    def gave_back(self, acceptor: SimulatedAcceptor) -> None:
        self._acceptors.pop((acceptor.host, acceptor.port), None)

    def join(self, client: HostNetwork, acceptor: SimulatedAcceptor) -> SimulatedTransport:
        self._numbers += 1
        window = self.random.choice(WINDOWS)
        near = SimulatedTransport(self, client.loop, client.host, self._numbers, window, is_client=True)
        far = SimulatedTransport(self, acceptor.loop, acceptor.host, self._numbers, window, is_client=False)
        near.peer, far.peer = far, near
        self._ends[near] = self._ends[far] = None
        acceptor.loop.call_soon(far.made, acceptor.protocol)
        return near

    def drop(self, end: SimulatedTransport) -> None:
        self._ends.pop(end, None)


class HostNetwork:
    """Implements `ottla.network.Network` for one process."""

    def __init__(self, network: SimulatedNetwork, loop: SimulatedLoop, host: str) -> None:
        self.network = network
        self.loop = loop
        self.host = host

    async def listen(
        self, protocol: MakeProtocol, host: str, port: int, accept_failed: AcceptFailed | None = None
    ) -> SimulatedAcceptor:
        if host not in ("", self.host):
            raise refused(errno.EADDRNOTAVAIL)
        acceptor = SimulatedAcceptor(self, protocol, self.network.take_port(self.host, port))
        self.network.took(acceptor)
        return acceptor

    async def connect(
        self, protocol: MakeProtocol, host: str, port: int, *, receive_buffer_bytes: int = -1
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        future: asyncio.Future[SimulatedTransport] = self.loop.create_future()
        deadline_s = self.network.time.now_s + RETRANSMIT_SECONDS_MAX
        network = self.network

        def syn(pause_s: float) -> None:
            if future.done() or self.loop.state is State.DEAD:
                return
            if not (network.passes(self.host, host) and network.passes(host, self.host)):
                if network.time.now_s > deadline_s:
                    self.loop.call_soon(_fail, future, refused(errno.ETIMEDOUT))
                else:
                    network.loop.exactly_in(pause_s, syn, min(2 * pause_s, 2.0))
                return
            acceptor = network.listening(host, port)
            back_s = network.arrives_s(host, self.host)
            if acceptor is None:
                self.loop.exactly_at(back_s, _fail, future, refused(errno.ECONNREFUSED))
            else:
                end = network.join(self, acceptor)
                self.loop.exactly_at(back_s, _succeed, future, end)

        network.loop.exactly_at(network.arrives_s(self.host, host), syn, RETRANSMIT_SECONDS)
        end = await future
        return end, end.made(protocol)

    def sender(self, transport: asyncio.BaseTransport) -> SimulatedSender:
        return SimulatedSender(cast(SimulatedTransport, transport))


def _fail(future: asyncio.Future[Any], error: OSError) -> None:
    if not future.done():
        future.set_exception(error)


def _succeed(future: asyncio.Future[SimulatedTransport], end: SimulatedTransport) -> None:
    if future.done():  # nobody waits any more
        end.abort()
    else:
        future.set_result(end)


class SimulatedAcceptor:
    """Implements `ottla.network.Acceptor`."""

    def __init__(self, owner: HostNetwork, protocol: MakeProtocol, port: int) -> None:
        self._network = owner.network
        self.loop = owner.loop
        self.host = owner.host
        self.protocol = protocol
        self.port = port
        self.started = False

    def start(self) -> None:
        self.started = True

    def close(self) -> None:
        self._network.gave_back(self)

    async def wait_closed(self) -> None:
        """It is closed at once."""
