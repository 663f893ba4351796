"""A crash at every single change to the disk: what comes back is a clean prefix with all that was safe.

Covers the row "one log" of the reliability table and its bugs 7 (duplicates after kill -9), 8, 11 and 12: every check
of a world retries the last five batches of each producer, reads from every offset of every batch and looks up by time.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from ottla.testing.disk import SimulatedCrash
from tests.simulation.world import SMALL, World, with_flush_on_append

FEW_SEEDS = 2
MANY_STEPS = 3
"""Every third step in each seed's run, another third with the next seed: the whole range in bounded time."""


def busy(world: World) -> None:
    """Appends of several producers over several segments, with everything that changes files in between."""
    for number in range(6):
        world.append(1, count=2)
        world.append(-1, count=1, size=300)
        world.append(2, count=3, codec=number % 5)
    world.flush()
    world.new_epoch()
    world.append(1, size=900)
    world.append(1, size=900)
    world.roll()
    world.append(1)
    world.delete_records(world.end - 3)
    world.append_in_transaction(10)
    world.append_in_transaction(11)
    world.append(2, size=2000)
    world.end_transaction(11, abort=True)
    world.end_transaction(10, abort=False)
    world.append_in_transaction(11)
    world.end_transaction(11, abort=True)
    world.tick(1000)
    world.append(2, count=4)
    world.tick(120_000)
    world.restart_cleanly()
    for _ in range(4):
        world.append(2, size=400)
        world.append(1, size=400)
    world.flush()
    world.append(1)


def expiring(world: World) -> None:
    """Everything is deleted by time, with a crash somewhere."""
    for _ in range(5):
        world.append(1, size=1000)
    world.tick(world.config.retention_ms + 100_000)
    world.append(1)
    world.tick(2000)
    world.append(1)
    world.restart_cleanly()
    world.append(1)


def fsynced(world: World) -> None:
    for _ in range(8):
        world.append(1, size=500)
        world.append(2)


SCENARIOS = {
    "busy": (busy, SMALL),
    "expiring": (expiring, SMALL),
    "fsynced": (fsynced, with_flush_on_append()),
}


def steps_of(scenario: Callable[[World], None], world: World) -> int:
    before = world.fs.steps
    scenario(world)
    world.check()
    return world.fs.steps - before


@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_crash_at_any_step(name: str, power_loss: bool) -> None:
    scenario, config = SCENARIOS[name]
    total = steps_of(scenario, World(0, config))
    crashes = []
    for seed in range(FEW_SEEDS):
        for step in range(seed % MANY_STEPS, total, MANY_STEPS):
            world = World(seed, config)
            crashes.append(world.fs.crash_after(step))
            try:
                scenario(world)
            except SimulatedCrash:
                world.recover(power_loss=power_loss)
            world.append(1)
            world.append(2, count=2)
            world.check()
            world.restart_cleanly()
    # What is random in a world decides on some steps of a recovery: the last ones of another seed may be missing.
    assert len(crashes) > 15 and sum(crash.fired for crash in crashes) >= 0.95 * len(crashes)


@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
def test_a_crash_while_recovering_from_a_crash(power_loss: bool) -> None:
    crashes = []
    for seed in range(25):
        world = World(seed)
        busy(world)
        world.fs.crash()
        for again in range(3):
            world.fs.restart(power_loss=power_loss)
            crashes.append(world.fs.crash_after(Random(seed * 10 + again).randrange(12)))
            try:
                world.open()
            except SimulatedCrash:
                continue
        world.fs.crash()
        world.recover(power_loss=power_loss)
        world.append(1)
        world.check()
    assert sum(crash.fired for crash in crashes) > len(crashes) / 2


def test_an_append_whose_answer_was_lost_is_recognised_when_it_is_retried() -> None:
    """Bug 7: kill between append and acknowledgement, for each of five batches in flight."""
    for lost in range(1, 6):
        world = World(lost)
        for _ in range(7):
            world.append(1)
        if lost % 2:
            world.roll()
        for _ in range(lost):
            world.append(1)
        world.crash(power_loss=False)
        for batch in world.history[-5:]:
            world.retry(batch)
        world.restart_cleanly()
        for batch in world.history[-5:]:
            world.retry(batch)


def test_a_retry_after_retention_is_still_a_duplicate() -> None:
    """Bug 8: state of a producer outlives its batches; a clean restart does not change that."""
    world = World(1)
    for _ in range(3):
        world.append(1)
    last = world.history[-1]
    world.tick(world.config.retention_ms + 10_000)
    assert world.log.log_start_offset == world.end
    world.retry(last)
    world.restart_cleanly()
    world.retry(last)
    sent = world.build(1, 1, 10)
    assert world.send(sent).first_offset == 3


def test_look_up_by_time_after_a_trim_inside_a_batch() -> None:
    """Bug 11: neither the look-up nor the largest timestamp comes from below the log start."""
    world = World(1)
    for _ in range(12):
        world.append(1, count=5)
    for start in range(60):
        world.delete_records(start)
        world.check_times()
    world.delete_records(60)
    world.check()


@pytest.mark.parametrize("seed", range(19, 40))
def test_indexes_that_recovery_wrote_are_fsynced_though_their_records_were(seed: int) -> None:
    """A segment that ends at the recovery point is recovered too; its time index was lost with the next power failure,
    because a full fsync begins at the recovery point. A random history found it."""
    world = World(seed)
    world.end_transaction(11, abort=True)
    world.append(4, count=10, codec=2)
    world.tick(60_000)
    world.crash(power_loss=True)
    world.end_transaction(11, abort=True)
    world.tick(60_000)
    world.crash(power_loss=True)
    first = world.log.active_segment
    assert len(first.time_index) == 2
    world.append(1, count=3, size=700)
    world.tick(60_000)
    assert world.log.active_segment is not first
    assert world.log.recovery_point == world.log.log_end_offset
    world.crash(power_loss=True)
    assert len(world.log.segments[0].time_index) == 2
