"""TLS at the network's seam: over real sockets, and over a simulated network that cuts everything into pieces."""

from __future__ import annotations

import asyncio
import gc
import random
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ottla import tls_connection, tls_network
from ottla.filesystem import OsFileSystem
from ottla.network import MORE, SystemNetwork
from ottla.security.certificates import subject_of
from ottla.server.connections.outbox import Outbox, SliceRest
from ottla.testing.loop import SimulatedTime
from ottla.testing.network import SimulatedNetwork
from ottla.tls_connection import TlsConnection
from ottla.tls_handshakes import (
    HANDSHAKES_AT_ONCE,
    ClosedInHandshake,
    Failure,
    Handshakes,
    Step,
    TlsContexts,
    TlsFailed,
    load_identity,
    shake_hands,
)
from ottla.tls_network import TlsNetwork
from tests.certificates import Authority, Identity
from tests.unit.server.stub import until

AUTHORITY = Authority()
NODE = AUTHORITY.issue("node")
CLIENT = AUTHORITY.issue("client", hosts=())
CONTENT = random.Random(1).randbytes(3_000_000)


def server_context(identity: Identity = NODE, verify: ssl.VerifyMode = ssl.CERT_NONE) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_identity(context, identity.pem(), None)
    context.verify_mode = verify
    context.load_verify_locations(cadata=AUTHORITY.pem)
    return context


def client_context(identity: Identity | None = None, authority: Authority = AUTHORITY) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.pem)
    if identity is not None:
        load_identity(context, identity.pem(), None)
    return context


class End(asyncio.BufferedProtocol):
    """Either end: a buffer of some size, and all that came."""

    def __init__(self, size: int = 100_000) -> None:
        self.buffer = memoryview(bytearray(size))
        self.received = bytearray()
        self.transport: Any = None
        self.peer: Any = "unknown"
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.known: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.grew = asyncio.Event()
        self.calls = 0
        self.ended = False
        self.stays_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def secured(self, peer: str | None) -> None:
        self.peer = peer
        self.known.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.calls += 1
        self.received += self.buffer[:nbytes]
        self.grew.set()

    def eof_received(self) -> bool:
        self.ended = True
        return self.stays_open

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(exc)

    async def until(self, size: int) -> bytes:
        while len(self.received) < size:
            self.grew.clear()
            await self.grew.wait()
        return bytes(self.received)


class Pair:
    """A listening network, and one that connects to it."""

    def __init__(self, server: ssl.SSLContext | None, client: ssl.SSLContext | None) -> None:
        self.handshakes = Handshakes()
        self.failures: list[Failure] = []
        self.ends: list[End] = []
        self.here = TlsNetwork(
            SystemNetwork(),
            TlsContexts(server),
            self.handshakes,
            subject_of=subject_of,
            on_failure=self.failures.append,
        )
        self.there = TlsNetwork(SystemNetwork(), TlsContexts(None, client), self.handshakes)
        self.port = 0
        self.make: Callable[[], End] = End

    def _made(self) -> End:
        self.ends.append(self.make())
        return self.ends[-1]

    async def connect(self, host: str = "localhost") -> End:
        _, protocol = await self.there.connect(End, host, self.port)
        assert isinstance(protocol, End)
        return protocol

    async def accepted(self) -> End:
        await until(lambda: self.ends)
        await self.ends[-1].known
        return self.ends[-1]


@asynccontextmanager
async def pair(server: ssl.SSLContext | None = None, client: ssl.SSLContext | None = None) -> AsyncIterator[Pair]:
    both = Pair(server or server_context(), client or client_context())
    acceptor = await both.here.listen(both._made, "127.0.0.1", 0)
    both.port = acceptor.port
    acceptor.start()
    try:
        yield both
    finally:
        acceptor.close()
        for end in both.ends:
            end.transport.abort()
        both.handshakes.close()


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def work(test: Any) -> Any:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(asyncio.wait_for(test, 20))

    return work


def test_bytes_go_both_ways_and_the_server_knows_who_is_there(run: Any) -> None:
    async def main() -> None:
        async with pair(server_context(verify=ssl.CERT_REQUIRED), client_context(CLIENT)) as both:
            client = await both.connect()
            server = await both.accepted()
            assert server.peer == "CN=client"
            assert server.transport.get_extra_info("peername")[0] == "127.0.0.1"
            assert client.transport.get_extra_info("ssl_object").version() == "TLSv1.3"
            client.transport.write(CONTENT)
            assert await server.until(len(CONTENT)) == CONTENT
            server.transport.write(CONTENT[:100])
            assert await client.until(100) == CONTENT[:100]
            client.transport.close()
            assert await client.lost is None
            assert await server.lost is None
            assert server.ended
            assert not both.failures

    run(main())


