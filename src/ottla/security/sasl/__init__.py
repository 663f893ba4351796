"""SASL mechanisms as Kafka speaks them: the server's side and the client's, tokens in and tokens out.

Pure: random bytes and the time are arguments, keys are given as bytes. The connection states around them are in
`server/security/authentication.py`, the client's in `drivers/nodes/sasl_client.py`. Start at `scram.py`; `jaas.py`
reads credentials.
"""

from __future__ import annotations

from typing import Final, Protocol

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
GSSAPI: Final = "GSSAPI"
SUPPORTED: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER, GSSAPI)


class AuthenticationFailed(Exception):
    """The other side is not who it claims to be, or does not follow the mechanism."""

    def __init__(self, message: str = "", reason: str = "") -> None:
        """`message` may be shown to the other side; empty stands for the general sentence of the mechanism. `reason`
        is for the own log. Neither holds a secret."""
        super().__init__(message or reason or "authentication failed")
        self.message = message
        self.reason = reason or message


class ServerMechanism(Protocol):
    """The server's side of one authentication."""

    user: str | None
    """Name of the client once it is known; None before."""
    expires_at_s: float | None
    """End of the credential in seconds since 1970; None without one."""

    def step(self, token: bytes) -> bytes:
        """Take a token of the client and return the answer. Raises AuthenticationFailed."""
        ...

    def takes_long(self, token: bytes) -> bool:
        """Whether `step` may take more than half a millisecond with this token: then it belongs in a thread."""
        ...


class ClientMechanism(Protocol):
    """The client's side of one authentication."""

    def first(self) -> bytes:
        """The first token."""
        ...

    def step(self, challenge: bytes) -> bytes | None:
        """Take the server's answer and return the next token, None when the exchange is over. Raises
        AuthenticationFailed. SCRAM takes milliseconds of a processor here."""
        ...
