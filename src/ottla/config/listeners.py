"""Listeners: the text form `NAME://host:port`, and which security protocol a name stands for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ottla.errors import OttlaError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
OVER_TLS = ("SSL", "SASL_SSL")
HTTP = "HTTP"
"""The name of the HTTP ports where settings have a prefix: `listener.name.http.ssl.client.auth`."""


class Listener(NamedTuple):
    """Where a node listens or says that it listens."""

    name: str
    host: str
    """Empty means all interfaces."""
    port: int
    """0 means any free port."""
    protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


_LISTENER = re.compile(r"(?P<name>[^:/]+)://(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:/\[\]]*)):(?P<port>[0-9]+)")


def parse_listener(setting: str, text: str, protocols: Mapping[str, str]) -> Listener:
    """One listener of the setting's value. Raises OttlaError."""
    match = _LISTENER.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise OttlaError(f"{setting}: {text!r} is not of the form NAME://host:port with a port from 0 to 65535")
    name = match["name"].upper()
    if name not in protocols:
        raise OttlaError(
            f"{setting}: no security protocol is given for listener {name}; "
            f"add {name}:PLAINTEXT to listener.security.protocol.map"
        )
    return Listener(name, match["v6"] or match["host"] or "", int(match["port"]), protocols[name])


def parse_protocol_map(text: str) -> dict[str, str]:
    """The value of listener.security.protocol.map. Raises OttlaError."""
    protocols: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = (part.strip().upper() for part in item.partition(":"))
        if protocol not in PROTOCOLS or name in protocols:
            raise OttlaError(
                f"listener.security.protocol.map: {item!r} is not NAME:PROTOCOL with a protocol of "
                f"{', '.join(PROTOCOLS)}, or repeats a name"
            )
        protocols[name] = protocol
    return protocols
