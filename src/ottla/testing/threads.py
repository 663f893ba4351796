"""Blocking work of simulated processes that can stop at a disk call, while everything else goes on.

A piece of work runs in a real thread, of which one at most is awake: it hands over to the thread of the event loop at a
disk call, and gets the word back in a later event. So the order is that of the events, and the same for the same seed.
A process that is killed meanwhile never goes on: `SimulatedCrash` at its disk call, once the simulation is over.

Handing over costs some 8 microseconds; whoever starts the work says at how many of its disk calls it does.
"""

from __future__ import annotations

import _thread
import asyncio
import threading
from collections.abc import Callable
from typing import Any, Protocol

from ottla.testing.disk_nodes import SimulatedCrash


class Working(Protocol):
    """The simulation that the loop is of."""

    work: BlockingWork | None
    """The piece of work whose thread is awake."""


class Cancellable(Protocol):
    """What is to happen later."""

    def cancel(self) -> None: ...


class WorkLoop(Protocol):
    """What a piece of work needs of its event loop: `SimulatedLoop`."""

    working: dict[BlockingWork, None]

    @property
    def simulation(self) -> Working: ...
    def create_future(self) -> asyncio.Future[Any]: ...
    def exactly_in(self, seconds: float, callback: Callable[[], None], /) -> Cancellable: ...


class _Thread:
    """A real thread that does one piece of work after the other."""

    idle: list[_Thread] = []
    """Idle threads of all simulations of this operating system process."""

    def __init__(self) -> None:
        self.work: Callable[[], None] | None = None
        self._go = _thread.allocate_lock()
        self._back = _thread.allocate_lock()
        self._go.acquire()
        self._back.acquire()
        threading.Thread(target=self._run, daemon=True, name="simulated disk").start()

    def _run(self) -> None:
        while True:
            self._go.acquire()
            assert self.work is not None
            self.work()
            self.work = None
            self._back.release()

    def awake(self) -> None:
        """Called by the loop: returns when the thread hands over, or has done its work."""
        self._go.release()
        self._back.acquire()

    def hand_over(self) -> None:
        """Called by the thread: returns when it is woken again."""
        self._back.release()
        self._go.acquire()


class BlockingWork:
    """One piece of work in a thread of a process. `pause_s` says at each disk call for how long it stops there."""

    def __init__(self, loop: WorkLoop, work: Callable[[], Any], pause_s: Callable[[], float | None]) -> None:
        self.future: asyncio.Future[Any] = loop.create_future()
        self._loop = loop
        self._work = work
        self._pause_s = pause_s
        self._thread: _Thread | None = None
        self._wake: Cancellable | None = None
        self._next_s = 0.0
        self._result: Any = None
        self._error: BaseException | None = None
        self._is_abandoned = False

    def start(self) -> None:
        self._thread = _Thread.idle.pop() if _Thread.idle else _Thread()
        self._thread.work = self._do
        self._loop.working[self] = None
        self.go_on()

    def go_on(self) -> None:
        """Up to the next pause, or the end."""
        simulation, thread = self._loop.simulation, self._thread
        assert thread is not None
        if self._wake is not None:
            self._wake.cancel()
        before, simulation.work = simulation.work, self
        thread.awake()
        simulation.work = before
        if thread.work is not None:
            self._wake = self._loop.exactly_in(self._next_s, self.go_on)
            return
        self._thread = None
        _Thread.idle.append(thread)
        self._loop.working.pop(self, None)
        if self.future.cancelled():  # as in a thread: it is done, whether somebody still waits for it or not
            return
        if self._error is not None:
            self.future.set_exception(self._error)
        else:
            self.future.set_result(self._result)

    def _do(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error

    def at_disk_call(self) -> None:
        """In the thread: a disk call is about to be made."""
        seconds = None if self._is_abandoned else self._pause_s()
        if seconds is not None:
            self.pause(seconds)

    def pause(self, seconds: float) -> None:
        """In the thread: let other things happen. Raises SimulatedCrash where the process is gone."""
        assert self._thread is not None
        self._next_s = seconds
        self._thread.hand_over()
        if self._is_abandoned:
            raise SimulatedCrash("the process is gone")

    def abandon(self) -> None:
        """Return the thread of a process that is gone."""
        self._is_abandoned = True
        if self._thread is not None:
            self.go_on()


class SimulatedMutex:
    """Implements `ottla.filesystem.Mutex`: a thread that waits lets others run, a loop lets the holder."""

    def __init__(self, loop: WorkLoop) -> None:
        self._loop = loop
        self._holder: BlockingWork | None = None
        self._is_held = False

    def __enter__(self) -> bool:
        while self._is_held:
            me = self._loop.simulation.work
            if me is not None:
                me.pause(0.0001)
            else:
                assert self._holder is not None, "the loop holds no lock over an await"
                self._holder.go_on()
        self._is_held, self._holder = True, self._loop.simulation.work
        return True

    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> None:
        self._is_held, self._holder = False, None
