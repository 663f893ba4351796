"""Random histories: appends, rolls, flushes, trims, retention, clean restarts, kills and power losses in any order."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.testing.disk import SimulatedCrash
from tests.simulation.world import TRANSACTIONAL, World

EXAMPLES = int(os.environ.get("OTTLA_SIMULATIONS", "120"))
"""What `make test` can afford; set it to 10000 after a change to the log."""

Action = Callable[[World], object]
DONE: Counter[str] = Counter()
"""Over all histories, how often each action was taken, and `a crash within one`."""

ACTIONS: dict[str, Action] = {
    "append": lambda world: world.append(world.random.choice((1, 2, 3))),
    "append large": lambda world: world.append(world.random.choice((1, 2)), count=3, size=700),
    "append without idempotence": lambda world: world.append(-1, count=2),
    "append compressed": lambda world: world.append(4, count=10, codec=world.random.randrange(5)),
    "in transaction": lambda world: world.append_in_transaction(world.random.choice(TRANSACTIONAL)),
    "commit": lambda world: world.end_transaction(world.random.choice(TRANSACTIONAL), abort=False),
    "abort": lambda world: world.end_transaction(world.random.choice(TRANSACTIONAL), abort=True),
    "flush": World.flush,
    "roll": World.roll,
    "delete records": lambda world: world.delete_records(world.random.randint(0, world.end)),
    "a moment": lambda world: world.tick(1500),
    "a minute": lambda world: world.tick(60_000),
    "an hour": lambda world: world.tick(3_600_000),
    "new epoch": World.new_epoch,
    "clean restart": World.restart_cleanly,
    "kill": lambda world: world.crash(power_loss=False),
    "power loss": lambda world: world.crash(power_loss=True),
    "kill soon": lambda world: world.fs.crash_after(world.random.randrange(12)),
    "check": World.check,
}


@settings(max_examples=EXAMPLES)
@given(
    st.integers(0, 2**32),
    st.booleans(),
    st.lists(
        st.sampled_from(sorted([*ACTIONS, *["append", "append large", "in transaction", "abort"] * 3])),
        min_size=15,
        max_size=60,
    ),
)
def test_any_history_leaves_a_clean_prefix(seed: int, power_loss: bool, actions: list[str]) -> None:
    world = World(seed)
    for action in actions:
        DONE[action] += 1
        try:
            ACTIONS[action](world)
        except SimulatedCrash:
            DONE["a crash within one"] += 1
            world.recover(power_loss=power_loss)
    world.fs.crash()
    world.recover(power_loss=power_loss)
    world.append(1)
    world.check()


def test_the_histories_had_everything_in_them() -> None:
    """After the one above, in the same process; alone there is nothing to look at."""
    if DONE:
        assert DONE.keys() == {*ACTIONS, "a crash within one"}
        assert min(DONE.values()) >= EXAMPLES // 20, DONE
