"""Tokens for OAUTHBEARER: the grant `client_credentials` of OAuth 2 (RFC 6749, 4.4), kept until they are nearly over.

The endpoint comes from the settings of this process alone. Redirects are not followed, the answer is bounded, and no
error has the secret or the token.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from ottla.client.security import SecurityFailure, Tls, TokenEndpoint
from ottla.http_answers import Limits, TooLong, exchange

ANSWER_BYTES_MAX: Final = 256 * 1024
"""Limit of an endpoint's answer: brokers take tokens of half a megabyte at most, and few have 4 KB."""
ANSWER_SECONDS_MAX: Final = 30.0
"""For a request and all of its answer; or the two timeouts of the endpoint, where they are more."""
REFRESH_FACTOR: Final = 0.8
"""The share of a token's life for which it is used, as `sasl.login.refresh.window.factor` has it."""
UNKNOWN_LIFE_S: Final = 60.0
"""The life of a token that does not say it."""
_KEPT_MAX: Final = 64


class _Kept(NamedTuple):
    token: str
    until: float
    """Monotonic: the token is used until then."""


_kept: dict[TokenEndpoint, _Kept] = {}
_lock: Final = threading.Lock()


def token(endpoint: TokenEndpoint) -> str:
    """A token with a good part of its life left. Raises SecurityFailure where it is refused, OSError."""
    with _lock:
        known = _kept.get(endpoint)
        if known is not None and time.monotonic() < known.until:
            return known.token
        begun = time.monotonic()
        text, life_s = _fetch(endpoint)
        while len(_kept) >= _KEPT_MAX:
            _kept.pop(next(iter(_kept)))
        _kept[endpoint] = _Kept(text, begun + life_s * REFRESH_FACTOR)
        return text


def drop(endpoint: TokenEndpoint) -> None:
    """Fetch another token next time: a broker has refused it."""
    with _lock:
        _kept.pop(endpoint, None)


def _fetch(endpoint: TokenEndpoint) -> tuple[str, float]:
    """The token, and its life in seconds."""
    form = {"grant_type": "client_credentials", **({"scope": endpoint.scope} if endpoint.scope else {})}
    credentials = base64.b64encode(f"{endpoint.client_id}:{endpoint.client_secret.reveal()}".encode()).decode()
    headers = {
        "Accept": "application/json",
        "Authorization": f"Basic {credentials}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    parts = urlsplit(endpoint.url)
    connection = _connection(endpoint)
    place = f"the token endpoint {parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    connect_s, read_s = endpoint.connect_timeout_s, endpoint.read_timeout_s
    limits = Limits(max(ANSWER_SECONDS_MAX, connect_s + read_s), ANSWER_BYTES_MAX, read_s)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        answer = exchange(connection, "POST", path, limits, body=urlencode(form), headers=headers)
    except TooLong:
        raise SecurityFailure(f"{place} answers with more than {ANSWER_BYTES_MAX} bytes") from None
    except HTTPException as error:
        raise ConnectionError(f"{place} does not speak HTTP: {type(error).__name__}") from None
    except TimeoutError:
        raise ConnectionError(f"{place} does not answer in time") from None
    except OSError as error:
        raise _unreachable(place, parts.hostname or "", error) from None
    if answer.status >= 500:
        raise ConnectionError(f"{place} answers with status {answer.status}")
    if answer.status != 200:
        raise SecurityFailure(_refusal(place, answer.status, answer.body))
    return _parsed(place, answer.body)


def _connection(endpoint: TokenEndpoint) -> HTTPConnection:
    parts = urlsplit(endpoint.url)
    host = parts.hostname or ""
    if parts.scheme == "http":
        return HTTPConnection(host, parts.port or 80, timeout=endpoint.connect_timeout_s)
    from ottla.client import tls

    context = tls.context(Tls(trusted=endpoint.trusted))
    return HTTPSConnection(host, parts.port or 443, timeout=endpoint.connect_timeout_s, context=context)


def _unreachable(place: str, host: str, error: OSError) -> OSError | SecurityFailure:
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return SecurityFailure(
            f"the certificate of {place} is not trusted ({error.verify_message}): set https.ca.location to the "
            f"certificate of the CA that signed it, and use a name that is in it ({host} is not, perhaps)"
        )
    if isinstance(error, ssl.SSLError):
        return SecurityFailure(f"no TLS connection to {place}: {error.reason or error}")
    return ConnectionError(f"{place} cannot be reached: {error.strerror or error}")


def _refusal(place: str, status: int, body: bytes) -> str:
    """The error of RFC 6749, 5.2, where there is one: it names no secret."""
    if 300 <= status < 400:
        return f"{place} answers with a redirect ({status}), which is not followed: set its final URL"
    try:
        said = json.loads(body)
        code = str(said["error"])[:100]
    except (ValueError, KeyError, TypeError):
        code = ""
    shown = f", {code}" if code.isprintable() and code else ""
    advice = "check sasl.oauthbearer.client.credentials.client.id and .client.secret, or clientId and clientSecret"
    return f"{place} gives no token (status {status}{shown}): {advice}"


def _parsed(place: str, body: bytes) -> tuple[str, float]:
    try:
        said = json.loads(body)
        text = said["access_token"]
        if not isinstance(text, str) or not text.isascii() or not text.isprintable() or " " in text or not text:
            raise ValueError
        life = said.get("expires_in")
        life_s = float(life) if life is not None else _life_of(text)
    except (ValueError, KeyError, TypeError, OverflowError):
        raise SecurityFailure(f"{place} answers with no access_token") from None
    return text, max(0.0, min(life_s, 86_400.0))


def _life_of(text: str) -> float:
    """What a JWT says of its end. Raises ValueError."""
    pieces = text.split(".")
    if len(pieces) != 3:
        return UNKNOWN_LIFE_S
    claims = json.loads(base64.urlsafe_b64decode(pieces[1] + "=" * (-len(pieces[1]) % 4)))
    return float(claims["exp"]) - time.time() if "exp" in claims else UNKNOWN_LIFE_S
