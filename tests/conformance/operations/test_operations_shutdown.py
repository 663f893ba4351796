"""Ends and starts of a node under load: signals, in-flight requests, exit status, producers that go on."""

from __future__ import annotations

import json
import signal
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from peers.kafka import START_FAST, KafkaPeer
from tests.conformance.operations.operations import Client, eventually, name_of, refused
from tests.conformance.pair import Wire
from tests.node import NodeProcess


def end(node: NodeProcess, number: signal.Signals) -> int:
    """The exit status."""
    assert node.process is not None
    node.process.send_signal(number)
    status = node.process.wait(300)
    node.process = None
    return status


class Flood(threading.Thread):
    """Pipelines produce requests to a topic until the node closes the connection; counts the answers."""

    def __init__(self, node: NodeProcess, topic: str) -> None:
        super().__init__()
        self.socket = socket.create_connection(("127.0.0.1", node.port))
        self.socket.settimeout(300)
        data = bytes(build_batch([SimpleRecord(int(time.time() * 1000), None, b"x" * 1000)]))
        topic_data = [{"name": topic, "partition_data": [{"index": 0, "records": data}]}]
        values = {"transactional_id": None, "acks": -1, "timeout": 9000, "topic_data": topic_data}
        frame = messages.encode_request(ApiKey.PRODUCE, 11, 1, "flood", values)
        self.request = struct.pack(">i", len(frame)) + frame
        self.offsets: list[int] = []
        self.partial = b""

    def run(self) -> None:
        buffer = b""
        try:
            while True:
                self.socket.sendall(self.request * 5)
                for _ in range(5):
                    while len(buffer) < 4 or len(buffer) < 4 + struct.unpack_from(">i", buffer)[0]:
                        received = self.socket.recv(65536)
                        if not received:
                            self.partial = buffer
                            return
                        buffer += received
                    (size,) = struct.unpack_from(">i", buffer)
                    self._note(buffer[4 : 4 + size])
                    buffer = buffer[4 + size :]
        except OSError:
            self.partial = buffer

    def _note(self, frame: bytes) -> None:
        answer = messages.decode_response(ApiKey.PRODUCE, 11, frame)[1].responses[0].partition_responses[0]
        assert int(answer.error_code) == 0
        self.offsets.append(answer.base_offset)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("flush", [False, True])
def test_a_signal_under_load(tmp_path: Path, number: signal.Signals, flush: bool) -> None:
    """What was begun is answered, whole; every answer holds after the restart, which has nothing to recover."""
    with NodeProcess(tmp_path / "data") as node:
        client = Client(node)
        client.create("t", **({"flush_messages": 1} if flush else {}))
        floods = [Flood(node, "t") for _ in range(3)]
        for flood in floods:
            flood.start()
        eventually(lambda: all(len(flood.offsets) > 20 for flood in floods))
        status = end(node, number)
        for flood in floods:
            flood.join(300)
        assert (status, [flood.partial for flood in floods]) == (0, [b""] * 3)
        assert json.loads((node.data / ".kafka_cleanshutdown").read_text())["brokerEpoch"] > 0
        answered = sorted(offset for flood in floods for offset in flood.offsets)
        assert len(set(answered)) == len(answered)
        node.start()
        stored = Client(node).offset("t", -1)
        # A close with unread requests resets the connection, which can cost answers that were under way.
        assert answered[-1] < stored <= len(answered) + 15
        assert "unclean shutdown" not in node.output.read_text()


