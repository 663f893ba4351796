"""Says at which ports a node can be reached from other machines: whoever reaches one may do everything there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig

EVERYONE = "everyone who reaches this machine may connect, as there is no TLS, SASL or ACL yet"


def open_ports(config: ServerConfig, ports: Mapping[str, int]) -> list[tuple[str, int, str]]:
    """(host, port, what listens) of each socket that is not of this machine alone; the host is empty for every
    interface. `ports` are those that listeners really have, by their names."""
    found = [
        (each.host, ports.get(each.name, each.port), each.name)
        for each in (*config.listeners, *config.controller_listeners)
    ]
    http_host, _, http_port = (config["ottla.http.listener"] or "").rpartition(":")
    if http_port:
        found.append((http_host.strip("[]"), int(http_port), "HTTP"))
    return [(_plain(host), port, name) for host, port, name in found if not _is_loopback(host)]


def warnings(found: Iterable[tuple[str, int, str]]) -> list[str]:
    """A line for each place, and one that says what that means; nothing where only this machine can connect."""
    lines = [
        f"  {name} port {port} is bound to {host or 'every interface'}, not only to the loopback address"
        for host, port, name in found
    ]
    return [*lines, f"  {EVERYONE}"] if lines else []


def _plain(host: str) -> str:
    return "" if host in ("", "0.0.0.0", "::") else host


def _is_loopback(host: str) -> bool:
    return host.startswith("127.") or host in ("::1", "localhost")
