"""Lists by pages: what is on one page of how many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

ROWS = 50

T = TypeVar("T")


@dataclass(frozen=True)
class Paging:
    page: int
    """From 1 on."""
    pages: int
    first: int
    """Number of the first row on this page, from 1 on; 0 where there is none."""
    last: int
    found: int
    """Rows on all pages."""
    total: int
    """Rows without a search."""


def paged(rows: Sequence[T], page: int, total: int) -> tuple[Sequence[T], Paging]:
    """The rows of a page, the last one if there are not as many."""
    pages = max(1, -(-len(rows) // ROWS))
    page = min(max(page, 1), pages)
    begin = (page - 1) * ROWS
    shown = rows[begin : begin + ROWS]
    return shown, Paging(page, pages, begin + 1 if shown else 0, begin + len(shown), len(rows), total)
