"""Long work lets others run after each slice, whatever its steps yield."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, cast

import pytest

from ottla.drivers.cooperative import APART_AFTER_SLICES, SLICE, Cost, begin, drop_scheduler, run_yielding

COST = SLICE * 2 // 5


def steps(count: int, awaits: bool) -> Generator[Cost, Any, int]:
    """As many that together cost a slice in three, with something to await after each if asked for."""
    total = 0
    for number in range(count):
        yield COST
        if awaits:
            total += yield asyncio.sleep(0, number)
    return total


@pytest.mark.parametrize("awaits", [False, True])
def test_a_slice_costs_the_same_before_and_after_its_objects_are_made_apart(awaits: bool) -> None:
    count = 6 * APART_AFTER_SLICES

    async def main() -> int:
        loop = asyncio.get_running_loop()
        turns = 0

        def other() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(other)

        loop.call_soon(other)
        result = await run_yielding(steps(count, awaits))
        assert result == (sum(range(count)) if awaits else 0)
        drop_scheduler(loop)
        return turns

    turns = asyncio.run(main())
    slices = count // 3
    assert abs(turns - (count if awaits else 0) - 2 * slices) <= 4, "two turns of the loop for each slice"


def test_what_is_there_already_is_not_waited_for() -> None:
    async def main() -> None:
        there = asyncio.get_running_loop().create_future()
        there.set_result(7)

        def asks() -> Generator[Cost, Any, int]:
            yield 3
            total: int = yield there
            total += yield there
            return total

        assert begin(asks()) == 14
        failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        failed.set_exception(ValueError("no"))

        def fails() -> Generator[Cost, Any, int]:
            found: int = yield failed
            return found

        with pytest.raises(ValueError, match="no"):
            await cast(Any, begin(fails()))

    asyncio.run(main())
