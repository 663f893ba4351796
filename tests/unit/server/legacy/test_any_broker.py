"""Old requests in a cluster: what another node decides. One node alone is in `test_old_versions.py`."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ottla.clock import SystemClock
from ottla.config.server import ServerConfig
from ottla.filesystem import OsFileSystem
from ottla.network import SystemNetwork
from ottla.protocol.messages import ApiKey
from ottla.server.legacy.apis import removed_versions
from ottla.server.legacy.refusals import SETTING
from ottla.server.node import Node
from ottla.testing.process import reserve
from tests.unit.server import stub
from tests.unit.server.node import Client


def member(number: int, roles: str, directory: Path, port: int) -> Node:
    listeners = "PLAINTEXT://127.0.0.1:0" + (f",CONTROLLER://127.0.0.1:{port}" if "controller" in roles else "")
    settings = {
        "process.roles": roles,
        "node.id": str(number),
        "controller.quorum.voters": f"1@127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(directory / str(number)),
        "listeners": listeners,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        SETTING: "true",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "ottla.log.slow.request.ms": "-1",
        "auto.create.topics.enable": "false",
    }
    config = ServerConfig.load(None, settings, {})
    return Node(config, OsFileSystem(), SystemClock(), random.Random(number), SystemNetwork())


@pytest.mark.shared_values
def test_any_broker_takes_topics_and_offsets(tmp_path: Path) -> None:
    """CreateTopics is decided by the controller, and offsets of version 0 by whichever node coordinates the group."""
    held = reserve(0)
    port = held.getsockname()[1]

    async def test() -> None:
        async with AsyncExitStack() as stack:
            nodes = [member(1, "broker,controller", tmp_path, port), member(2, "broker", tmp_path, port)]
            for node in nodes:
                stack.push_async_callback(node.stop)
            await asyncio.gather(*(node.start() for node in nodes))
            clients = [await Client.connect(node) for node in nodes]
            for client in clients:
                answer = await client.ask(ApiKey.API_VERSIONS, 0, {})
                least = {row["api_key"]: row["min_version"] for row in answer["api_keys"]}
                assert all(least[key] == low for key, (low, _) in removed_versions().items())
            topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
            answer = await clients[1].ask(ApiKey.CREATE_TOPICS, 0, {"topics": [topic], "timeout": 30_000})
            assert [row["error_code"] for row in answer["topics"]] == [0]
            while any(node.image.topic("t") is None for node in nodes):  # noqa: ASYNC110 - nodes follow in their own time
                await asyncio.sleep(0)
            row = {"partition_index": 0, "committed_metadata": "m"}
            group = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
            for number, client in enumerate(clients * 2):
                rows = [{**row, "committed_offset": number}]
                values = {**group, "topics": [{"name": "t", "partitions": rows}]}
                answer = await client.ask(ApiKey.OFFSET_COMMIT, 0, values)
                assert [row["error_code"] for row in answer["topics"][0]["partitions"]] == [0]
                for other in clients:
                    asked = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}
                    answer = await other.ask(ApiKey.OFFSET_FETCH, 0, asked)
                    found = answer["topics"][0]["partitions"][0]
                    assert (found["committed_offset"], found["error_code"]) == (number, 0)
            for client in clients:
                client.close()

    held.close()
    stub.run(test())
