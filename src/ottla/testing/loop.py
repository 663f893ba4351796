"""Event loops with one virtual time: many processes in one thread, the same order for the same seed.

Each simulated process has an event loop of its own, so that it can be killed at any await (what it had left to do never
runs), paused (it waits) and come back as another process. All of them share one `SimulatedTime`. The order of events is
(time, sequence), and time moves only when every process has come to rest. Whatever takes time, be it a disk or a
network, is an event in the future.

Timers of a process are as bad as those of the worst real loop, uvloop: its clock shows whole milliseconds and stands
still between them, a delay is rounded to milliseconds, so that a timer goes off up to a millisecond early by the clock
that set it, and nobody can ask a handle for its time. Disks and networks are set by `exactly_at`.

    time = SimulatedTime(seed)
    loop = time.loop("node 1")
    loop.create_task(main())
    time.run(until=lambda: done, seconds_max=60)
"""

from __future__ import annotations

import asyncio
import warnings
from asyncio import Future, Task
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from enum import Enum
from heapq import heappop, heappush
from random import Random
from typing import Any, TypeVar

from ottla.drivers import cooperative
from ottla.testing.threads import BlockingWork

T = TypeVar("T")

STEPS_MAX = 200_000
"""Events at one moment: beyond, processes keep each other busy for ever."""


TURN_S = 0.00005
"""A turn of the event loop: a timer that rounds to no time at all goes off in the next one."""


class Stuck(AssertionError):
    """Nothing is left to happen, or time runs out, and what is waited for has not come."""


class State(Enum):
    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


_set_running_loop = asyncio._set_running_loop


