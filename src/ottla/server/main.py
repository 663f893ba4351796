"""Runs one node as a process: event loop, signals, limits, the lines that say where it is."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import resource
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ottla import logs, memory
from ottla.clock import SystemClock
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.filesystem import OsFileSystem
from ottla.metadata import features
from ottla.network import SystemNetwork
from ottla.protocol.messages import ApiKey
from ottla.server.api import OF_BROKERS, ApiSet
from ottla.server.node import Node

if TYPE_CHECKING:
    from ottla.config.server import ServerConfig

    Attend = Callable[[Node, asyncio.Event], Awaitable[None]]
    """Called once the node serves, with the event that stops it."""
    Tell = Callable[[str, Node], None]
    """Called with a phase of the node as it begins: starting, serving, stopping, stopped."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""They stop a node cleanly, as they do Kafka's."""
YOUNG_OBJECTS_MAX = 20_000
"""Requests make few reference cycles, so the collector may look less often than every 700 allocations."""
YOUNG_COLLECTIONS_MAX = 1
"""No client is served while the collector examines young objects: at most three times YOUNG_OBJECTS_MAX, some 10 ms."""
MIDDLE_COLLECTIONS_MAX = 200
"""All objects are looked at after 8 million new ones that stay, if they are then a quarter more than before."""

ASKED_FIRST: Final = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS)
"""APIs that clients of every kind ask for. Nobody is served while a handler is imported, for some of them 10 ms."""
LOAD_AFTER_S: Final = 0.2
"""How long after a start they are imported: the first request of a client that awaited it is answered by then."""


async def load_handlers(apis: ApiSet) -> None:
    """Import the handlers that will be needed, one in a turn of the loop, so that the first client of an API does not
    keep all others waiting."""
    await asyncio.sleep(LOAD_AFTER_S)
    for key in ASKED_FIRST:
        apis.load(key)
        await asyncio.sleep(0)


async def announce(node: Node, _: asyncio.Event) -> None:
    """The line that says where a node is and whether it runs compiled, one for its HTTP port, and who may connect."""
    from ottla.compiled import how
    from ottla.server.listeners.exposure import open_ports, warnings

    config = node.config
    first = (config.advertised_listeners or config.advertised_controller_listeners)[0]
    directories = ", ".join(config.log_dirs)
    host = f"[{first.host}]" if ":" in first.host else first.host
    what = "listening on" if config.is_broker else "controller on"
    print(f"ottla: {what} {host}:{node.ports[first.name]}, data in {directories} ({how()})", flush=True)
    if node.http is not None:
        print(f"ottla: metrics and health at {node.http.url}", flush=True)
    for line in warnings(open_ports(config, node.ports)):
        print(line, flush=True)


def run(
    config: ServerConfig,
    attend: Attend = announce,
    network: SystemNetwork | None = None,
    tell: Tell | None = None,
) -> int:
    """Serve until SIGTERM, SIGINT or SIGHUP, or until the node gives up; returns the exit code. Raises OttlaError when
    the node cannot start. A node that has to halt ends the process, with exit code 1.

    `network` is the system's unless a test gives another; `tell` hears of each phase of the node.
    """
    logs.configure(config.ottla_log_format, config.ottla_log_level)
    _raise_file_limit()
    memory.keep_freed()
    with asyncio.Runner(loop_factory=_loop_factory(config.ottla_event_loop)) as runner:
        try:
            return runner.run(_serve(config, attend, network, tell or (lambda phase, node: None)))
        finally:
            # A second signal: the loop that ignores it is taken down now, and the node is stopped already.
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if name == "asyncio":
        return asyncio.new_event_loop
    import uvloop

    return uvloop.new_event_loop


async def _serve(config: ServerConfig, attend: Attend, network: SystemNetwork | None, tell: Tell) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    came: list[int] = []

    def end(number: int) -> None:
        came.append(number)
        stop.set()

    for number in _SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as by `nohup`, or by a script for its background jobs
            loop.add_signal_handler(number, end, number)
    fs = OsFileSystem()
    network = network or SystemNetwork(config.socket_send_buffer_bytes)
    node = Node(config, fs, SystemClock(), random.Random(os.urandom(16)), network)
    node.failure.on_halt, node.failure.on_give_up = _halt, stop.set
    tell("starting", node)
    try:
        if not await _started(node, stop):
            # Who types Ctrl-C wanted a node and has none; a supervisor's SIGTERM got what it asked for.
            return 128 + signal.SIGINT if came[:1] == [signal.SIGINT] else _exit_code(node)
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS_MAX, YOUNG_COLLECTIONS_MAX, MIDDLE_COLLECTIONS_MAX)
        await attend(node, stop)
        tell("serving", node)
        loading = loop.create_task(load_handlers(OF_BROKERS)) if config.is_broker else None
        await stop.wait()
        if loading is not None:
            loading.cancel()
    finally:
        tell("stopping", node)
        try:
            await node.stop()
        finally:
            tell("stopped", node)
            with contextlib.suppress(Exception):
                fs.close()
    sys.stdout.flush()
    return _exit_code(node)


def _exit_code(node: Node) -> int:
    return 0 if node.failure.gave_up is None else 1


def _halt() -> None:
    """End the process as it stands: what is on disk is for the next start to check."""
    os._exit(1)


async def _started(node: Node, stop: asyncio.Event) -> bool:
    """Start the node, unless `stop` comes first: what is not recovered yet then waits for the next start."""
    starting, stopping = asyncio.ensure_future(node.start()), asyncio.ensure_future(stop.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait([starting])
    if starting.cancelled():
        return False
    try:
        starting.result()
    except KafkaError as error:
        raise OttlaError(_refused(node.node_id, error)) from error
    return True


def _refused(node_id: int, error: KafkaError) -> str:
    sentence = f"the cluster refused node {node_id}: {error}"
    if error.code in (ErrorCode.duplicate_broker_registration, ErrorCode.stale_broker_epoch):
        sentence += (
            f"\n  another process runs with node.id={node_id}: stop one of them"
            "\n  add a new node with a free id with: ottla cluster add DIRECTORY"
        )
    if error.code == ErrorCode.unsupported_version and error.message is None:
        low, high = features.SUPPORTED[features.METADATA_VERSION]
        sentence += (
            "\n  a feature has a level there that this software does not support: it supports metadata.version "
            f"{features.metadata_version_name(low)} to {features.metadata_version_name(high)}"
            "\n  see the levels with: ottla features describe"
        )
    return sentence


def _raise_file_limit() -> None:
    """Segments and connections each take a descriptor; use what the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
