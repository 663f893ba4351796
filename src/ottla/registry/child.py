"""A registry or a console as a process that ends with whoever started it: `python -m ottla.registry OPTIONS`.

OPTIONS are JSON. Where they have `"http": true`, the first line of standard input is JSON as well, with the settings of
its port: these may hold secrets, and everyone on a machine sees arguments.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ottla import logs
from ottla.client.properties import security_from
from ottla.client.security import Security
from ottla.client.security_settings import WrongSecurity
from ottla.errors import KafkaError, OttlaError


class Served(Protocol):
    """A registry or a console that serves."""

    @property
    def url(self) -> str: ...

    def stop(self) -> None: ...


Run = Callable[[Mapping[str, Any], Security, Mapping[str, str], Callable[[Served], None]], None]
"""Serves until it is stopped: options, security of the brokers, settings of the port, what to call once it serves."""


def main(what: str, arguments: list[str], run: Run, *, needs_login: bool = True) -> int:
    """Returns the exit code. `what` is the name that people are told. Without `needs_login` its users log in."""

    def announce(served: Served) -> None:
        print(f"ottla: {what} at {served.url}", flush=True)

        def watch() -> None:
            # Ends with the process that has the other end. A thread that reads the object `sys.stdin` holds its lock,
            # and CPython aborts where the process ends meanwhile.
            while os.read(sys.stdin.fileno(), 4096):
                pass
            served.stop()

        threading.Thread(target=watch, name="parent watch", daemon=True).start()

    logs.configure("text", "WARN")
    try:
        options = json.loads(arguments[0])
        http = json.loads(sys.stdin.buffer.readline()) if options.pop("http", False) else {}
        security = security_from(needs_login=needs_login)  # from the environment, for the same reason
        run(options, security, http, announce)
    except (OttlaError, WrongSecurity, KafkaError) as error:
        print(f"ottla: {what}: {error}", file=sys.stderr)
        return 1
    return 0
