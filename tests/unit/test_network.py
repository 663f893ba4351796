"""The system's network: addresses, connections, and slices of files that can or cannot be sent without a copy."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from ottla.config.server import ServerConfig
from ottla.errors import OttlaError
from ottla.filesystem import File, OsFileSystem
from ottla.network import SENDFILE_BYTES_MAX, SlowPeers, SocketSender, SystemNetwork
from ottla.protocol.messages import ApiKey
from ottla.server import main as main_module
from ottla.server.connections.outbox import Outbox, SliceRest
from ottla.server.listeners.listening import check_address
from ottla.testing.disk import SimulatedFileSystem
from tests.unit.server import node as nodes

CONTENT = bytes(range(256)) * 8192


def run(test: Any) -> Any:
    return uvloop.run(asyncio.wait_for(test, 300))


class Receiver(asyncio.Protocol):
    def __init__(self, expected: int) -> None:
        self.received = bytearray()
        self.expected = expected
        self.done = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.received += data
        if len(self.received) >= self.expected and not self.done.done():
            self.done.set_result(None)


def filled(kind: str, directory: Path) -> File:
    if kind == "real":
        file: File = OsFileSystem().open(str(directory / "f"), create=True)
    else:
        file = SimulatedFileSystem(Random(1)).open("/f", create=True)
    file.pwrite([CONTENT], 0)
    return file


@pytest.mark.parametrize("kind", ["real", "simulated"])
def test_the_files_ability_decides_how_a_slice_is_sent(tmp_path: Path, kind: str, monkeypatch: Any) -> None:
    """One outbox, one kind of socket: a file with a descriptor is never read, one without is."""
    file = filled(kind, tmp_path)
    reads: list[int] = []
    real = type(file).pread
    monkeypatch.setattr(type(file), "pread", lambda self, *a: reads.append(a[0]) or real(self, *a))  # type: ignore[func-returns-value]
    whole = SliceRest(SimpleNamespace(file=file), 1000, len(CONTENT) - 1000)

    async def main() -> bytes:
        network, loop = SystemNetwork(), asyncio.get_running_loop()

        class Server(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                def failed(error: OSError) -> None:
                    raise AssertionError from error

                self.outbox = Outbox(loop, network.sender(transport), lambda: None, failed)
                self.outbox.write((b"head", whole, b"tail"), 8 + whole.length)
                self.outbox.flush()

            def connection_lost(self, error: Exception | None) -> None:
                self.outbox.close()

        acceptor = await network.listen(Server, "127.0.0.1", 0)
        acceptor.start()
        receiver = Receiver(8 + whole.length)
        transport, _ = await network.connect(lambda: receiver, "127.0.0.1", acceptor.port)
        await receiver.done
        transport.close()
        acceptor.close()
        await acceptor.wait_closed()
        return bytes(receiver.received)

    assert run(main()) == b"head" + CONTENT[1000:] + b"tail"
    assert bool(reads) == (kind == "simulated")


def test_one_call_sends_a_part_of_a_large_slice(tmp_path: Path, monkeypatch: Any) -> None:
    """However much the socket would take, the loop turns to other clients after a megabyte."""
    asked: list[int] = []

    def sendfile(to: int, source: int, position: int, length: int) -> int:
        asked.append(length)
        return length

    monkeypatch.setattr("os.sendfile", sendfile)
    file = filled("real", tmp_path)
    ours, theirs = socket.socketpair()
    with closing(asyncio.new_event_loop()) as loop, theirs:
        sender = SocketSender(SlowPeers(loop), ours.detach())
        assert sender.send_file(file, 0, len(CONTENT)) == SENDFILE_BYTES_MAX < len(CONTENT)
        assert sender.send_file(file, 5, 1000) == 1000
        sender.close()
    assert asked == [SENDFILE_BYTES_MAX, 1000]


def test_a_node_on_a_simulated_disk_serves_what_it_holds() -> None:
    fs = SimulatedFileSystem(Random(1))
    fs.makedirs("/data")

    async def main() -> None:
        async with nodes.running("/data", fs=fs) as node:
            client = await nodes.Client.connect(node)
            await client.create("t")
            sent = nodes.batch(100_000, 5)
            assert not (await client.produce("t", sent))["error_code"]
            fetched = await client.fetch("t", 0)
            assert bytes(fetched["records"])[61:] == sent[61:]
            await client.ask(ApiKey.API_VERSIONS, 0, {})
            client.close()

    run(main())


def test_an_address_is_taken_once_and_given_back() -> None:
    async def main() -> None:
        network = SystemNetwork()
        acceptor = await network.listen(asyncio.Protocol, "127.0.0.1", 0)
        acceptor.start()
        with pytest.raises(OttlaError, match=f"cannot listen on 127.0.0.1:{acceptor.port}: address already in use"):
            await check_address(network, "127.0.0.1", acceptor.port)
        acceptor.close()
        await acceptor.wait_closed()
        await check_address(network, "127.0.0.1", acceptor.port)
        with pytest.raises(ConnectionRefusedError):
            await network.connect(asyncio.Protocol, "127.0.0.1", acceptor.port)

    run(main())


def test_many_peers_that_read_slowly_get_everything() -> None:
    """All wait to be written to at once; one of them goes away meanwhile."""
    peers, size, watched = 6, 8 << 20, []

    async def main() -> list[bytes]:
        network, loop = SystemNetwork(send_buffer_bytes=50_000), asyncio.get_running_loop()
        lost, begun = loop.create_future(), asyncio.Event()

        class Server(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                sock = transport.get_extra_info("socket")
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 100_000  # Linux doubles it
                self.outbox = Outbox(loop, network.sender(transport), lambda: None, lambda error: None)
                self.outbox.write((b"h" * size,), size)
                self.outbox.flush()
                watched.append(self.outbox.queued)
                if len(watched) == peers:
                    begun.set()

            def connection_lost(self, error: Exception | None) -> None:
                self.outbox.close()
                if not lost.done():
                    lost.set_result(None)

        acceptor = await network.listen(Server, "127.0.0.1", 0)
        acceptor.start()
        receivers = [Receiver(size) for _ in range(peers)]
        transports = []
        for receiver in receivers:
            transport, _ = await network.connect(lambda receiver=receiver: receiver, "127.0.0.1", acceptor.port)  # type: ignore[misc]
            transport.pause_reading()
            transports.append(transport)
        await begun.wait()
        transports[0].abort()
        await lost
        for transport in transports[1:]:
            transport.resume_reading()
        for receiver in receivers[1:]:
            await receiver.done
        for transport in transports[1:]:
            transport.close()
        acceptor.close()
        await acceptor.wait_closed()
        return [bytes(receiver.received) for receiver in receivers[1:]]

    assert run(main()) == [b"h" * size] * (peers - 1)
    assert len(watched) == peers and min(watched) > 0


def test_a_node_has_the_send_buffers_of_its_settings(monkeypatch: Any) -> None:
    class Made(Exception):
        pass

    def made(send_buffer_bytes: int) -> None:
        raise Made(send_buffer_bytes)

    monkeypatch.setattr(main_module, "SystemNetwork", made)
    for value in (102_400, -1):
        config = ServerConfig.load(None, {"log.dirs": "/nowhere", "socket.send.buffer.bytes": str(value)}, {})
        with pytest.raises(Made, match=str(value)):
            run(main_module._serve(config, lambda *_: None, None, lambda *_: None))  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_connection_has_the_receive_buffer_that_is_asked_for(host: str) -> None:
    async def main() -> None:
        network = SystemNetwork()
        acceptor = await network.listen(asyncio.Protocol, "127.0.0.1", 0)
        acceptor.start()

        async def option(size: int, level: int, name: int) -> int:
            transport, _ = await network.connect(asyncio.Protocol, host, acceptor.port, receive_buffer_bytes=size)
            try:
                return int(transport.get_extra_info("socket").getsockopt(level, name))
            finally:
                transport.close()

        received = socket.SOL_SOCKET, socket.SO_RCVBUF
        assert await option(50_000, *received) == 100_000  # Linux doubles it
        assert await option(-1, *received) == await option(0, *received) != 100_000
        assert await option(50_000, socket.IPPROTO_TCP, socket.TCP_NODELAY)
        acceptor.close()
        await acceptor.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await network.connect(asyncio.Protocol, host, acceptor.port, receive_buffer_bytes=50_000)
        with pytest.raises(OSError):
            await network.connect(asyncio.Protocol, "no-such-host.invalid", 1, receive_buffer_bytes=50_000)

    run(main())