def test_a_second_signal_and_a_signal_at_once(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        Client(node).create("t")
        assert node.process is not None
        node.process.send_signal(signal.SIGTERM)
        node.process.send_signal(signal.SIGINT)
        assert end(node, signal.SIGTERM) == 0
        assert (node.data / ".kafka_cleanshutdown").exists()
        node.start()
        assert Client(node).topics() == ["t"]


def test_a_stopping_node_answers_waiting_fetches(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        client = Client(node)
        client.create("t")
        waiting = Wire(node.bootstrap)
        asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        topics = [{"topic": "t", "partitions": [asked]}]
        waiting.send(ApiKey.FETCH, 12, {"max_wait": 1_000_000, "min_bytes": 1, "session_epoch": -1, "topics": topics})
        for _ in range(2):  # the node reads its connections in turn: what came before this is read by now
            client.topics()
        assert end(node, signal.SIGTERM) == 0
        (answer,) = waiting.receive(ApiKey.FETCH, 12)["responses"][0]["partitions"]
        assert name_of(answer["error_code"]) in ("none", "not_leader_or_follower")


def test_a_jvm_broker_and_a_node_refuse_each_others_directory(tmp_path: Path) -> None:
    """The lock is the one that Java takes, and both find the other's files in order."""
    peer = KafkaPeer(tmp_path / "peer", heap="300m", flags=START_FAST)
    peer.format()
    peer.start()
    try:
        assert f"{peer.data} is in use by another process" in refused(peer.data)
    finally:
        peer.stop()
    with NodeProcess(peer.data, {"node.id": "1"}) as node:
        Client(node).create("t")
        Client(node).produce_all("t", b"a")
        with pytest.raises(RuntimeError):
            peer.start()
        assert "Failed to acquire lock" in (peer.directory / "server.log").read_text()
        assert Client(node).read("t") == {0: b"a"}


def produce(client: Client, producer_id: int, sequence: int, epoch: int = 0) -> tuple[str, int]:
    answer = client.produce("t", b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return answer["error"], answer["base_offset"]


def test_producers_over_kills_and_stops(tmp_path: Path) -> None:
    """The last five batches are known again after each restart; a sixth-last is no duplicate but out of order."""
    with NodeProcess(tmp_path / "data", {"log.flush.offset.checkpoint.interval.ms": "200"}) as node:
        client = Client(node)
        client.create("t", internal_segment_bytes=600)
        first, second = client.producer_id(), client.producer_id()
        assert second > first
        sequence = 0
        for restart in range(6):
            for _ in range(6):
                assert produce(client, first, sequence) == ("none", 2 * sequence)
                assert produce(client, second, sequence) == ("none", 2 * sequence + 1)
                sequence += 1
            node.kill() if restart % 2 else node.stop()
            node.start()
            client = Client(node)
            for back in range(1, 6):
                assert produce(client, first, sequence - back) == ("none", 2 * (sequence - back))
            assert produce(client, first, sequence - 6)[0] in (
                "out_of_order_sequence_number",
                "duplicate_sequence_number",
            )
            assert produce(client, second, sequence + 1)[0] == "out_of_order_sequence_number"
            assert client.offset("t", -1) == 2 * sequence
            third = client.producer_id()
            assert third > second, "ids are never given twice"
            second_again = produce(client, second, sequence - 1)
            assert second_again == ("none", 2 * sequence - 1)


def test_producers_expire(tmp_path: Path) -> None:
    """After `producer.id.expiration.ms` without a batch a producer is unknown and may start anywhere (KIP-360)."""
    settings = {"producer.id.expiration.check.interval.ms": "100"}
    with NodeProcess(tmp_path / "data", settings) as node:
        client = Client(node)
        client.create("t")
        producer_id = client.producer_id()
        assert produce(client, producer_id, 0) == ("none", 0)
        assert produce(client, producer_id, 5)[0] == "out_of_order_sequence_number"
        assert client.alter("", kind=4, producer_id_expiration_ms=300) == "none"
        eventually(lambda: not active_producers(client))
        assert produce(client, producer_id, 5) == ("none", 1)
        node.stop()
        time.sleep(0.3)
        node.start()
        assert active_producers(Client(node)) == []


def active_producers(client: Client) -> list[int]:
    answer = client.ask(ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [{"name": "t", "partition_indexes": [0]}]})
    return [each["producer_id"] for each in answer["topics"][0]["partitions"][0]["active_producers"]]
