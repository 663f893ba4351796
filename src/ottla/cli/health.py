"""`ottla server health`: what a node's HTTP port says of it, as an exit code for probes."""

from __future__ import annotations

import os
from http.client import HTTPConnection, HTTPException
from json import loads as parse_json
from typing import Any

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
_SETTING = "ottla.http.listener"
_EVERYWHERE = ("", "0.0.0.0", "::")


def health(*, ready: Flag = False, http: Text | None = None, config: Raw | None = None, json: AsJson = False) -> int:
    """Ask a node's HTTP port whether the node is healthy; for health checks of containers.

    Exit code 0 if it is, 1 if it is not or does not answer.

    Parameters
    ----------
    ready
        Ask whether the node serves clients (/ready), and not only whether it works (/health).
    http
        HOST:PORT of the node's HTTP port; unless given that of OTTLA_HTTP_LISTENER, else 127.0.0.1:9404.
    config
        The node's server.properties file, for its ottla.http.listener.
    """
    address = _address(http, config)
    found = _asked(address, "/ready" if ready else "/health")
    if json:
        print_json(found)
    else:
        print(found["status"])
        for reason in found["reasons"]:
            print(f"  {visible(reason)}")
    return FAILED if found["reasons"] else OK


def _address(given: str | None, file: str | None) -> tuple[str, int]:
    """In the order in which a node takes its settings. Raises CommandFailed for what is no HOST:PORT."""
    try:
        text = given or from_environment(os.environ).get(_SETTING) or _in_file(file) or DEFAULT_HTTP
    except OttlaError as error:
        raise CommandFailed(str(error), MISUSED) from error
    host, port = parse_address(text) or ("", 0)
    if not port:
        raise CommandFailed(
            f"{visible(text)} names no port: give --http HOST:PORT, for example {DEFAULT_HTTP}", MISUSED
        )
    return ("127.0.0.1" if host in _EVERYWHERE else host), port


def _in_file(name: str | None) -> str | None:
    """Raises OSError."""
    if name is None:
        return None
    return parse_properties(decode_properties(OsFileSystem().read_bytes(name))).get(_SETTING)


def _asked(address: tuple[str, int], path: str) -> dict[str, Any]:
    """Raises CommandFailed where nobody answers as a node does."""
    connection = HTTPConnection(*address, timeout=ANSWER_SECONDS_MAX)
    where = "{}:{}".format(*address)
    try:
        connection.request("GET", path)
        found = parse_json(connection.getresponse().read())
        return {"status": found["status"], "reasons": found["reasons"], **found}
    except (ValueError, KeyError, TypeError, HTTPException) as error:
        raise CommandFailed(f"{where} answers, but not as the HTTP port of a node does") from error
    except OSError as error:
        why = "it does not answer in time" if isinstance(error, TimeoutError) else error.strerror or error
        raise CommandFailed(f"no node answers at {where}: {why}") from error
    finally:
        connection.close()
