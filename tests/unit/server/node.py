"""A real node inside the test, on a simulated disk or a real one, spoken to over its socket."""

from __future__ import annotations

import asyncio
import itertools
import random
import struct
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ottla.clock import SystemClock
from ottla.config.server import ServerConfig
from ottla.filesystem import FileSystem, OsFileSystem
from ottla.network import SystemNetwork
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.server.node import Node

TIME = 1_700_000_000_000


@asynccontextmanager
async def running(
    directory: str, settings: Mapping[str, str] | None = None, fs: FileSystem | None = None, seed: int = 1
) -> AsyncIterator[Node]:
    """A node that is started again on its files needs another seed: the first gave it its topic ids."""
    defaults = {
        "log.dirs": directory,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.retention.ms": "-1",
        "ottla.log.slow.request.ms": "-1",  # a loaded machine is no reason for a warning
    }
    config = ServerConfig.load(None, {**defaults, **(settings or {})}, {})
    node = Node(config, fs or OsFileSystem(), SystemClock(), random.Random(seed), SystemNetwork())
    try:
        await node.start()
        yield node
    finally:
        await node.stop()


class Client:
    """Sends plain values and reads plain values, one connection, each request with a correlation id of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.sent: deque[int] = deque()
        """Correlation ids of what is to be answered, oldest first."""
        self._ids = itertools.count(1)

    @classmethod
    async def connect(cls, node: Node) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", node.ports["PLAINTEXT"], limit=1 << 24))

    def send(self, key: ApiKey, version: int, values: Mapping[str, Any], correlation_id: int | None = None) -> None:
        if correlation_id is None:
            correlation_id = next(self._ids)
        if key is not ApiKey.PRODUCE or values["acks"] != 0:
            self.sent.append(correlation_id)
        frame = messages.encode_request(key, version, correlation_id, "test", values)
        self.writer.write(struct.pack(">i", len(frame)) + frame)

    async def receive(self, key: ApiKey, version: int) -> Any:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        number, answer = messages.decode_response(key, version, await self.reader.readexactly(size))
        if self.sent:  # not what a test has written by itself
            assert number == self.sent.popleft(), "answers are in the order of requests"
        return messages.plain(answer)

    async def ask(self, key: ApiKey, version: int, values: Mapping[str, Any]) -> Any:
        self.send(key, version, values)
        return await self.receive(key, version)

    async def create(self, name: str, configs: Mapping[str, str] | None = None, partitions: int = 1) -> None:
        entries = [{"name": key, "value": value} for key, value in (configs or {}).items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": ()}
        topics = [{**topic, "configs": entries}]
        answer = await self.ask(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout": 1000, "validate_only": False})
        assert not answer["topics"][0]["error_code"], answer

    async def produce(self, topic: str, records: bytes, *, acks: int = -1, version: int = 9, partition: int = 0) -> Any:
        answer = await self.ask(ApiKey.PRODUCE, version, produce_values(topic, records, acks, partition))
        return answer["responses"][0]["partition_responses"][0]

    async def fetch(self, topic: str, offset: int, **more: Any) -> Any:
        answer = await self.ask(ApiKey.FETCH, 12, fetch_values(topic, offset, **more))
        return answer["responses"][0]["partitions"][0]

    def close(self) -> None:
        self.writer.close()


def produce_values(topic: str, records: bytes, acks: int = -1, partition: int = 0) -> dict[str, Any]:
    data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    return {"transactional_id": None, "acks": acks, "timeout": 1000, "topic_data": data}


def fetch_values(topic: str, offset: int, **more: Any) -> dict[str, Any]:
    asked = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    return {
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 24,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [asked]}],
        **more,
    }


def batch(size: int = 10, count: int = 1, **options: Any) -> bytes:
    return bytes(build_batch([SimpleRecord(TIME, b"k", bytes(size)) for _ in range(count)], **options))
