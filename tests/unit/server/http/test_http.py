"""The HTTP port of a node: its pages, and what hostile clients can do to it."""

from __future__ import annotations

import asyncio
import errno
import gzip
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from ottla.errors import OttlaError
from ottla.server.http import server as http
from ottla.server.http.pages import Answer, Route, readiness, wants_gzip, wants_openmetrics
from ottla.server.node import Node
from tests.unit.server.node import Client, running
from tests.unit.server.stub import run

LISTENER = {"ottla.http.listener": "127.0.0.1:0"}


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def receive(reader: asyncio.StreamReader, *, head: bool = False) -> Reply:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
    body = b"" if head else await reader.readexactly(int(headers["content-length"]))
    return Reply(int(lines[0].split()[1]), headers, body)


async def connect(node: Node) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    assert node.http is not None
    return await asyncio.open_connection("127.0.0.1", node.http.port)


async def get(node: Node, path: str, method: str = "GET", **headers: str) -> Reply:
    reader, writer = await connect(node)
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode())
    reply = await receive(reader, head=method == "HEAD")
    writer.close()
    return reply


def with_node(tmp_path: Any, test: Callable[[Node], Awaitable[None]], **settings: str) -> None:
    async def whole() -> None:
        named = {name.replace("__", "."): value for name, value in settings.items()}
        async with running(str(tmp_path), LISTENER | named) as node:
            await test(node)

    run(whole())


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What comes before the other end closes, orderly or not."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


def test_an_internal_error_in_a_page_is_answered_and_the_connection_goes_on(tmp_path: Any, caplog: Any) -> None:
    async def mistaken(pages: Any, asked: Any) -> Any:
        raise ZeroDivisionError("of ours")

    async def test(node: Node) -> None:
        assert node.http is not None
        node.http.pages._paths["/health"] = Route("/health", mistaken, ())
        reader, writer = await connect(node)
        for path, status in (("/health", 500), ("/ready", 200)):
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert (await receive(reader)).status == status
        writer.close()

    with_node(tmp_path, test)
    assert "an HTTP request failed" in caplog.text and "of ours" in caplog.text


def test_pages(tmp_path: Any) -> None:
    async def test(node: Node) -> None:
        index = await get(node, "/")
        assert index.status == 200 and b'href="/metrics"' in index.body
        health, ready = await get(node, "/health"), await get(node, "/ready?verbose")
        assert (health.status, health.json["status"]) == (200, "healthy")
        assert (ready.status, ready.json["status"], ready.json["cluster_id"]) == (200, "ready", node.cluster_id)
        assert (await get(node, "/nothing")).status == 404
        refused = await get(node, "/metrics", "POST")
        assert (refused.status, refused.headers["allow"]) == (405, "get, head")
        head = await get(node, "/metrics", "HEAD")
        assert head.status == 200 and int(head.headers["content-length"]) > 1000

    with_node(tmp_path, test)


