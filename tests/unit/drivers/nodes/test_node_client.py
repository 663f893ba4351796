"""Requests to other nodes: pipelining, versions, timeouts, back-off, loss of connections, bytes in pieces."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import uvloop

from ottla.drivers.nodes.node_client import NodeClient, OtherNode, Timing
from ottla.drivers.nodes.node_connection import RECEIVE_BUFFER_BYTES
from ottla.errors import ErrorCode, KafkaError
from ottla.model import MeantNode
from ottla.network import Address, MakeProtocol, SystemNetwork
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey

HEARTBEAT = {"group_id": "g", "generation_id": 1, "member_id": "m"}
QUICK = Timing(request_timeout_ms=5_000, backoff_ms=1, backoff_ms_max=4, setup_timeout_ms=5_000)


class Peer:
    """A node that serves ApiVersions and Heartbeat; `answer` makes the bytes that a heartbeat is answered with."""

    def __init__(self) -> None:
        self.served = [(ApiKey.HEARTBEAT, 0, 3)]
        self.newest_api_versions = 5
        self.me = ("cluster", 1)
        self.seen: list[tuple[int, int, int]] = []
        """(API, version, correlation id) of every request."""
        self.connections = 0
        self.piece = 1 << 30
        """How many bytes of an answer are sent at once."""
        self.answer: Callable[[int, int], bytes | None] = heartbeat_answer
        """(version, correlation id) -> a frame without its length, or None to be silent."""
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                whole = await reader.readexactly(size)
                header = messages.read_header(whole)
                self.seen.append((header.api_key, header.api_version, header.correlation_id))
                if header.api_key == ApiKey.API_VERSIONS:
                    frame: bytes | None = self._versions(header.api_version, header.correlation_id, whole)
                else:
                    frame = self.answer(header.api_version, header.correlation_id)
                if frame is None:
                    continue
                data = struct.pack(">i", len(frame)) + frame
                for start in range(0, len(data), self.piece):
                    writer.write(data[start : start + self.piece])
                    await writer.drain()
                    if self.piece < len(data):
                        await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _versions(self, version: int, correlation_id: int, frame: bytes) -> bytes:
        error = ErrorCode.none
        if 5 <= version <= self.newest_api_versions:
            body_offset = messages.read_header(frame).body_offset
            asked = messages.decode_request(ApiKey.API_VERSIONS, version, bytearray(frame), body_offset)
            if asked.cluster_id is not None and (asked.cluster_id, asked.node_id) != self.me:
                error = ErrorCode.rebootstrap_required
        if version > self.newest_api_versions:
            version, error = 0, ErrorCode.unsupported_version
        served = [*self.served, (ApiKey.API_VERSIONS, 0, self.newest_api_versions)]
        keys = [{"api_key": key, "min_version": low, "max_version": high} for key, low, high in served]
        values = {"error_code": error, "api_keys": keys}
        return messages.encode_response(ApiKey.API_VERSIONS, version, correlation_id, values)


class Held:
    """Answers that are held back until `all_there`."""

    def __init__(self, count: int) -> None:
        self.heads: list[tuple[int, int]] = []
        self.all_there = asyncio.Event()
        self._count = count

    def __call__(self, version: int, correlation_id: int) -> None:
        self.heads.append((version, correlation_id))
        if len(self.heads) == self._count:
            self.all_there.set()

    async def release(self, peer: Peer) -> None:
        for head in self.heads:
            frame = heartbeat_answer(*head)
            peer.writers[0].write(struct.pack(">i", len(frame)) + frame)


def heartbeat_answer(version: int, correlation_id: int) -> bytes:
    return messages.encode_response(ApiKey.HEARTBEAT, version, correlation_id, {"error_code": ErrorCode.none})


@asynccontextmanager
async def peer_and_client(timing: Timing = QUICK) -> AsyncIterator[tuple[Peer, NodeClient, Address]]:
    peer = Peer()
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    client = NodeClient(SystemNetwork(), "test", random.Random(1), timing)
    try:
        yield peer, client, Address("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        await client.close()
        for writer in peer.writers:
            writer.close()
        server.close()
        await server.wait_closed()


def run(test: Any) -> None:
    uvloop.run(asyncio.wait_for(test, 60))


async def beat(client: NodeClient, address: Address, **more: Any) -> Any:
    return await client.ask(address, ApiKey.HEARTBEAT, HEARTBEAT, versions=(0, 4), **more)


async def failure(waiting: Any) -> KafkaError:
    with pytest.raises(KafkaError) as failed:
        await waiting
    return failed.value


def test_the_highest_version_that_both_know() -> None:
    async def body() -> None:
        async with peer_and_client() as (peer, client, address):
            answer = await beat(client, address)
            assert answer.version == 3
            assert answer.response.error_code == ErrorCode.none
            refused = await failure(client.ask(address, ApiKey.HEARTBEAT, HEARTBEAT, versions=(4, 4)))
            assert refused.code == ErrorCode.unsupported_version
            assert (await failure(client.ask(address, ApiKey.VOTE, {}, versions=(0, 2)))).code == refused.code
            assert [key for key, _, _ in peer.seen] == [ApiKey.API_VERSIONS, ApiKey.HEARTBEAT]

    run(body())


@pytest.mark.parametrize("newest", [4, 2, 0])
def test_a_peer_that_knows_older_api_versions_only(newest: int) -> None:
    """As by Kafka's client, the version that the peer names is taken."""

    async def body() -> None:
        async with peer_and_client() as (peer, client, address):
            peer.newest_api_versions = newest
            assert (await beat(client, address)).version == 3
            assert [version for key, version, _ in peer.seen if key == ApiKey.API_VERSIONS] == [5, newest]

    run(body())


