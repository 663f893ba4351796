"""Where a process is between two of its events: what a crash there is told by."""

from __future__ import annotations

import asyncio
from typing import Any

from ottla.testing.loop import Event


def end_of_event(handle: Event) -> str:
    """What an event ended with: a task at its next `await`, innermost function first, or at its end; or a call."""
    callback: Any = handle._callback
    task = getattr(callback, "__self__", None)
    if not isinstance(task, asyncio.Task):
        function = getattr(callback, "func", callback)  # of a partial
        return f"call of {getattr(function, '__qualname__', type(function).__qualname__)}"
    coroutine: Any = task.get_coro()
    if task.done():
        return f"end of {coroutine.__qualname__ or 'a compiled coroutine'}"
    found = "await"
    while coroutine is not None:  # down to what waits
        frame = getattr(coroutine, "cr_frame", None)
        if frame is not None:
            found = f"await in {frame.f_code.co_qualname}"
        coroutine = getattr(coroutine, "cr_await", None)
    return found
