"""`ottla server health`: what a node's HTTP port says of it, as an exit code for probes."""

from __future__ import annotations

import os
from http.client import HTTPException
from json import loads as parse_json
from typing import Any, NamedTuple

from ottla.cli import client_security
from ottla.cli.client_security import OnlyCommandConfig
from ottla.cli.exits import FAILED, MISUSED, OK, CommandFailed
from ottla.cli.options import AsJson, Flag
from ottla.cli.output import print_json, visible
from ottla.cli.values import Raw, Text
from ottla.config.checks import parse_address
from ottla.config.properties import decode_properties, parse_properties
from ottla.config.server import from_environment
from ottla.errors import OttlaError
from ottla.filesystem import OsFileSystem

DEFAULT_HTTP = "127.0.0.1:9404"
ANSWER_SECONDS_MAX = 5.0
"""A node whose event loop does not come to an answer in that time is not healthy."""
_LISTENER = "ottla.http.listener"
_PROTOCOL = "ottla.http.security.protocol"
_EVERYWHERE = ("", "0.0.0.0", "::")


class _Place(NamedTuple):
    host: str
    port: int
    is_https: bool

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def health(
    *,
    ready: Flag = False,
    http: Text | None = None,
    config: Raw | None = None,
    client_config: OnlyCommandConfig = None,
    json: AsJson = False,
) -> int:
    """Ask a node's HTTP port whether the node is healthy; for health checks of containers.

    Exit code 0 if it is, 1 if it is not or does not answer. Without a client's settings a node on this machine is asked
    whatever its certificate, without a login: it then says whether, and not why.

    Parameters
    ----------
    ready
        Ask whether the node serves clients (/ready), and not only whether it works (/health).
    http
        HOST:PORT of the node's HTTP port, or https://HOST:PORT; unless given that of OTTLA_HTTP_LISTENER, else
        127.0.0.1:9404.
    config
        The node's server.properties file, for its ottla.http.listener and ottla.http.security.protocol.
    """
    place = _place(http, config)
    found = _asked(place, "/ready" if ready else "/health")
    if json:
        print_json(found)
    else:
        print(found["status"])
        for reason in found["reasons"]:
            print(f"  {visible(reason)}")
    return FAILED if found["reasons"] else OK


def _place(given: str | None, file: str | None) -> _Place:
    """In the order in which a node takes its settings. Raises CommandFailed for what is no HOST:PORT."""
    try:
        settings = {**_in_file(file), **from_environment(os.environ)}
    except OttlaError as error:
        raise CommandFailed(str(error), MISUSED) from error
    text, is_https = given or settings.get(_LISTENER) or DEFAULT_HTTP, settings.get(_PROTOCOL) in ("SSL", "SASL_SSL")
    for scheme in ("http://", "https://"):
        if text.startswith(scheme):
            text, is_https = text.removeprefix(scheme).rstrip("/"), scheme == "https://"
    host, port = parse_address(text) or ("", 0)
    if not port:
        raise CommandFailed(
            f"{visible(text)} names no port: give --http HOST:PORT, for example {DEFAULT_HTTP}", MISUSED
        )
    return _Place("127.0.0.1" if host in _EVERYWHERE else host, port, is_https)


def _in_file(name: str | None) -> dict[str, str]:
    """Raises OSError."""
    return {} if name is None else parse_properties(decode_properties(OsFileSystem().read_bytes(name)))


def _asked(place: _Place, path: str) -> dict[str, Any]:
    """Raises CommandFailed where nobody answers as a node does."""
    from ottla.client.http import get, is_loopback
    from ottla.client.security import PLAINTEXT, SecurityFailure

    known = client_security.current()
    checked = known != PLAINTEXT or not is_loopback(place.host)
    try:
        answer = get(place.host, place.port, path, known, ANSWER_SECONDS_MAX, is_https=place.is_https, checked=checked)
        found = parse_json(answer.body)
        if answer.status == 401:
            raise CommandFailed(f"{place} refused the login: check the client's settings (--command-config)")
        return {"status": found["status"], "reasons": found["reasons"], **found}
    except SecurityFailure as error:
        raise CommandFailed(error.sentence) from None
    except (ValueError, KeyError, TypeError, HTTPException) as error:
        hint = "" if place.is_https else f"\n  if it speaks TLS: --http https://{place}"
        raise CommandFailed(f"{place} answers, but not as the HTTP port of a node does{hint}") from error
    except OSError as error:
        why = "it does not answer in time" if isinstance(error, TimeoutError) else error.strerror or error
        hint = (
            ""
            if place.is_https or isinstance(error, ConnectionRefusedError)
            else f"\n  if it speaks TLS: --http https://{place}"
        )
        raise CommandFailed(f"no node answers at {place}: {why}{hint}") from error
