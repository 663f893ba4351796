"""What a client says of itself, and what its connection has carried.

The kernel counts the bytes of a connection already, and when the last of them came: asked for a list of clients, it is
asked; requests pay nothing for it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from ottla.model import ProducerId
    from ottla.server.api import RequestContext, Session
    from ottla.server.connections.connection import CompiledConnection
    from ottla.server.ports import ClientFacts, Listening, NodeListener

_TCP_INFO_BYTES: Final = 256
_IDLE_MS: Final = struct.Struct("<I")
_TRAFFIC: Final = struct.Struct("<QQ")
_LAST_RECEIVED_AT, _TRAFFIC_AT = 52, 120
"""In `struct tcp_info` of Linux (4.2 and later): tcpi_last_data_recv; tcpi_bytes_acked and tcpi_bytes_received."""


class Traffic(NamedTuple):
    """Bytes of one connection, as the kernel has counted them."""

    bytes_in: int
    bytes_out: int
    idle_ms: int
    """Since the last byte came in."""


def facts_of(context: RequestContext) -> ClientFacts | None:
    """None where a request has no connection of its own, as in an Envelope."""
    listener = getattr(context.session, "_listener", None)
    found: ClientFacts | None = None if listener is None else listener.connections.get(context.session)
    return found


def introduced(context: RequestContext, software_name: str, software_version: str) -> None:
    """A client has said what it is."""
    facts = facts_of(context)
    if facts is not None:
        facts.client_id = context.client_id
        facts.software_name, facts.software_version = software_name, software_version


def wrote(context: RequestContext, producer_id: ProducerId) -> None:
    """A client has sent a batch of that producer id."""
    facts = facts_of(context)
    if facts is not None:
        facts.producer_id = producer_id
        facts.client_id = context.client_id


def connections_of(
    node: Listening, principal: str | None, client_id: str | None
) -> Iterator[tuple[NodeListener, CompiledConnection, ClientFacts | None]]:
    """The connections of a node; those of other users or clients have None for their facts. Others may run between
    two of them."""
    for listener in [*node.listeners]:
        for connection, facts in [*listener.connections.items()]:
            is_meant = principal in (None, connection.principal) and client_id in (None, facts.client_id)
            yield listener, connection, facts if is_meant else None


def peer_port_of(connection: Session | CompiledConnection | None) -> int:
    """The port from which a client has connected, 0 where it has none."""
    transport = getattr(connection, "_transport", None)
    peer = None if transport is None else transport.get_extra_info("peername")
    return int(peer[1]) if isinstance(peer, tuple) else 0


def tls_of(connection: CompiledConnection) -> tuple[str | None, str | None]:
    """(version of TLS, cipher), both None without it and before the end of the handshake, which a thread has."""
    transport: Any = connection._transport
    if transport is None or not getattr(transport, "ready", False):
        return None, None
    tls = transport.get_extra_info("ssl_object")
    cipher = tls.cipher()
    return tls.version(), None if cipher is None else cipher[0]


def traffic_of(connection: CompiledConnection) -> Traffic | None:
    """None where the system does not count: on other systems than Linux, and in a simulation."""
    transport = connection._transport
    opened: Any = None if transport is None else transport.get_extra_info("socket")
    try:
        info = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        acknowledged, received = _TRAFFIC.unpack_from(info, _TRAFFIC_AT)
        (idle_ms,) = _IDLE_MS.unpack_from(info, _LAST_RECEIVED_AT)
    except (AttributeError, OSError, struct.error):
        return None
    return Traffic(received, acknowledged, idle_ms)
