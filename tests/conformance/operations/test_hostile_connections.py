"""Peers that send garbage, too much, too little, or nothing, and peers that do not read: only they suffer."""

from __future__ import annotations

import socket
import struct
import time

import pytest

from bench.method.brokers import resident_mb
from bench.method.load import Client, batch_of, fetch_frame, produce_frame
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from tests.node import NodeProcess


def connect(node: NodeProcess) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", node.port), timeout=300)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def exactly(connection: socket.socket, size: int) -> bytes:
    """`size` bytes; raises ConnectionResetError at the end of the stream."""
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionResetError
        data += part
    return data


def receive(connection: socket.socket) -> bytes:
    """The body of the next frame."""
    return exactly(connection, struct.unpack(">i", exactly(connection, 4))[0])


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1 << 16) == b""
    except ConnectionResetError:
        return True


def answers(node: NodeProcess) -> bool:
    client = Client(node.port)
    version = client.call(ApiKey.API_VERSIONS, 3, {"client_software_name": "a", "client_software_version": "1"})
    client.close()
    return bool(version["error_code"] == 0)


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0x7FFFFFFF),
        struct.pack(">i", 104857601),
        frame(b""),
        frame(b"\0\x03"),
        frame(struct.pack(">hhih", 3, 9, 1, 500)),
        frame(struct.pack(">hhih", 3, 9, 1, -7)),
        frame(struct.pack(">hhih", 999, 0, 1, -1)),
        frame(struct.pack(">hhih", 3, 99, 1, -1)),
        frame(struct.pack(">hhih", 3, -1, 1, -1)),
        frame(struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 0x7FFFFFFF)),
        frame(struct.pack(">hhih", 0, 3, 1, -1) + b"\xff" * 9),
        frame(struct.pack(">hhih", 1, 12, 1, -1) + b"\xff\xff\xff\xff\x7f" * 3),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    ],
)
def test_garbage_closes_that_connection_and_no_other(node: NodeProcess, sent: bytes) -> None:
    bystander = Client(node.port)
    bystander.call(ApiKey.METADATA, 9, {"topics": ()})
    with connect(node) as connection:
        connection.sendall(sent)
        assert is_closed(connection)
    bystander.call(ApiKey.METADATA, 9, {"topics": ()})
    bystander.close()


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(node: NodeProcess) -> None:
    with connect(node) as connection:
        connection.sendall(frame(struct.pack(">hhihx", 18, 99, 7, -1)))
        answer = receive(connection)
        correlation_id, error, count = struct.unpack_from(">ihi", answer)
        assert (correlation_id, error) == (7, 35)
        assert struct.unpack_from(">hhh", answer, 10) == (18, 0, 5)
        assert count == 1


def test_one_byte_at_a_time(node: NodeProcess, topic: str) -> None:
    client = Client(node.port)
    client.create_topic(topic)
    batch, _ = batch_of(300)
    for byte in produce_frame(topic, 0, batch):
        client.socket.sendall(bytes([byte]))
    _, answer = messages.decode_response(ApiKey.PRODUCE, 11, client.receive_frame())
    assert messages.plain(answer)["responses"][0]["partition_responses"][0]["error_code"] == 0
    client.close()


def test_many_requests_in_one_segment_are_answered_in_order(node: NodeProcess) -> None:
    with connect(node) as connection:
        requests = [messages.encode_request(ApiKey.METADATA, 9, i, "x", {"topics": ()}) for i in range(500)]
        connection.sendall(b"".join(map(frame, requests)))
        answers = connection.makefile("rb")  # recv with a timeout returns what is there, even under MSG_WAITALL
        for expected in range(500):
            size = struct.unpack(">i", answers.read(4))[0]
            assert struct.unpack_from(">i", answers.read(size))[0] == expected


