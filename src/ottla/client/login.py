"""The login of a connection: SaslHandshake 1, then the mechanism's messages in SaslAuthenticate (KIP-152, KIP-368)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, Protocol

from ottla.client import oauth
from ottla.client.security import Login, SecurityFailure
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.security.sasl import AuthenticationFailed, ClientMechanism

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION_MAX: Final = 2
ROUNDS_MAX: Final = 8
"""Messages of a login; SCRAM has two. A broker that goes on for longer is none."""


class Asks(Protocol):
    """A connection on which nothing is under way."""

    address: str

    def version(self, api_key: int, lowest: int, highest: int) -> int: ...
    def ask(self, api_key: int, version: int, values: Mapping[str, Any]) -> dict[str, Any]: ...


def log_in(connection: Asks, login: Login) -> float:
    """Log in, or log in again. Returns how many seconds the session lasts, 0 for no end. Raises SecurityFailure where
    the broker refuses, OSError."""
    answer = connection.ask(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, {"mechanism": login.mechanism})
    code = ErrorCode(answer["error_code"])
    if code is ErrorCode.unsupported_sasl_mechanism:
        offered = ", ".join(answer["mechanisms"]) or "none"
        raise SecurityFailure(
            f"{connection.address} does not offer sasl.mechanism={login.mechanism}; it offers {offered}", code
        )
    if code is not ErrorCode.none:
        raise SecurityFailure(_not_sasl(connection.address, code), code)
    client = mechanism_of(login, connection.address)
    version = connection.version(ApiKey.SASL_AUTHENTICATE, 0, AUTHENTICATE_VERSION_MAX)
    message: bytes | None = client.first()
    for _ in range(ROUNDS_MAX):
        answer = connection.ask(ApiKey.SASL_AUTHENTICATE, version, {"auth_bytes": message})
        if answer["error_code"]:
            if login.endpoint is not None:
                oauth.drop(login.endpoint)
            raise _refused(connection.address, login, ErrorCode(answer["error_code"]), answer["error_message"])
        message = _next(connection.address, client, bytes(answer["auth_bytes"]))
        if message is None:
            return float(answer.get("session_lifetime") or 0) / 1000
    raise SecurityFailure(f"{connection.address} does not end the login")


def _next(address: str, client: ClientMechanism, challenge: bytes) -> bytes | None:
    try:
        return client.step(challenge)
    except AuthenticationFailed as error:
        raise SecurityFailure(f"{address}: {error}") from None


def mechanism_of(login: Login, address: str) -> ClientMechanism:
    """The client's side of a login at HOST:PORT. Raises SecurityFailure, OSError where a token cannot be fetched."""
    if login.kerberos is not None:
        from ottla.client import kerberos

        return kerberos.client_of(login.kerberos, address.rpartition(":")[0].strip("[]"))
    from ottla.security.sasl import client, scram

    if login.mechanism == "PLAIN":
        return client.PlainClient(login.username, login.password)
    if login.bearer is not None:
        return client.OAuthBearerClient(login.bearer.token(), {})
    if login.mechanism == "OAUTHBEARER":
        assert login.endpoint is not None
        return client.OAuthBearerClient(oauth.token(login.endpoint), dict(login.endpoint.extensions))
    mechanism = scram.BY_NAME[login.mechanism]
    extensions = {"tokenauth": "true"} if login.by_token else None
    nonce = os.urandom(scram.NONCE_BYTES)
    return client.ScramClient(mechanism, login.username, login.password, nonce, extensions=extensions)


def _not_sasl(address: str, code: ErrorCode) -> str:
    if code is ErrorCode.illegal_sasl_state:
        return f"{address} has no login: set security.protocol=PLAINTEXT (or SSL), or connect to its SASL listener"
    return f"{address} refused the login ({code.name.upper()})"


def _refused(address: str, login: Login, code: ErrorCode, message: str | None) -> SecurityFailure:
    who = f" as {login.username}" if login.username else ""
    why = f" ({message.strip().rstrip('.')})" if message else ""
    advice = {
        "OAUTHBEARER": "the token of sasl.oauthbearer.token.endpoint.url is not accepted there"
        if login.bearer is None
        else "the token of the identity provider is not accepted there",
        "GSSAPI": "the broker's log says why it does not accept the Kerberos ticket",
    }.get(
        login.mechanism,
        "the delegation token is wrong, expired or gone: see ottla token list"
        if login.by_token
        else "check sasl.username, sasl.password and sasl.mechanism",
    )
    return SecurityFailure(f"{address} refused the login{who} by {login.mechanism}{why}: {advice}", code)
