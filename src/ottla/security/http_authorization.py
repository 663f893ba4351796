"""The header `Authorization` of an HTTP request: Basic (RFC 7617) or Bearer (RFC 6750)."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final, NamedTuple

from ottla.config.secret import Secret
from ottla.security.sasl import AuthenticationFailed

BASIC: Final = "Basic"
BEARER: Final = "Bearer"
CHALLENGES: Final = {BASIC: 'Basic realm="Ottla", charset="UTF-8"', BEARER: 'Bearer realm="Ottla"'}
"""How a server says what it takes (`WWW-Authenticate`)."""

_HEADER = re.compile(r"(?P<scheme>[A-Za-z]+) +(?P<rest>[\x21-\x7e]+)")
_TOKEN = re.compile(r"[-_.~+/A-Za-z0-9]+=*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Password(NamedTuple):
    """What Basic brings."""

    name: str
    password: Secret


class BearerToken(NamedTuple):
    """What Bearer brings."""

    token: Secret


def parse_authorization(header: str) -> Password | BearerToken:
    """Raises AuthenticationFailed; its text has nothing of the header."""
    match = _HEADER.fullmatch(header.strip(" \t"))
    scheme = "" if match is None else match["scheme"].capitalize()
    if match is None or scheme not in CHALLENGES:
        raise AuthenticationFailed("Authorization must be Basic or Bearer")
    if scheme == BEARER:
        if _TOKEN.fullmatch(match["rest"]) is None:
            raise AuthenticationFailed("the bearer token cannot be read")
        return BearerToken(Secret(match["rest"]))
    try:
        text = base64.b64decode(match["rest"], validate=True).decode()
    except (binascii.Error, ValueError):
        raise AuthenticationFailed("the Basic credentials are not base64 of UTF-8") from None
    name, colon, password = text.partition(":")
    if not colon or not name or not password or _CONTROL.search(text):
        raise AuthenticationFailed("the Basic credentials are not a name and a password")
    return Password(name, Secret(password))
