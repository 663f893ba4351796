"""Tasks of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.drivers.cooperative import scheduler_of

if TYPE_CHECKING:
    from ottla.filesystem import FileSystem

T = TypeVar("T")


async def cancelled(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task, if there is one, and return when it has ended, however it ended."""
    if task is not None:
        task.cancel()
        await asyncio.wait([task])


class Background:
    """Tasks that run until their node stops."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[None], None] = {}

    def __len__(self) -> int:
        return len(self._running)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something in the background until the node stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._running[task] = None
        task.add_done_callback(self._running.pop)
        return task

    async def end(self) -> None:
        """Cancel all of them, and return when they have ended."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Repeated:
    """Runs `work` every `period_s` seconds. `work` raises nothing."""

    def __init__(self, period_s: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._period_s = period_s
        self._work = work
        self._current: asyncio.Task[None] | None = None
        """The run that is under way."""

    async def run(self) -> None:
        """Never returns; cancelling it leaves the current run to end by itself."""
        while True:
            await asyncio.sleep(self._period_s)
            self._current = asyncio.get_running_loop().create_task(self._work())
            await asyncio.shield(self._current)
            self._current = None

    async def wait_current(self) -> None:
        """Return when the current run, if there is one, has ended."""
        if self._current is not None:
            await asyncio.wait([self._current])


class LongWork:
    """Work on the records of a batch, done in a thread. One at a time: each may take the memory of a whole batch,
    decompressed, and there are fewer processors than clients."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._one = asyncio.Lock()

    async def run(self, work: Callable[[], T]) -> T:
        async with self._one:
            try:
                return await self._fs.run(work)
            finally:
                scheduler_of(asyncio.get_running_loop()).give_back_soon()
