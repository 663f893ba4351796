"""Offset commits that repeat, over a socket: many at once, in order with other requests, refused and failed ones."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.model import OFFSETS_TOPIC
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import iterate_batches
from ottla.server.coordinators import repeated_commits
from ottla.server.node import Node
from tests.unit.server.node import Client, running

SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


def commit(offset: int, *, group: str = "g", partitions: int = 3, generation: int = -1) -> dict[str, Any]:
    each = [
        {"partition_index": p, "committed_offset": offset + p, "committed_leader_epoch": -1, "committed_metadata": "m"}
        for p in range(partitions)
    ]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": "t", "partitions": each}],
    }


def errors_of(answer: Any) -> list[ErrorCode]:
    return [each["error_code"] for topic in answer["topics"] for each in topic["partitions"]]


async def fetched(client: Client, group: str = "g") -> list[int]:
    values = {"groups": [{"group_id": group, "topics": [{"name": "t", "partition_indexes": [0, 1, 2]}]}]}
    answer = await client.ask(ApiKey.OFFSET_FETCH, 8, values)
    return [each["committed_offset"] for each in answer["groups"][0]["topics"][0]["partitions"]]


async def ready(node: Node) -> Client:
    client = await Client.connect(node)
    await client.create("t", partitions=3)
    await client.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
    for version in (6, 7, 8, 9):
        assert errors_of(await client.ask(ApiKey.OFFSET_COMMIT, version, commit(0))) == [ErrorCode.none] * 3
    return client


def batches(node: Node) -> int:
    data = node.replicas.find(OFFSETS_TOPIC, 0).log.read(0, 1 << 24, up_to=1 << 40).read()
    return sum(1 for _ in iterate_batches(data))


def play(tmp_path: Path, scene: Any) -> None:
    async def run() -> None:
        async with running(str(tmp_path), SETTINGS) as node:
            client = await ready(node)
            await scene(node, client)
            client.writer.close()

    asyncio.run(run())


def test_commits_sent_at_once_share_batches_and_are_answered_in_order(tmp_path: Path) -> None:
    async def scene(node: Node, client: Client) -> None:
        before = batches(node)
        for turn in range(1, 51):
            client.send(ApiKey.OFFSET_COMMIT, 6 + turn % 4, commit(10 * turn), turn)
        client.send(ApiKey.OFFSET_FETCH, 1, {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [1]}]})
        for turn in range(1, 51):
            assert errors_of(await client.receive(ApiKey.OFFSET_COMMIT, 6 + turn % 4)) == [ErrorCode.none] * 3
        found = await client.receive(ApiKey.OFFSET_FETCH, 1)
        assert found["topics"][0]["partitions"][0]["committed_offset"] == 501
        assert batches(node) - before < 10
        another = await Client.connect(node)
        assert await fetched(another) == [500, 501, 502]
        another.writer.close()

    play(tmp_path, scene)


def test_a_commit_that_is_no_longer_allowed_is_refused(tmp_path: Path) -> None:
    async def scene(node: Node, client: Client) -> None:
        join = {
            "group_id": "g",
            "session_timeout": 6000,
            "rebalance_timeout": 6000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        joined = await client.ask(ApiKey.JOIN_GROUP, 3, join)
        assert joined["error_code"] == ErrorCode.none
        answer = await client.ask(ApiKey.OFFSET_COMMIT, 8, commit(7))
        assert errors_of(answer) == [ErrorCode.unknown_member_id] * 3
        assert await fetched(client) == [0, 1, 2]

    play(tmp_path, scene)


def test_partitions_of_a_deleted_topic_are_unknown_at_once(tmp_path: Path) -> None:
    async def scene(node: Node, client: Client) -> None:
        await client.ask(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["t"], "timeout": 1000})
        answer = await client.ask(ApiKey.OFFSET_COMMIT, 8, commit(7))
        assert errors_of(answer) == [ErrorCode.unknown_topic_or_partition] * 3

    play(tmp_path, scene)


def test_a_failed_batch_is_an_error_for_each_commit_in_it(tmp_path: Path, monkeypatch: Any) -> None:
    async def scene(node: Node, client: Client) -> None:
        partition = node.replicas.find(OFFSETS_TOPIC, 0)

        class Refusing:
            def __init__(self, log: Any) -> None:
                self.log = log

            def __getattr__(self, name: str) -> Any:
                return getattr(self.log, name)

            def append_as_leader(self, *arguments: Any, **named: Any) -> Any:
                raise KafkaError(ErrorCode.not_enough_replicas)

        with monkeypatch.context() as patched:
            patched.setattr(partition, "log", Refusing(partition.log))
            for turn in range(3):
                client.send(ApiKey.OFFSET_COMMIT, 9, commit(100 * turn), turn)
            for _ in range(3):
                answer = await client.receive(ApiKey.OFFSET_COMMIT, 9)
                assert errors_of(answer) == [ErrorCode.coordinator_not_available] * 3
        assert await fetched(client) == [0, 1, 2]
        assert errors_of(await client.ask(ApiKey.OFFSET_COMMIT, 9, commit(5))) == [ErrorCode.none] * 3
        assert await fetched(client) == [5, 6, 7]

    play(tmp_path, scene)


def test_a_client_that_leaves_at_once_has_committed(tmp_path: Path) -> None:
    async def scene(node: Node, client: Client) -> None:
        another = await Client.connect(node)
        await another.ask(ApiKey.OFFSET_COMMIT, 9, commit(50))
        another.send(ApiKey.OFFSET_COMMIT, 9, commit(60))
        another.writer.write_eof()
        assert errors_of(await another.receive(ApiKey.OFFSET_COMMIT, 9)) == [ErrorCode.none] * 3
        assert await another.reader.read() == b""
        assert await fetched(client) == [60, 61, 62]

    play(tmp_path, scene)


def test_many_connections_commit_into_one_batch(tmp_path: Path) -> None:
    async def scene(node: Node, client: Client) -> None:
        clients = [await Client.connect(node) for _ in range(20)]
        for number, each in enumerate(clients):
            await each.ask(ApiKey.OFFSET_COMMIT, 9, commit(1, group=f"g{number}"))
        before = batches(node)
        for number, each in enumerate(clients):
            each.send(ApiKey.OFFSET_COMMIT, 9, commit(1000 + number, group=f"g{number}"))
        for each in clients:
            assert errors_of(await each.receive(ApiKey.OFFSET_COMMIT, 9)) == [ErrorCode.none] * 3
        assert batches(node) - before < 20
        assert await fetched(client, "g7") == [1007, 1008, 1009]
        for each in clients:
            each.writer.close()

    play(tmp_path, scene)


def shortcut(node: Node, api: ApiKey, version: int) -> Any:
    (connection,) = node.listeners[0].connections
    return connection.shortcuts.get(api << 16 | version)


def test_no_more_commits_are_remembered_than_the_limits_say(tmp_path: Path, monkeypatch: Any) -> None:
    async def scene(node: Node, client: Client) -> None:
        async def remembered() -> list[int]:
            """After commits of 40 lengths."""
            for length in range(1, 41):
                answer = await client.ask(ApiKey.OFFSET_COMMIT, 9, commit(1, group="g" * length))
                assert errors_of(answer) == [ErrorCode.none] * 3
            return list(shortcut(node, ApiKey.OFFSET_COMMIT, 9)._known)

        newest = await remembered()
        assert len(newest) == repeated_commits.SHAPES_MAX
        monkeypatch.setattr(repeated_commits, "SHAPES_BYTES_MAX", 3 * max(newest))
        assert await remembered() == newest[-3:]
        monkeypatch.setattr(repeated_commits, "SHAPES_BYTES_MAX", min(newest))
        await client.ask(ApiKey.OFFSET_COMMIT, 8, commit(1, group="g" * 41))
        assert 41 + min(newest) not in shortcut(node, ApiKey.OFFSET_COMMIT, 8)._known

    play(tmp_path, scene)


@pytest.mark.parametrize(("length", "is_kept"), [(9, True), (2000, False)])
def test_only_short_heartbeats_are_remembered(tmp_path: Path, length: int, is_kept: bool) -> None:
    async def scene(node: Node, client: Client) -> None:
        group_id = "h" * length
        join = {
            "group_id": group_id,
            "member_id": "",
            "session_timeout": 6000,
            "rebalance_timeout": 6000,
            "protocol_type": "consumer",
        }
        joined = await client.ask(ApiKey.JOIN_GROUP, 3, join | {"protocols": [{"name": "r", "metadata": b""}]})
        member = {"group_id": group_id, "generation_id": 1, "member_id": joined["member_id"]}
        await client.ask(ApiKey.SYNC_GROUP, 1, {**member, "assignments": []})
        for _ in range(2):
            assert (await client.ask(ApiKey.HEARTBEAT, 4, member))["error_code"] == ErrorCode.none
        assert (shortcut(node, ApiKey.HEARTBEAT, 4) is not None) == is_kept

    play(tmp_path, scene)


def test_heartbeats_that_repeat_are_checked_each_time(tmp_path: Path) -> None:
    async def scene(node: Node, client: Client) -> None:
        join = {
            "group_id": "h",
            "session_timeout": 6000,
            "rebalance_timeout": 6000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }
        joined = await client.ask(ApiKey.JOIN_GROUP, 3, join)
        member = {"group_id": "h", "generation_id": 1, "member_id": joined["member_id"]}
        assert (await client.ask(ApiKey.SYNC_GROUP, 1, {**member, "assignments": []}))["error_code"] == ErrorCode.none
        for version in (1, 4, 1, 4, 1, 4):
            answer = await client.ask(ApiKey.HEARTBEAT, version, member)
            assert answer["error_code"] == ErrorCode.none
        another = await Client.connect(node)
        another.send(ApiKey.JOIN_GROUP, 3, join)
        while True:
            answer = await client.ask(ApiKey.HEARTBEAT, 4, member)
            if answer["error_code"] != ErrorCode.none:
                break
        assert answer["error_code"] == ErrorCode.rebalance_in_progress
        await client.ask(ApiKey.LEAVE_GROUP, 1, {"group_id": "h", "member_id": joined["member_id"]})
        assert (await client.ask(ApiKey.HEARTBEAT, 4, member))["error_code"] == ErrorCode.unknown_member_id
        another.writer.close()

    play(tmp_path, scene)
