"""Long work is written as a generator that gives way at each yield. `drivers.turns` runs it beside other work."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def at_once(steps: Generator[None, None, T]) -> T:
    """The result of `steps`, without giving way."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
