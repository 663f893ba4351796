"""Requests to HTTP ports of a cluster, by the settings of its clients: https, and a login by password or token.

A password or token goes to a port only over https whose certificate is checked, or on this machine.
"""

from __future__ import annotations

import base64
import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from typing import Final

from ottla.client.security import Login, Security, SecurityFailure, Tls
from ottla.http_answers import Answer, Limits, TooLong, exchange

ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
"""Limit of an answer: metrics of 100,000 partitions have a tenth of it."""


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def authorization(login: Login | None) -> str | None:
    """The header `Authorization` for a login; None for a login that HTTP does not have. Raises SecurityFailure, OSError
    where a token cannot be fetched."""
    if login is None:
        return None
    if login.endpoint is not None:
        from ottla.client import oauth

        return f"Bearer {oauth.token(login.endpoint)}"
    if not login.username:
        return None
    return basic(login.username, login.password.reveal())


def basic(name: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


def may_send(host: str, security: Security, *, is_https: bool) -> bool:
    """Whether a password may be sent to a host."""
    return is_loopback(host) or (is_https and (security.tls is None or security.tls.is_verified))


def context_of(security: Security) -> ssl.SSLContext:
    """The context for https. Raises SecurityFailure."""
    from ottla.client import tls

    return tls.context(security.tls or Tls())


def get(
    host: str, port: int, path: str, security: Security, timeout_s: float, *, is_https: bool, checked: bool = True
) -> Answer:
    """One request; it and all of its answer have `timeout_s`. Raises SecurityFailure for a certificate that is not
    trusted, HTTPException, OSError.

    Without `checked` any certificate is taken, and no login is sent: for probes on the machine itself."""
    connection = _connection(host, port, security, timeout_s, is_https=is_https, checked=checked)
    headers = {}
    if checked and may_send(host, security, is_https=is_https):
        given = authorization(security.login)
        headers = {} if given is None else {"Authorization": given}
    try:
        return exchange(connection, "GET", path, Limits(timeout_s, ANSWER_BYTES_MAX), headers=headers)
    except ssl.SSLCertVerificationError as error:
        raise SecurityFailure(
            f"the certificate of {host}:{port} is not trusted ({error.verify_message}): set ssl.truststore.location or "
            f"ssl.ca.location to the certificate of the authority"
        ) from None
    except TooLong as error:
        raise HTTPException(str(error)) from None


def _connection(
    host: str, port: int, security: Security, timeout_s: float, *, is_https: bool, checked: bool
) -> HTTPConnection:
    if not is_https:
        return HTTPConnection(host, port, timeout=timeout_s)
    if checked:
        return HTTPSConnection(host, port, timeout=timeout_s, context=context_of(security))
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return HTTPSConnection(host, port, timeout=timeout_s, context=context)
