"""Edges of handlers that a planted bug showed to be tested against Apache Kafka only, or by nobody."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.config.server import ServerConfig
from ottla.coordinator.config import GroupConfig
from ottla.coordinator.effects import Now, Write
from ottla.coordinator.group.requests import OffsetCommit, OffsetToCommit
from ottla.coordinator.group.shard import GroupShard
from ottla.errors import ErrorCode
from ottla.protocol.internal.group_records import encode_value
from ottla.protocol.messages import ApiKey
from tests.unit.server.node import TIME, Client, batch, running

SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}


def asked(tmp_path: Path, test: Callable[[Client, Any], Awaitable[None]], **settings: str) -> None:
    async def run() -> None:
        async with running(str(tmp_path), {**SETTINGS, **settings}) as node:
            client = await Client.connect(node)
            await client.create("t")
            await test(client, node)
            client.close()

    asyncio.run(run())


def offsets_of(*timestamps: int) -> dict[str, Any]:
    rows = [{"partition_index": 0, "timestamp": each, "current_leader_epoch": -1} for each in timestamps]
    return {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "t", "partitions": rows}]}


def test_a_partition_that_is_asked_for_twice_is_refused_each_time(tmp_path: Path) -> None:
    async def test(client: Client, node: Any) -> None:
        for timestamps, error in (((-1, -1), ErrorCode.invalid_request), ((-1,), ErrorCode.none)):
            (topic,) = (await client.ask(ApiKey.LIST_OFFSETS, 7, offsets_of(*timestamps)))["topics"]
            assert {row["error_code"] for row in topic["partitions"]} == {error}

    asked(tmp_path, test)


@pytest.mark.parametrize(("special", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_special_timestamps_have_their_versions(tmp_path: Path, special: int, since: int) -> None:
    async def test(client: Client, node: Any) -> None:
        await client.produce("t", batch())
        for version, error in ((since - 1, ErrorCode.unsupported_version), (since, ErrorCode.none)):
            (topic,) = (await client.ask(ApiKey.LIST_OFFSETS, version, offsets_of(special)))["topics"]
            assert [row["error_code"] for row in topic["partitions"]] == [error]

    asked(tmp_path, test)


def test_where_topics_are_not_to_be_deleted_old_clients_hear_another_error(tmp_path: Path) -> None:
    async def test(client: Client, node: Any) -> None:
        for version, error in ((2, ErrorCode.invalid_request), (3, ErrorCode.topic_deletion_disabled)):
            answer = await client.ask(ApiKey.DELETE_TOPICS, version, {"topic_names": ["t", "u"], "timeout": 1000})
            assert [row["error_code"] for row in answer["responses"]] == [error, error]
        by_name = {"topics": [{"name": "t", "topic_id": None}], "timeout": 1000}
        (row,) = (await client.ask(ApiKey.DELETE_TOPICS, 6, by_name))["responses"]
        assert row["error_code"] == ErrorCode.topic_deletion_disabled and row["name"] == "t"

    asked(tmp_path, test, **{"delete.topic.enable": "false"})


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 3)])
def test_half_a_producer_is_refused(tmp_path: Path, producer_id: int, epoch: int) -> None:
    async def test(client: Client, node: Any) -> None:
        values = {"transactional_id": None, "transaction_timeout": 1000, "producer_id": producer_id}
        answer = await client.ask(ApiKey.INIT_PRODUCER_ID, 4, {**values, "producer_epoch": epoch})
        assert (answer["error_code"], answer["producer_id"]) == (ErrorCode.invalid_request, -1)

    asked(tmp_path, test)


def test_groups_are_listed_by_state_whatever_the_case(tmp_path: Path) -> None:
    async def test(client: Client, node: Any) -> None:
        await client.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
        partition = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1}
        commit = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        topics = [{"name": "t", "partitions": [{**partition, "committed_metadata": ""}]}]
        await client.ask(ApiKey.OFFSET_COMMIT, 8, {**commit, "topics": topics})
        for states, count in (([" eMpTy "], 1), (["Empty"], 1), (["stable"], 0), ([], 1)):
            answer = await client.ask(ApiKey.LIST_GROUPS, 5, {"states_filter": states, "types_filter": ()})
            assert len(answer["groups"]) == count, states

    asked(tmp_path, test)


def test_the_error_of_a_whole_group_is_counted(tmp_path: Path) -> None:
    async def test(client: Client, node: Any) -> None:
        wanted = {"groups": [{"group_id": "g", "topics": None}], "require_stable": False}
        (group,) = (await client.ask(ApiKey.OFFSET_FETCH, 8, wanted))["groups"]  # nobody has asked for a coordinator
        assert group["error_code"] == ErrorCode.not_coordinator
        assert node.metrics.api(ApiKey.OFFSET_FETCH).errors == {"NOT_COORDINATOR": 1}

    asked(tmp_path, test)


def test_offsets_that_are_kept_for_ever_can_be_written() -> None:
    """The retention that a client of version 2 gives may reach beyond the last millisecond that there is."""
    shard = GroupShard(GroupConfig.from_settings(ServerConfig.load()), random.Random(1))
    commit = OffsetCommit(
        group_id="g",
        offsets=[OffsetToCommit("t", 0, 5, -1, "")],
        retention_ms=2**63 - 1,
    )
    shard.ask(1, commit, Now(0, TIME))
    (write,) = [effect for effect in shard.take() if isinstance(effect, Write)]
    (record,) = write.records
    assert record.value.expire_timestamp == 2**63 - 1  # type: ignore[union-attr]
    assert encode_value(record.value)
