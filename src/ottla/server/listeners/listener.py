"""A listening socket and the connections that came through it: limits, idleness, the shared receive buffer."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ottla.clock import elapsed_s
from ottla.config.typed import TypedSettings
from ottla.drivers.cooperative import scheduler_of
from ottla.errors import OttlaError
from ottla.logs import fields
from ottla.metrics.instruments import NodeMetrics
from ottla.model import NO_PRODUCER_ID, UNKNOWN_SOFTWARE, ProducerId
from ottla.protocol.messages import ApiKey
from ottla.server.api import OF_BROKERS, ApiSet
from ottla.server.connections.connection import CompiledConnection, Connection
from ottla.server.connections.listener_state import ListenerState
from ottla.server.connections.receiving import Receiving

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.config.listener_settings import NodeSettings
    from ottla.network import AcceptFailed, Acceptor, MakeProtocol, Network
    from ottla.security.principal_mapping import PrincipalMapper
    from ottla.server.api import RequestContext
    from ottla.server.clients.quotas import NodeQuotas
    from ottla.server.ports import Authentication, ConnectionRates, NodePorts

    class Admitting(Authentication, Protocol):
        """Logs the clients of this listener in."""

        def begin(self, connection: CompiledConnection, /) -> None: ...


MEANT_TO_WAIT = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""Not logged as slow, however long they take: they wait for records or for other members."""

_NETWORK = logging.getLogger("ottla.network")
_REQUESTS = logging.getLogger("ottla.requests")

REFUSALS_PER_SECOND_MAX = 10
"""Connections closed for what their clients sent that are logged one by one: anyone may connect and send anything."""

SWEEPS_PER_IDLE_TIME = 8
"""How often, within `connections.max.idle.ms`, silent connections are looked for."""


RATE = "max.connection.creation.rate"
RATE_UNLIMITED = (1 << 31) - 1


class ClientFacts:
    """What a node knows of a connection beside its requests: since when it is there, and what its client is."""

    __slots__ = (
        "client_id", "connected_s", "instance_id", "producer_id", "software_name", "software_version", "when_lost",
    )  # fmt: skip

    def __init__(self) -> None:
        self.connected_s = elapsed_s()
        self.client_id: str | None = None
        self.software_name = self.software_version = UNKNOWN_SOFTWARE
        """As ApiVersions names it, from version 3 on."""
        self.instance_id: UUID | None = None
        """The client that asks for its telemetry subscription (KIP-714)."""
        self.producer_id: ProducerId = NO_PRODUCER_ID
        """The idempotent or transactional producer that writes over the connection."""
        self.when_lost: Callable[[], None] | None = None
        """Called when the connection is no more."""


class ConnectionLimits:
    """Counts of open connections, shared by all listeners of a node (`max.connections`, `max.connections.per.ip`)."""

    def __init__(self, total_max: int, per_host_max: int, host_overrides: dict[str, int]) -> None:
        self._total_max = total_max
        self._per_host_max = per_host_max
        self._overrides = host_overrides
        self._by_host: Counter[str] = Counter()

    @classmethod
    def from_settings(cls, config: TypedSettings) -> ConnectionLimits:
        overrides = _per_host(config.max_connections_per_ip_overrides)
        return cls(config.max_connections, config.max_connections_per_ip, overrides)

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


def _per_host(overrides: Any) -> dict[str, int]:
    """`max.connections.per.ip.overrides`: "host:count,host:count"."""
    items = overrides.split(",") if isinstance(overrides, str) else list(overrides or ())
    found = {}
    for item in filter(None, (item.strip() for item in items)):
        host, _, count = item.rpartition(":")
        found[host.strip("[]")] = int(count)
    return found


def limit_of(config: NodeSettings, listener: str) -> int:
    """New connections a second of one listener at most (`listener.name.NAME.max.connection.creation.rate`)."""
    name = f"listener.name.{listener.lower()}.{RATE}"
    text = config.dynamic_text(name) or config.static.get(name)
    try:
        return RATE_UNLIMITED if text is None else int(text)
    except ValueError:
        return RATE_UNLIMITED


