"""`ottla server start --registry HOST:PORT` and `--console HOST:PORT`: programs beside the node, each in a process.

So the node's event loop does not wait for schemas to be parsed or pages to be made. A process starts when the node
listens, is started again when it ends by itself, and stops with the node, however abruptly that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.exits import MISUSED, CommandFailed
from ottla.cli.registry import address
from ottla.errors import OttlaError
from ottla.logs import fields

if TYPE_CHECKING:
    from ottla.config.listeners import Listener
    from ottla.config.server import ServerConfig
    from ottla.server.main import Attend
    from ottla.server.node import Node

_LOG = logging.getLogger("ottla.node")

STOP_S = 6.0
"""Longer than a program takes for the requests that it has begun. The node waits for it, and has to have stopped itself
in the ten seconds that Docker gives it."""
RESTART_S = 2.0
RESTART_S_MAX = 60.0
"""The pause doubles up to this while a program ends soon after its start."""


@dataclass(frozen=True)
class Program:
    what: str
    """Its name in what is printed."""
    module: str
    option: str
    example: str


REGISTRY: Final = Program("schema registry", "ottla.registry", "--registry", "127.0.0.1:8081")
CONSOLE: Final = Program("console", "ottla.console", "--console", "127.0.0.1:8080")


@dataclass(frozen=True)
class Beside:
    """A program that is to run, and where it listens."""

    program: Program
    host: str
    port: int
    options: Mapping[str, Any] = field(default_factory=dict)
    http: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of its port, which no other process may see."""


def planned(listens: Mapping[Program, str], config: ServerConfig, console_config: Path | None = None) -> list[Beside]:
    """The programs beside a node. Raises CommandFailed for what would not start."""
    from ottla.registry.port_settings import of_node, refuse_open

    http = of_node(config)
    found = []
    for program, listen in listens.items():
        host, port = address(listen, program.option, program.example)
        if program is CONSOLE:
            found.append(console_at(host, port, http, console_config, config.log_dirs))
        else:
            try:
                refuse_open(config, host)
            except OttlaError as error:
                raise CommandFailed(str(error), MISUSED) from error
            found.append(Beside(program, host, port, {}, http))
        ensure_free(host, port, program)
        ensure_other(host, port, program, config)
        listener_for(program, config)
    if len({each.port for each in found if each.port}) < sum(bool(each.port) for each in found):
        raise CommandFailed(f"{' and '.join(each.program.option for each in found)} name the same port", MISUSED)
    urls = [_url(each, config) for each in found if each.program is REGISTRY and each.port]
    return [
        Beside(each.program, each.host, each.port, {"registry": urls[0], **each.options}, each.http)
        if each.program is CONSOLE and urls
        else each
        for each in found
    ]


def console_at(
    host: str, port: int, http: Mapping[str, str], file: Path | None, log_dirs: Iterable[str] = ()
) -> Beside:
    """A console beside nodes with these log directories, with the options of `--console-config`. `http` is the node's
    own port, whose TLS the console has where the file names no other. Raises CommandFailed for one that would not
    start, or would be open to strangers."""
    options: dict[str, Any] = {"log_dirs": [os.path.abspath(each) for each in log_dirs]}
    if directory := os.environ.get("OTTLA_PIPELINES"):
        options["pipelines"] = os.path.abspath(directory)
    if file is not None:
        from ottla.cli.console import settings_of
        from ottla.cli.registry import port_settings

        given = settings_of(file)
        named = {"masks": given.masks, "roles": given.roles, "oidc": given.oidc, "pipelines": given.pipelines}
        options |= {name: str(path) for name, path in named.items() if path is not None}
        options |= {"registry": given.registry} if given.registry else {}
        options |= {"host_names": given.host_names, "is_behind_proxy": given.behind_proxy}
        options["is_read_only"] = given.read_only
        http = http if given.http_config is None else port_settings(given.http_config)
    _refuse_console(host, port, http, options, is_whole=file is not None)
    return Beside(CONSOLE, host, port, options, http)


