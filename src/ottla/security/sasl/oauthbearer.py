"""OAUTHBEARER (RFC 7628; KIP-255, KIP-768): the server's side. What a token must have is in `jwt.py`.

A refused token is answered with JSON; the client answers that with one byte, and the exchange has failed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ottla.security.sasl import AuthenticationFailed
from ottla.security.sasl.jwt import InvalidToken, Token
from ottla.security.sasl.scram import unescaped

REFUSED: Final = '{"status":"invalid_token"}'

TOKEN_BYTES_QUICK: Final = 8192
"""A longer one takes a fraction of a millisecond to parse."""

_NAME = r"(?:[^=,\0\x01]|=2C|=3D)+"
_CLIENT_FIRST = re.compile(
    rf"[ny],(?:a=(?P<authorization_id>{_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x20-\x7e\t\r\n]+\x01)*)\x01"
)
_AUTH = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_.~+/A-Za-z0-9]+=*)")

Validate = Callable[[str], Token]
"""The claims of a token. Raises InvalidToken."""


class OAuthBearerServer:
    """Takes one token; a second message only where that was refused."""

    def __init__(self, validate: Validate, *, is_quick: bool) -> None:
        """`is_quick`: whether `validate` takes less than half a millisecond."""
        self.user: str | None = None
        self.expires_at_s: float | None = None
        self._validate = validate
        self._is_quick = is_quick
        self._refused: str | None = None
        """Why the token was refused, for the log."""

    def takes_long(self, token: bytes) -> bool:
        return not self._is_quick or len(token) > TOKEN_BYTES_QUICK

    def step(self, token: bytes) -> bytes:
        """Raises AuthenticationFailed."""
        if self._refused is not None:
            raise AuthenticationFailed(REFUSED, self._refused)
        if self.user is not None:
            raise AuthenticationFailed(reason="an OAUTHBEARER message after the last one")
        authorization_id, text = parse_client_first(token)
        try:
            found = self._validate(text)
        except InvalidToken as error:
            self._refused = str(error)
            return REFUSED.encode()
        if authorization_id not in ("", found.subject):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name"
            )
        self.user, self.expires_at_s = found.subject, found.expires_at_s
        return b""


def parse_client_first(message: bytes) -> tuple[str, str]:
    """(authorization id, token). Raises AuthenticationFailed."""
    try:
        match = _CLIENT_FIRST.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise AuthenticationFailed(reason="the OAUTHBEARER message cannot be read")
    pairs = dict(each.split("=", 1) for each in match["pairs"].split("\x01") if each)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise AuthenticationFailed(reason="the OAUTHBEARER message has no bearer token")
    return unescaped(match["authorization_id"] or ""), auth["token"]
