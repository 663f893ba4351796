"""The JAAS text of a mechanism on a listener, among a node's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.config.listener_settings import PREFIX
from ottla.errors import OttlaError
from ottla.security.sasl.jaas import LoginModule, parse_jaas

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig

SETTING: Final = "sasl.jaas.config"


def jaas_of(config: ServerConfig, listener: str, mechanism: str) -> LoginModule | None:
    """The entry by which clients are checked and this node logs in at others; None where there is none. As in Kafka a
    `sasl.jaas.config` without the names of listener and mechanism counts for nothing. Raises OttlaError."""
    full_name = jaas_name(listener, mechanism)
    text = config.dynamic_text(full_name) or config.static.get(full_name)
    if text is None:
        return None
    try:
        return parse_jaas(text)
    except OttlaError as error:
        raise OttlaError(f"{full_name}: {error}") from None


def jaas_name(listener: str, mechanism: str) -> str:
    """The name of the setting."""
    return f"{PREFIX}{listener.lower()}.{mechanism.lower()}.{SETTING}"