def _refuse_console(host: str, port: int, http: Mapping[str, str], given: Mapping[str, Any], *, is_whole: bool) -> None:
    """Raises CommandFailed where a console that listens there would be open to strangers, or its files are wrong."""
    from ottla.server.listeners.exposure import is_loopback

    if is_loopback(host) and not is_whole:
        return
    from ottla.cli import client_security
    from ottla.config.listeners import OVER_TLS

    try:
        from ottla.console.__main__ import options_of
        from ottla.console.server import CERTIFICATE_HINT, CLIENT_FILE_HINT, OIDC_HINT, PROXY_HINT, rules_of
    except ImportError as error:
        raise CommandFailed(f"{error.name} is not installed: pip install 'ottla[console]'") from error
    try:
        options = options_of({**given, "bootstrap": "", "host": host, "port": port}, client_security.of_users(), http)
        rules_of(options, is_secured=http.get("ottla.http.security.protocol") in OVER_TLS)
    except OttlaError as error:
        sentence = str(error)
        for hint, ours in (
            (CLIENT_FILE_HINT, "add --secure, or name the settings of its clients: OTTLA_CLIENT_CONFIG=FILE"),
            (CERTIFICATE_HINT, "give it a certificate: http_config in the file of --console-config"),
            (PROXY_HINT, "say so there: behind_proxy = true"),
            (OIDC_HINT, "in the file of OTTLA_CLIENT_CONFIG"),
        ):
            sentence = sentence.replace(hint, ours)
        raise CommandFailed(sentence, MISUSED) from error


def listener_for(program: Program, config: ServerConfig) -> Listener:
    """Where a program connects to the node as a client: the first of `advertised.listeners` with the protocol of its
    settings. Raises CommandFailed where there is none."""
    from ottla.cli import client_security

    known = client_security.of_users() if program is CONSOLE else client_security.current()
    advertised = config.advertised_listeners
    found = next((each for each in advertised if each.protocol == known.protocol), None)
    if found is not None:
        return found
    first = advertised[0]
    if known.protocol == "PLAINTEXT":
        raise CommandFailed(
            f"{program.option} connects to the node as a client, and the node's clients need settings: its listener "
            f"{first.name} is {first.protocol}\n  name a file with them: OTTLA_CLIENT_CONFIG=client.properties",
            MISUSED,
        )
    raise CommandFailed(
        f"{program.option} connects to the node as a client, whose settings have security.protocol={known.protocol}: "
        f"no listener of the node has it ({', '.join(f'{each.name} is {each.protocol}' for each in advertised)})\n"
        "  change the client's settings: OTTLA_CLIENT_CONFIG",
        MISUSED,
    )


def ensure_other(host: str, port: int, program: Program, config: ServerConfig) -> None:
    """Raises CommandFailed for a port that the node itself will take."""
    from ottla.config.checks import parse_address

    listeners = (*config.listeners, *config.controller_listeners)
    own = [("listeners", each.host, each.port) for each in listeners]
    if http := parse_address(config.ottla_http_listener or ""):
        own.append(("ottla.http.listener", *http))
    for setting, taken, of_node in own:
        if port and port == of_node and _overlap(host, taken):
            raise CommandFailed(f"{program.option}: the node itself listens at port {port} ({setting})", MISUSED)


def _overlap(one: str, other: str) -> bool:
    """Whether two hosts may be the same address."""
    everywhere, named = ("", "0.0.0.0", "::"), ("localhost", "127.0.0.1", "::1")
    return one == other or one in everywhere or other in everywhere or (one in named and other in named)


def ensure_free(host: str, port: int, program: Program) -> None:
    """Raises CommandFailed where nobody can listen: before the node starts, and not in a line of its log."""
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
            tried.listen(1)
        except OSError as error:
            raise CommandFailed(
                f"{program.option}: cannot listen at {host}:{port}: {error.strerror or error}"
            ) from error


def _url(registry: Beside, config: ServerConfig) -> str:
    """Where a console on the same machine finds the registry."""
    from ottla.config.listeners import OVER_TLS

    scheme = "https" if config.ottla_http_security_protocol in OVER_TLS else "http"
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(registry.host, registry.host)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{registry.port}"


