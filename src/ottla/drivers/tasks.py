"""Tasks of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


async def cancelled(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task, if there is one, and return when it has ended, however it ended."""
    if task is not None:
        task.cancel()
        await asyncio.wait([task])


async def until_idle(current: Callable[[], asyncio.Task[Any] | None]) -> None:
    """Return when the current task, and those that have followed it meanwhile, have ended."""
    while (task := current()) is not None and not task.done():
        await asyncio.wait([task])
