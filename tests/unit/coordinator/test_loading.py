"""While a coordinator loads, and what it finds in a log that others wrote.

As in Kafka's CoordinatorLoaderImpl: unknown types of records are skipped, what is damaged or of a version
to come ends the load, and the partition then has no coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.coordinator.config import GroupConfig
from ottla.coordinator.group.admin import list_groups
from ottla.coordinator.group.classic.describe import describe
from ottla.coordinator.group.offsets import fetch
from ottla.coordinator.group.requests import DeleteGroups, LeaveGroup, Leaving, OffsetCommit, OffsetDelete, SyncGroup
from ottla.coordinator.group.shard import GroupShard
from ottla.drivers.coordinators import coordinator_shards, group_coordinator
from ottla.drivers.coordinators.coordinator_load import load
from ottla.errors import ErrorCode
from ottla.protocol.internal import codec
from ottla.protocol.internal.group_records import GroupRecord, decode_record, encode_key, encode_value
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.protocol.schemas.records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from tests.unit.coordinator.harness import WALL_START_MS, SimulatedDriver
from tests.unit.coordinator.test_driver import Waiter, World, code_of, code_of_or_none, play, until
from tests.unit.server.node import Client, running

LOADING = ErrorCode.coordinator_load_in_progress
OFFSET = OffsetCommitValue(1, -1, "", WALL_START_MS)


def offset(group: str = "simple", value: OffsetCommitValue = OFFSET) -> SimpleRecord:
    return SimpleRecord(0, encode_key(OffsetCommitKey(group, "t", 0)), encode_value(value))


def test_every_request_is_answered_that_the_groups_are_being_loaded() -> None:
    async def scene(world: World) -> None:
        world.commit(5)
        may_read = asyncio.Event()

        async def slow(work: Callable[[], Any]) -> Any:
            await may_read.wait()
            return work()

        world.node.fs.run = slow
        world.restart()
        await asyncio.sleep(0)
        driver, waiter = world.driver, Waiter()
        requests: list[Callable[[], Any]] = [
            world.join,
            lambda: driver.ask(waiter, SyncGroup(group_id="g", generation=1, member_id="m")),
            lambda: driver.heartbeat("g", "m", None, 1),
            lambda: driver.ask(waiter, LeaveGroup("g", [Leaving("m")])),
            lambda: driver.ask(waiter, OffsetCommit(group_id="g")),
            lambda: driver.read(fetch, "g", None, False),
            lambda: driver.ask(waiter, OffsetDelete("g", {"t": [0]})),
            lambda: driver.ask(waiter, DeleteGroups(["g"])),
            lambda: driver.read(describe, "g"),
            lambda: driver.list_groups((), ()),
        ]
        assert [code_of(request) for request in requests] == [LOADING] * len(requests)
        assert (waiter.results, driver.loading(), driver.groups()) == ([], 1, [])
        may_read.set()
        await until(lambda: not driver.loading())
        assert world.committed() == 5

    play(scene)


def test_leadership_that_ends_while_loading_ends_the_load() -> None:
    async def scene(world: World) -> None:
        world.commit(5)
        never = asyncio.Event()

        async def stuck(work: Callable[[], Any]) -> Any:
            await never.wait()

        world.node.fs.run = stuck
        world.restart()
        await asyncio.sleep(0)
        world.lead(False)
        assert code_of_or_none(world) is ErrorCode.not_coordinator
        assert world.driver.loading() == 0

        async def run(work: Callable[[], Any]) -> Any:
            return work()

        world.node.fs.run = run
        world.lead()
        await until(lambda: not world.driver.loading())
        assert world.committed() == 5

    play(scene)


TURNS = 100
"""Iterations of the event loop: far more than a load without waits takes."""


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def test_a_new_coordinator_waits_until_what_it_loaded_is_committed() -> None:
    """An offset that is told to a consumer before could be lost with this node."""

    async def scene(world: World) -> None:
        log = world.log
        world.commit(4)
        world.restart()
        await turns()
        assert (world.driver.loading(), world.committed()) == (0, 4)
        log.must_fsync = True
        log.may_flush.clear()
        waiting = world.commit(5)
        world.restart()
        await turns()
        assert (log.high_watermark, log.log_end_offset) == (1, 2)
        assert (waiting.results, world.driver.loading()) == ([ErrorCode.not_coordinator], 1)
        assert code_of(world.committed) is LOADING
        assert code_of(lambda: world.commit(6)) is LOADING
        log.may_flush.set()
        await until(lambda: not world.driver.loading())
        assert log.high_watermark == 2
        assert world.committed() == 5

    play(scene)


@pytest.mark.parametrize("is_gone", [False, True], ids=["a new epoch", "another leader"])
def test_a_change_of_leadership_ends_the_wait_for_what_was_loaded(is_gone: bool) -> None:
    async def scene(world: World) -> None:
        world.log.must_fsync = True
        world.log.may_flush.clear()
        world.commit(5)
        world.restart()
        await turns()
        assert code_of(world.committed) is LOADING
        world.lead(not is_gone)
        await turns()
        assert code_of(world.committed) is (ErrorCode.not_coordinator if is_gone else LOADING)
        world.log.may_flush.set()
        await turns()
        if is_gone:
            assert code_of(world.committed) is ErrorCode.not_coordinator
        else:
            assert world.committed() == 5
        assert world.driver.damaged() == {}

    play(scene)


GROUP_KEY = encode_key(GroupMetadataKey("g"))
GROUP_VALUE = encode_value(GroupMetadataValue("consumer", 1, "range", None, 0, ())) or b""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (encode_key(OffsetCommitKey("g", "t", 1)), (encode_value(OFFSET) or b"")[:-3]),
        (encode_key(OffsetCommitKey("g", "t", 1)), b"\0\x63" + (encode_value(OFFSET) or b"")[2:]),
        (encode_key(OffsetCommitKey("g", "t", 1)), b""),
        (encode_key(OffsetCommitKey("g", "t", 1))[:-2], encode_value(OFFSET)),
        (GROUP_KEY, GROUP_VALUE[:-1]),
        (GROUP_KEY, b"\0\x09" + GROUP_VALUE[2:]),
        (GROUP_KEY, b"\xff\xff" + GROUP_VALUE[2:]),
        (b"\0", b""),
        (b"", None),
    ],
)
def test_what_is_damaged_or_of_a_version_to_come_ends_the_load(key: bytes, value: bytes | None) -> None:
    async def scene(world: World) -> None:
        log = world.partition.log
        log.append(build_batch([offset(), SimpleRecord(0, key, value)]))
        world.restart()
        await until(lambda: not world.driver.loading())
        assert code_of_or_none(world) is ErrorCode.coordinator_not_available
        assert len(world.log.health.suspected) == 1
        assert world.driver.list_groups((), ()) == []

    play(scene)


def test_an_internal_error_ends_the_load_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(GroupShard):
        def replay(self, *arguments: Any) -> None:
            raise RuntimeError("a bug")

    async def scene(world: World) -> None:
        world.commit(5)
        monkeypatch.setattr(group_coordinator, "GroupShard", Broken)
        world.restart()
        await until(lambda: not world.driver.loading())
        assert code_of_or_none(world) is ErrorCode.coordinator_not_available
        assert len(world.log.health.suspected) == 1

    play(scene)


def test_types_that_nobody_knows_and_records_without_a_key_are_passed_over() -> None:
    async def scene(world: World) -> None:
        strange = [SimpleRecord(0, bytes([0, number]) + b"\0\1g", b"\0\0any") for number in (24, 63, 127)]
        strange += [
            SimpleRecord(0, b"\x7f\xff", None),
            SimpleRecord(0, b"\xff\xff\0\1g", b""),
            SimpleRecord(0, None, b"x"),
        ]
        for record in strange:
            world.partition.log.append(build_batch([offset("a"), record, offset("b")]))
        world.restart()
        await until(lambda: not world.driver.loading())
        assert {row["group_id"] for row in world.driver.list_groups((), ())} == {"a", "b"}
        assert world.committed("a") == world.committed("b") == 1

    play(scene)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_offsets_of_old_brokers_expire_by_the_retention_of_this_one(version: int) -> None:
    """KAFKA-8069: version 1 has a field for the time of expiry, and -1 in it says nothing."""
    driver = SimulatedDriver(GroupConfig(offsets_retention_ms=3_600_000))
    value = b"\0" + bytes([version]) + codec.encode(OFFSET, version)
    driver.log = []
    driver.shard = GroupShard(driver.config, driver.random)

    async def run(work: Callable[[], Any]) -> Any:
        return work()

    class Log:
        log_start_offset, log_end_offset = 0, 1

        def read(self, at: int, max_bytes: int, *, up_to: int) -> Any:
            record = SimpleRecord(0, encode_key(OffsetCommitKey("g", "t", 0)), value)
            return type("Part", (), {"read": lambda part: bytes(build_batch([record]))})()

    fs = type("Fs", (), {"run": staticmethod(run)})()
    asyncio.run(load(driver.shard, Log(), fs, 1_000, decode_record))
    driver.shard.on_loaded(driver.now)
    driver.wait(3_000_000)
    assert [topic.partitions[0].committed_offset for topic in fetch(driver.shard.state, "g", None)] == [1]
    driver.wait(1_200_000)
    assert fetch(driver.shard.state, "g", None) == []
    assert [record.key for batch in driver.log for record in batch] == [
        OffsetCommitKey("g", "t", 0),
        GroupMetadataKey("g"),
    ]


def test_a_deleted_group_stays_deleted() -> None:
    """What Redpanda forgot once: a tombstone that the next coordinator did not see."""
    driver = SimulatedDriver()
    driver.log = [
        [GroupRecord(OffsetCommitKey("g", "t", 0), OFFSET)],
        [GroupRecord(OffsetCommitKey("", "t", 0), OFFSET)],
    ]
    driver.restart()
    driver.shard.ask("delete", DeleteGroups(["g"]), driver.now)
    driver.run()
    driver.restart()
    assert [row["group_id"] for row in list_groups(driver.shard.state, (), ())] == [""]
    driver.shard.ask("delete", DeleteGroups([""]), driver.now)
    driver.run()
    driver.restart()
    assert list_groups(driver.shard.state, (), ()) == []


def commit_values(group: str) -> dict[str, Any]:
    row = {"partition_index": 0, "committed_offset": 3, "committed_leader_epoch": 2, "committed_metadata": ""}
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": "t", "partitions": [row]}],
    }


MEMBER = {"group_id": "g", "member_id": "m", "generation_id": 1, "group_instance_id": None}
TOPICS = [{"name": "t", "partition_indexes": [0], "partitions": [{"partition_index": 0}]}]
JOIN = {"session_timeout": 10_000, "rebalance_timeout": 10_000, "protocol_type": "consumer", "reason": None}
FETCH = {"group_id": "g", "topics": TOPICS}
LEAVE = {"group_id": "g", "member_id": "m", "members": [{**MEMBER, "reason": None}]}

REQUESTS: list[tuple[ApiKey, range, dict[str, Any], Callable[[Any], int]]] = [
    (ApiKey.JOIN_GROUP, range(10), {**MEMBER, **JOIN, "protocols": [{"name": "r", "metadata": b""}]},
     lambda answer: answer["error_code"]),
    (ApiKey.SYNC_GROUP, range(6), {**MEMBER, "assignments": (), "protocol_type": "consumer", "protocol_name": "r"},
     lambda answer: answer["error_code"]),
    (ApiKey.LEAVE_GROUP, range(6), LEAVE, lambda answer: answer["error_code"]),
    (ApiKey.OFFSET_COMMIT, range(2, 10), commit_values("g"),
     lambda answer: answer["topics"][0]["partitions"][0]["error_code"]),
    (ApiKey.OFFSET_FETCH, range(1, 2), FETCH, lambda answer: answer["topics"][0]["partitions"][0]["error_code"]),
    (ApiKey.OFFSET_FETCH, range(2, 8), FETCH, lambda answer: answer["error_code"]),
    (ApiKey.OFFSET_FETCH, range(8, 10), {"groups": [FETCH]}, lambda answer: answer["groups"][0]["error_code"]),
    (ApiKey.DESCRIBE_GROUPS, range(7), {"groups": ["g"]}, lambda answer: answer["groups"][0]["error_code"]),
    (ApiKey.LIST_GROUPS, range(6), {"states_filter": (), "types_filter": ()}, lambda answer: answer["error_code"]),
    (ApiKey.DELETE_GROUPS, range(3), {"groups_names": ["g"]}, lambda answer: answer["results"][0]["error_code"]),
    (ApiKey.OFFSET_DELETE, range(1), {"group_id": "g", "topics": TOPICS}, lambda answer: answer["error_code"]),
]  # fmt: skip


@pytest.mark.shared_values
def test_clients_get_the_error_in_every_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for heartbeats: a member is told that all is well, as by Kafka, and goes on sending them."""
    may_load = asyncio.Event()

    async def slow(*arguments: Any, **options: Any) -> None:
        await may_load.wait()
        await load(*arguments, **options)

    async def test() -> None:
        settings = {"offsets.topic.num.partitions": "1"}
        async with running(str(tmp_path), settings) as node:
            client = await Client.connect(node)
            await client.create("t")
            await client.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
            await client.ask(ApiKey.OFFSET_COMMIT, 8, commit_values("g"))
            client.close()
        monkeypatch.setattr(coordinator_shards, "load", slow)
        async with running(str(tmp_path), settings) as node:
            client = await Client.connect(node)
            found = await client.ask(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
            assert found["coordinators"][0]["error_code"] == 0
            for key, versions, values, error_of in REQUESTS:
                for version in versions:
                    assert error_of(await client.ask(key, version, values)) == LOADING, (key, version)
            for version in range(5):
                assert (await client.ask(ApiKey.HEARTBEAT, version, MEMBER))["error_code"] == 0
            may_load.set()
            await until(lambda: not node.groups.loading())
            found = await client.ask(ApiKey.OFFSET_FETCH, 8, {"groups": [FETCH]})
            row = found["groups"][0]["topics"][0]["partitions"][0]
            assert (row["committed_offset"], row["committed_leader_epoch"]) == (3, 2)
            client.close()

    asyncio.run(test())
