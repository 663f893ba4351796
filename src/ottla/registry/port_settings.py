"""The settings of an instance's port: those of a node's HTTP port, by the same names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.config.listeners import HTTP
from ottla.config.server import ServerConfig
from ottla.errors import OttlaError
from ottla.server.listeners.exposure import ALLOW, is_loopback, keeps_strangers_out

PREFIXES: Final = (
    "ssl.", "sasl.", "listener.name.http.", "ottla.http.security.", "ottla.ssl.", "ottla.sasl.", "ottla.login.",
    "super.users", "allow.everyone.if.no.acl.found", "authorizer.class.name", ALLOW,
    "connection.failed.authentication.delay.ms",
)  # fmt: skip
"""Settings of a node that mean something for a registry; the others of a file are left out."""


class CannotStart(OttlaError):
    """The address is taken or may not be listened at, or a library is missing."""


def of_node(config: ServerConfig) -> dict[str, str]:
    """The settings of a node that its registry's port has too."""
    return {name: text for name, text in config.static.items() if name.startswith(PREFIXES)}


def config_of(settings: Mapping[str, str], host: str, port: int) -> ServerConfig:
    """The settings of a registry among those of a node. Raises OttlaError."""
    kept = {name: text for name, text in settings.items() if name.startswith(PREFIXES)}
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    listeners = "PLAINTEXT://127.0.0.1:0"  # a node has one; nobody listens there
    return ServerConfig.load(overrides={**kept, "ottla.http.listener": place, "listeners": listeners})


def refuse_open(config: ServerConfig, host: str) -> None:
    """Raises OttlaError for a port at which strangers could change all schemas, unless the settings allow that."""
    protocol = config.ottla_http_security_protocol
    if config.ottla_allow_open_listeners or is_loopback(host) or keeps_strangers_out(config, HTTP, protocol):
        return
    raise OttlaError(
        f"everyone who reaches this machine may read, change and delete all schemas: no login is asked for at "
        f"{host or 'every interface'}\n"
        "  to serve this machine alone, listen on 127.0.0.1\n"
        "  to ask for a login: ottla.http.security.protocol=SASL_SSL in the file of --http-config (docs/registry.md)\n"
        f"  if the network itself keeps strangers out, allow it: {ALLOW}=true there, or OTTLA_ALLOW_OPEN_LISTENERS=true"
    )
