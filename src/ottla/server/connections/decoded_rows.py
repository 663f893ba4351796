"""The memory of large requests while they are decoded and handled.

A row of a request takes about 300 bytes as an object, and a few on the wire, so that a limit on frames
(`receiving.py`) does not limit it: a megabyte can hold `ELEMENTS_MAX` rows, some 60 MB. A request of more than
LARGE_REQUEST_BYTES therefore claims its rows before it is decoded, until it is answered. If too few are left, it waits
for its turn. A claim is the most rows that the frame can hold; after decoding it is lowered to the rows found.

Requests up to LARGE_REQUEST_BYTES never wait: a connection has one in progress, of a few megabytes. Produce, Fetch
and ShareFetch claim nothing, nor do requests to a controller.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from ottla.protocol.layout import ELEMENTS_MAX, ROW_COST

T = TypeVar("T")

ROWS_MAX: Final = 2 * ELEMENTS_MAX
"""Rows of all large requests in progress: some 120 MB. More at once would not be answered any sooner: decoding is work
of the one processor."""


class Claim:
    """Rows of one request. `rows` is lowered once it is known how many there are."""

    def __init__(self, rows: DecodedRows, count: int) -> None:
        self._all = rows
        self.rows = count

    def lower(self, count: int) -> None:
        self._all.drop(self.rows - min(count, self.rows))
        self.rows = min(count, self.rows)


class DecodedRows:
    """The rows of the large requests that a node has in progress, and the requests that wait."""

    def __init__(self) -> None:
        self.rows = 0
        """**Invariant**: the sum of all claims; beyond ROWS_MAX only if there is one claim."""
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        """Requests that wait for rows."""
        return len(self._waiting)

    def _fit(self, count: int) -> bool:
        return not self.rows or self.rows + count <= ROWS_MAX

    async def take(self, count: int) -> None:
        """Waits until there is room for `count` rows, and takes it."""
        if not self._waiting and self._fit(count):
            self.rows += count
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (count, turn)
        self._waiting.append(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.drop(count)
            else:
                self._waiting.remove(entry)
                self._next()
            raise

    def drop(self, count: int) -> None:
        self.rows -= count
        self._next()

    def _next(self) -> None:
        while self._waiting and self._fit(self._waiting[0][0]):
            count, turn = self._waiting[0]
            if turn.cancelled():
                return  # it takes itself out of the queue, then looks here again
            self._waiting.popleft()
            self.rows += count
            turn.set_result(None)


_ROWS: WeakKeyDictionary[asyncio.AbstractEventLoop, DecodedRows] = WeakKeyDictionary()


def rows_of(loop: asyncio.AbstractEventLoop) -> DecodedRows:
    """The rows of the node that runs on `loop`."""
    found = _ROWS.get(loop)
    if found is None:
        found = _ROWS[loop] = DecodedRows()
    return found


async def with_claim(frame_bytes: int, work: Callable[[Claim], Coroutine[Any, Any, T]]) -> T:
    """The result of `work` with a claim for a request of so many bytes, given back at the end."""
    rows = rows_of(asyncio.get_running_loop())
    claim = Claim(rows, min(frame_bytes, ELEMENTS_MAX))
    await rows.take(claim.rows)
    try:
        return await work(claim)
    finally:
        rows.drop(claim.rows)


def lowering(claim: Claim, steps: Generator[int, None, Any]) -> Generator[int, None, Any]:
    """The steps of decoding, after which the claim is for what they cost: a row is ROW_COST, a number or a string a
    tenth of it, which is about how much memory each takes."""
    cost = 0
    try:
        while True:
            spent = next(steps)
            cost += spent
            yield spent
    except StopIteration as end:
        claim.lower(cost // ROW_COST)
        return end.value