def test_a_client_without_a_certificate_has_no_name(run: Any) -> None:
    async def main() -> None:
        async with pair(server_context(verify=ssl.CERT_OPTIONAL)) as both:
            await both.connect()
            assert (await both.accepted()).peer is None

    run(main())


def test_many_records_are_decrypted_before_the_protocol_looks(run: Any) -> None:
    """Frames of a megabyte would else come in a hundred pieces."""

    async def main() -> None:
        async with pair() as both:
            both.make = lambda: End(1 << 20)
            client = await both.connect()
            server = await both.accepted()
            client.transport.write(CONTENT[:1_000_000])
            await server.until(1_000_000)
            assert server.calls <= 32  # 62 records

    run(main())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions(run: Any, version: ssl.TLSVersion) -> None:
    async def main() -> None:
        context = server_context(verify=ssl.CERT_REQUIRED)
        context.minimum_version = context.maximum_version = version
        async with pair(context, client_context(CLIENT)) as both:
            client = await both.connect()
            server = await both.accepted()
            assert client.transport.get_extra_info("ssl_object").version() == version.name.replace("_", ".")
            client.transport.write(b"x")
            assert await server.until(1) == b"x"

    run(main())


def test_an_unwanted_name_is_refused(run: Any) -> None:
    async def main() -> None:
        async with pair(server_context(AUTHORITY.issue("other", hosts=("elsewhere",)))) as both:
            with pytest.raises(TlsFailed, match="Hostname mismatch"):
                await both.connect()

    run(main())


def test_an_unknown_authority_is_refused_and_the_server_hears_why(run: Any) -> None:
    async def main() -> None:
        async with pair(client=client_context(authority=Authority("Unknown"))) as both:
            with pytest.raises(TlsFailed, match="not accepted"):
                await both.connect()
            await both.ends[0].lost
            assert [each.reason for each in both.failures] == ["tlsv1 alert unknown ca"]
            assert both.failures[0].client_host == "127.0.0.1"

    run(main())


@pytest.mark.parametrize(
    ("identity", "said", "heard"),
    [
        (None, "peer did not return a certificate", "tlsv13 alert certificate required"),
        (Authority("Unknown").issue("stranger"), "unable to get local issuer certificate", "tlsv1 alert unknown ca"),
        (AUTHORITY.issue("late", days=(-9, -2)), "certificate has expired", "sslv3 alert certificate expired"),
    ],
)
def test_a_bad_client_certificate_is_named_on_both_sides(
    run: Any, identity: Identity | None, said: str, heard: str
) -> None:
    async def main() -> None:
        async with pair(server_context(verify=ssl.CERT_REQUIRED), client_context(identity)) as both:
            client = await both.connect()  # TLS 1.3 tells it afterwards
            assert heard in str(await client.lost)
            await both.ends[0].lost
            assert both.ends[0].peer == "unknown"
            (failure,) = both.failures
            assert said in failure.reason

    run(main())


def test_a_client_is_not_late_while_it_waits_for_a_thread_of_the_node(run: Any) -> None:
    """The last of thousands that come at once would be refused, come again, and keep the storm alive."""
    going = threading.Event()

    async def main() -> None:
        async with pair() as both:
            loop = asyncio.get_running_loop()
            for _ in range(HANDSHAKES_AT_ONCE):
                both.handshakes.run(loop, lambda: Step(done=going.wait(60)))
            try:
                opening = loop.create_task(asyncio.open_connection("localhost", both.port, ssl=client_context()))
                await until(lambda: both.ends and both.ends[0].transport._stepping)
                both.ends[0].transport._late()
                assert not both.failures and not opening.done()
            finally:
                going.set()
            _, writer = await opening
            await both.ends[0].known
            writer.close()
            assert not both.failures

    run(main())


