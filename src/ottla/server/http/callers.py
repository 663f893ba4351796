"""The sender of an HTTP request."""

from __future__ import annotations

from typing import Final, NamedTuple

ANONYMOUS: Final = "User:ANONYMOUS"


class Caller(NamedTuple):
    """The sender of a request."""

    principal: str
    host: str
    is_known: bool
    """False for somebody who has not logged in where a login is asked for."""


class Unauthorized(Exception):
    """Wrong credentials. Its text may be shown to their sender."""
