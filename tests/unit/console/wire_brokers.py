"""Three brokers of one cluster on sockets of this process, any of which can be made to refuse connections, to hang, to
be slow, or to die in the middle of an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from ottla.console.brokers import VERSIONS
from ottla.protocol import fetch, fetch_responses, messages
from ottla.protocol.fetch import FetchedPartition, FetchedTopic, FetchRequest, FetchResponse
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.steps import at_once
from tests.unit.console.fake_cluster import ID, NOW_MS, FakeBrokers

NODES: Final = (1, 2, 3)
TOPIC: Final = "orders"
"""Partition N - 1 is led by node N; all nodes have copies."""
GROUPS: Final = {"one": 1, "two": 2, "three": 3}
"""Groups and the node that coordinates each."""
WELL, REFUSES, HANGS, DIES, SLOW = "is well", "refuses connections", "hangs", "died in an answer", "is slow"
QUICK: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.METADATA})
"""What a slow one answers at once."""


class NodeAnswers(FakeBrokers):
    """What one of the nodes answers."""

    def __init__(self, node: int, ports: Mapping[int, int]) -> None:
        super().__init__(
            [TOPIC],
            [(name, "classic") for name, at in GROUPS.items() if at == node],
            f"-of-{node}",
            [SimpleRecord(1_000 * node, b"key", b"value of %d" % node)],
        )
        self._node, self._ports = node, ports

    def metadata(self, values: Mapping[str, Any]) -> dict[str, Any]:
        partitions = [
            {
                "error_code": 0,
                "partition_index": node - 1,
                "leader_id": node,
                "leader_epoch": 0,
                "replica_nodes": [1, 2, 3],
                "isr_nodes": [1, 2, 3],
                "offline_replicas": [],
            }
            for node in NODES
        ]
        topic = {"error_code": 0, "name": TOPIC, "topic_id": ID, "is_internal": False, "partitions": partitions}
        brokers = [
            {"node_id": node, "host": "127.0.0.1", "port": port, "rack": None} for node, port in self._ports.items()
        ]
        return {"brokers": brokers, "cluster_id": "c", "controller_id": 1, "topics": [topic]}

    def offset_fetch(self, values: Mapping[str, Any]) -> dict[str, Any]:
        partitions = [{"partition_index": node - 1, "committed_offset": 0, "error_code": 0} for node in NODES]
        topics = [{"name": TOPIC, "partitions": partitions}]
        return {
            "groups": [{"group_id": each["group_id"], "error_code": 0, "topics": topics} for each in values["groups"]]
        }

    def describe_groups(self, values: Mapping[str, Any]) -> dict[str, Any]:
        found = super().describe_groups(values)
        for each in found["groups"]:
            for member in each["members"]:
                member["group_instance_id"] = member.pop("instance_id")
        return found

    def describe_producers(self, values: Mapping[str, Any]) -> dict[str, Any]:
        producer = {
            "producer_id": 7000 + self._node,
            "producer_epoch": 1,
            "last_sequence": 3,
            "last_timestamp": NOW_MS,
            "current_txn_start_offset": -1,
            "coordinator_epoch": 0,
        }
        partition = {"partition_index": self._node - 1, "error_code": 0, "active_producers": [producer]}
        return {"topics": [{"name": each["name"], "partitions": [partition]} for each in values["topics"]]}

    def list_partition_reassignments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        rows = [
            {"partition_index": node - 1, "replicas": [1, 2, 3], "adding_replicas": [2], "removing_replicas": []}
            for node in NODES
        ]
        return {"error_code": 0, "topics": [{"name": TOPIC, "partitions": rows}]}

    def fetched(self, request: FetchRequest) -> FetchResponse:
        topics = []
        for topic in request.topics:
            rows = []
            for each in topic.partitions:
                left = self.records[each.fetch_offset :]
                data = build_batch(left, base_offset=each.fetch_offset) if left else b""
                end = len(self.records)
                rows.append(FetchedPartition(each.partition, 0, end, end, 0, [], -1, data))
            topics.append(FetchedTopic(topic.name, topic.topic_id, rows))
        return FetchResponse(topics)


class WireBroker:
    """One of them."""

    def __init__(self, node: int) -> None:
        self.node, self.how = node, WELL
        self.connections = 0
        """How many were ever made."""
        self.slow_s = 0.0
        self.hanging = threading.Semaphore(0)
        """Is released for each request that gets no answer."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.answers: NodeAnswers
        self._opened: list[socket.socket] = []

    def start(self, ports: Mapping[int, int]) -> None:
        self.answers = NodeAnswers(self.node, ports)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def become(self, how: str) -> None:
        """From now on; connections that are open are treated so too, except that one that refuses closes them."""
        was, self.how = self.how, how
        if how == REFUSES:
            self.close()
        elif was == REFUSES:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        for each in (self._listener, *self._opened):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._opened.clear()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                opened, _ = listener.accept()
                self.connections += 1
                self._opened.append(opened)
                threading.Thread(target=self._serve, args=(opened,), daemon=True).start()

    def _serve(self, opened: socket.socket) -> None:
        with suppress(OSError), opened, opened.makefile("rb") as stream:
            while head := stream.read(4):
                frame = stream.read(int.from_bytes(head, "big"))
                if self.how == HANGS:
                    self.hanging.release()
                    continue
                if self.how == SLOW and messages.read_header(frame).api_key not in QUICK:
                    threading.Event().wait(self.slow_s)
                body = self._answer(frame)
                answer = len(body).to_bytes(4, "big") + body
                if self.how == DIES and messages.read_header(frame).api_key != ApiKey.API_VERSIONS:
                    opened.sendall(answer[: len(answer) // 2])
                    return
                opened.sendall(answer)

    def _answer(self, frame: bytes) -> bytes:
        header = messages.read_header(frame)
        key, version = ApiKey(header.api_key), header.api_version
        if key is ApiKey.API_VERSIONS:
            known = {**VERSIONS, ApiKey.FETCH: (4, 12)}
            rows = [{"api_key": each, "min_version": low, "max_version": high} for each, (low, high) in known.items()]
            return messages.encode_response(key, version, header.correlation_id, {"error_code": 0, "api_keys": rows})
        if key is ApiKey.FETCH:
            asked = at_once(fetch.decode_in_steps(version, memoryview(frame), header.body_offset))
            return b"".join(
                fetch_responses.encode_response(version, header.correlation_id, self.answers.fetched(asked)).parts
            )  # type: ignore[arg-type]
        values = messages.plain(messages.decode_request(key, version, frame, header.body_offset))
        answer = self.answers.ask(self.node, key, values)
        return messages.encode_response(key, version, header.correlation_id, answer)


@contextmanager
def three_brokers() -> Iterator[dict[int, WireBroker]]:
    made = {node: WireBroker(node) for node in NODES}
    for each in made.values():
        each.start({node: one.port for node, one in made.items()})
    try:
        yield made
    finally:
        for each in made.values():
            each.close()