def attend_with(listens: Mapping[Program, str], config: ServerConfig, console_config: Path | None = None) -> Attend:
    """The task of the node once it serves. Raises CommandFailed for what would not start."""
    from ottla.server.main import announce

    programs = planned(listens, config, console_config)

    async def attend(node: Node, stop: asyncio.Event) -> None:
        await announce(node, stop)
        started = []
        for each in programs:
            at = listener_for(each.program, node.config)
            broker = f"[{at.host}]" if ":" in at.host else at.host
            bootstrap = f"{broker}:{at.port or node.ports[at.name]}"
            options = {**each.options, "bootstrap": bootstrap, "host": each.host, "port": each.port}
            started.append(node.spawn(keep_running(each.program, options, stop, http=each.http)))
        node.companions = started

    return attend


async def keep_running(
    program: Program,
    options: dict[str, Any],
    stop: asyncio.Event,
    ready: asyncio.Future[str] | None = None,
    http: Mapping[str, str] | None = None,
) -> None:
    """Until the node stops. With `ready` the program prints nothing: that is its URL once it serves, or a
    CommandFailed where it does not start. `http` are settings of its port, which no other process may see."""
    loop, pause_s = asyncio.get_running_loop(), RESTART_S
    while not stop.is_set():
        began = loop.time()
        why: dict[str, Any]
        try:
            process = await _launched(program, {**options, "http": True}, is_heard=ready is not None)
        except OSError as error:  # the machine is out of processes or of memory
            what, why = "a program beside the node cannot be started and is tried again", {"error": str(error)}
        else:
            await _attended(program, process, options, stop, ready, http)
            what, why = "a program beside the node ended and is restarted", {"status": process.returncode}
        if not stop.is_set():
            if loop.time() - began > RESTART_S_MAX:
                pause_s = RESTART_S
            _LOG.error(what, extra=fields(program=program.what, **why, pause_s=pause_s))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause_s)
            pause_s = min(2 * pause_s, RESTART_S_MAX)


async def _launched(program: Program, options: Mapping[str, Any], *, is_heard: bool) -> asyncio.subprocess.Process:
    """Its standard input is its sign of life: it ends when this process is gone. Raises OSError."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        program.module,
        json.dumps(options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE if is_heard else None,
        # A group of its own: Ctrl-C is for the node. No session of its own: where Linux has autogroups, niceness counts
        # among the processes of one session only (sched(7)). uvloop knows no `process_group`.
        preexec_fn=os.setpgrp,
    )


async def _attended(
    program: Program,
    process: asyncio.subprocess.Process,
    options: dict[str, Any],
    stop: asyncio.Event,
    ready: asyncio.Future[str] | None,
    http: Mapping[str, str] | None,
) -> None:
    """Until the program has ended."""
    assert process.stdin is not None
    process.stdin.write(f"{json.dumps(dict(http or {}))}\n".encode())
    ended, stopping = asyncio.ensure_future(process.wait()), asyncio.ensure_future(stop.wait())
    try:
        if ready is not None:
            await _announced(program, process, stopping, options, ready)
        await asyncio.wait([ended, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        await _stopped(process, ended)


async def _announced(
    program: Program,
    process: asyncio.subprocess.Process,
    stopping: asyncio.Future[Any],
    options: dict[str, Any],
    ready: asyncio.Future[str],
) -> None:
    """Waits for the line that says where the program is. Started again it listens there, too."""
    assert process.stdout is not None
    reading = asyncio.ensure_future(process.stdout.readline())
    await asyncio.wait([reading, stopping], return_when=asyncio.FIRST_COMPLETED)
    if not reading.done():
        reading.cancel()
        return
    url = reading.result().decode().strip().rpartition(" ")[2]
    if url:
        options["port"] = int(url.rpartition(":")[2])
    if ready.done():
        return
    if url:
        ready.set_result(url)
    else:
        ready.set_exception(
            CommandFailed(f"the {program.what} does not start; leave it out with: --no-{program.option[2:]}")
        )


async def _stopped(process: asyncio.subprocess.Process, ended: asyncio.Future[int]) -> None:
    if ended.done():
        return
    process.terminate()
    try:
        await asyncio.wait_for(asyncio.shield(ended), STOP_S)
    except (TimeoutError, asyncio.CancelledError):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
