"""Responses with thousands of rows, made in batches, so that no other client waits for them."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ottla.drivers.cooperative import run_yielding
from ottla.server.api import RequestContext, Response

T = TypeVar("T")
R = TypeVar("R")

SORTED_AT_ONCE = 1000
ROWS_PER_STEP = 16
"""Rows of a handler's own making: some have a millisecond's work in them."""


def count_failures(context: RequestContext, codes: Iterable[int]) -> None:
    """Count the errors of rows in a response that is encoded already."""
    for code, times in Counter(codes).items():
        context.count_error(code, times)


def row_by_row(
    name: str, items: Sequence[T], row_of: Callable[[T], Mapping[str, Any]]
) -> Response | Awaitable[Response]:
    """A response of one row for each of `items`; where they are many, it is made in batches."""
    if len(items) <= ROWS_PER_STEP:
        return {name: [row_of(item) for item in items]}
    return _row_by_row(name, items, row_of)


async def _row_by_row(name: str, items: Sequence[T], row_of: Callable[[T], Mapping[str, Any]]) -> Response:
    return {name: await run_yielding(in_steps(items, row_of))}


class RowsOf(Sequence[R]):
    """The rows of an answer, one for each of `items`, each made when it is encoded: there may be thousands."""

    __slots__ = ("_items", "_row_of")

    def __init__(self, items: Sequence[T], row_of: Callable[[T], R]) -> None:
        self._items: Sequence[Any] = items
        self._row_of = row_of

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:
        some = self._items[index]
        return [self._row_of(each) for each in some] if isinstance(index, slice) else self._row_of(some)

    def __iter__(self) -> Iterator[R]:
        return map(self._row_of, self._items)


def in_steps(items: Sequence[T], row_of: Callable[[T], R]) -> Generator[None, None, list[R]]:
    """`row_of` of every item."""
    rows = []
    for number, item in enumerate(items, start=1):
        rows.append(row_of(item))
        if number % ROWS_PER_STEP == 0:
            yield
    return rows


def sorting(items: Iterable[T]) -> Generator[int, None, list[T]]:
    """`items` in order: sorted pieces, which are then merged."""
    rest = list(items)
    pieces = []
    for start in range(0, len(rest), SORTED_AT_ONCE):
        pieces.append(sorted(rest[start : start + SORTED_AT_ONCE]))  # type: ignore[type-var]
        yield SORTED_AT_ONCE // 4
    if len(pieces) <= 1:
        return pieces[0] if pieces else []
    merged: list[T] = []
    for number, item in enumerate(heapq.merge(*pieces), start=1):  # type: ignore[type-var]
        merged.append(item)
        if number % SORTED_AT_ONCE == 0:
            yield SORTED_AT_ONCE
    return merged
