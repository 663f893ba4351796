"""What `docs/inside/durability.md` promises of each flush setting, when the power goes at any moment."""

from __future__ import annotations

import dataclasses
from random import Random

import pytest

from tests.simulation.world import SMALL, World

SEEDS = 30


def work(world: World, random: Random) -> None:
    """Some appends of one to three records, from producers with and without an id."""
    for _ in range(random.randrange(1, 25)):
        world.append(random.choice((1, 2, -1)), count=random.randint(1, 3), size=random.choice((10, 400)))


def lose_power(world: World) -> int:
    """How many acknowledged records are gone; that the rest is a clean prefix is checked."""
    end = world.end
    world.crash(power_loss=True)
    return end - world.end


def test_a_power_loss_takes_only_the_end() -> None:
    """By default nothing waits for the disk: records are lost, but none below the last flush and none in the middle."""
    lost = 0
    for seed in range(SEEDS):
        world, random = World(seed), Random(seed)
        work(world, random)
        world.flush()
        safe = world.end
        work(world, random)
        lost += lose_power(world)
        assert world.end >= safe
    assert lost > SEEDS, "a disk that loses nothing shows nothing"


@pytest.mark.parametrize("messages", [1, 2, 3, 8])
def test_a_power_loss_takes_fewer_records_than_flush_messages(messages: int) -> None:
    lost = []
    for seed in range(SEEDS):
        world, random = World(seed, dataclasses.replace(SMALL, flush_messages=messages)), Random(seed)
        for _ in range(3):
            work(world, random)
            world.crash(power_loss=False)
            work(world, random)
            lost.append(lose_power(world))
    assert max(lost) == messages - 1, "no more than promised, and the promise is not better than that"


@pytest.mark.parametrize("flush_ms", [100, 1000])
def test_a_power_loss_takes_what_is_younger_than_flush_ms(flush_ms: int) -> None:
    """With the timers that a node has; how often they are looked at comes on top."""
    lost, every_ms = 0, flush_ms // 10
    for seed in range(SEEDS):
        world, random = World(seed, dataclasses.replace(SMALL, flush_ms=flush_ms)), Random(seed)
        ends: list[tuple[int, int]] = []
        for _ in range(random.randrange(20, 60)):
            if random.random() < 0.5:
                world.append(random.choice((1, -1)), count=random.randint(1, 3))
                ends.append((world.clock.now, world.end))
            world.tick(every_ms)
        old = max((end for at, end in ends if at <= world.clock.now - flush_ms - every_ms), default=0)
        lost += lose_power(world)
        assert world.end >= old
    assert lost > SEEDS // 4
