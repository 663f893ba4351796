"""Versions that Kafka 4.0 removed, asked of Kafka 3.9.2, which still serves them, and of Ottla, by raw requests.

What Kafka answered is kept in `tests/unit/protocol/test_old_formats.py` and `tests/unit/server/legacy`; this asks it
again.
"""

from __future__ import annotations

import asyncio
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.server.legacy.refusals import SETTING
from ottla.testing.process import reserve
from peers.kafka import wait_until_answering
from tests.conformance.clients.test_old_clients import libraries
from tests.node import NodeProcess
from tests.unit.protocol.test_old_formats import REFUSED, TAKEN

INTERNAL_ERRORS = ("bytes that are not compressed", "no codec", "an impossible timestamp")
"""Sets at which Kafka fails with an error of its own."""


@contextmanager
def kafka(directory: Path) -> Iterator[int]:
    """Kafka 3.9.2 alone; its port."""
    libs = f"{libraries('kafka_2.13', '3.9.2', directory)}/*"
    held = [reserve(0), reserve(0)]
    port, controller = (each.getsockname()[1] for each in held)
    for each in held:
        each.close()
    config = directory / "server.properties"
    config.write_text(
        f"process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        f"controller.quorum.voters=1@127.0.0.1:{controller}\nlog.dirs={directory}/kafka\n"
        "offsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n"
    )
    java = ["java", "-XX:TieredStopAtLevel=1", "-Xmx384m", "-cp", libs]
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(config)],
        check=True,
        capture_output=True,
    )
    with (directory / "kafka.out").open("wb") as output:
        process = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=output, stderr=output)
        try:
            wait_until_answering("127.0.0.1", port, 120, process)
            yield port
        finally:
            process.kill()
            process.wait()


class Asked:
    """One broker, on one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, key: ApiKey, version: int, values: dict[str, Any]) -> Any:
        frame = messages.encode_request(key, version, 1, "raw", values)
        self.writer.write(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return messages.plain(messages.decode_response(key, version, await self.reader.readexactly(size))[1])

    async def until_led(self, names: list[str]) -> None:
        """Metadata names leaders of Kafka's before they lead."""
        rows = [{"partition_index": 0, "timestamp": -2, "max_num_offsets": 1}]
        asked = {"replica_id": -1, "topics": [{"name": each, "partitions": rows} for each in names]}
        for _ in range(1000):
            topics = (await self.ask(ApiKey.LIST_OFFSETS, 0, asked))["topics"]
            codes = [row["error_code"] for topic in topics for row in topic["partitions"]]
            if not any(codes):
                return
            await asyncio.sleep(0.05)
        pytest.fail(f"topics are not led: {codes}")


def sorted_rows(value: Any) -> Any:
    """Rows in one order: Kafka's are in that of a hash table."""
    if isinstance(value, dict):
        return {name: sorted_rows(each) for name, each in value.items()}
    return sorted(map(sorted_rows, value), key=repr) if isinstance(value, list) else value


async def compare(ports: tuple[int, int]) -> None:
    both = [Asked(*await asyncio.open_connection("127.0.0.1", port)) for port in ports]

    async def same(key: ApiKey, version: int, values: dict[str, Any]) -> Any:
        answers = [sorted_rows(await each.ask(key, version, values)) for each in both]
        assert answers[0] == answers[1], (key.name, version, values)
        return answers[0]

    cases = {name: data for name, (data, _) in {**REFUSED, **TAKEN}.items()}
    new = [
        {"name": f"t{n}", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
        for n in range(len(cases) + 1)
    ]
    for version in (0, 1):
        half = {"topics": new[version::2], "timeout": 30_000}
        await same(ApiKey.CREATE_TOPICS, version, half)
        await same(ApiKey.CREATE_TOPICS, version, half)  # they exist
    for each in both:  # Kafka leads them a moment later
        await each.until_led([topic["name"] for topic in new])
    for number, (name, data) in enumerate(cases.items()):
        for version in (0, 1, 2):
            rows = [{"name": f"t{number}", "partition_data": [{"index": 0, "records": data}]}]
            values = {"acks": 1, "timeout": 1000, "topic_data": rows}
            if name not in INTERNAL_ERRORS:
                await same(ApiKey.PRODUCE, version, values)
                continue
            answer = await both[0].ask(ApiKey.PRODUCE, version, values)
            row = answer["responses"][0]["partition_responses"][0]
            assert row["error_code"] == ErrorCode.unknown_server_error, name
    for number in range(len(cases)):
        for timestamp in (-1, -2, -3, 0, 2**62):
            rows = [{"partition_index": n, "timestamp": timestamp, "max_num_offsets": 5} for n in (0, 7)]
            topics = [{"name": f"t{number}", "partitions": rows}]
            await same(ApiKey.LIST_OFFSETS, 0, {"replica_id": -1, "topics": topics})
        for version in (0, 1):
            rows = [{"partition": n, "leader_epoch": epoch} for n in (0, 7) for epoch in (0, 3)]
            await same(
                ApiKey.OFFSET_FOR_LEADER_EPOCH, version, {"topics": [{"topic": f"t{number}", "partitions": rows}]}
            )
    for key in (ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN):
        await same(key, 0, {})
    everything = {
        "resource_type_filter": 2,
        "operation": 1,
        "permission_type": 1,
        "resource_name_filter": None,
        "principal_filter": None,
        "host_filter": None,
    }
    await same(ApiKey.DESCRIBE_ACLS, 0, everything)
    await same(ApiKey.DELETE_TOPICS, 0, {"topic_names": ["t0", "nope"], "timeout": 30_000})
    for each in both:
        each.writer.close()


@pytest.mark.matrix
def test_kafka_answers_the_same(tmp_path: Path) -> None:
    with kafka(tmp_path) as port, NodeProcess(tmp_path / "data", {SETTING: "true"}) as node:
        asyncio.run(compare((port, node.port)))
