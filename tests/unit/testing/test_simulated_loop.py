"""Virtual time: order, rest, and processes that pause and die."""

from __future__ import annotations

import asyncio

import pytest

from ottla.testing.loop import SimulatedTime, Stuck


def test_events_come_by_time_and_then_in_the_order_of_their_making() -> None:
    time = SimulatedTime(1)
    one, two = time.loop("one"), time.loop("two")
    seen: list[tuple[float, str]] = []
    for name, loop, delay in (("c", one, 2.0), ("a", two, 1.0), ("b", one, 1.0), ("d", two, 2.0)):
        loop.call_later(delay, lambda name=name: seen.append((time.now_s, name)))
    two.call_soon(lambda: seen.append((time.now_s, "first")))
    time.run(until=lambda: len(seen) == 5, seconds_max=10)
    assert seen == [(0, "first"), (1, "a"), (1, "b"), (2, "c"), (2, "d")]


def test_time_moves_only_when_every_process_has_come_to_rest() -> None:
    time = SimulatedTime(1)
    busy, late = time.loop("busy"), time.loop("late")
    turns: list[float] = []

    async def work() -> None:
        for _ in range(100):
            await asyncio.sleep(0)
            turns.append(time.now_s)

    done: list[float] = []
    late.call_later(0.000001, lambda: done.append(len(turns)))
    busy.create_task(work())
    time.run(until=lambda: done, seconds_max=1)
    assert done == [100]
    assert set(turns) == {0.0}


def test_a_paused_process_does_later_what_was_due() -> None:
    time = SimulatedTime(1)
    paused, other = time.loop("paused"), time.loop("other")
    seen: list[float] = []
    paused.call_later(1, lambda: seen.append(time.now_s))
    paused.pause()
    other.call_later(3, paused.resume)
    time.run(until=lambda: seen, seconds_max=10)
    assert seen == [3]


def test_nothing_of_a_killed_process_runs_any_more() -> None:
    """Not even what waits in a `finally`."""
    time = SimulatedTime(1)
    loop, other = time.loop("victim"), time.loop("other")
    seen: list[str] = []

    async def main() -> None:
        try:
            await asyncio.sleep(2)
            seen.append("woke")
        finally:
            seen.append("finally")

    loop.create_task(main())
    other.call_later(1, loop.kill)
    with pytest.raises(Stuck):
        time.run(until=lambda: seen, seconds_max=10)
    assert seen == []
    loop.bury()


def test_timeouts_and_blocking_work_take_virtual_time() -> None:
    time = SimulatedTime(1)
    loop = time.loop("node")
    found: list[object] = []

    async def main() -> None:
        found.append(await loop.run_blocking(lambda: 7, 0.5))
        try:
            async with asyncio.timeout(3):
                await loop.create_future()
        except TimeoutError:
            found.append(time.now_s)

    loop.create_task(main())
    time.run(until=lambda: len(found) == 2, seconds_max=10)
    assert found == [7, 3.5]


def test_an_exception_that_nobody_asked_for_is_found() -> None:
    time = SimulatedTime(1)
    loop = time.loop("node")

    async def main() -> None:
        raise ZeroDivisionError

    task = loop.create_task(main())
    time.run(until=task.done, seconds_max=1)
    assert [type(error) for error in loop.unretrieved()] == [ZeroDivisionError]


def test_timers_are_those_of_the_worst_loop() -> None:
    """uvloop's: whole milliseconds by a clock that shows no others, and handles that do not know their time."""
    time = SimulatedTime(1)
    loop, machine = time.loop("node"), time.loop("machine")
    seen: list[tuple[str, float, float]] = []

    def note(name: str) -> None:
        seen.append((name, round(time.now_s, 6), loop.time()))

    def start() -> None:
        assert loop.time() == 0.01
        handles = [
            loop.call_later(0.0004, note, "at once"),
            loop.call_at(0.01049, note, "at once too"),
            loop.call_later(0.0014, note, "early"),
            loop.call_at(0.0127, note, "late"),
        ]
        assert not [each for each in handles if hasattr(each, "when")]
        loop.call_later(0.003, note, "cancelled").cancel()

    machine.exactly_at(0.0107, loop.call_soon, start)
    machine.exactly_at(0.02005, loop.call_soon, note, "exact")
    time.run(until=lambda: len(seen) == 5, seconds_max=10)
    assert seen == [
        ("at once", 0.01075, 0.01),
        ("at once too", 0.01075, 0.01),
        ("early", 0.011, 0.011),
        ("late", 0.013, 0.013),
        ("exact", 0.02005, 0.02),
    ]


def test_an_event_that_fails_is_reported_and_a_cancelled_one_does_not_count() -> None:
    time = SimulatedTime(1)
    loop = time.loop("node")
    seen: list[str] = []
    failing = loop.call_soon(divmod, 1, 0)
    cancelled = loop.call_soon(seen.append, "cancelled")
    cancelled.cancel()
    loop.call_later(1, seen.append, "last")
    time.run(until=lambda: seen, seconds_max=2)
    (failure,) = loop.failures
    assert isinstance(failure["exception"], ZeroDivisionError) and failure["handle"] is failing
    assert cancelled.cancelled() and not failing.cancelled()
    assert (seen, time.steps, loop.steps) == (["last"], 2, 2)
