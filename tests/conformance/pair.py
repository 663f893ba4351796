"""Two brokers that are asked the same, as plain values over raw connections."""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from ottla.protocol import messages
from ottla.protocol.messages import ApiKey

TIME_LIMIT_S = 300


class Wire:
    """A connection that sends requests as plain values; `None` stands for a connection closed instead of an answer."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.address = host, int(port)
        self.socket = socket.create_connection(self.address, timeout=TIME_LIMIT_S)

    def send(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> None:
        frame = messages.encode_request(key, version, 1, "conformance", values)
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def ask(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        self.send(key, version, values)
        return self.receive(key, version)

    def receive(self, key: ApiKey, version: int) -> Any:
        head = self._read(4)
        if not head:
            self.socket = socket.create_connection(self.address, timeout=TIME_LIMIT_S)
            return None
        return messages.plain(messages.decode_response(key, version, self._read(struct.unpack(">i", head)[0]))[1])

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := self.socket.recv(size - len(data))):
            data += more
        return data


def settle(*wires: Wire) -> None:
    """Until all that was changed before acts: Kafka's broker follows its controller a moment later.

    It follows in order, so a topic that is made now and led shows that the changes before it were seen, and a second
    one, which is seen later, that whoever acts on them has been told.
    """
    for wire in wires:
        for _ in range(2):
            name = f"settled-{os.getpid()}-{next(_NUMBERS)}"
            topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            (row,) = wire.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout": 60_000})["topics"]
            assert not row["error_code"], row
            asked = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
            end = time.monotonic() + TIME_LIMIT_S
            while wire.ask(ApiKey.LIST_OFFSETS, 5, {"replica_id": -1, "topics": asked})["topics"][0]["partitions"][0][
                "error_code"
            ]:
                assert time.monotonic() < end, f"no leader of {name}"
                time.sleep(0.01)


_NUMBERS = itertools.count()


class Pair:
    """Both brokers. `same` asks them one question and returns the answer, which must be equal."""

    def __init__(self, ottla: str, kafka: str) -> None:
        self.ottla, self.kafka = Wire(ottla), Wire(kafka)

    def settle(self) -> None:
        settle(self.kafka, self.ottla)

    def both(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> tuple[Any, Any]:
        return self.ottla.ask(key, version, values), self.kafka.ask(key, version, values)

    def same(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        mine, theirs = (comparable(answer) for answer in self.both(key, version, values))
        assert mine == theirs, values
        return mine


OF_ONE_BROKER = {
    "cluster_id", "host", "port", "log_dir", "total_bytes", "usable_bytes", "documentation", "leader_epoch",
}  # fmt: skip
ORDERED_BY = ("name", "topic_name", "resource_name", "partition_index", "node_id", "broker_id")


def comparable(value: Any) -> Any:
    """An answer without what must differ, and with lists in an order of ours where Kafka's is that of a hash map."""
    if isinstance(value, Mapping):
        return {name: (each is not None if name in OF_ONE_BROKER else comparable(each)) for name, each in value.items()}
    if isinstance(value, UUID):
        return "an id"
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        items = [comparable(each) for each in value]
        if items and isinstance(items[0], dict):
            items.sort(key=lambda each: [str(each.get(name)) for name in ORDERED_BY])
        return items
    return value
