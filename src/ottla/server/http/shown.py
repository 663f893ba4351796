"""The node as its pages show it; `ottla.server.node.Node` gives it. Nothing here is imported while a node runs."""

from __future__ import annotations

from typing import Protocol

from ottla.drivers.logs.log_cleaner import LogCleaner
from ottla.network import Network
from ottla.server.clients.quotas import NodeQuotas
from ottla.server.http.logins import HttpLogins
from ottla.server.listeners.listener import Listener
from ottla.server.listeners.node_tls import NodeTls
from ottla.server.ports import NodePorts
from ottla.server.security.audit import Audit


class HttpPort(Protocol):
    """`server.HttpServer`."""

    @property
    def logins(self) -> HttpLogins | None: ...


class ShownNode(NodePorts, Protocol):
    @property
    def serving(self) -> bool: ...
    @property
    def leaving(self) -> bool: ...
    @property
    def start_seconds(self) -> float: ...
    @property
    def http(self) -> HttpPort | None: ...
    @property
    def plain_network(self) -> Network: ...
    @property
    def cleaner(self) -> LogCleaner: ...
    @property
    def listeners(self) -> list[Listener]: ...
    @property
    def audit(self) -> Audit | None: ...
    @property
    def tls(self) -> NodeTls | None: ...
    @property
    def quotas(self) -> NodeQuotas | None: ...
