"""`ottla dev`: what a program under development needs of Kafka, in one command, for as long as that runs."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ottla.cli.exits import MISUSED, OK, CommandFailed
from ottla.cli.options import AsJson, Flag, parse_settings
from ottla.cli.output import json_text, visible
from ottla.cli.values import PARTITIONS_MAX, PORT_MAX, Port, Raw, Text, topic_name

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig
    from ottla.server.node import Node

KAFKA_PORT = 9092
CONTAINERS_PORT = 9093
REGISTRY_PORT = 8081
HTTP_PORT = 9404
LOOPBACK = "127.0.0.1"
EVERYWHERE = ("0.0.0.0", "::")
FOR_CONTAINERS = "CONTAINERS"
"""Name of the listener that advertises another host."""
OPTIONS = {
    "listeners": "--port, --listen and --advertise",
    "advertised.listeners": "--advertise",
    "listener.security.protocol.map": "--advertise",
    "inter.broker.listener.name": "--advertise",
    "ottla.http.listener": "--http-port",
    "log.dirs": "the argument DIRECTORY",
    "log.dir": "the argument DIRECTORY",
    "process.roles": "ottla server start",
}
"""Settings that this command makes itself, and what to give instead."""
LIBRARIES = ("uvicorn", "starlette", "fastavro", "jsonschema", "google.protobuf", "grpc_tools", "httpx", "orjson")
"""Packages that the registry needs: the extra `registry`."""


@dataclass(frozen=True)
class Plan:
    """Where everything is to be. Port 0 is any free one."""

    host: str
    port: int
    http_port: int
    registry_port: int | None
    """None without a registry."""
    advertise: str | None
    """The host under which containers find this machine."""
    containers_port: int

    @property
    def wide_host(self) -> str:
        """Where to listen for containers: at the host given with --listen, or at every interface."""
        return self.host if self.host not in (LOOPBACK, "localhost", "::1") else EVERYWHERE[0]

    def settings(self) -> dict[str, str]:
        near = LOOPBACK if self.host in EVERYWHERE else self.host
        listeners = [f"PLAINTEXT://{_bracketed(self.host)}:{self.port}"]
        advertised = [f"PLAINTEXT://{_bracketed(near)}:{self.port}"]
        protocols = ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"]
        if self.advertise is not None:
            listeners.append(f"{FOR_CONTAINERS}://{_bracketed(self.wide_host)}:{self.containers_port}")
            advertised.append(f"{FOR_CONTAINERS}://{_bracketed(self.advertise)}:{self.containers_port}")
            protocols.append(f"{FOR_CONTAINERS}:PLAINTEXT")
        is_near = self.host == LOOPBACK and self.advertise is None
        return {
            "listeners": ",".join(listeners),
            "ottla.allow.open.listeners": "false" if is_near else "true",  # the options say it
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": ",".join(protocols),
            "inter.broker.listener.name": "PLAINTEXT",
            "ottla.http.listener": f"{_bracketed(self.host)}:{self.http_port}",
        }


def dev(
    directory: Raw | None = None,
    /,
    *,
    port: Port | None = None,
    registry_port: Port | None = None,
    no_registry: Flag = False,
    http_port: Port | None = None,
    listen: Text = LOOPBACK,
    advertise: Text | None = None,
    topic: Annotated[list[Text] | None, Parameter(negative="", consume_multiple=False)] = None,
    set: Annotated[list[Text] | None, Parameter(negative="", consume_multiple=False)] = None,
    with_parent: Flag = False,
    until_eof: Flag = False,
    json: AsJson = False,
) -> int:
    """Run a broker and a schema registry for development and tests; Ctrl-C or SIGTERM stops them.

    One broker on loopback with topics of one replica, topics created when they are first used, and records kept for
    ever. Its data is in memory and is removed at the end, unless DIRECTORY is given. With `--json` exactly one line
    goes to standard output as soon as everything serves: a JSON object with bootstrap, registry, http, containers,
    pid and directory.

    Parameters
    ----------
    directory
        Keep the data here, for the next start. Without it the data is in memory (/dev/shm) if there is room, or else
        in a temporary directory.
    port
        For Kafka clients; 9092 if it is free, else any that is. 0 takes any free port.
    registry_port
        For the schema registry; 8081 if it is free, else any that is.
    no_registry
        Leave the schema registry out, whatever its port is. Without the extra `registry` it is left out anyway.
    http_port
        For /metrics, /health and /ready; 9404 if it is free, else any that is.
    listen
        Host to listen at: 0.0.0.0 for every interface.
    advertise
        HOST or HOST:PORT under which programs in containers find this machine, for example host.docker.internal. They
        get a port of their own, 9093 if it is free; programs on this machine still use the other one.
    topic
        A topic to create, as NAME or NAME:PARTITIONS; may be repeated.
    set
        A setting of Kafka's as name=value; may be repeated.
    with_parent
        Stop when the process that started this one ends, however it ends.
    until_eof
        Stop when standard input ends: whoever started this command closes it, or is gone.
    """
    parent = os.getppid()
    settings = parse_settings(set or (), "--set")
    for name in settings.keys() & OPTIONS.keys():
        raise CommandFailed(f"ottla dev sets {name} itself: use {OPTIONS[name]}", MISUSED)
    topics = [_topic(each) for each in topic or ()]
    plan = _plan(port, registry_port, http_port, listen, advertise, no_registry=no_registry)
    watched = _Watched(parent if with_parent else None, until_eof)
    with _data(directory) as (path, kept):
        config = _config({**settings, **plan.settings(), "log.dirs": path})
        from ottla.cli.server.start import check_directories, failures_explained
        from ottla.server.main import run

        check_directories([path])
        with failures_explained():
            return run(config, _Attendant(plan, topics, watched, kept, json).attend) or OK


def _config(settings: dict[str, str]) -> ServerConfig:
    """An embedded node, as that of `ottla.testing`. Raises CommandFailed for a setting that is refused."""
    from ottla.config.server import ServerConfig
    from ottla.errors import OttlaError
    from ottla.network import host_name
    from ottla.testing.child import RETENTION

    own = {"ottla.log.level": "WARN"}
    if not RETENTION & settings.keys():
        own["log.retention.ms"] = "-1"
    try:
        return ServerConfig.load(None, own | settings, {}, host_name)
    except OttlaError as error:
        raise CommandFailed(str(error), MISUSED) from error


@contextlib.contextmanager
def _data(directory: str | None) -> Iterator[tuple[str, str]]:
    """(path, what becomes of it)."""
    if directory is not None:
        yield os.path.abspath(directory), "kept"
        return
    from ottla.cli.dev.directory import temporary

    with temporary() as found:
        yield str(found.path), "in memory, removed at the end" if found.in_memory else "removed at the end"


def _topic(text: str) -> dict[str, Any]:
    """NAME or NAME:PARTITIONS, as CreateTopics has it. Raises CommandFailed."""
    from ottla.testing.broker import topic_request

    name, colon, count = text.partition(":")
    wanted = topic_name(name)
    if wanted is not None:
        raise CommandFailed(f"--topic wants NAME or NAME:PARTITIONS with {wanted}, not {text!r}", MISUSED)
    if not colon:
        return topic_request(name, None)
    if not (count.isascii() and count.isdecimal() and len(count) < 10 and 1 <= int(count) <= PARTITIONS_MAX):
        raise CommandFailed(f"--topic {name}:PARTITIONS wants a number from 1 to {PARTITIONS_MAX}", MISUSED)
    return topic_request(name, int(count))


def _plan(
    port: int | None,
    registry_port: int | None,
    http_port: int | None,
    listen: str,
    advertise: str | None,
    *,
    no_registry: bool,
) -> Plan:
    """Raises CommandFailed for a port that is taken, or a registry that is asked for and not installed."""
    host = listen.strip("[]")
    if not host or not host.isprintable() or any(each in host for each in "/, "):
        raise CommandFailed(f"--listen wants a host, for example 0.0.0.0, not {listen!r}", MISUSED)
    installed = not no_registry and _registry_is_installed()
    if registry_port is not None and not installed and not no_registry:
        raise CommandFailed(
            "a schema registry needs more libraries\n  install them with: pip install 'ottla[registry]'"
        )
    taken: set[int] = set()
    name, containers_port = _advertised(advertise)
    return Plan(
        host,
        _port(host, port, KAFKA_PORT, "--port", taken),
        _port(host, http_port, HTTP_PORT, "--http-port", taken),
        None if not installed else _port(host, registry_port, REGISTRY_PORT, "--registry-port", taken),
        name,
        0 if name is None else _port(host, containers_port, CONTAINERS_PORT, "--advertise", taken),
    )


def _registry_is_installed() -> bool:
    try:
        return all(importlib.util.find_spec(each) is not None for each in LIBRARIES)
    except ImportError:
        return False


def _advertised(text: str | None) -> tuple[str | None, int | None]:
    """HOST or HOST:PORT, IPv6 in brackets. Raises CommandFailed."""
    if text is None:
        return None, None
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, ""
    host = host.strip("[]")
    well = host and host.isprintable() and not any(each in host for each in "/,[] ")
    if not well or (colon and not (port.isascii() and port.isdecimal() and len(port) < 6 and int(port) <= PORT_MAX)):
        raise CommandFailed(
            f"--advertise wants HOST or HOST:PORT, for example host.docker.internal, not {text!r}", MISUSED
        )
    return host, int(port) if colon else None


def _port(host: str, wanted: int | None, usual: int, option: str, taken: set[int]) -> int:
    """What is asked for, which has to be free, or the usual one if that is, else 0. Raises CommandFailed."""
    port = usual if wanted is None else wanted
    if port and (port in taken or not _is_free(host, port)):
        if wanted is not None:
            raise CommandFailed(f"port {port} is taken: choose another with {option}, where 0 is any free one")
        return 0
    taken.add(port)
    return port


def _is_free(host: str, port: int) -> bool:
    """A host that there is not, or not here, is for the node to refuse."""
    import errno

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind((host, port))
        except OSError as error:
            return error.errno not in (errno.EADDRINUSE, errno.EACCES)
        except UnicodeError:
            return True
    return True


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@dataclass(frozen=True)
class _Watched:
    """What ends the command beside signals: the end of its parent, or of its standard input."""

    parent: int | None
    standard_input: bool

    def begin(self, stop: asyncio.Event) -> None:
        if self.parent is not None:
            from ottla.testing.child import watch_parent

            watch_parent(self.parent, stop)
        if self.standard_input:
            loop = asyncio.get_running_loop()
            threading.Thread(target=_read_to_end, args=(loop, stop), name="standard input", daemon=True).start()


def _read_to_end(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1 << 16):
            pass
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(stop.set)


class _Attendant:
    """What happens beside the node, once that serves."""

    def __init__(
        self, plan: Plan, topics: Sequence[dict[str, Any]], watched: _Watched, kept: str, as_json: bool
    ) -> None:
        self._plan = plan
        self._topics = topics
        self._watched = watched
        self._kept = kept
        self._as_json = as_json

    async def attend(self, node: Node, stop: asyncio.Event) -> None:
        """Topics, the registry, then the line that says so. Raises CommandFailed."""
        from ottla.testing.child import TOPIC_ALREADY_EXISTS, create_topics

        self._watched.begin(stop)
        failure = await create_topics(node, list(self._topics), (0, TOPIC_ALREADY_EXISTS))
        if failure:
            raise CommandFailed(failure)
        url = await self._registry(node, stop)
        if not stop.is_set():
            self._announce(self._facts(node, url), node)

    async def _registry(self, node: Node, stop: asyncio.Event) -> str | None:
        """Its URL once it serves; None without one. Raises CommandFailed where it does not start."""
        if self._plan.registry_port is None:
            return None
        from ottla.cli.server.beside import REGISTRY, keep_running
        from ottla.server.listeners.exposure import ALLOW

        options: dict[str, str | int] = {
            "bootstrap": self._bootstrap(node),
            "host": self._registry_host,
            "port": self._plan.registry_port,
            "is_alone": True,
        }
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        node.spawn(keep_running(REGISTRY, options, stop, ready, {ALLOW: "true"}))  # the options say it
        stopping = asyncio.ensure_future(stop.wait())
        either: list[asyncio.Future[Any]] = [ready, stopping]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ready.done():
            return None
        try:
            port = ready.result().rpartition(":")[2]
        except CommandFailed:
            stop.set()  # it is not started again
            raise
        return f"http://{_bracketed(self._near)}:{port}"

    @property
    def _registry_host(self) -> str:
        return self._plan.host if self._plan.advertise is None else self._plan.wide_host

    @property
    def _near(self) -> str:
        """The host at which programs on this machine find everything."""
        return LOOPBACK if self._plan.host in EVERYWHERE else self._plan.host

    def _bootstrap(self, node: Node) -> str:
        return f"{_bracketed(self._near)}:{node.ports['PLAINTEXT']}"

    def _facts(self, node: Node, registry: str | None) -> dict[str, Any]:
        from ottla.cli.versions import version

        assert node.http is not None
        containers = None
        if self._plan.advertise is not None:
            far = _bracketed(self._plan.advertise)
            containers = {
                "bootstrap": f"{far}:{node.ports[FOR_CONTAINERS]}",
                "registry": None if registry is None else f"http://{far}:{registry.rpartition(':')[2]}",
            }
        return {
            "bootstrap": self._bootstrap(node),
            "registry": registry,
            "http": f"http://{_bracketed(self._near)}:{node.http.url.rpartition(':')[2]}",
            "containers": containers,
            "pid": os.getpid(),
            "directory": node.config.log_dirs[0],
            "temporary": self._kept != "kept",
            "version": version().removeprefix("ottla "),
        }

    def _announce(self, facts: Mapping[str, Any], node: Node) -> None:
        from ottla.server.listeners.exposure import open_ports, warnings

        places = open_ports(node.config, node.ports)
        if facts["registry"] is not None and self._registry_host != self._near:
            places.append((self._registry_host, int(facts["registry"].rpartition(":")[2]), "schema registry"))
        exposed = warnings(places)
        if self._as_json:
            print(json_text(facts, sys.stdout), flush=True)
            for line in exposed:
                print(line, file=sys.stderr, flush=True)
            return
        rows = {
            "schema registry": facts["registry"] or "none: pip install 'ottla[registry]'",
            "metrics, health": facts["http"],
            "data": f"{visible(facts['directory'])} ({self._kept})",
        }
        if facts["registry"] is None and _registry_is_installed():
            del rows["schema registry"]
        if facts["containers"] is not None:
            rows["from containers"] = facts["containers"]["bootstrap"]
        print(f"ottla: listening on {facts['bootstrap']}", flush=True)
        for name, text in rows.items():
            print(f"  {name:<16} {text}", flush=True)
        for line in exposed:
            print(line, flush=True)
