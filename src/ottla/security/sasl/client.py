"""The client's side of the mechanisms: `first` gives the first token, `step` takes an answer and gives the next one.

What a server says is not believed: its nonce has to begin with ours, its iterations are bounded (a number of any size
would keep the client busy for ever), and its last message has to prove that it knows the password.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Mapping
from typing import Final

from ottla.security.sasl import AuthenticationFailed
from ottla.security.sasl.scram import (
    ITERATIONS_MIN,
    MESSAGE_BYTES_MAX,
    ScramMechanism,
    client_key,
    decoded,
    escaped,
    hashed,
    keyed,
    nonce_text,
    salted_password,
    server_key,
    xor,
)

CLIENT_ITERATIONS_MAX: Final = 100_000
"""Some 50 ms of a processor; Kafka stores at most 16,384."""

_SERVER_FIRST = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9/+=]+),i=(?P<iterations>[1-9][0-9]{0,9})(?:,.*)?"
)
_SERVER_FINAL = re.compile(r"(?:v=(?P<signature>[A-Za-z0-9/+=]+)|e=(?P<error>[^,]+))(?:,.*)?")

_EXTENSION = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7E \t\r\n]+")


class PlainClient:
    """One token, and an empty answer."""

    def __init__(self, name: str, password: str, authorization_id: str = "") -> None:
        self._token = _bytes(f"{authorization_id}\0{name}\0") + _bytes(password[:])

    def first(self) -> bytes:
        return self._token

    def step(self, challenge: bytes) -> bytes | None:
        """None. Raises AuthenticationFailed."""
        if challenge:
            raise AuthenticationFailed(reason="the server wants more than a password")
        return None


class ScramClient:
    """Two tokens; the server's last answer is checked too."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        name: str,
        password: str,
        random_bytes: bytes,
        *,
        extensions: Mapping[str, str] | None = None,
        iterations_max: int = CLIENT_ITERATIONS_MAX,
    ) -> None:
        """`random_bytes` are `scram.NONCE_BYTES`; `extensions` such as `tokenauth`."""
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce_text(random_bytes)
        self._iterations_max = iterations_max
        more = "".join(f",{name}={value}" for name, value in (extensions or {}).items())
        self._bare = f"n={escaped(name)},r={self._nonce}{more}"
        self._expected: bytes | None = None
        """The server's signature, once it is asked for."""
        self._is_over = False

    def first(self) -> bytes:
        return _bytes(f"n,,{self._bare}")

    def step(self, challenge: bytes) -> bytes | None:
        """Raises AuthenticationFailed."""
        if self._is_over:
            raise AuthenticationFailed(reason="the server goes on after its last SCRAM message")
        text = _text(challenge)
        if self._expected is None:
            return self._answer(text)
        match = _SERVER_FINAL.fullmatch(text)
        if match is None:
            raise AuthenticationFailed(reason="the final SCRAM message of the server cannot be read")
        if match["error"] is not None:
            raise AuthenticationFailed(reason=f"the server refuses: {match['error'][:200]}")
        if not hmac.compare_digest(decoded(match["signature"]), self._expected):
            raise AuthenticationFailed(reason="the server does not know the password: it is not the right one")
        self._is_over = True
        return None

    def _answer(self, text: str) -> bytes:
        match = _SERVER_FIRST.fullmatch(text)
        if match is None:
            raise AuthenticationFailed(reason="the first SCRAM message of the server cannot be read")
        nonce, iterations = match["nonce"], int(match["iterations"])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise AuthenticationFailed(reason="the server's nonce does not begin with the client's")
        if not ITERATIONS_MIN <= iterations <= self._iterations_max:
            allowed = f"{ITERATIONS_MIN} to {self._iterations_max}"
            raise AuthenticationFailed(reason=f"the server asks for {iterations} iterations; allowed are {allowed}")
        mechanism = self._mechanism
        salted = self._salted(decoded(match["salt"]), iterations)
        final = f"c=biws,r={nonce}"
        signed = _bytes(f"{self._bare},{text},{final}")
        key = client_key(mechanism, salted)
        proof = xor(key, keyed(mechanism, hashed(mechanism, key), signed))
        self._expected = keyed(mechanism, server_key(mechanism, salted), signed)
        return _bytes(f"{final},p=") + base64.b64encode(proof)

    def _salted(self, salt: bytes, iterations: int) -> bytes:
        return salted_password(self._mechanism, self._password[:], salt, iterations)


class OAuthBearerClient:
    """One token (RFC 7628). A server that refuses says so in JSON, and waits for one more byte before it closes."""

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None, authorization_id: str = "") -> None:
        for name, value in (extensions or {}).items():
            if not _EXTENSION.fullmatch(name) or name == "auth" or not _EXTENSION_VALUE.fullmatch(value):
                raise ValueError(f"{name[:100]!r} cannot be a SASL extension: a name of letters, a value of ASCII")
        more = "".join(f"{name}={value}\x01" for name, value in (extensions or {}).items())
        who = f"a={escaped(authorization_id)}" if authorization_id else ""
        self._token = _bytes(f"n,{who},\x01auth=Bearer ") + _bytes(token[:]) + _bytes(f"\x01{more}\x01")
        self._refused: str | None = None

    def first(self) -> bytes:
        return self._token

    def step(self, challenge: bytes) -> bytes | None:
        """Raises AuthenticationFailed once the server was told that its refusal has arrived."""
        if self._refused is not None:
            raise AuthenticationFailed(reason=f"the server refuses the token: {self._refused}")
        if not challenge:
            return None
        self._refused = _text(challenge)[:1000]
        return b"\x01"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(challenge: bytes) -> str:
    if len(challenge) > MESSAGE_BYTES_MAX:
        raise AuthenticationFailed(reason=f"the server sent a token of {len(challenge)} bytes")
    try:
        return challenge.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed(reason="the server sent a token that is not UTF-8") from None
