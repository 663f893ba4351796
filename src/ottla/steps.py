"""Long work is a generator that yields to the event loop at each `yield`, when `drivers.cooperative` runs it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def at_once(steps: Generator[Any, None, T]) -> T:
    """The result of `steps`, without yielding to the event loop."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def without_pauses(work: Callable[P, Generator[Any, None, T]]) -> Callable[P, T]:
    """`work` as a plain function with the same parameters."""

    @wraps(work)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return at_once(work(*args, **kwargs))

    return call