class Event:
    """An `asyncio.Handle` that costs less; without a callback it was cancelled. An event is as short as a few of
    these, so the loop is compiled."""

    __slots__ = ("_args", "_callback", "_context", "_loop")

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], loop: SimulatedLoop, context: Context | None
    ) -> None:
        self._callback: Callable[..., Any] | None = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context

    def cancel(self) -> None:
        self._callback = None
        self._args = ()

    def cancelled(self) -> bool:
        return self._callback is None

    def _run(self) -> None:
        callback = self._callback
        assert callback is not None
        try:
            self._context.run(callback, *self._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            message = f"Exception in callback {callback!r}"
            self._loop.call_exception_handler({"message": message, "exception": error, "handle": self})


class SimulatedTime:
    """The clock and the order of events of all processes. `random` is for what no process decides."""

    __slots__ = (
        "_later", "_ready", "_sequence", "after_step", "handle", "now_s", "random", "seed", "steps", "work",
    )  # fmt: skip

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        self.now_s = 0.0
        self.steps = 0
        """Events so far."""
        self.random = self.stream("time")
        self._ready: deque[Event] = deque()
        self._later: list[tuple[float, int, Event]] = []
        self._sequence = 0
        self.handle: Event | None = None
        """The event of now, or the last one."""
        self.work: BlockingWork | None = None
        """What runs in a thread now, and the loops wait for."""
        self.after_step: Callable[[SimulatedLoop], None] = lambda loop: None
        """Called behind each event, with the loop of the process that ran."""

    def stream(self, name: str) -> Random:
        """Randomness of its own for everything that has a name, so that one does not disturb the other."""
        return Random(f"{self.seed}/{name}")

    def loop(self, name: str) -> SimulatedLoop:
        """The event loop of a new process."""
        return SimulatedLoop(self, name)  # type: ignore[abstract]  # what asks for sockets stays unmade

    def soon(self, handle: Event) -> None:
        self._ready.append(handle)

    def at(self, when_s: float, handle: Event) -> None:
        if when_s <= self.now_s:
            self._ready.append(handle)
            return
        self._sequence += 1
        heappush(self._later, (when_s, self._sequence, handle))

    def run(self, *, until: Callable[[], Any], seconds_max: float) -> None:
        """Let things happen until `until` is true. Raises Stuck when nothing is left to happen or time is up."""
        deadline_s = self.now_s + seconds_max
        at_this_moment = 0
        ready, later = self._ready, self._later
        try:
            while not until():
                if not ready:
                    if not later or later[0][0] > deadline_s:
                        raise Stuck(f"after {self.now_s:.3f} s of {seconds_max} s at most")
                    self.now_s = later[0][0]
                    at_this_moment = 0
                    while later and later[0][0] == self.now_s:
                        ready.append(heappop(later)[2])
                at_this_moment += 1
                if at_this_moment > STEPS_MAX:
                    raise Stuck(f"{STEPS_MAX} events at {self.now_s:.6f} s")
                self._step(ready.popleft())
        finally:
            _set_running_loop(None)

    def _step(self, handle: Event) -> None:
        if handle._callback is None:
            return
        loop = handle._loop
        if loop.state is not State.RUNNING:
            loop.hold(handle)
            return
        self.steps += 1
        loop.steps += 1
        self.handle = handle
        _set_running_loop(loop)  # until the next event: each call is one to the kernel
        handle._run()
        self.after_step(loop)


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The event loop of one process. What asks for real sockets, files or signals raises NotImplementedError."""

    def __init__(self, time: SimulatedTime, name: str) -> None:
        self.simulation = time
        self.name = name
        self.state = State.RUNNING
        self.steps = 0
        """Events of this process so far."""
        self.random = time.stream(f"loop/{name}")
        self.failures: list[dict[str, Any]] = []
        """What was given to the handler of exceptions: a bug, unless the process was killed meanwhile."""
        self._held: list[Event] = []
        self._tasks: list[asyncio.Task[Any]] = []
        """All of them: one that is dropped while it waits would run its `finally` whenever memory is looked through."""

        self.working: dict[BlockingWork, None] = {}
        """What its threads are at."""

    # The life of the process.

    def hold(self, handle: Event) -> None:
        if self.state is State.PAUSED:
            self._held.append(handle)

    def pause(self) -> None:
        if self.state is State.RUNNING:
            self.state = State.PAUSED

    def resume(self) -> None:
        if self.state is State.PAUSED:
            self.state = State.RUNNING
            held, self._held = self._held, []
            for handle in held:
                self.simulation.soon(handle)

    def kill(self) -> None:
        """Nothing of this process runs any more: no `finally`, no callback."""
        self.state = State.DEAD
        self._held.clear()

    def unretrieved(self) -> list[BaseException]:
        """What tasks ended with, so far, that nobody has asked for the result of."""
        ended = [task for task in self._tasks if task.done() and not task.cancelled() and task._log_traceback]
        return [error for error in (task.exception() for task in ended) if error is not None]

    def bury(self) -> None:
        """At the end of the simulation: end what a dead process had left, whose effects nobody sees any more."""
        self.state = State.DEAD
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # what they would have awaited never will be
            for task in self._tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine: Any = task.get_coro()
                try:
                    if not task.done():
                        coroutine.close()
                except BaseException:
                    pass
            self._tasks.clear()
            for work in list(self.working):
                work.abandon()
        cooperative.drop_scheduler(self)

    # asyncio.AbstractEventLoop

    def time(self) -> float:
        return self._time_ms() / 1000

    def _time_ms(self) -> int:
        return int(self.simulation.now_s * 1000 + 0.000001)  # 1.011 * 1000 is 1010.99...

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Event:
        handle = Event(callback, args, self, context)
        if self.state is not State.DEAD:
            self.simulation.soon(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Event:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Event:
        """A plain handle, which has no `when`: uvloop's has none either where the delay rounds to nothing."""
        delay_ms = round(delay * 1000)
        due_s = self.simulation.now_s + TURN_S if delay_ms <= 0 else (self._time_ms() + delay_ms) / 1000
        return self._set(due_s, Event(callback, args, self, context))

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Event:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def exactly_at(self, when_s: float, callback: Callable[..., Any], *args: Any) -> Event:
        """What a machine does, not a process: at that moment of the simulation's time."""
        return self._set(when_s, Event(callback, args, self, None))

    def exactly_in(self, seconds: float, callback: Callable[..., Any], *args: Any) -> Event:
        return self.exactly_at(self.simulation.now_s + seconds, callback, *args)

    def _set(self, when_s: float, handle: Event) -> Event:
        if self.state is not State.DEAD:
            self.simulation.at(when_s, handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        task = Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        if len(self._tasks) % 1000 == 0:
            self._tasks = [each for each in self._tasks if not each.done() or each._log_traceback]
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Blocking work, done in one piece at a moment in the near future."""
        return self.run_blocking(lambda: func(*args), self.random.uniform(0.00005, 0.002))

    def run_interleaved(
        self, work: Callable[[], T], seconds: float, pause_s: Callable[[], float | None]
    ) -> asyncio.Future[T]:
        """The result of `work`, which begins `seconds` from now and stops at disk calls where `pause_s` says so."""
        blocking = BlockingWork(self, work, pause_s)
        self.exactly_in(seconds, blocking.start)
        return blocking.future

    def run_blocking(self, work: Callable[[], T], seconds: float) -> asyncio.Future[T]:
        """The result of `work`, which is done `seconds` from now."""
        future: asyncio.Future[T] = self.create_future()

        def do() -> None:
            # As in a thread: it is done, whether somebody still waits for it or not.
            try:
                result = work()
            except BaseException as error:
                if not future.cancelled():
                    future.set_exception(error)
            else:
                if not future.cancelled():
                    future.set_result(result)

        self.exactly_in(seconds, do)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.state is not State.DEAD:
            self.failures.append(context)

    default_exception_handler = call_exception_handler

    def get_debug(self) -> bool:
        return False

    def get_task_factory(self) -> None:
        return None

    def is_running(self) -> bool:
        return self.state is State.RUNNING

    def is_closed(self) -> bool:
        return False

    def close(self) -> None:
        self.kill()
