"""A rebalance of many members is decided at once and answered a few at a time."""

from __future__ import annotations

import asyncio

from ottla.coordinator.group.classic.describe import describe
from ottla.coordinator.group.requests import SyncGroup
from ottla.drivers.coordinators.coordinator_answers import ANSWERS_PER_TURN
from tests.unit.coordinator.test_driver import Waiter, World, play, until

MEMBERS = 3 * ANSWERS_PER_TURN + 1


def answered(waiters: list[Waiter]) -> int:
    return sum(len(waiter.results) for waiter in waiters)


async def begin(world: World) -> list[Waiter]:
    """Members that have their JoinGroup answers."""
    waiters = [world.join() for _ in range(MEMBERS)]
    await until(lambda: answered(waiters) == MEMBERS)
    return waiters


def sync(world: World, joined: Waiter, assignments: dict[str, bytes]) -> Waiter:
    (answer,) = joined.results
    waiter = Waiter()
    asked = SyncGroup(
        group_id="g", generation=answer["generation_id"], member_id=answer["member_id"], assignments=assignments
    )
    world.driver.ask(waiter, asked)
    return waiter


def test_others_run_between_the_answers_of_a_rebalance() -> None:
    async def scene(world: World) -> None:
        joined = await begin(world)
        leader, *others = sorted(joined, key=lambda each: each.results[0]["leader"] != each.results[0]["member_id"])
        assignments = {each.results[0]["member_id"]: str(number).encode() for number, each in enumerate(joined)}
        waiters = [sync(world, each, {}) for each in others]
        assert answered(waiters) == 0
        waiters.append(sync(world, leader, assignments))
        seen = [answered(waiters)]
        assert world.driver.read(describe, "g")["group_state"] == "Stable"
        while seen[-1] < MEMBERS:
            await asyncio.sleep(0)
            seen.append(answered(waiters))
        steps = [after - before for before, after in zip([0, *seen], seen, strict=False)]
        assert max(steps) <= ANSWERS_PER_TURN and len(steps) >= 4
        told = {each.results[0]["assignment"] for each in waiters}
        assert told == {*assignments.values()}

    play(scene)


def test_what_is_decided_is_answered_though_the_coordinator_moves_meanwhile() -> None:
    async def scene(world: World) -> None:
        joined = await begin(world)
        leader, *others = sorted(joined, key=lambda each: each.results[0]["leader"] != each.results[0]["member_id"])
        waiters = [sync(world, each, {}) for each in others]
        waiters.append(sync(world, leader, {}))
        assert 0 < answered(waiters) < MEMBERS
        world.lead(False)
        await until(lambda: answered(waiters) == MEMBERS)
        assert all(len(each.results) == 1 and each.results[0]["assignment"] == b"" for each in waiters)

    play(scene)
