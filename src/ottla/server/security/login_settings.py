"""What the connections of a SASL listener have in common: settings, mechanisms, and what is counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.security.sasl import ServerMechanism


class Counts:
    """Authentications of one listener since the start."""

    __slots__ = ("expired", "failures", "no_reauthentications", "refailures", "resuccesses", "successes")

    def __init__(self) -> None:
        self.successes = 0
        self.failures = 0
        self.resuccesses = 0
        """Logins of clients that were logged in already (KIP-368)."""
        self.refailures = 0
        self.no_reauthentications = 0
        """Logins by clients that do not know KIP-368, which cannot authenticate again."""
        self.expired = 0
        """Connections closed because they went on after the end of their session."""


class LoginSettings(NamedTuple):
    """What all connections of a listener have in common."""

    bytes_max: int
    """`sasl.server.max.receive.size`"""
    failure_delay_s: float
    timeout_s: float
    """How long a client may take until it is known."""


class Mechanism(NamedTuple):
    """One that a listener offers."""

    serve: Callable[[], ServerMechanism]
    session_ms_max: int
    """`connections.max.reauth.ms`; 0: no limit."""
