"""PLAIN (RFC 4616) as Kafka's `PlainSaslServer`: the names and passwords are those of the JAAS text."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from ottla.config.secret import Secret
from ottla.security.sasl import AuthenticationFailed

_NOBODY = Secret("\0nobody")
"""Compared with where the name is unknown, so that it takes as long; no message can hold it."""


class PlainServer:
    """Takes one token: authorization id, name and password with a NUL between them."""

    def __init__(self, users: Mapping[str, Secret]) -> None:
        self.user: str | None = None
        self.expires_at_s: float | None = None
        self.claimed: str | None = None
        """The name that the client gave, for the audit log."""
        self._users = users

    def takes_long(self, token: bytes) -> bool:
        return False

    def step(self, token: bytes) -> bytes:
        """Empty on success. Raises AuthenticationFailed."""
        parts = token.decode("utf-8", "replace").split("\0", 3)
        if len(parts) != 3:
            raise AuthenticationFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, name, password = parts
        self.claimed = name
        if not name:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        expected = self._users.get(name)
        is_right = _same(_NOBODY if expected is None else expected, password)
        if expected is None or not is_right:
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = name
        return b""


def _same(expected: Secret, given: str) -> bool:
    """In a time that does not depend on where they differ, nor on the length of the expected one."""
    return hmac.compare_digest(_digest(expected), _digest(given))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