def test_formats_of_metrics(tmp_path: Any) -> None:
    async def test(node: Node) -> None:
        plain = await get(node, "/metrics")
        assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
        packed = await get(
            node, "/metrics", Accept_Encoding="gzip", Accept="application/openmetrics-text;version=1.0.0"
        )
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.headers["content-type"].startswith("application/openmetrics-text")
        assert gzip.decompress(packed.body).endswith(b"# EOF\n")
        assert len(packed.body) < len(plain.body) / 3

    with_node(tmp_path, test)


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text; version=1.0.0; q=0.5, text/plain;version=0.0.4;q=0.2, */*;q=0.1", True),
        ("application/openmetrics-text;q=0.2, text/plain;q=0.5", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=x", False),
    ],
)
def test_which_format_is_asked_for(accept: str, wanted: bool) -> None:
    assert wants_openmetrics(accept) is wanted


def test_whether_gzip_is_asked_for() -> None:
    assert [wants_gzip(each) for each in ("gzip", "br, *", "gzip;q=0, *", "", "deflate")] == [True, True, False] + [
        False
    ] * 2


def test_a_node_that_does_not_serve_says_why(tmp_path: Any) -> None:
    async def test(node: Node) -> None:
        node.serving = False
        starting = await get(node, "/ready")
        assert (starting.status, starting.json["reasons"]) == (503, ["the node is starting"])
        assert (await get(node, "/health")).status == 200
        assert b"kafka_server_kafkaserver_brokerstate 1\n" in (await get(node, "/metrics")).body
        node.serving = True
        node.groups._shards.loading = lambda: 2  # type: ignore[method-assign]
        assert "2 partitions" in (await get(node, "/ready")).json["reasons"][0]

    with_node(tmp_path, test)


def test_a_stopping_node_answers_until_its_end(tmp_path: Any) -> None:
    async def test() -> None:
        seen: list[Reply] = []
        async with running(str(tmp_path), LISTENER) as node:
            close = node.groups.stop

            async def look() -> None:
                seen.extend([await get(node, "/ready"), await get(node, "/health"), await get(node, "/metrics")])
                await close()

            node._closers[node._closers.index(node.groups.stop)] = look
        assert [each.status for each in seen] == [503, 200, 200]
        assert seen[0].json["reasons"] == ["the node is stopping"]
        assert readiness(node)["status"] == "not ready"
        assert node.http is not None and not node.http.connections

    run(test())


def test_no_directory_left_is_unhealthy(tmp_path: Any) -> None:
    async def test(node: Node) -> None:
        node.logs._directories.take_offline(str(tmp_path), OSError("gone"))
        health = await get(node, "/health")
        assert (health.status, health.json["offline_directories"]) == (503, [str(tmp_path)])
        assert (await get(node, "/ready")).status == 503
        assert b"kafka_log_logmanager_offlinelogdirectorycount 1\n" in (await get(node, "/metrics")).body

    with_node(tmp_path, test)


def test_a_full_directory_shows_and_is_no_reason_to_restart_the_node(tmp_path: Any, monkeypatch: Any) -> None:
    """Kubernetes would kill a node that has all its records, and find the disk full again."""

    async def test(node: Node) -> None:
        free = [10 << 30]
        monkeypatch.setattr(type(node.fs), "free_bytes", lambda fs, path: (20 << 30, free[0]))
        told = await get(node, "/health")
        assert (told.json["status"], told.json["full_directories"]) == ("healthy", [])
        free[0] = 4096
        told = await get(node, "/health")
        assert (told.status, told.json["status"], told.json["reasons"]) == (200, "degraded", [])
        assert told.json["full_directories"] == [{"directory": str(tmp_path), "free_bytes": 4096}]
        assert (await get(node, "/ready")).status == 200
        free[0] = 1 << 30
        assert (await get(node, "/health")).json["status"] == "healthy"

    with_node(tmp_path, test)


def test_a_quota_refuses_where_the_file_system_has_room(tmp_path: Any) -> None:
    async def test(node: Node) -> None:
        client = await Client.connect(node)
        await client.create("t")
        client.close()
        (log,) = (log for log in node.logs if log.topic_partition.topic == "t")
        log.health.refuse(OSError(errno.EDQUOT, "quota"))
        told = await get(node, "/health")
        assert (told.status, told.json["status"]) == (200, "degraded")
        assert [each["directory"] for each in told.json["full_directories"]] == [str(tmp_path)]

    with_node(tmp_path, test)


def test_many_requests_on_one_connection(tmp_path: Any) -> None:
    """Pipelined, in any pieces, with and without bodies."""

    async def test(node: Node) -> None:
        reader, writer = await connect(node)
        one = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        other = b"GET /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
        stream = (one + other) * 20
        for start in range(0, len(stream), 7):
            writer.write(stream[start : start + 7])
            if not start % 5:
                await asyncio.sleep(0)
        assert [(await receive(reader)).status for _ in range(40)] == [200, 404] * 20
        writer.write(b"GET /health HTTP/1.0\r\n\r\n")
        assert (await receive(reader)).status == 200
        assert await ended(reader) == b""

    with_node(tmp_path, test)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 3 + b"\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET /" + b"x" * 20_000, 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 4000, 431),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000, 413),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", 417),
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    ],
)
def test_bad_requests_are_refused_and_closed(tmp_path: Any, sent: bytes, status: int) -> None:
    async def test(node: Node) -> None:
        reader, writer = await connect(node)
        writer.write(sent)
        reply = await receive(reader)
        assert (reply.status, reply.headers["connection"]) == (status, "close")
        await ended(reader)
        assert (await get(node, "/health")).status == 200

    with_node(tmp_path, test)


def test_limits_of_time(tmp_path: Any, monkeypatch: Any) -> None:
    """Clients that say nothing, do not finish, or do not take their answer are dropped."""

    async def test(node: Node) -> None:
        for name in ("IDLE_SECONDS_MAX", "REQUEST_SECONDS_MAX", "SEND_SECONDS_MAX"):
            monkeypatch.setattr(http, name, 0.05)
        for sent in (b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"):
            reader, writer = await connect(node)
            writer.write(sent)
            assert await ended(reader) == b""
        page = b"x" * 30_000_000

        async def large(pages: Any, asked: Any) -> Answer:
            return Answer(200, [], [page])

        assert node.http is not None
        node.http.pages._paths["/large"] = Route("/large", large, ())
        reader, writer = await connect(node)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        while node.http.connections:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert len(await ended(reader)) < len(page)

    with_node(tmp_path, test)


def test_a_crowd_drops_who_has_been_quiet_longest(tmp_path: Any, monkeypatch: Any) -> None:
    async def test(node: Node) -> None:
        monkeypatch.setattr(http, "CONNECTIONS_MAX", 3)
        first = await connect(node)
        others = [await connect(node) for _ in range(2)]
        first[1].write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await receive(first[0])).status == 200  # no longer the quietest
        assert (await get(node, "/health")).status == 200
        assert await ended(others[0][0]) == b""
        first[1].write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await receive(first[0])).status == 200

    with_node(tmp_path, test)


def test_a_port_that_is_taken_is_reported(tmp_path: Any) -> None:
    async def test(node: Node) -> None:
        assert node.http is not None
        with pytest.raises(OttlaError, match="stop what uses the port"):
            async with running(str(tmp_path / "b"), {"ottla.http.listener": f"127.0.0.1:{node.http.port}"}):
                pass

    with_node(tmp_path / "a", test)