def test_nobody_waits_any_more_for_a_connection_that_was_made(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop closes it then without a word, and raises at the next write. Nothing of it reaches the event loop."""
    going = threading.Event()
    errors: list[Any] = []
    made: list[TlsConnection] = []
    connection_made = TlsConnection.connection_made

    async def main() -> None:
        async with pair() as both:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: errors.append(context))
            for _ in range(HANDSHAKES_AT_ONCE):
                both.handshakes.run(loop, lambda: Step(done=going.wait(60)))
            connecting = loop.create_task(both.there.connect(End, "localhost", both.port))

            def cancelling(self: TlsConnection, transport: asyncio.BaseTransport) -> None:
                connection_made(self, transport)
                if self._done is not None:
                    made.append(self)
                    connecting.cancel()

            monkeypatch.setattr(TlsConnection, "connection_made", cancelling)
            with pytest.raises(asyncio.CancelledError):
                await connecting
            going.set()
            await until(lambda: not made[0]._stepping)
            assert made.pop()._timer is None

    run(main())
    gc.collect()
    assert not errors


def test_plain_bytes_and_silence_are_failures(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_connection, "HANDSHAKE_SECONDS_MAX", 0.2)

    async def main() -> None:
        async with pair() as both:
            reader, writer = await asyncio.open_connection("127.0.0.1", both.port)
            writer.write(b"\x00\x00\x00\x10 a request of Kafka")
            assert len(await reader.read()) < 20  # at most an alert
            reader, writer = await asyncio.open_connection("127.0.0.1", both.port)
            assert await reader.read() == b""
            _, probe = await asyncio.open_connection("127.0.0.1", both.port)
            probe.close()  # as Kubernetes looks at a port: no handshake at all
            _, writer = await asyncio.open_connection("127.0.0.1", both.port)
            writer.write(b"\x16\x03")
            writer.close()
            await until(lambda: len(both.failures) == 3)
            reasons = [each.reason for each in both.failures]
            assert reasons[0] in ("wrong version number", "http request", "unsupported protocol")
            assert "not done in" in reasons[1]
            assert "closed before the end" in reasons[2]

    run(main())


def test_an_endless_handshake_is_cut_off(run: Any) -> None:
    """Records that TLS keeps for later: nobody is to fill memory with them before he is known."""

    async def main() -> None:
        async with pair() as both:
            _, writer = await asyncio.open_connection("127.0.0.1", both.port)
            hello = b"\x01" + (1 << 17).to_bytes(3, "big")  # a ClientHello that never ends
            record = b"\x16\x03\x01" + (4 + 12_000).to_bytes(2, "big") + hello + bytes(12_000)
            more = b"\x16\x03\x01" + (16_000).to_bytes(2, "big") + bytes(16_000)
            writer.write(record + 40 * more)
            await until(lambda: both.failures)
            assert len(both.failures) == 1

    run(main())


def test_a_close_during_the_handshake_has_an_error_of_its_own(run: Any) -> None:
    """The process of another node that is ending accepts and closes."""

    async def main() -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        there = TlsNetwork(SystemNetwork(), TlsContexts(None, client_context()), Handshakes())
        with pytest.raises((ClosedInHandshake, ConnectionResetError)):
            await there.connect(End, "localhost", server.sockets[0].getsockname()[1])
        there.handshakes.close()
        server.close()

    run(main())


def test_a_paused_protocol_is_given_nothing_and_keeps_little(run: Any) -> None:
    async def main() -> None:
        async with pair() as both:
            client = await both.connect()
            server = await both.accepted()
            server.transport.pause_reading()
            client.transport.write(CONTENT)
            for _ in range(20):
                await asyncio.sleep(0.005)
            assert not server.received
            assert len(server.transport._kept) <= 2 * tls_network.CIPHER_BUFFER_BYTES
            server.transport.resume_reading()
            assert not server.received  # not at once
            assert await server.until(len(CONTENT)) == CONTENT

    run(main())


def test_a_pause_in_the_middle_of_what_was_received(run: Any) -> None:
    class Shy(End):
        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(0, self.transport.resume_reading)

    async def main() -> None:
        async with pair() as both:
            both.make = lambda: Shy(5000)
            client = await both.connect()
            server = await both.accepted()
            client.transport.write(CONTENT[:500_000])
            assert await server.until(500_000) == CONTENT[:500_000]

    run(main())


def outbox_of(network: TlsNetwork, end: End, drained: Callable[[], None] = lambda: None) -> Outbox:
    def failed(error: OSError) -> None:
        end.transport.abort()

    return Outbox(asyncio.get_running_loop(), network.sender(end.transport), drained, failed)


def test_what_a_paused_connection_keeps_is_its_own(run: Any) -> None:
    """All connections receive into one buffer: what is left there of one must not become another's."""

    class Shy(End):
        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            self.transport.pause_reading()

    async def main() -> None:
        async with pair() as both:
            both.make = lambda: Shy(1000)
            first = await both.connect()
            shy = await both.accepted()
            first.transport.write(CONTENT[:50_000])
            await shy.until(1)
            both.make = End
            second = await both.connect()
            await until(lambda: len(both.ends) == 2)
            other = await both.accepted()
            second.transport.write(CONTENT[50_000:1_000_000])
            assert await other.until(950_000) == CONTENT[50_000:1_000_000]
            while len(shy.received) < 50_000:
                before = len(shy.received)
                shy.transport.resume_reading()
                await shy.until(before + 1)
            assert bytes(shy.received) == CONTENT[:50_000]

    run(main())


def test_an_outbox_sends_through_it(run: Any, tmp_path: Path) -> None:
    """Buffers, gathered buffers and slices of files, in order, to a client that reads slowly."""
    (tmp_path / "f").write_bytes(CONTENT)
    file = OsFileSystem().open(str(tmp_path / "f"))

    async def main() -> None:
        async with pair() as both:
            client = await both.connect()
            server = await both.accepted()
            drained = asyncio.Event()
            outbox = outbox_of(both.here, server, drained.set)
            expected = bytearray()
            random_ = random.Random(3)

            def write(parts: list[Any], data: bytes) -> None:
                outbox.write(parts, len(data))
                expected.extend(data)

            client.transport.pause_reading()
            for number in range(60):
                size = random_.choice((1, 100, 16_384, 70_000, 400_000))
                if number % 3 == 0:
                    write([CONTENT[:size]], CONTENT[:size])
                elif number % 3 == 1:
                    write([b"a" * 10, memoryview(CONTENT)[:size], b"b"], b"a" * 10 + CONTENT[:size] + b"b")
                else:
                    place = type("Slice", (), {"file": file})()
                    write([b"head", SliceRest(place, 5, size)], b"head" + CONTENT[5 : 5 + size])
                outbox.flush()
            assert outbox.queued
            client.transport.resume_reading()
            assert await client.until(len(expected)) == expected
            await until(lambda: not outbox.queued)
            write([b"after"], b"after")
            outbox.flush()
            assert await client.until(len(expected)) == expected

    run(main())


def test_what_was_taken_is_sent_also_when_nothing_follows(run: Any) -> None:
    """Cipher text that did not fit into the socket is the sender's to send, also behind a close."""

    async def main() -> None:
        async with pair() as both:
            client = await both.connect()
            server = await both.accepted()
            sender = both.here.sender(server.transport)
            client.transport.pause_reading()
            sent = 0
            with pytest.raises(BlockingIOError):
                while True:
                    sent += sender.send(CONTENT[:50_000])
            assert sender.has_rest
            server.transport.close()
            client.transport.resume_reading()
            assert await client.until(sent) == CONTENT[:50_000] * (sent // 50_000)
            assert await client.lost is None

    run(main())


def test_a_head_and_its_slice_are_sent_at_once(run: Any, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(CONTENT)
    file = OsFileSystem().open(str(tmp_path / "f"))

    async def main() -> None:
        async with pair() as both:
            client = await both.connect()
            server = await both.accepted()
            sender = both.here.sender(server.transport)
            assert sender.sendmsg([b"he", b"ad"], (), MORE) == 4
            await asyncio.sleep(0.02)
            assert not client.received
            assert sender.send_file(file, 10, 100) == 100
            assert await client.until(104) == b"head" + CONTENT[10:110]
            assert sender.send_file(file, len(CONTENT), 100) == 0

    run(main())


def test_the_loop_goes_on_while_many_shake_hands(run: Any) -> None:
    """A handshake step never runs on the loop's thread."""
    import threading

    async def main() -> None:
        async with pair() as both:
            here = threading.get_ident()
            threads: set[int] = set()
            real = TlsConnection._work

            def work(self: TlsConnection) -> Any:
                threads.add(threading.get_ident())
                return real(self)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(TlsConnection, "_work", work)
                await asyncio.gather(*(both.connect() for _ in range(50)))
            assert threads and here not in threads
            assert len(threads) <= HANDSHAKES_AT_ONCE

    run(main())


def test_a_new_context_serves_the_next_client(run: Any) -> None:
    async def main() -> None:
        async with pair() as both:
            old = await both.connect()
            other = Authority("Other")
            both.here.contexts.server = server_context(other.issue("node"))
            with pytest.raises(TlsFailed):
                await both.connect()
            both.there.contexts.client = client_context(authority=other)
            assert await both.connect()
            old.transport.write(b"still there")
            assert await both.ends[0].until(11) == b"still there"

    run(main())


def test_a_cipher_suite_that_is_not_wanted_is_refused(run: Any) -> None:
    async def main() -> None:
        async with pair() as both:
            both.here.contexts.suites = frozenset({"TLS_AES_128_GCM_SHA256"})
            client = await both.connect()
            await client.lost
            assert "TLS_AES_256_GCM_SHA384" in both.failures[0].reason

    run(main())


def test_a_held_handshake_begins_later(run: Any) -> None:
    async def main() -> None:
        async with pair() as both:

            class Held(End):
                def connection_made(self, transport: asyncio.BaseTransport) -> None:
                    super().connection_made(transport)
                    self.transport.hold_handshake(0.1)

            both.make = Held
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            await both.connect()
            assert loop.time() - began_s >= 0.09

    run(main())


def test_a_protocol_that_is_handed_bytes(run: Any) -> None:
    """As that of an HTTP server."""

    class Plain(asyncio.Protocol):
        def __init__(self) -> None:
            self.received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def data_received(self, data: bytes) -> None:
            self.received.set_result(data)

    async def main() -> None:
        handshakes = Handshakes()
        here = TlsNetwork(SystemNetwork(), TlsContexts(server_context(), client_context()), handshakes)
        made: list[Plain] = []
        acceptor = await here.listen(lambda: made.append(Plain()) or made[-1], "127.0.0.1", 0)  # type: ignore[func-returns-value]
        acceptor.start()
        transport, _ = await here.connect(asyncio.Protocol, "127.0.0.1", acceptor.port)
        transport.write(b"GET")
        assert await made[0].received == b"GET"
        transport.close()
        acceptor.close()
        handshakes.close()

    run(main())


@pytest.mark.parametrize("seed", range(6))
def test_pieces_of_any_size(seed: int) -> None:
    """On the simulated network: every split of the records, small windows, a reader that pauses."""
    time = SimulatedTime(seed)
    network = SimulatedNetwork(time)
    loops = [time.loop("server"), time.loop("client")]
    ends: list[End] = []
    done: list[bool] = []
    contexts = TlsContexts(server_context(), client_context())

    async def serve() -> None:
        here = TlsNetwork(network.of(loops[0], "localhost"), contexts, Handshakes())

        def make() -> End:
            ends.append(End(3000 + 1000 * seed))
            return ends[-1]

        acceptor = await here.listen(make, "", 9092)
        acceptor.start()
        while not ends:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await ends[0].until(200_000)
        outbox = outbox_of(here, ends[0])
        outbox.write([b"head", memoryview(CONTENT)[:300_000]], 300_004)
        outbox.flush()

    async def ask() -> None:
        there = TlsNetwork(network.of(loops[1], "client"), contexts, Handshakes())
        await asyncio.sleep(0.1)
        transport, protocol = await there.connect(End, "localhost", 9092)
        assert isinstance(protocol, End)
        transport.write(CONTENT[:200_000])
        assert await protocol.until(300_004) == b"head" + CONTENT[:300_000]
        assert ends[0].received == CONTENT[:200_000]
        done.append(True)

    tasks = [loop.create_task(work) for loop, work in zip(loops, (serve(), ask()), strict=True)]
    time.run(until=lambda: all(each.done() for each in tasks), seconds_max=600)
    for each in tasks:
        each.result()
    assert done


def test_two_contexts_that_do_not_fit() -> None:
    shake_hands(server_context(), client_context())
    with pytest.raises(ssl.SSLError):
        shake_hands(server_context(), client_context(authority=Authority()))
    with pytest.raises(ssl.SSLError):
        shake_hands(server_context(verify=ssl.CERT_REQUIRED), client_context())


def test_no_key_is_ever_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`load_cert_chain` takes paths only: this one leads to memory without a name."""
    paths: list[str] = []
    real = ssl.SSLContext.load_cert_chain

    def load(self: ssl.SSLContext, path: str, **more: Any) -> None:
        paths.append(path)
        real(self, path, **more)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load)
    load_identity(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), NODE.pem("secret"), "secret")
    assert paths[0].startswith("/proc/self/fd/")
    with pytest.raises(ssl.SSLError):
        load_identity(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), NODE.pem("secret"), None)
