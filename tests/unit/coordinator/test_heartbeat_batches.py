"""Heartbeats of one turn of the loop: one batch, answered when it is in the log, and undone together when it is not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.coordinator.group.consumer.describe import describe
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.requests import ConsumerHeartbeat, OffsetCommit, OffsetToCommit, PlainHeartbeat
from ottla.drivers.coordinators import coordinator_shard
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.records.record_batch import read_batch_header
from ottla.storage.config import LogConfig
from tests.unit.coordinator.harness import WALL_START_MS
from tests.unit.coordinator.test_commit_batches import commit, shape
from tests.unit.coordinator.test_driver import Waiter, World, play, until


def beat(world: World, member_id: str, epoch: int = 0, group_id: str = "g") -> Waiter:
    waiter = Waiter()
    joins: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "owned": {}, "topics": ("t",)} if epoch == 0 else {}
    world.driver.ask(waiter, ConsumerHeartbeat(group_id=group_id, member_id=member_id, member_epoch=epoch, **joins))
    return waiter


def code_of(waiter: Waiter) -> Any:
    (result,) = waiter.results
    return result["error_code"] if isinstance(result, dict) else result


def group_of(world: World, group_id: str = "g") -> ConsumerGroup | None:
    for group, _ in world.driver.groups():
        if group.group_id == group_id:
            assert isinstance(group, ConsumerGroup)
            return group
    return None


def members_of(world: World) -> list[str]:
    group = group_of(world)
    return [] if group is None else [*group.members]


def test_heartbeats_of_one_turn_are_one_batch_and_answered_when_it_is_in_the_log() -> None:
    async def scene(world: World) -> None:
        waiters = [beat(world, name) for name in "abc"]
        assert world.log.batches == [] and [waiter.results for waiter in waiters] == [[], [], []]
        assert members_of(world) == ["a", "b", "c"]  # each is decided on what those before it have changed
        await asyncio.sleep(0)
        assert [code_of(waiter) for waiter in waiters] == [ErrorCode.none] * 3
        assert [waiter.results[0]["member_epoch"] for waiter in waiters] == [2, 2, 2]  # assignments have an interval
        (batch,) = world.log.batches
        assert read_batch_header(batch).count > 6
        world.restart()
        await until(lambda: members_of(world) == ["a", "b", "c"])

    play(scene)


def test_a_heartbeat_that_writes_nothing_waits_for_those_before_it() -> None:
    async def scene(world: World) -> None:
        beat(world, "a")
        await asyncio.sleep(0)
        first, second = beat(world, "b"), beat(world, "a", 2)
        assert (first.results, second.results) == ([], [])
        await asyncio.sleep(0)
        assert code_of(first) is code_of(second) is ErrorCode.none and len(world.log.batches) == 2

    play(scene)


def test_what_cannot_be_appended_is_undone_the_last_one_first() -> None:
    async def scene(world: World) -> None:
        beat(world, "a")
        await asyncio.sleep(0)
        group = group_of(world)
        assert group is not None
        before = (group.epoch, group.assignment_epoch, {**group.members}, {**group.targets})
        world.log.failure = KafkaError(ErrorCode.not_leader_or_follower)
        waiters = [beat(world, "b"), beat(world, "c"), beat(world, "a", -1), beat(world, "d", group_id="new")]
        assert members_of(world) == ["b", "c"]
        await asyncio.sleep(0)
        assert [code_of(waiter) for waiter in waiters] == [ErrorCode.not_coordinator] * 4
        assert (group.epoch, group.assignment_epoch, group.members, group.targets) == before
        assert group_of(world, "new") is None
        again = beat(world, "b")
        await asyncio.sleep(0)
        assert code_of(again) is ErrorCode.none and members_of(world) == ["a", "b"]

    play(scene)


@pytest.mark.parametrize("failing", [False, True])
def test_a_full_batch_is_appended_before_the_next_begins(failing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_shard, "BATCH_RECORDS_MAX", 6)

    async def scene(world: World) -> None:
        if failing:
            world.log.failure = KafkaError(ErrorCode.not_leader_or_follower)
        waiters = [beat(world, name) for name in "abc"]
        assert len(world.log.batches) == (0 if failing else 1)
        # What was decided on the batch that failed is undone with it; the next heartbeat creates the group again.
        assert members_of(world) == (["c"] if failing else ["a", "b", "c"])
        await asyncio.sleep(0)
        refused = ErrorCode.not_coordinator if failing else ErrorCode.none
        assert [code_of(waiter) for waiter in waiters] == [refused, refused, ErrorCode.none]

    play(scene)


def test_a_batch_stays_below_the_limit_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(world: World) -> None:
        monkeypatch.setattr(world.log, "config", LogConfig(max_message_bytes=2_000))
        waiters = [beat(world, f"member-{number}") for number in range(20)]
        await asyncio.sleep(0)
        assert {code_of(waiter) for waiter in waiters} == {ErrorCode.none}
        assert len(world.log.batches) > 2 and max(map(len, world.log.batches)) <= 2_000

    play(scene)


def test_whoever_asks_for_something_else_finds_the_heartbeats_in_the_log() -> None:
    async def scene(world: World) -> None:
        joined = beat(world, "a")
        assert [each["member_id"] for each in world.driver.read(describe, "g")["members"]] == ["a"]
        assert code_of(joined) is ErrorCode.none and len(world.log.batches) == 1
        joined, committed = beat(world, "b"), Waiter()
        offsets = [OffsetToCommit("t", 0, 7, -1, "")]
        asked = OffsetCommit(group_id="g", member_id="a", generation=2, offsets=offsets, knows_unknown_group=True)
        world.driver.ask(committed, asked)
        assert code_of(joined) is ErrorCode.none and len(world.log.batches) == 3

    play(scene)


def test_a_new_epoch_is_written_behind_the_commits_of_its_turn_and_silence_does_not_end_their_batch() -> None:
    async def scene(world: World) -> None:
        for member_id in "ab":
            beat(world, member_id)
            await asyncio.sleep(0)
        world.node.clock.now_ms = lambda: WALL_START_MS + 2_000  # the interval between assignments is over
        beat(world, "b", 2)
        await asyncio.sleep(0)
        written = len(world.log.batches)
        committed, told = commit(world, shape(), 7), Waiter()
        heard = PlainHeartbeat("g", "a", None, 2, "", "")
        assert world.driver.plain_heartbeat(heard, lambda: told) is told
        assert committed.results == [None] and told.results == []
        await asyncio.sleep(0)
        assert told.results[0]["member_epoch"] == 3 and len(world.log.batches) == written + 2
        committed = commit(world, shape(), 8)
        assert world.driver.plain_heartbeat(heard._replace(member_epoch=3), Waiter) == 5_000
        assert committed.results == [] and len(world.log.batches) == written + 2
        await asyncio.sleep(0)
        assert committed.results == [None] and world.committed() == 8

    play(scene)


def test_a_coordinator_that_goes_refuses_what_it_has_not_appended() -> None:
    async def scene(world: World) -> None:
        joined = beat(world, "a")
        world.lead(False)
        assert code_of(joined) is ErrorCode.not_coordinator
        world.lead()
        await asyncio.sleep(0)
        assert world.log.batches == [] and members_of(world) == []

    play(scene)
