"""What a long request leaves behind is freed in steps too: 190,000 rows in one piece take a tenth of a second."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from typing import Any, Final
from uuid import UUID

from ottla.protocol.schemas import Message

COST_AT_ONCE: Final = 500
ROW_COST: Final = 5
"""Looking at a row and freeing it takes some microseconds, a number or a name a fraction of one."""

EMPTYING_COST: Final = 2
"""Freeing a row, with the few objects that it holds, without looking at it."""
ROWS_AT_ONCE: Final = COST_AT_ONCE // EMPTYING_COST

_OURS: Final = 2
"""References to an object that only `free_in_steps` holds: its variable, and the argument of who counts them."""

_LEAVES = (int, str, bytes, UUID)
_ARRAYS = (list, tuple)
_OF_DICTS = (list, tuple, dict)
_OF_MESSAGES = (list, tuple, Message)
_NESTED: dict[type, tuple[str, ...]] = {}
"""Names of the fields of messages that may hold rows."""


def free_in_steps(held: list[Any]) -> Generator[int, None, None]:
    """Free what is in `held` and nobody else refers to, down to the last row. Yields the cost."""
    cost = 0
    while held:
        value = held.pop()
        cost += 1
        if sys.getrefcount(value) <= _OURS:  # else somebody needs it, or others share it
            nested = _NESTED.get(type(value))
            if nested is not None:  # a row like one before, as most are
                cost += ROW_COST
                if nested:
                    held += _of(value, nested)
            elif isinstance(value, _ARRAYS):
                held += value
            elif not isinstance(value, _LEAVES):
                cost += ROW_COST
                held += _inner(value)
        if cost >= COST_AT_ONCE:
            yield cost
            cost = 0


def empty_in_steps(*arrays: list[Any]) -> Generator[int, None, None]:
    """Drop the rows of each array, of which others may hold some. Yields the cost."""
    for rows in arrays:
        while rows:
            cost = EMPTYING_COST * min(len(rows), ROWS_AT_ONCE)
            del rows[-ROWS_AT_ONCE:]
            yield cost


def _inner(value: Any) -> list[Any]:
    """Nested rows of a row."""
    if isinstance(value, dict):
        return [each for each in value.values() if isinstance(each, _OF_DICTS)]
    if isinstance(value, Message):
        nested = _NESTED[type(value)] = type(value).nested()
        return _of(value, nested)
    return _of(value, getattr(type(value), "__slots__", ()))


def _of(value: Any, names: Sequence[str]) -> list[Any]:
    return [each for name in names if isinstance(each := getattr(value, name, None), _OF_MESSAGES)]


def without_frames(error: BaseException) -> None:
    """Forget where an error was raised. The frames on its way refer to it and to the request that it refuses: a cycle
    that would only be freed, all of it in one piece, when the collector runs."""
    found: BaseException | None = error
    while found is not None and found.__traceback__ is not None:
        found.__traceback__ = None
        found = found.__cause__ or found.__context__
