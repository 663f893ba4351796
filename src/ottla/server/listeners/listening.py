"""How the listeners of a node come to be: TLS, logins, sockets, guards, and limits that change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from ottla.config.listeners import OVER_TLS
from ottla.logs import fields
from ottla.server.listeners.listener import RATE_UNLIMITED, Listener, limit_of, listen

if TYPE_CHECKING:
    import random as random_module

    from ottla.clock import Clock
    from ottla.config.listeners import Listener as ListenerSpec
    from ottla.config.server import ServerConfig
    from ottla.filesystem import FileSystem
    from ottla.metadata.delta import MetadataDelta
    from ottla.network import Network
    from ottla.security.authorizer import Authorizer
    from ottla.server.api import ApiSet
    from ottla.server.clients.quotas import NodeQuotas
    from ottla.server.connections.receiving import Receiving
    from ottla.server.listeners.listener import ConnectionLimits
    from ottla.server.listeners.node_tls import NodeTls
    from ottla.server.ports import NodePorts
    from ottla.server.security.audit import Audit

    class GuardedNode(NodePorts, Protocol):
        """A node, for what opens and guards its listeners."""

        audit: Audit | None
        authorizer: Authorizer | None
        quotas: NodeQuotas | None

        @property
        def listeners(self) -> list[Listener]: ...
        @property
        def ports(self) -> dict[str, int]: ...
        @property
        def start_seconds(self) -> float: ...
        @property
        def plain_network(self) -> Network: ...
        @property
        def tls(self) -> NodeTls | None: ...


_LOG = logging.getLogger("ottla.node")


def over_tls(
    config: ServerConfig, fs: FileSystem, clock: Clock, network: Network
) -> tuple[NodeTls | None, Network, Network]:
    """The TLS of a node, None where it has none, and the networks by which brokers and controllers are reached. Raises
    OttlaError for certificates that cannot be used."""
    if not config.uses_tls:
        return None, network, network
    from ottla.server.listeners.node_tls import NodeTls  # what nobody asked for takes no memory

    tls = NodeTls(config, fs, clock, network)
    return tls, tls.brokers, tls.controllers


async def check_address(network: Network, host: str, port: int) -> None:
    """Raises OttlaError if the address cannot be bound at the moment."""
    acceptor = await listen(network, asyncio.Protocol, host, port)
    acceptor.close()
    await acceptor.wait_closed()


def logged_in(
    config: ServerConfig, fs: FileSystem, random: random_module.Random, brokers: Network, controllers: Network
) -> tuple[Network, Network]:
    """The networks by which brokers and controllers are reached, with a login where their listeners demand one. Raises
    OttlaError for settings by which nobody, or everybody, could log in here or this node nowhere."""
    protocols = {each.protocol for each in (*config.listeners, *config.controller_listeners)}
    protocols |= {config.inter_broker_listener[1] or "", config.controller_protocol[1] or ""}
    if not any(each.startswith("SASL_") for each in protocols):
        return brokers, controllers
    from ottla.server.listeners import sasl_listeners  # most nodes do without

    sasl_listeners.check(config)
    return sasl_listeners.logged_in(config, fs, random, brokers, controllers)


async def bind(
    node: GuardedNode, spec: ListenerSpec, apis: ApiSet, limits: ConnectionLimits, receiving: Receiving
) -> int:
    """Take the address of one more listener, with what its protocol needs; returns the port. Raises OttlaError."""
    config = node.config
    listener = Listener(
        node,
        spec.name,
        protocol=spec.protocol,
        network=node.plain_network,
        limits=limits,
        apis=apis,
        request_bytes_max=config.socket_request_max_bytes,
        idle_ms_max=config.connections_max_idle_ms,
        metrics=node.metrics,
        slow_ms=config.ottla_log_slow_request_ms,
        receiving=receiving,
    )
    make = None
    if spec.protocol in OVER_TLS:
        assert node.tls is not None
        make = node.tls.secure(listener)
    if spec.protocol.startswith("SASL_"):
        from ottla.server.listeners import sasl_listeners  # most nodes do without
        from ottla.server.security import dynamic_logins

        dynamic_logins.follow(listener)
        listener.authentication = sasl_listeners.authentication_of(listener)
    port = await listener.bind(spec.host, spec.port, make)
    node.listeners.append(listener)
    return port


async def guard(node: GuardedNode, closers: list[Callable[[], Coroutine[Any, Any, None]]]) -> Iterable[Listener]:
    """Begin the audit log and the authorizer of a node whose metadata is open, where its settings ask for them; returns
    the listeners that serve before the ACLs are loaded. Raises OttlaError."""
    if node.config.ottla_audit_directory:
        from ottla.server.metadata.topic_creation import create_own
        from ottla.server.security.audit import begin_audit  # most nodes do without

        node.audit = await begin_audit(node, closers, lambda: create_own(node, [node.config.ottla_audit_topic]))
    if not node.config.authorizer_class_name:
        return node.listeners
    from ottla.server.security.acls import authorize, early_listeners

    node.authorizer = authorize(node)
    return early_listeners(node)


def changing_quotas(node: GuardedNode, delta: MetadataDelta) -> Iterator[None]:
    """Hold the node's clients to their quotas, some of which may have changed; others may run at each step."""
    if delta.client_quotas:
        from ottla.server.clients.quotas import NodeQuotas

        quotas = node.quotas = node.quotas or NodeQuotas(node)
        yield from quotas.applying(delta)
        limit(node)


def limit(node: GuardedNode) -> None:
    """Apply the current quotas and settings to the clients of all listeners."""
    quotas = node.quotas
    limited = (
        quotas is not None and bool(quotas.addresses)
    ) or node.config.max_connection_creation_rate < RATE_UNLIMITED
    limited = limited or any(limit_of(node.config, each.name) < RATE_UNLIMITED for each in node.listeners)
    rates = next((each.rates for each in node.listeners if each.rates is not None), None)
    if limited and rates is None:
        from ottla.server.listeners.connection_rates import ConnectionRates

        rates = ConnectionRates(node)
    for listener in node.listeners:
        listener.quotas = quotas
        listener.rates = rates if limited else None


def log_start(node: GuardedNode, metadata_s: float, logs_s: float) -> None:
    """The node serves; its metadata took so long to read, and its logs."""
    found = fields(
        node_id=node.node_id,
        cluster_id=node.cluster_id,
        roles=",".join(node.config.roles),
        listeners=",".join(f"{name}:{port}" for name, port in node.ports.items()),
        topics=len(node.image.topics_by_name),
        logs=len(node.logs),
        metadata_ms=round(metadata_s * 1000),
        logs_ms=round(logs_s * 1000),
        start_ms=round(node.start_seconds * 1000),
    )
    _LOG.info("node started", extra=found)