def test_half_a_request_and_then_silence_or_goodbye(node: NodeProcess, topic: str) -> None:
    client = Client(node.port)
    client.create_topic(topic)
    batch, count = batch_of(50_000)
    request = produce_frame(topic, 0, batch)
    for cut in (2, 4, 20, 60, len(request) // 2, len(request) - 1):
        with connect(node) as connection:
            connection.sendall(request[:cut])
    with connect(node) as silent:
        silent.sendall(request[: len(request) // 2])
        client.socket.sendall(request)
        client.receive_frame()
        offsets = client.call(
            ApiKey.LIST_OFFSETS,
            7,
            {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
            },
        )
        assert offsets["topics"][0]["partitions"][0]["offset"] == count
    client.close()


def test_a_half_closed_client_still_gets_its_answer(node: NodeProcess) -> None:
    with connect(node) as connection:
        connection.sendall(frame(messages.encode_request(ApiKey.METADATA, 9, 5, "x", {"topics": ()})))
        connection.shutdown(socket.SHUT_WR)
        assert receive(connection)[:4] == struct.pack(">i", 5)
        assert is_closed(connection)


def test_a_consumer_that_does_not_read_is_held_back(fresh_node: NodeProcess) -> None:
    node = fresh_node
    client = Client(node.port)
    client.create_topic("unread")
    batch, _ = batch_of(500_000)
    for _ in range(40):
        client.socket.sendall(produce_frame("unread", 0, batch))
        client.receive_frame()
    before = resident_mb(node.process.pid) if node.process else 0.0
    request = fetch_frame("unread", 0, 0, 16 << 20)
    sleepers = [connect(node) for _ in range(20)]
    for sleeper in sleepers:
        sleeper.setblocking(False)
        try:
            for _ in range(2000):
                sleeper.sendall(request)
        except BlockingIOError:
            pass
    assert answers(node)
    assert resident_mb(node.process.pid) - before < 40 if node.process else False
    for sleeper in sleepers:
        sleeper.close()
    client.close()


def test_a_producer_that_floods_is_held_back(fresh_node: NodeProcess) -> None:
    """Requests whose answers are never read: the node stops reading before it has kept much."""
    node = fresh_node
    client = Client(node.port)
    client.create_topic("flood", 100, {"retention.bytes": "1048576", "segment.bytes": "1048576"})
    # Answers are a hundred times as long as requests: unread, they would soon be gigabytes.
    before = resident_mb(node.process.pid) if node.process else 0.0
    request = frame(messages.encode_request(ApiKey.METADATA, 9, 1, "x", {"topics": None}))
    flooders = [connect(node) for _ in range(5)]
    for flooder in flooders:
        flooder.setblocking(False)
        flooder.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # else the kernel takes megabytes of answers
        try:
            for _ in range(500_000 // len(request)):
                flooder.sendall(request * 100)
        except BlockingIOError:
            pass
    assert answers(node)
    assert resident_mb(node.process.pid) - before < 40 if node.process else False
    for flooder in flooders:
        flooder.close()
    client.close()


def test_half_requests_take_what_was_sent_and_give_it_back(fresh_node: NodeProcess) -> None:
    """Clients that announce 100 MB each and send five bytes, or 200 KB, of it."""
    node = fresh_node
    assert answers(node) and node.process is not None
    pid = node.process.pid
    connections = [connect(node) for _ in range(600)]
    assert answers(node)
    before = resident_mb(pid)
    for connection in connections:
        connection.sendall(struct.pack(">ib", 100_000_000, 0))
    assert answers(node)
    assert resident_mb(pid) - before < 5
    for connection in connections:
        connection.sendall(bytes(200_000))
    assert answers(node)
    assert resident_mb(pid) - before < 3 * 0.2 * len(connections)
    for connection in connections:
        connection.close()
    deadline = time.monotonic() + 60
    while resident_mb(pid) - before > 20:
        assert time.monotonic() < deadline, f"{resident_mb(pid)} MB, {before} before"
        time.sleep(0.2)
