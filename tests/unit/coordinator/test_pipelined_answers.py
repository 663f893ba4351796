"""An answer may run the next request of its connection at once: that one finds the shard between two calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from ottla.coordinator.effects import Write
from ottla.coordinator.group.requests import ConsumerHeartbeat, OffsetCommit, OffsetToCommit
from ottla.drivers.coordinators import coordinator_shard
from ottla.drivers.coordinators.group_coordinator import GroupLed
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.group_records import GroupRecord
from ottla.protocol.schemas.records import OffsetCommitKey, OffsetCommitValue
from tests.unit.coordinator.harness import WALL_START_MS
from tests.unit.coordinator.test_driver import OK, Waiter, World, play, until
from tests.unit.coordinator.test_driver import code_of as raised_by
from tests.unit.coordinator.test_heartbeat_batches import beat, code_of, group_of, members_of


class Pipelining(Waiter):
    """A request with another one behind it on its connection."""

    def __init__(self, following: Callable[[], Any]) -> None:
        super().__init__()
        self._following = following
        self.next: Any = None

    def complete(self, result: Any) -> None:
        is_first = not self.results
        super().complete(result)
        if is_first:
            self.next = self._following()


def join_with(world: World, member_id: str, following: Callable[[], Any]) -> Pipelining:
    waiter = Pipelining(following)
    asked = ConsumerHeartbeat(
        group_id="g", member_id=member_id, member_epoch=0, rebalance_timeout_ms=60_000, owned={}, topics=("t",)
    )
    world.driver.ask(waiter, asked)
    return waiter


def shard_of(world: World) -> GroupLed:
    return world.driver._by_number[0]


def decide_commit(shard: GroupLed, offset: int) -> None:
    value = OffsetCommitValue(offset, -1, "", WALL_START_MS)
    shard.core.state.write_commit("simple", [GroupRecord(OffsetCommitKey("simple", "t", 0), value)])


def commit_of_member(member_id: str) -> OffsetCommit:
    offsets = [OffsetToCommit("t", 0, 7, -1, "")]
    return OffsetCommit(group_id="g", member_id=member_id, generation=2, offsets=offsets, knows_unknown_group=True)


def test_a_heartbeat_behind_one_of_a_full_batch_is_answered_and_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_shard, "BATCH_RECORDS_MAX", 6)

    async def scene(world: World) -> None:
        first = join_with(world, "a", lambda: beat(world, "x", group_id="other"))
        second = beat(world, "b")  # does not fit: what is collected is appended, and `first` answered
        for _ in range(4):
            await asyncio.sleep(0)
        assert [code_of(each) for each in (first, second, first.next)] == [ErrorCode.none] * 3
        world.restart()
        await until(lambda: members_of(world) == ["a", "b"])
        assert group_of(world, "other") is not None

    play(scene)


@pytest.mark.parametrize("failing", [False, True])
def test_a_commit_is_decided_before_the_requests_behind_the_heartbeats_before_it(failing: bool) -> None:
    """Else it could be decided on a heartbeat that is not in the log and may never be."""

    async def scene(world: World) -> None:
        def following() -> Waiter:
            if failing:
                world.log.failure = KafkaError(ErrorCode.not_leader_or_follower)
            return beat(world, "x")

        first = join_with(world, "a", following)
        committed = Waiter()
        assert raised_by(lambda: world.driver.ask(committed, commit_of_member("x"))) is ErrorCode.unknown_member_id
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert code_of(first) is ErrorCode.none and committed.results == []
        assert code_of(first.next) is (ErrorCode.not_coordinator if failing else ErrorCode.none)
        assert members_of(world) == (["a"] if failing else ["a", "x"])

    play(scene)


def test_a_heartbeat_that_is_refused_answers_those_that_it_has_appended() -> None:
    async def scene(world: World) -> None:
        first = beat(world, "a")
        assert raised_by(lambda: world.driver.ask(Waiter(), commit_of_member("x"))) is ErrorCode.unknown_member_id
        await asyncio.sleep(0)
        assert code_of(first) is ErrorCode.none

    play(scene)


def test_what_was_decided_on_heartbeats_that_are_undone_fails_with_them() -> None:
    async def scene(world: World) -> None:
        joined, committed = beat(world, "a"), Waiter()
        shard = shard_of(world)
        decide_commit(shard, 7)
        shard.core.state.reply(committed, OK)
        world.log.failure = KafkaError(ErrorCode.not_leader_or_follower)
        world.driver._effects.work(shard)
        assert code_of(joined) is code_of(committed) is ErrorCode.not_coordinator
        assert world.log.batches == [] and shard.core.state.in_flight == {}

    play(scene)


def test_what_was_decided_first_is_written_first() -> None:
    async def scene(world: World) -> None:
        shard, first = shard_of(world), Pipelining(lambda: world.commit(2))
        shard.core.state.reply(first, {})
        decide_commit(shard, 1)
        world.driver._effects.work(shard)
        assert first.next.results == [OK] and world.committed() == 2

    play(scene)


def test_a_commit_that_too_few_replicas_have_counts_before_its_client_goes_on() -> None:
    async def scene(world: World) -> None:
        world.log.must_fsync = True
        world.log.may_flush.clear()
        first = Pipelining(lambda: world.commit(2))
        offsets = (OffsetToCommit("t", 0, 1, -1, ""),)
        world.driver.ask(first, OffsetCommit(group_id="simple", offsets=offsets))
        world.log.must_fsync = False
        shard = shard_of(world)
        shard.pending[0].error = ErrorCode.not_enough_replicas_after_append
        world.driver._effects._go_on(shard)
        assert first.results == [ErrorCode.coordinator_not_available] and first.next.results == [OK]
        assert world.committed() == 2
        world.log.may_flush.set()

    play(scene)


def test_answers_do_not_nest() -> None:
    """A client with many requests in one buffer takes no more of the stack than another."""

    async def scene(world: World) -> None:
        asked: list[Waiter] = []

        def commit() -> None:
            if len(asked) < 500:
                asked.append(Pipelining(commit))
                offsets = (OffsetToCommit("t", 0, 1, -1, ""),)
                world.driver.ask(asked[-1], OffsetCommit(group_id="simple", offsets=offsets))

        commit()
        assert [each.results for each in asked] == [[OK]] * 500

    play(scene)


def test_an_answer_that_fails_leaves_the_others() -> None:
    async def scene(world: World) -> None:
        def fail() -> None:
            raise ValueError

        shard, waiters = shard_of(world), [Pipelining(fail), Waiter()]
        for waiter in waiters:
            shard.core.state.reply(waiter, {})
        with pytest.raises(ValueError):
            world.driver._effects.work(shard)
        await asyncio.sleep(0)
        assert [each.results for each in waiters] == [[{}], [{}]]

    play(scene)


class Bug(Exception):
    pass


@pytest.mark.parametrize("place", ["append", "encode"])
def test_a_bug_while_heartbeats_are_appended_undoes_them(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)

    async def scene(world: World) -> None:
        def fail(*_: Any, **__: Any) -> Any:
            raise Bug

        beat(world, "a")
        await asyncio.sleep(0)
        with monkeypatch.context() as patch:
            if place == "append":
                patch.setattr(world.log, "append_as_leader", fail)
            else:
                kind = world.driver._effects._kind
                patch.setattr(world.driver._effects, "_kind", kind._replace(encode=fail))
            waiters = [beat(world, "b"), beat(world, "c", group_id="new")]
            await asyncio.sleep(0)
        assert [code_of(each) for each in waiters] == [ErrorCode.unknown_server_error] * 2
        assert members_of(world) == ["a"] and group_of(world, "new") is None
        again = beat(world, "b")
        await asyncio.sleep(0)
        assert code_of(again) is ErrorCode.none and members_of(world) == ["a", "b"]

    play(scene)


def test_a_bug_behind_the_append_undoes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)

    async def scene(world: World) -> None:
        append = world.log.append_as_leader

        def fail(*arguments: Any, **options: Any) -> Any:
            append(*arguments, **options)
            raise Bug

        with monkeypatch.context() as patch:
            patch.setattr(world.log, "append_as_leader", fail)
            joined = beat(world, "a")
            await asyncio.sleep(0)
        assert code_of(joined) is ErrorCode.unknown_server_error and members_of(world) == ["a"]
        world.restart()
        await until(lambda: members_of(world) == ["a"])

    play(scene)


def test_a_bug_while_a_write_is_appended_fails_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else what waits for it, a transaction for one, would wait for ever."""
    caplog.set_level(logging.CRITICAL)

    async def scene(world: World) -> None:
        def fail(*_: Any, **__: Any) -> Any:
            raise Bug

        failed: list[ErrorCode] = []
        with monkeypatch.context() as patch:
            patch.setattr(world.log, "append_as_leader", fail)
            shard, waiter = shard_of(world), Waiter()
            record = GroupRecord(OffsetCommitKey("simple", "t", 0), None)
            shard.core.state.effects.append(Write([record], failed=failed.append))
            shard.core.state.reply(waiter, {})
            world.driver._effects.work(shard)
        assert failed == waiter.results == [ErrorCode.unknown_server_error]

    play(scene)
