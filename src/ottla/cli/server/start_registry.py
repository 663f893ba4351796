"""`ottla server start --registry HOST:PORT`: a schema registry beside the node, in a process of its own.

So the node's event loop does not wait for schemas to be parsed. The process starts when the node listens, is started
again when it ends by itself, and stops with the node, however abruptly that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.cli.exits import MISUSED, CommandFailed
from ottla.cli.registry import address
from ottla.errors import OttlaError
from ottla.logs import fields

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig
    from ottla.server.main import Attend
    from ottla.server.node import Node

_LOG = logging.getLogger("ottla.registry")

STOP_S = 10.0
"""Longer than a registry takes for the requests that it has begun."""
RESTART_S = 2.0


def attend_with(listen: str, config: ServerConfig) -> Attend:
    """The task of the node once it serves. Raises CommandFailed for text that is not HOST:PORT."""
    from ottla.registry.port_settings import of_node, refuse_open
    from ottla.server.main import announce

    host, port = address(listen, "--registry")
    try:
        refuse_open(config, host)
    except OttlaError as error:
        raise CommandFailed(str(error), MISUSED) from error

    async def attend(node: Node, stop: asyncio.Event) -> None:
        await announce(node, stop)
        first = node.config.advertised_listeners[0]
        broker = f"[{first.host}]" if ":" in first.host else first.host
        bootstrap = f"{broker}:{first.port or node.ports[first.name]}"
        options: dict[str, str | int] = {"bootstrap": bootstrap, "host": host, "port": port}
        node.spawn(keep_running(options, stop, http=of_node(node.config)))

    return attend


async def keep_running(
    options: dict[str, str | int],
    stop: asyncio.Event,
    ready: asyncio.Future[str] | None = None,
    http: Mapping[str, str] | None = None,
) -> None:
    """Until the node stops. With `ready` the registry prints nothing: that is its URL once it serves, or a
    CommandFailed where it does not start. `http` are settings of its port, which no other process may see."""
    while not stop.is_set():
        # Its standard input is its sign of life: it ends when this process is gone.
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "ottla.registry", json.dumps({**options, "http": True}),
            stdin=asyncio.subprocess.PIPE, stdout=None if ready is None else asyncio.subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(f"{json.dumps(dict(http or {}))}\n".encode())
        ended, stopping = asyncio.ensure_future(process.wait()), asyncio.ensure_future(stop.wait())
        try:
            if ready is not None:
                await _announced(process, stopping, options, ready)
            await asyncio.wait([ended, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            await _stopped(process, ended)
        if not stop.is_set():
            _LOG.error("the registry ended and is restarted", extra=fields(status=process.returncode))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), RESTART_S)


async def _announced(
    process: asyncio.subprocess.Process, stopping: asyncio.Future[Any], options: dict[str, str | int],
    ready: asyncio.Future[str],
) -> None:  # fmt: skip
    """Waits for the line that says where the registry is. Started again it listens there, too."""
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
        ready.set_exception(CommandFailed("the schema registry does not start; leave it out with: --no-registry"))


async def _stopped(process: asyncio.subprocess.Process, ended: asyncio.Future[int]) -> None:
    if ended.done():
        return
    process.terminate()
    try:
        await asyncio.wait_for(asyncio.shield(ended), STOP_S)
    except (TimeoutError, asyncio.CancelledError):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