async def listen(
    network: Network, protocol: MakeProtocol, host: str, port: int, accept_failed: AcceptFailed | None = None
) -> Acceptor:
    """The address, which does not accept yet. Raises OttlaError."""
    try:
        return await network.listen(protocol, host, port, accept_failed)
    except OSError as error:
        raise cannot_listen(f"{host or '*'}:{port}", error, " with --listen HOST:PORT") from error


def cannot_listen(where: str, error: OSError, how: str = "") -> OttlaError:
    """Why an address cannot be bound and what to do; `how` says where another is chosen."""
    code = error.errno or 0
    reason = os.strerror(code).lower() if code > 0 else f"{error.strerror}"  # negative: the name is unknown
    in_use = code == errno.EADDRINUSE
    advice = "stop what uses the port or choose another" if in_use else "choose an address of this machine"
    return OttlaError(f"cannot listen on {where}: {reason}; {advice}{how}")


class Listener(ListenerState):
    """Accepts clients on one address."""

    def __init__(
        self,
        node: NodePorts,
        name: str,
        *,
        network: Network,
        limits: ConnectionLimits,
        request_bytes_max: int,
        idle_ms_max: int,
        receiving: Receiving,
        metrics: NodeMetrics | None = None,
        slow_ms: int = -1,
        apis: ApiSet = OF_BROKERS,
        protocol: str = "PLAINTEXT",
    ) -> None:
        super().__init__(receiving.buffer, NodeMetrics() if metrics is None else metrics, slow_ms)
        self.node = node
        self.name = name
        self.protocol = protocol
        """The security protocol: one of `config.listeners.PROTOCOLS`."""
        self.principal_mapper: PrincipalMapper | None = None
        """Makes users of the subjects of certificates; None where a user has the subject's name."""
        self.apis = apis
        self.network = network
        """Replaced by one over TLS where the protocol needs it."""
        self.scheduler = scheduler_of(self.loop)
        self.request_bytes_max = request_bytes_max
        self.buffers = receiving.of(apis)
        self._refusals = (0, 0, 0)
        """A second of the loop's time, the refusals logged in it, and those that were not logged since."""
        self.admitted = 0
        self.refused = 0
        """Clients, since the start."""
        self.quotas: NodeQuotas | None = None
        self.authentication: Admitting | None = None
        """Logs its clients in; None without SASL."""
        self.rates: ConnectionRates | None = None
        """Quotas and connection rates of the listener; None if nothing is limited."""
        self._turned_away: dict[CompiledConnection, None] = {}
        """Refused connections, to be closed after a while."""
        self.connections: dict[CompiledConnection, ClientFacts] = {}
        """Ordered, as everything is that is gone through where somebody can see in which order."""
        self.when_lost: dict[CompiledConnection, Callable[[], None]] = {}
        """Called once, when the connection is no more."""
        self._answers: deque[Callable[[], None]] = deque()
        self.buffers.serve(self)
        self._limits = limits
        self._counted: set[CompiledConnection] = set()
        self._unheard: dict[asyncio.Task[None], None] = {}
        """Requests still being handled whose clients are gone."""
        self._idle_ms_max = idle_ms_max
        self._acceptor: Acceptor | None = None
        self._all_gone: asyncio.Event | None = None
        self._sweeper: asyncio.Handle | None = None

    async def bind(self, host: str, port: int, make: MakeProtocol | None = None) -> int:
        """Take the address; returns the port, which the system chose if `port` was 0. `make` makes connections other
        than plain ones.

        Raises OttlaError if the address cannot be bound.
        """
        make = make or (lambda: Connection(self))
        self._acceptor = await listen(self.network, make, host, port, self._accept_failed)
        return self._acceptor.port

    def _accept_failed(self, error: OSError) -> None:
        _NETWORK.warning("cannot accept clients", extra=fields(listener=self.name, error=error.strerror))

    async def accept(self) -> None:
        """Serve clients from now on."""
        assert self._acceptor is not None
        self._acceptor.start()
        self._schedule_sweep()

    def admit(self, connection: CompiledConnection) -> bool:
        if self.authentication is not None:
            self.authentication.begin(connection)
        if self._acceptor is None or not self._limits.take(connection.client_host):
            self.refused += 1
            return False
        if self.rates is not None:
            delay_s, refused = self.rates.admit(self.name, connection.client_host)
            if refused:
                self._limits.give_back(connection.client_host)
                self.refused += 1
                return delay_s > 0 and self._turn_away(connection, delay_s)
            if delay_s:
                connection.mute(delay_s)
                hold_handshake(connection, delay_s)
        self.admitted += 1
        self._counted.add(connection)
        self.connections[connection] = ClientFacts()
        return True

    def _turn_away(self, connection: CompiledConnection, delay_s: float) -> bool:
        """Close it later, and read nothing of it meanwhile."""
        self._turned_away[connection] = None
        connection.mute(2 * delay_s)
        hold_handshake(connection, 2 * delay_s)
        self.loop.call_later(delay_s, connection.abort)
        return True

    def log_slow(self, context: RequestContext, seconds: float) -> None:
        """Log a request that was answered so long after it came in, unless it may wait."""
        if context.api_key not in MEANT_TO_WAIT:
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

    def log_refused(self, event: str, client_host: str, error: str, level: int = logging.INFO) -> None:
        """Log why a client's connection is closed; a flood of such clients must not fill the disk."""
        second, logged, unlogged = self._refusals
        if second != int(self.loop.time()):
            second, logged = int(self.loop.time()), 0
        if logged >= REFUSALS_PER_SECOND_MAX:
            self._refusals = second, logged, unlogged + 1
            return
        self._refusals = second, logged + 1, 0
        text = fields(listener=self.name, client=client_host, error=error, not_logged=unlogged or None)
        _NETWORK.log(level, event, extra=text)

    def answer_together(self, answer: Callable[[], None]) -> None:
        """Call it in a later turn of the loop, with all others of then; what they answer a client is sent at once."""
        if not self._answers:
            self.loop.call_soon(self._answer_all)
        self._answers.append(answer)

    def _answer_all(self) -> None:
        answers = self._answers
        answered: dict[CompiledConnection, None] = {}
        self.answering = answered
        try:
            for _ in range(len(answers)):
                answers.popleft()()
        finally:
            self.answering = None
            if answers:
                self.loop.call_soon(self._answer_all)
            for connection in answered:
                connection.send()

    def call_when_lost(self, connection: CompiledConnection, callback: Callable[[], None]) -> None:
        """Call it once the connection is lost, instead of an earlier one; soon, where that came before the request that
        asks for it was handled."""
        if connection.closed:
            self.loop.call_soon(callback)
        else:
            self.when_lost[connection] = callback

    def remove(self, connection: CompiledConnection) -> None:
        facts = self.connections.pop(connection, None)
        if facts is not None and facts.when_lost is not None:
            facts.when_lost()
        if connection.login is not None:
            connection.login.lost()
        self._turned_away.pop(connection, None)
        if self.served is connection:
            self.served = None
        if self.when_lost and (callback := self.when_lost.pop(connection, None)):
            callback()
        if self._all_gone is not None and not self.connections:
            self._all_gone.set()
        if connection in self._counted:
            self._counted.discard(connection)
            self._limits.give_back(connection.client_host)

    def let_finish(self, task: asyncio.Task[None]) -> None:
        """Keep a request going whose client is gone."""
        self._unheard[task] = None
        task.add_done_callback(self._unheard.pop)

    def stop_accepting(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None

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
        for connection in [*self.connections, *self._turned_away]:
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
            end_if_idle(connection, self.tick, ticks_max)
        self._schedule_sweep()


def hold_handshake(connection: CompiledConnection, seconds: float) -> None:
    """A handshake costs more than anything else that a client can ask for, so it waits as well."""
    hold = getattr(connection._transport, "hold_handshake", None)
    if hold is not None:
        hold(seconds)


def end_if_idle(connection: CompiledConnection, tick: int, ticks_max: int) -> None:
    """Close after more than `ticks_max` in which nothing came or went."""
    if connection.outbox.queued != connection._unsent:
        connection._unsent = connection.outbox.queued
        connection.tick = tick
    if tick - connection.tick > ticks_max:
        if connection.idle:
            connection.close()
        elif connection._paused or connection._unsent:  # else its end would be noticed
            connection.abort()
    elif tick != connection.tick:
        connection.trim()
