"""Long work in steps: it is written as a generator, and yields to the event loop at every `yield`."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


async def run_yielding(steps: Generator[None, None, T]) -> T:
    """The result of `steps`. Between two of its yields nobody else runs, so that it can keep an invariant there."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)
