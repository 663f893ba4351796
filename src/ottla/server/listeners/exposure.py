"""Ports at which other machines reach a node, and which of them let everybody do everything.

Apache Kafka starts with such ports and says nothing. The commands that start nodes refuse them, unless
`ottla.allow.open.listeners` says that they are meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.config.listeners import HTTP
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig

ALLOW = "ottla.allow.open.listeners"
EVERYONE = "everyone who reaches this machine may read, change and delete everything there"
_ANONYMOUS = "User:ANONYMOUS"


def refuse_open_ports(config: ServerConfig) -> None:
    """Raises OttlaError for a node that everybody could use, unless its settings allow that."""
    found = [] if config.ottla_allow_open_listeners else open_ports(config, {})
    if not found:
        return
    places = "\n".join(f"  {_place(each)}" for each in found)
    raise OttlaError(
        f"{EVERYONE}: no login is asked for at\n{places}\n"
        "  to serve this machine alone, listen on 127.0.0.1\n"
        "  to ask for a login, use a listener with SASL, or SSL with ssl.client.auth=required (docs/secure.md)\n"
        f"{_http_advice(found)}"
        f"  if the network itself keeps strangers out, allow it: --set {ALLOW}=true\n"
        "  (Apache Kafka starts without asking; Ottla does not, as data is often open by mistake)"
    )


def _http_advice(found: Iterable[tuple[str, int, str]]) -> str:
    if all(name != HTTP for _, _, name in found):
        return ""
    return "  at the HTTP port: ottla.http.security.protocol=SASL_SSL (docs/secure.md#http-ports)\n"


def open_ports(config: ServerConfig, ports: Mapping[str, int]) -> list[tuple[str, int, str]]:
    """(host, port, what listens) of each socket that other machines reach and that asks nobody for a login; the host is
    empty for every interface. `ports` are those that listeners really have, by their names."""
    found = [
        (each.host, ports.get(each.name, each.port), each.name)
        for each in (*config.listeners, *config.controller_listeners)
        if not keeps_strangers_out(config, each.name, each.protocol)
    ]
    http_host, _, http_port = (config.ottla_http_listener or "").rpartition(":")
    if http_port and not keeps_strangers_out(config, HTTP, config.ottla_http_security_protocol):
        found.append((http_host.strip("[]"), int(http_port), "HTTP"))
    return [(_plain(host), port, name) for host, port, name in found if not is_loopback(host)]


def warnings(found: Iterable[tuple[str, int, str]]) -> list[str]:
    """A line for each place, and one that says what that means; nothing where only this machine can connect."""
    lines = [f"  {_place(each)}, not only to the loopback address" for each in found]
    return [*lines, f"  {EVERYONE}"] if lines else []


def _place(port: tuple[str, int, str]) -> str:
    host, number, name = port
    return f"{name} port {number} is bound to {host or 'every interface'}"


def keeps_strangers_out(config: ServerConfig, listener: str, protocol: str) -> bool:
    """Whether whoever shows no password or certificate can do nothing there."""
    if protocol.startswith("SASL"):
        return not _believes_anyone(config, listener)
    if protocol == "SSL":
        from ottla.config.listener_settings import of_listener

        if of_listener(config, listener, "ssl.client.auth") == "required":
            return True
    allows_all = config.static.get("allow.everyone.if.no.acl.found", "").strip().lower() == "true"
    has_rules = bool(config.authorizer_class_name) and not allows_all
    return has_rules and _ANONYMOUS not in config.static.get("super.users", "")


def _believes_anyone(config: ServerConfig, listener: str) -> bool:
    """Whether tokens that nobody signed are accepted: by one of his own everybody is a super user."""
    if not config.ottla_sasl_oauthbearer_unsecured_tokens:
        return False
    from ottla.config.listener_settings import of_listener
    from ottla.security.sasl import OAUTHBEARER
    from ottla.server.listeners.sasl_listeners import is_unsecured

    enabled = of_listener(config, listener, "sasl.enabled.mechanisms")
    return OAUTHBEARER in enabled and is_unsecured(config, listener)


def _plain(host: str) -> str:
    return "" if host in ("", "0.0.0.0", "::") else host


def is_loopback(host: str) -> bool:
    return host.startswith("127.") or host in ("::1", "localhost")
