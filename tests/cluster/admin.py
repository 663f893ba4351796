"""Requests of the tests to brokers and controllers, over their own connection and in Kafka's messages."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ottla.model import METADATA_TOPIC
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey

T = TypeVar("T")

LIMIT_S = 60.0
"""Limit of every wait; no test is meant to take as long."""


def ask(address: str, key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
    """One request and its response as plain values. Raises OSError where nobody answers."""
    host, _, port = address.rpartition(":")
    frame = messages.encode_request(key, version, 1, "test", values)
    with socket.create_connection((host, int(port)), timeout=LIMIT_S) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        return messages.plain(messages.decode_response(key, version, _exactly(connection, size))[1])


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("closed without an answer")
        data += piece
    return data


def until(found: Callable[[], T], is_it: Callable[[T], bool]) -> T:
    """The value of `found`, once `is_it` accepts it. Fails the test after a while."""
    deadline = time.monotonic() + LIMIT_S
    while not is_it(value := found()):
        assert time.monotonic() < deadline, value
        time.sleep(0.02)
    return value


def brokers(address: str) -> dict[int, bool]:
    """Registered brokers as one of them sees it: id, and whether it is fenced."""
    values = {"include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": True}
    answer = ask(address, ApiKey.DESCRIBE_CLUSTER, 2, values)
    return {each["broker_id"]: each["is_fenced"] for each in answer["brokers"]}


def quorum(address: str) -> dict[str, Any]:
    """The state of the metadata quorum, from a broker or a controller."""
    asked = {"topics": [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]}
    answer = ask(address, ApiKey.DESCRIBE_QUORUM, 2, asked)
    partition: dict[str, Any] = answer["topics"][0]["partitions"][0]
    return {**partition, "nodes": answer["nodes"]}


def create(address: str, name: str, partitions: int = 1, replicas: Sequence[int] = (), *, factor: int = 1) -> int:
    """The error code. With `replicas` there is one partition, on these brokers."""
    assigned = [{"partition_index": 0, "broker_ids": replicas}] if replicas else []
    topic = {
        "name": name,
        "num_partitions": -1 if replicas else partitions,
        "replication_factor": -1 if replicas else factor,
        "assignments": assigned,
        "configs": (),
    }
    answer = ask(address, ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout": 30_000, "validate_only": False})
    return int(answer["topics"][0]["error_code"])


def in_sync(address: str, topic: str) -> list[int]:
    """The ISR of the first partition; empty while the broker does not know it."""
    asked = {"topics": [{"name": topic, "topic_id": None}], "allow_auto_topic_creation": False}
    partitions = ask(address, ApiKey.METADATA, 12, asked)["topics"][0]["partitions"]
    return sorted(partitions[0]["isr_nodes"]) if partitions else []


def in_sync_sets(address: str, topic: str) -> list[list[int]]:
    """The ISR of each partition."""
    asked = {"topics": [{"name": topic, "topic_id": None}], "allow_auto_topic_creation": False}
    return [sorted(each["isr_nodes"]) for each in ask(address, ApiKey.METADATA, 12, asked)["topics"][0]["partitions"]]


def leaders(address: str, topic: str) -> list[tuple[int, int]]:
    """(leader, leader epoch) of each partition."""
    asked = {"topics": [{"name": topic, "topic_id": None}], "allow_auto_topic_creation": False}
    answer = ask(address, ApiKey.METADATA, 12, asked)
    found = sorted(answer["topics"][0]["partitions"], key=lambda each: each["partition_index"])
    return [(each["leader_id"], each["leader_epoch"]) for each in found]