def test_a_peer_that_is_another_node(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is sent to it but ApiVersions, and it is logged once; the node that is meant is used again."""

    async def body() -> None:
        async with peer_and_client() as (peer, _, address):
            client = NodeClient(
                SystemNetwork(), "test", random.Random(1), QUICK, whom=lambda _: MeantNode("cluster-a", 4)
            )
            for me in (("cluster-b", 4), ("cluster-a", 5)):
                peer.me = me
                for _ in range(2):
                    failed = await failure(beat(client, address))
                    assert isinstance(failed, OtherNode) and failed.code is ErrorCode.network_exception
                    assert "node 4 of cluster cluster-a" in str(failed)
            assert {key for key, _, _ in peer.seen} == {ApiKey.API_VERSIONS}
            peer.me = ("cluster-a", 4)
            assert (await beat(client, address)).version == 3
            await client.close()

    run(body())
    assert [each.message for each in caplog.records if each.name == "ottla.nodes"] == ["another node answers"]


def test_requests_are_pipelined_on_one_connection() -> None:
    async def body() -> None:
        async with peer_and_client() as (peer, client, address):
            peer.answer = held = Held(20)
            asked = [asyncio.ensure_future(beat(client, address)) for _ in range(20)]
            await held.all_there.wait()
            await held.release(peer)
            assert {(await each).version for each in asked} == {3}
            assert peer.connections == 1

    run(body())


@pytest.mark.parametrize("piece", [1, 3, 4, 5, 1000, RECEIVE_BUFFER_BYTES - 1, RECEIVE_BUFFER_BYTES, 1 << 30])
def test_answers_arrive_in_pieces_of_any_size(piece: int) -> None:
    async def body() -> None:
        async with peer_and_client() as (peer, client, address):
            connection = await client.connection(address)
            peer.piece = piece
            sizes = [0, 1, 100, RECEIVE_BUFFER_BYTES - 9, RECEIVE_BUFFER_BYTES - 8, RECEIVE_BUFFER_BYTES - 7]
            sizes += [RECEIVE_BUFFER_BYTES + 1] if piece < 1000 else [300_000, 0, 70_000]
            bodies = [random.Random(size).randbytes(size) for size in sizes]
            left = iter(bodies)
            peer.answer = lambda _, correlation_id: struct.pack(">i", correlation_id) + next(left)
            request = connection.encode(ApiKey.HEARTBEAT, 3, HEARTBEAT)
            sent = [connection.send(request, 30) for _ in bodies]
            assert [bytes((await each)[4:]) for each in sent] == bodies
            assert connection.in_flight == 0

    run(body())


def test_an_answer_that_does_not_come_in_time_ends_the_connection() -> None:
    async def body() -> None:
        async with peer_and_client() as (peer, client, address):
            peer.answer = lambda *_: None
            connection = await client.connection(address)
            # The later one has less time: it fails first, and takes the other with it.
            long, short = (asyncio.ensure_future(beat(client, address, timeout_ms=ms)) for ms in (30_000, 20))
            assert (await failure(short)).code == ErrorCode.request_timed_out
            assert (await failure(long)).code == ErrorCode.request_timed_out
            assert connection.failure is not None
            peer.answer = heartbeat_answer
            assert (await beat(client, address)).version == 3
            assert peer.connections == 2

    run(body())


def test_a_bug_in_an_attempt_to_connect_fails_all_who_wait_and_is_tried_again_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A caller handles KafkaError alone: with another one its task would end, and nobody would be answered."""

    async def body() -> None:
        async with peer_and_client(QUICK._replace(backoff_ms=20, backoff_ms_max=20)) as (_, client, address):
            tries = 0

            def whom(_: Address) -> MeantNode | None:
                nonlocal tries
                tries += 1
                raise LookupError("a bug")

            client._whom = whom
            failures = await asyncio.gather(*(failure(beat(client, address)) for _ in range(3)))
            assert {(each.code, "a bug" in each.message) for each in failures} == {(ErrorCode.network_exception, True)}
            began = asyncio.get_running_loop().time()
            assert (await failure(beat(client, address))).code == ErrorCode.network_exception
            assert tries == 2 and asyncio.get_running_loop().time() - began > 0.01, "after the back-off"
            client._whom = None
            assert (await beat(client, address)).version == 3

    run(body())
    assert [each.levelname for each in caplog.records if each.message == "internal error in a connection"] == [
        "ERROR",
        "ERROR",
    ]


@pytest.mark.parametrize("frame", [b"", b"\0" * 9, b"\xff" * 40], ids=["empty", "zeros", "ones"])
def test_an_answer_to_the_first_request_that_is_none(frame: bytes) -> None:
    async def body() -> None:
        async with peer_and_client() as (peer, client, address):
            peer._versions = lambda version, correlation_id, whole: (  # type: ignore[method-assign]
                struct.pack(">i", correlation_id) + frame
            )
            assert (await failure(beat(client, address))).code == ErrorCode.network_exception

    run(body())


def test_an_error_code_of_a_newer_release() -> None:
    assert ErrorCode(30_000) is ErrorCode.unknown_server_error
    with pytest.raises(ValueError, match="x"):
        ErrorCode("x")


def test_a_lost_connection_fails_what_is_in_flight_and_is_made_again() -> None:
    async def body() -> None:
        async with peer_and_client() as (peer, client, address):
            arrived = asyncio.Event()
            peer.answer = lambda *_: arrived.set()
            asked = asyncio.ensure_future(beat(client, address))
            await arrived.wait()
            peer.writers[0].close()
            assert (await failure(asked)).code == ErrorCode.network_exception
            peer.answer = heartbeat_answer
            assert (await beat(client, address)).version == 3

    run(body())


@pytest.mark.parametrize("wrong", ["correlation id", "length"])
def test_answers_out_of_order_end_the_connection(wrong: str) -> None:
    async def body() -> None:
        async with peer_and_client() as (peer, client, address):
            connection = await client.connection(address)
            if wrong == "correlation id":
                peer.answer = lambda version, correlation_id: heartbeat_answer(version, correlation_id + 1)
            else:
                peer.answer = lambda *_: peer.writers[0].write(struct.pack(">i", -1))
            assert (await failure(beat(client, address))).code == ErrorCode.network_exception
            assert connection.failure is not None

    run(body())


def test_back_off_doubles_up_to_its_limit_and_starts_over_after_a_success() -> None:
    async def body() -> None:
        tried: list[float] = []
        refuse = True
        loop = asyncio.get_running_loop()

        class Refusing(SystemNetwork):
            async def connect(self, protocol: MakeProtocol, host: str, port: int, **more: Any) -> Any:
                tried.append(loop.time())
                if refuse:
                    raise ConnectionRefusedError(111, "refused")
                return await super().connect(protocol, host, port, **more)

        async with peer_and_client() as (_, _, address):
            timing = Timing(request_timeout_ms=5_000, backoff_ms=8, backoff_ms_max=50, setup_timeout_ms=5_000)
            client = NodeClient(Refusing(), "test", random.Random(1), timing)
            for _ in range(6):
                assert (await failure(beat(client, address))).code == ErrorCode.network_exception
            waits = [later - sooner for sooner, later in pairwise(tried)]
            for wait, least in zip(waits, (6.4, 12.8, 25.6, 50, 50), strict=True):
                assert wait >= least / 1000 - 0.002  # no upper limit: a machine may be slow
            refuse = False
            assert (await beat(client, address)).version == 3
            await client.close()
            assert (await failure(beat(client, address))).code == ErrorCode.network_exception

    run(body())


def test_no_time_left_while_in_back_off() -> None:
    async def body() -> None:
        class Refusing(SystemNetwork):
            async def connect(self, protocol: MakeProtocol, host: str, port: int, **more: Any) -> Any:
                raise ConnectionRefusedError(111, "refused")

        timing = Timing(request_timeout_ms=5_000, backoff_ms=60_000, backoff_ms_max=60_000)
        client = NodeClient(Refusing(), "test", random.Random(1), timing)
        address = Address("127.0.0.1", 1)
        assert (await failure(beat(client, address))).code == ErrorCode.network_exception
        waiting = asyncio.ensure_future(beat(client, address))
        assert (await failure(beat(client, address, timeout_ms=10))).code == ErrorCode.request_timed_out
        await client.close()  # what is asked for meanwhile fails at once
        assert (await failure(waiting)).code == ErrorCode.network_exception

    run(body())


def test_a_cancelled_request_is_not_answered() -> None:
    async def body() -> None:
        async with peer_and_client() as (peer, client, address):
            peer.answer = held = Held(2)
            asked = [asyncio.ensure_future(beat(client, address)) for _ in range(2)]
            await held.all_there.wait()
            asked[0].cancel()
            await held.release(peer)
            assert (await asked[1]).version == 3

    run(body())
