"""A listener with a node that serves made-up APIs, for tests of what lies between socket and handler."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import uvloop

from ottla.metadata.image import EMPTY_IMAGE
from ottla.metrics.instruments import NodeMetrics
from ottla.network import SystemNetwork
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.server import api
from ottla.server.api import Deferred, EncodedResponse
from ottla.server.connections.receiving import Receiving
from ottla.server.listeners.listener import ConnectionLimits, Listener


def answer(correlation_id: int, body: bytes) -> EncodedResponse:
    return EncodedResponse([struct.pack(">i", correlation_id), body])


def echo(context: Any, request: bytes) -> EncodedResponse:
    """Answers with the body it got."""
    return answer(context.correlation_id, bytes(request))


def serve(monkeypatch: Any, handle: Callable[..., Any], *, pipelined: bool = False) -> None:
    """Let `handle` answer every Heartbeat, whose body may then be any bytes."""
    fake = api.Api(
        ApiKey.HEARTBEAT,
        (0, 4),
        handle,
        lambda version, frame, offset: bytes(frame[offset:]),
        api.top_level_error,
        pipelined,
    )
    monkeypatch.setitem(api.OF_BROKERS._loaded, ApiKey.HEARTBEAT, fake)


def serve_later(monkeypatch: Any, *, pipelined: bool = False) -> list[Deferred]:
    """The answer to every Heartbeat is deferred; returns those of the requests that were begun."""
    waiting: list[Deferred] = []

    def handle(context: Any, request: bytes) -> Any:
        waiting.append(Deferred())
        return waiting[-1]

    serve(monkeypatch, handle, pipelined=pipelined)
    return waiting


@asynccontextmanager
async def listening(**options: Any) -> AsyncIterator[tuple[Listener, int]]:
    metadata = SimpleNamespace(controller_versions=options.pop("controller_versions", {}))
    node: Any = SimpleNamespace(
        image=EMPTY_IMAGE, metrics=NodeMetrics(), lost={}, away=None, metadata=metadata, authorizer=None
    )
    limits = ConnectionLimits(
        options.pop("connections_max", 1000), options.pop("per_host_max", 1000), options.pop("overrides", {})
    )
    listener = Listener(
        node,
        "PLAINTEXT",
        network=SystemNetwork(),
        limits=limits,
        request_bytes_max=options.get("request_bytes_max", 10_000_000),
        idle_ms_max=options.pop("idle_ms_max", 600_000),
        receiving=Receiving(options.pop("queued_bytes_max", -1), options.pop("request_bytes_max", 10_000_000)),
    )
    port = await listener.bind("127.0.0.1", 0)
    await listener.accept()
    try:
        yield listener, port
    finally:
        await listener.stop(drain_seconds_max=1)


def frame(body: bytes, correlation_id: int = 1, version: int = 0) -> bytes:
    head = struct.pack(">hhih", ApiKey.HEARTBEAT, version, correlation_id, -1)
    return struct.pack(">i", len(head) + len(body)) + head + body


def api_versions(version: int, correlation_id: int = 7) -> bytes:
    values = {"client_software_name": "test", "client_software_version": "1"}
    request = messages.encode_request(ApiKey.API_VERSIONS, min(version, 5), correlation_id, "t", values)
    request = request[:2] + struct.pack(">h", version) + request[4:]
    return struct.pack(">i", len(request)) + request


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """(correlation id, the rest)."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    data = await reader.readexactly(size)
    return struct.unpack(">i", data[:4])[0], data[4:]


def run(test: Any) -> Any:
    return uvloop.run(asyncio.wait_for(test, 300))


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop turn until something has happened; the test fails after a minute that it did not."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
