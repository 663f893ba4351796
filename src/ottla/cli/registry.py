"""`ottla registry`: a schema registry in the foreground."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli import client_security
from ottla.cli.client_security import ClientFile
from ottla.cli.exits import MISUSED, OK, CommandFailed
from ottla.cli.interrupts import in_thread
from ottla.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Flag
from ottla.cli.output import visible
from ottla.cli.values import PORT_MAX, FilePath, Text, TopicName

if TYPE_CHECKING:
    from ottla.registry.server import Instance, Options

DEFAULT_LISTEN = "127.0.0.1:8081"
LEAVE_S = 5.0


def registry(
    *,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    client_config: ClientFile = None,
    listen: Text = DEFAULT_LISTEN,
    topic: TopicName = "_schemas",
    group: Text = "schema-registry",
    advertise: Text | None = None,
    alone: Flag = False,
    http_config: FilePath | None = None,
) -> int:
    """Serve a schema registry with Confluent's REST API; Ctrl-C or SIGTERM stops it.

    Schemas are kept in a compacted topic, created if missing. Instances with the same topic and group elect a leader
    that writes; the others forward changes to it.

    Parameters
    ----------
    listen
        HOST:PORT to serve HTTP at; port 0 picks a free port.
    topic
        The topic of the schemas.
    group
        The group in which the instances elect their leader.
    advertise
        HOST:PORT at which the other instances reach this one. Default: the address it listens at.
    alone
        Run as the only instance: ready at once, without an election.
    http_config
        A file with the security of the registry's own port, by the names of a node's HTTP port, such as
        ottla.http.security.protocol=SASL_SSL, ssl.keystore.location and super.users; a node's server.properties will
        do. Environment variables such as OTTLA_HTTP_SECURITY_PROTOCOL win. Default: HTTP without a login, at a loopback
        address only.
    """
    from ottla.cli.client import addresses, probe

    host, port = address(listen, "--listen")
    if advertise is not None:
        address(advertise, "--advertise")
    try:
        from ottla.registry.server import Options
    except ImportError as error:
        raise CommandFailed(f"{error.name} is not installed: pip install 'ottla[registry]'") from error
    probe(bootstrap)
    servers = ",".join(addresses(bootstrap))
    return run(
        Options(
            servers, host, port, topic, group, advertise, alone, client_security.current(), port_settings(http_config)
        )
    )


def port_settings(file: Path | None) -> Mapping[str, str]:
    """The settings of the port of a registry or a console. Raises CommandFailed."""
    from ottla.config.properties import decode_properties, parse_properties
    from ottla.config.server import from_environment
    from ottla.errors import OttlaError

    try:
        given = {} if file is None else parse_properties(decode_properties(file.read_bytes()))
        return {**given, **from_environment(os.environ)}
    except OSError as error:
        raise CommandFailed(f"{visible(str(file))} cannot be read: {error.strerror}", MISUSED) from error
    except OttlaError as error:
        raise CommandFailed(str(error), MISUSED) from error


def address(text: str, option: str, example: str = DEFAULT_LISTEN) -> tuple[str, int]:
    """Raises CommandFailed for what is not HOST:PORT."""
    host, colon, port = text.rpartition(":")
    if colon and host and port.isascii() and port.isdecimal() and int(port) <= PORT_MAX:
        return host.strip("[]"), int(port)
    raise CommandFailed(f"{option} must be HOST:PORT, for example {example}, not {text!r}", MISUSED)


def run(options: Options) -> int:
    """Until a signal. Raises CommandFailed."""
    from ottla import logs
    from ottla.errors import OttlaError
    from ottla.registry.server import Instance

    logs.configure("text", "WARN")
    try:
        instance = Instance(options)
        # Schemas are read by librdkafka, which hears no signal: one leaves it as it is.
        in_thread(instance.start)
        instance.serve(lambda: _announce(instance), closing=_closed)
    except OttlaError as error:
        raise CommandFailed(str(error)) from error
    return OK


def _closed(close: Callable[[], None]) -> None:
    """A broker that does not answer is not waited for as long as librdkafka would."""
    with contextlib.suppress(TimeoutError):
        in_thread(close, limit_s=LEAVE_S)


def _announce(instance: Instance) -> None:
    print(f"ottla: schema registry at {instance.url}, schemas in topic {instance.options.topic}", flush=True)
