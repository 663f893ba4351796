"""What a connection needs of its listener. Types only: nothing here is imported while a node runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from ottla.drivers.cooperative import Scheduler
from ottla.metrics.instruments import NodeMetrics
from ottla.network import Network
from ottla.security.principal_mapping import PrincipalMapper
from ottla.server.api import ApiSet, ConnectionQuotas, RequestContext
from ottla.server.connections.receiving import ReceiveBuffers
from ottla.server.ports import NodePorts

C = TypeVar("C")
"""The class of connections."""
C_contra = TypeVar("C_contra", contravariant=True)


class Metering(Protocol[C_contra]):
    """The quotas of a node's clients: `quotas.NodeQuotas`."""

    def of_connection(self, admitted: C_contra, /) -> ConnectionQuotas | None: ...


class ConnectionListener(Protocol[C]):
    """The listener of a connection, as the connection sees it: `listener.Listener`."""

    served: C | None
    served_bytes: int
    began_s: float
    receive_view: memoryview
    answering: dict[C, None] | None
    slow_s: float

    @property
    def node(self) -> NodePorts: ...
    @property
    def quotas(self) -> Metering[C] | None: ...
    @property
    def name(self) -> str: ...
    @property
    def apis(self) -> ApiSet: ...
    @property
    def network(self) -> Network: ...
    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def scheduler(self) -> Scheduler: ...
    @property
    def request_bytes_max(self) -> int: ...
    @property
    def receive_buffer(self) -> bytearray: ...
    @property
    def buffers(self) -> ReceiveBuffers: ...
    @property
    def metrics(self) -> NodeMetrics: ...
    @property
    def tick(self) -> int: ...
    def admit(self, connection: C, /) -> bool: ...
    def call_when_lost(self, connection: C, callback: Callable[[], None], /) -> None: ...
    def remove(self, connection: C, /) -> None: ...
    def log_slow(self, asked: RequestContext, seconds: float, /) -> None: ...
    def answer_together(self, answer: Callable[[], None], /) -> None: ...
    def let_finish(self, task: asyncio.Task[None], /) -> None: ...
    def log_refused(self, event: str, client_host: str, error: str, level: int = ..., /) -> None: ...


class TlsListener(ConnectionListener[C], Protocol[C]):
    """A listener of the protocol SSL, as its connections see it: `listener.Listener`."""

    @property
    def principal_mapper(self) -> PrincipalMapper | None: ...
