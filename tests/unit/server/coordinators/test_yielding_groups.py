"""Group requests with many entries yield to the event loop, and are answered as those with few are."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ottla.coordinator.group.requests import JoinGroup
from ottla.drivers.cooperative import SLICE
from ottla.drivers.coordinators.coordinator_answers import AwaitedReply
from ottla.errors import ErrorCode
from ottla.protocol import messages
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import iterate_batches
from ottla.server.api import ROW_COST
from ottla.server.connections.long_answers import ROWS_PER_STEP
from ottla.server.handlers.groups.leave_group import LEAVING_AT_ONCE
from ottla.server.handlers.groups.offset_commit import COMMITTED_AT_ONCE
from ottla.steps import at_once
from tests.unit.server.node import Client, running
from tests.unit.server.test_yielding import turns_of

COUNT = 600
NAMES = [f"g{number}" for number in range(COUNT)]
SETTINGS = {"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "0"}
STEPS = COUNT // ROWS_PER_STEP
PARTITIONS = 4


def commit(group: str, numbers: list[int]) -> dict[str, Any]:
    row = {"committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": "m"}
    partitions = [{"partition_index": number, **row} for number in numbers]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": "t", "partitions": partitions}],
    }


def fetch(names: list[str]) -> dict[str, Any]:
    return {"groups": [{"group_id": name, "topics": None} for name in names], "require_stable": False}


def leave(group: str, members: list[str]) -> dict[str, Any]:
    row = {"group_instance_id": None, "reason": None}
    return {"group_id": group, "members": [{"member_id": member, **row} for member in members]}


async def ready(node: Any) -> Client:
    client = await Client.connect(node)
    await client.create("t", partitions=PARTITIONS)
    await client.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
    return client


def one_by_one(key: ApiKey, values: dict[str, Any]) -> list[dict[str, Any]]:
    """A request with many entries as requests with one each."""
    (rows,) = (name for name, value in values.items() if isinstance(value, list))
    return [{**values, rows: [row]} for row in values[rows]]


@pytest.mark.parametrize(
    ("key", "version", "values", "rows", "steps"),
    [
        (ApiKey.DESCRIBE_GROUPS, 0, {"groups": NAMES}, "groups", 2 * STEPS),
        (ApiKey.DESCRIBE_GROUPS, 6, {"groups": NAMES, "include_authorized_operations": True}, "groups", 2 * STEPS),
        (ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": NAMES}, "coordinators", 2 * STEPS),
        (ApiKey.FIND_COORDINATOR, 6, {"key_type": 1, "coordinator_keys": NAMES}, "coordinators", 2 * STEPS),
        (ApiKey.OFFSET_FETCH, 8, fetch(NAMES), "groups", COUNT * ROW_COST // SLICE),
        (ApiKey.LEAVE_GROUP, 3, leave("g0", NAMES), "members", COUNT // LEAVING_AT_ONCE - 1),
        (ApiKey.LEAVE_GROUP, 5, leave("absent", NAMES), "members", COUNT // LEAVING_AT_ONCE - 1),
        (ApiKey.DELETE_GROUPS, 1, {"groups_names": [*NAMES[60:], *NAMES[60:]]}, "results", 2 * STEPS - 8),
        (ApiKey.DELETE_GROUPS, 3, {"groups_names": NAMES}, "results", 2 * STEPS),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, ApiKey) else None,
)
def test_many_rows_are_those_of_many_requests(
    tmp_path: Path, key: ApiKey, version: int, values: dict[str, Any], rows: str, steps: int
) -> None:
    async def test() -> None:
        async with running(str(tmp_path / "many"), SETTINGS) as node, turns_of(node) as turns:
            client = await ready(node)
            for name in NAMES[:50]:
                await client.ask(ApiKey.OFFSET_COMMIT, 8, commit(name, [0, 1]))
            before, errors = turns.count, Counter(node.metrics.api(key).errors)
            answer = await client.ask(key, version, values)
            assert turns.count - before >= steps
            counted = Counter(node.metrics.api(key).errors) - errors
            if key is ApiKey.DELETE_GROUPS:
                each: list[Any] = [
                    {"group_id": name, "error_code": 0 if name in NAMES[:50] else 69, "error_message": None}
                    for name in NAMES
                ]
                each = each[60:] if version == 1 else each
            else:
                each = [(await client.ask(key, version, one))[rows][0] for one in one_by_one(key, values)]
            for row in answer[rows]:
                row.pop("port", None)
            for row in each:
                row.pop("port", None)
            assert answer[rows] == each
            codes = Counter(ErrorCode(row["error_code"]).name.upper() for row in each if row["error_code"])
            assert counted == codes
            client.close()

    asyncio.run(test())


def test_a_long_list_yields_and_its_filters_cost_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(str(tmp_path), SETTINGS) as node, turns_of(node) as turns:
            client = await ready(node)
            for name in NAMES[:200]:
                await client.ask(ApiKey.OFFSET_COMMIT, 8, commit(name, [0]))
            for version in (0, 2, 3, 5):
                before = turns.count
                answer = await client.ask(ApiKey.LIST_GROUPS, version, {"states_filter": (), "types_filter": ()})
                assert turns.count - before >= 2
                assert {row["group_id"] for row in answer["groups"]} == set(NAMES[:200])
            for states, types, found in (
                ([" eMpty", *NAMES], [], 200),
                (NAMES, [], 0),
                ([], NAMES, 0),
                ([], [" Classic "], 200),
            ):
                values = {"states_filter": states, "types_filter": types}
                assert len((await client.ask(ApiKey.LIST_GROUPS, 5, values))["groups"]) == found
            client.close()

    asyncio.run(test())


def test_a_commit_of_many_partitions_yields(tmp_path: Path) -> None:
    many = [*range(PARTITIONS), *range(PARTITIONS, 4000)]
    unknown = ErrorCode.unknown_topic_or_partition

    async def test() -> None:
        async with running(str(tmp_path), SETTINGS) as node, turns_of(node) as turns:
            client = await ready(node)
            before = turns.count
            (topic,) = (await client.ask(ApiKey.OFFSET_COMMIT, 8, commit("g", many)))["topics"]
            assert turns.count - before >= 2
            found = {row["partition_index"]: row["error_code"] for row in topic["partitions"]}
            assert found == {number: unknown if number >= PARTITIONS else 0 for number in many}
            assert node.metrics.api(ApiKey.OFFSET_COMMIT).errors == {unknown.name.upper(): len(many) - PARTITIONS}
            (group,) = (await client.ask(ApiKey.OFFSET_FETCH, 8, fetch(["g"])))["groups"]
            offsets = [row["committed_offset"] for row in group["topics"][0]["partitions"]]
            assert offsets == [7] * PARTITIONS
            values = {**commit("g", many), "generation_id_or_member_epoch": 3, "member_id": "nobody"}
            (topic,) = (await client.ask(ApiKey.OFFSET_COMMIT, 8, values))["topics"]
            refused = Counter(row["error_code"] for row in topic["partitions"])
            assert refused == {unknown: len(many) - PARTITIONS, ErrorCode.unknown_member_id: PARTITIONS}
            client.close()

    asyncio.run(test())


def test_a_long_commit_is_several_writes(tmp_path: Path) -> None:
    count = 3 * COMMITTED_AT_ONCE + 1

    async def test() -> None:
        async with running(str(tmp_path), SETTINGS) as node, turns_of(node) as turns:
            client = await ready(node)
            await client.create("wide", partitions=count)
            numbers = list(range(count))
            asked = commit("g", numbers)
            asked["topics"][0]["name"] = "wide"
            before = turns.count
            (topic,) = (await client.ask(ApiKey.OFFSET_COMMIT, 8, asked))["topics"]
            assert turns.count - before >= 4
            assert [row["partition_index"] for row in topic["partitions"]] == numbers
            assert not any(row["error_code"] for row in topic["partitions"])
            (group,) = (await client.ask(ApiKey.OFFSET_FETCH, 8, fetch(["g"])))["groups"]
            rows = {row["partition_index"]: row["committed_offset"] for row in group["topics"][0]["partitions"]}
            assert rows == dict.fromkeys(numbers, 7)
            number = node.groups.partition_of("g")
            log = node.replicas.find("__consumer_offsets", number).log
            assert log.log_end_offset == count
            written = log.read(0, 1 << 24, up_to=count)
            assert written is not None
            batches = [header.count for _, header in iterate_batches(written.read())]
            assert batches == [COMMITTED_AT_ONCE] * 3 + [1]
            client.close()

    asyncio.run(test())


@pytest.mark.parametrize(
    ("key", "versions", "rows", "row"),
    [
        (ApiKey.DESCRIBE_GROUPS, range(7), "groups", {"group_id": "g", "members": [{"member_id": "m"}] * 3}),
        (ApiKey.LIST_GROUPS, range(6), "groups", {"group_id": "g", "protocol_type": "consumer"}),
        (ApiKey.DELETE_GROUPS, range(4), "results", {"group_id": "g", "error_code": 69}),
        (ApiKey.LEAVE_GROUP, range(3, 6), "members", {"member_id": "m", "group_instance_id": None}),
        (ApiKey.FIND_COORDINATOR, range(4, 7), "coordinators", {"key": "g", "node_id": 1, "host": "h", "port": 9}),
    ],
)
def test_a_response_in_steps_is_the_same(key: ApiKey, versions: range, rows: str, row: dict[str, Any]) -> None:
    for version in versions:
        for count in (0, 1, 127, 200):
            values = {"error_code": ErrorCode.none, rows: [row] * count}
            steps = messages.encode_response_in_steps(key, version, 7, values)
            assert at_once(steps) == messages.encode_response(key, version, 7, values)


def test_many_members_leave_in_steps_and_one_rebalance_follows(tmp_path: Path) -> None:
    staying = 5

    def joining(member: str = "") -> JoinGroup:
        return JoinGroup(
            group_id="g",
            member_id=member,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols={"range": b""},
            require_known_member_id=False,
        )

    async def test() -> None:
        async with running(str(tmp_path), SETTINGS) as node, turns_of(node) as turns:
            client = await ready(node)
            waiting = [AwaitedReply() for _ in range(COUNT)]
            for each in waiting:
                node.groups.ask(each, joining())
            members = [(await each.result)["member_id"] for each in waiting]
            assert len(set(members)) == COUNT
            (group,) = (group for group, _ in node.groups.groups())
            first = group.generation
            before, rebalances = turns.count, node.metrics.rebalances
            answer = await client.ask(ApiKey.LEAVE_GROUP, 5, leave("g", [*members[staying:], "nobody"]))
            assert [each["error_code"] for each in answer["members"]] == [0] * (COUNT - staying) + [
                ErrorCode.unknown_member_id
            ]
            assert turns.count - before >= COUNT // LEAVING_AT_ONCE
            rejoined = [AwaitedReply() for _ in range(staying)]
            for each, member in zip(rejoined, members, strict=False):
                node.groups.ask(each, joining(member))
            assert {(await each.result)["generation_id"] for each in rejoined} == {first + 1}
            assert node.metrics.rebalances == rebalances + 1

    asyncio.run(test())
