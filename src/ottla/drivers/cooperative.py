"""Schedules work on an event loop: no task runs for longer than a time slice while others wait.

Work has a cost, in units of about a microsecond of a processor of today: a request, a row, a record, bytes that are
copied or checked. Long work is written as a generator that yields the cost of what it has just done (None: a whole
slice's), and `run_yielding` lets others run whenever a slice is used up. Connections are metered by the same costs: one
whose requests have used up a slice leaves the rest of them for a later one.

There are two queues of what waits. `light` has clients with a single request, who are served first: they do
not wait for the backlog of those who ask for more. `heavy` has connections with a backlog and long work; a slice of
them follows, so that neither queue starves the other. Between two slices the loop looks at every socket.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

SLICE: Final = 1000
"""The cost of what is done in one piece: about a millisecond, a twentieth of what nobody should ever wait."""

APART_AFTER_SLICES: Final = 10
"""Longer work makes its objects apart from those of others, and its memory is given back when it is over: it may be
tens of megabytes. What fits into less would not be worth it."""

GIVE_BACK_SECONDS: Final = 1.0
"""How long after such work free memory is given back: its request and its answer are gone by then."""

Cost = int | Awaitable[Any] | None
"""What a step of long work yields: its cost, None for a slice's, or something to await, whose result is sent back."""


class Scheduler:
    """The order of work on one event loop."""

    __slots__ = ("__weakref__", "_gives_back", "_heavy", "_large_s", "_light", "_long", "_loop", "_scheduled", "spent")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._light: deque[Callable[[], None]] = deque()
        self._heavy: deque[Callable[[], None]] = deque()
        self._scheduled = False
        self._large_s = 0.0
        """When something large was last at work."""
        self._gives_back = False
        """Whether free memory will be given back soon."""
        self._long = 0
        """Long works that have begun and not ended."""
        self.spent = 0
        """What was done for connections since the loop last looked at all of them, or longer ago: see `is_over`."""

    def is_over(self) -> bool:
        """Asked once `spent` has reached SLICE: whether all of it was spent since the loop looked at its sockets.

        Nobody counts the rounds of a loop that keeps up. So the first time, which may have been long in coming, only
        begins to count: at most two slices are used in one round.
        """
        if self._scheduled:
            return True
        self.spent = 0
        self._schedule()
        return False

    def wait(self, go_on: Callable[[], None], *, light: bool = False) -> None:
        """Call `go_on` when there is time for it. `light`: it has a single request to answer."""
        (self._light if light else self._heavy).append(go_on)
        self._schedule()

    async def next_slice(self) -> None:
        """Returns when there is time for another slice of the caller's work."""
        future = self._loop.create_future()
        self.wait(partial(self._go_on, future))  # compiled, a coroutine and a function inside it are a cycle
        await future

    def _go_on(self, future: asyncio.Future[None]) -> None:
        if not future.done():
            future.set_result(None)
            self.spent += SLICE

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        for queue in (self._light, self._heavy):
            self.spent = 0
            for _ in range(len(queue)):  # who comes back has another turn when all sockets were looked at
                if self.spent < SLICE:
                    queue.popleft()()
        self.spent = 0
        if self._light or self._heavy:
            self._schedule()

    async def run(self, steps: Generator[Cost, Any, T], first: Cost = 0) -> T:
        """See `run_yielding`. `first` is what `steps` yielded already."""
        self._long += 1
        try:
            if self._long > 1:
                await self.next_slice()
            return await self._drive(steps, first)
        finally:
            self._long -= 1
            steps.close()

    async def _drive(self, steps: Generator[Cost, Any, T], cost: Cost) -> T:
        left = SLICE
        slices = 0
        while True:
            result: Any = None
            failure: Exception | None = None
            if cost is None or isinstance(cost, int):
                left -= SLICE if cost is None else cost
                if left <= 0:
                    await self.next_slice()
                    left = SLICE
                    slices += 1
            else:
                try:
                    result = await cost
                except Exception as error:
                    failure = error
            try:
                if slices >= APART_AFTER_SLICES:
                    cost, left = self._slice_apart(steps, result, failure, left)
                else:
                    cost = steps.send(result) if failure is None else steps.throw(failure)
            except StopIteration as end:
                value: T = end.value
                return value

    def _slice_apart(
        self, steps: Generator[Cost, Any, Any], result: Any, failure: Exception | None, left: int
    ) -> tuple[Cost, int]:
        """What is left of a slice, with objects made where their memory can be given back. Returns what a step yields
        to be awaited, None where the slice is used up; and what is left then."""
        from ottla import allocators

        self.give_back_soon()
        allocators.begin_apart()
        try:
            cost = steps.send(result) if failure is None else steps.throw(failure)
            while isinstance(cost, int):
                left -= cost
                if left <= 0:
                    return None, left
                cost = next(steps)
            return cost, left
        finally:
            allocators.end_apart()

    def give_back_soon(self) -> None:
        """Return memory to the system one second after the last large object was freed."""
        self._large_s = self._loop.time()
        if not self._gives_back:
            self._gives_back = True
            self._loop.call_later(GIVE_BACK_SECONDS, self._give_back)

    def _give_back(self) -> None:
        from ottla import memory

        rest_s = self._large_s + GIVE_BACK_SECONDS - self._loop.time()
        if self._long or rest_s > 0:  # it would only be taken again, or is not free yet
            self._loop.call_later(max(rest_s, GIVE_BACK_SECONDS / 10), self._give_back)
            return
        self._gives_back = False
        memory.give_back()


_SCHEDULERS: WeakKeyDictionary[asyncio.AbstractEventLoop, Scheduler] = WeakKeyDictionary()


def scheduler_of(loop: asyncio.AbstractEventLoop) -> Scheduler:
    """The one that all work on `loop` shares."""
    found = _SCHEDULERS.get(loop)
    if found is None:
        found = _SCHEDULERS[loop] = Scheduler(loop)
    return found


def drop_scheduler(loop: asyncio.AbstractEventLoop) -> None:
    """Drop the scheduler of a closed loop. It refers to the loop, so that otherwise neither would ever be freed."""
    _SCHEDULERS.pop(loop, None)


async def run_yielding(steps: Generator[Cost, Any, T]) -> T:
    """The result of `steps`. Between two of its yields nobody else runs, so that it can keep an invariant there."""
    return await scheduler_of(asyncio.get_running_loop()).run(steps)


def begin(steps: Generator[Cost, Any, T]) -> T | Coroutine[Any, Any, T]:
    """The result of `steps` if it takes no more than a slice and waits for nothing that is not there already, otherwise
    what is to be awaited for it."""
    left = SLICE
    cost: Cost = 0
    result: Any = None
    try:
        while left > 0:
            cost = steps.send(result)
            result = None
            if isinstance(cost, int):
                left -= cost
            elif isinstance(cost, asyncio.Future) and has_result(cost):
                result = cost.result()
            else:
                break
    except StopIteration as end:
        value: T = end.value
        return value
    return scheduler_of(asyncio.get_running_loop()).run(steps, None if isinstance(cost, int) else cost)


def has_result(future: asyncio.Future[Any]) -> bool:
    """Whether it is done and has not failed."""
    return future.done() and not future.cancelled() and future.exception() is None
