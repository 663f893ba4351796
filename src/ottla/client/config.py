"""Configuration of a client: the address of the cluster, and timeouts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ottla.client.security import PLAINTEXT, Security

_PORT_MAX: Final = 65535
_ADDRESS: Final = re.compile(
    r"(?:[A-Za-z0-9_]+://)?(?:\[(?P<bracketed>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s:/\[\]]+)):(?P<port>\d{1,5})"
)


@dataclass(frozen=True)
class ClientConfig:
    """Picklable and hashable: it travels to the tasks, and processes keep connections by it."""

    bootstrap: tuple[str, ...]
    """HOST:PORT, IPv6 in brackets; as `parse_addresses` gives them."""
    client_id: str = "ottla"
    rack: str | None = None
    """`client.rack` (KIP-392): fetch from a replica there."""
    request_timeout_s: float = 30.0
    """For one answer, and for all retries of one operation together."""
    connect_timeout_s: float = 10.0
    metadata_max_age_s: float = 300.0
    security: Security = PLAINTEXT
    software: str = "ottla"
    """By which brokers know the client (KIP-511)."""


def parse_addresses(text: str) -> tuple[str, ...]:
    """The HOST:PORTs of `bootstrap.servers`, a listener's name before them dropped. Raises ValueError with what is
    wanted."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _ADDRESS.fullmatch(part)
        if match is None or not 0 < int(match["port"]) <= _PORT_MAX:
            raise ValueError(f"expected host:port, such as localhost:9092, got {part}")
        host = match["bracketed"] or match["host"]
        found.append(f"[{host}]:{match['port']}" if ":" in host else f"{host}:{match['port']}")
    if not found:
        raise ValueError("must name at least one host:port, such as localhost:9092")
    return tuple(found)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of one of them."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
