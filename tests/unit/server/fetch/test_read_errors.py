"""A disk that cannot be read is an error of the partition, in the answer to every request that reads a log: its other
partitions may lie on another disk. Found by the simulation of whole nodes."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.filesystem import OsFile
from ottla.model import TopicPartition, uuid_to_base64
from ottla.protocol.messages import ApiKey
from ottla.server.node import Node
from tests.unit.server import stub
from tests.unit.server.node import TIME, Client, batch, fetch_values, running

E = ErrorCode
T0 = TopicPartition("t", 0)
SESSIONS_SINCE = 7
LONG = 200_000
"""Bytes of a record that is not taken into memory before it is sent."""

SETTINGS = {"share.coordinator.state.topic.num.partitions": "1", "log.roll.hours": "876000"}
OF_OLD_CLIENTS = E.not_leader_or_follower
"""They do not know KAFKA_STORAGE_ERROR, and look for another replica."""

Asked = Callable[[Node, Client], Awaitable[dict[int, Any]]]
"""The rows of both partitions of "t"."""


def of_both(values: dict[str, Any], **more: Any) -> dict[str, Any]:
    asked = values["topics"][0]["partitions"][0]
    values["topics"][0]["partitions"] = [{**asked, **more}, {**asked, **more, "partition": 1}]
    return values


async def fetch(client: Client, version: int, offset: int, **more: Any) -> dict[int, Any]:
    values = of_both(fetch_values("t", offset, **more))
    if version < SESSIONS_SINCE:
        del values["session_id"], values["session_epoch"]
    answer = await client.ask(ApiKey.FETCH, version, values)
    assert not answer.get("error_code")
    return {row["partition_index"]: row for row in answer["responses"][0]["partitions"]}


async def consumer(_: Node, client: Client) -> dict[int, Any]:
    return await fetch(client, 12, 0)


async def consumer_that_looks_further(_: Node, client: Client) -> dict[int, Any]:
    return await fetch(client, 12, 2)


async def consumer_with_a_session(_: Node, client: Client) -> dict[int, Any]:
    return await fetch(client, 12, 0, session_epoch=0)


async def old_consumer(_: Node, client: Client) -> dict[int, Any]:
    return await fetch(client, 2, 0, replica_id=-1)


async def timestamp(_: Node, client: Client) -> dict[int, Any]:
    rows = [{"partition_index": number, "current_leader_epoch": -1, "timestamp": TIME} for number in (0, 1)]
    values = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": rows}]}
    answer = await client.ask(ApiKey.LIST_OFFSETS, 7, values)
    return {row["partition_index"]: row for row in answer["topics"][0]["partitions"]}


async def share_group(node: Node, client: Client) -> dict[int, Any]:
    topic = node.image.topic("t")
    assert topic is not None
    for number in (0, 1):
        key = f"g:{uuid_to_base64(topic.id)}:{number}"
        await client.ask(ApiKey.FIND_COORDINATOR, 6, {"key_type": 2, "coordinator_keys": [key]})
        row = {"partition": number, "state_epoch": 0, "start_offset": 0}
        state = {"group_id": "g", "topics": [{"topic_id": topic.id, "partitions": [row]}]}
        answer = await client.ask(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, state)
        assert not answer["results"][0]["partitions"][0]["error_code"]
    rows = [{"partition_index": number, "acknowledgement_batches": []} for number in (0, 1)]
    values = {
        "group_id": "g",
        "member_id": "m",
        "share_session_epoch": 0,
        "topics": [{"topic_id": topic.id, "partitions": rows}],
        "max_wait": 5000,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_records": 500,
        "batch_size": 500,
        "forgotten_topics_data": [],
    }
    answer = await client.ask(ApiKey.SHARE_FETCH, 2, values)
    assert not answer["error_code"]
    return {row["partition_index"]: row for row in answer["responses"][0]["partitions"]}


@pytest.mark.parametrize("cold", [False, True], ids=["in the loop", "in a disk thread"])
@pytest.mark.parametrize("size", [10, LONG])
@pytest.mark.parametrize(
    "ask", [consumer, consumer_that_looks_further, consumer_with_a_session, old_consumer, timestamp, share_group]
)
def test_a_read_error_is_an_error_of_its_partition(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, ask: Asked, size: int, *, cold: bool
) -> None:
    async def test() -> None:
        settings = {**SETTINGS, "ottla.legacy.protocol.versions.enable": "true"}
        async with running(str(tmp_path), settings) as node:
            client = await Client.connect(node)
            await client.create("t", partitions=2)
            for partition in (0, 1):
                for _ in range(3):
                    assert not (await client.produce("t", batch(size), partition=partition))["error_code"]
            failed: list[str] = []
            warm: set[str] = set()

            def is_bad(file: OsFile) -> bool:
                if "/t-0/" not in file.path:
                    return False
                failed.append(file.path)
                return True

            pread, pread_nowait, is_cached = OsFile.pread, OsFile.pread_nowait, OsFile.is_cached

            def read(self: OsFile, length: int, position: int) -> bytes:
                if is_bad(self):
                    raise OSError(errno.EIO, "Input/output error")
                warm.add(self.path)
                return pread(self, length, position)

            def read_nowait(self: OsFile, length: int, position: int) -> bytes | bytearray | None:
                if "/t-" not in self.path:
                    return pread_nowait(self, length, position)
                return None if cold and self.path not in warm else read(self, length, position)

            def cached(self: OsFile, length: int, position: int) -> bool:
                return not cold and "/t-0/" not in self.path and is_cached(self, length, position)

            monkeypatch.setattr(OsFile, "pread", read)
            monkeypatch.setattr(OsFile, "pread_nowait", read_nowait)
            monkeypatch.setattr(OsFile, "is_cached", cached)
            suspected: list[TopicPartition] = []
            scrubber = node.damaged_logs.scrubber
            monkeypatch.setattr(scrubber, "suspect", lambda log, offset: suspected.append(log.topic_partition))
            rows = await ask(node, client)
            assert failed
            log = node.logs.get(T0)
            assert log is not None
            assert suspected == [T0] or log.failure is not None, "another replica is to lead"
            assert rows[0]["error_code"] == (OF_OLD_CLIENTS if ask is old_consumer else E.kafka_storage_error)
            assert not rows[0].get("records") and rows[0].get("offset", -1) == -1
            assert not rows[1]["error_code"] and (rows[1].get("records") or rows[1]["offset"] == 0)
            client.close()

    stub.run(test())
