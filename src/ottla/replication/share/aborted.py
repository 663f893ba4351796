"""Finds the batches that belong to aborted transactions: a share group that reads what is committed
(`share.isolation.level`) has the broker leave them out, for its members know no transactions."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from ottla.model import NO_PRODUCER_ID, Offset, ProducerId


class ReadBatch:
    """The header of a batch that was read from the log."""

    __slots__ = (
        "base_offset", "is_abort_marker", "is_transactional", "last_offset", "position", "producer_id", "size",
    )  # fmt: skip

    def __init__(
        self,
        base_offset: Offset,
        last_offset: Offset,
        producer_id: ProducerId = NO_PRODUCER_ID,
        is_transactional: bool = False,
        is_abort_marker: bool = False,
        position: int = 0,
        size: int = 0,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.producer_id = producer_id
        self.is_transactional = is_transactional
        self.is_abort_marker = is_abort_marker
        self.position = position
        """Where it lies in what was read."""
        self.size = size


class OffsetRange(NamedTuple):
    """Offsets with both ends included."""

    first_offset: Offset
    last_offset: Offset


def aborted_ranges(
    batches: Iterable[ReadBatch], transactions: Iterable[tuple[ProducerId, Offset]]
) -> list[OffsetRange]:
    """The batches of aborted transactions, in their order. `transactions` are producer ids and first offsets, as the
    log's read names them."""
    waiting = [(first_offset, producer_id) for producer_id, first_offset in transactions]
    heapq.heapify(waiting)
    aborted: set[ProducerId] = set()
    found = []
    for batch in batches:
        if batch.producer_id == NO_PRODUCER_ID:
            continue
        while waiting and waiting[0][0] <= batch.last_offset:
            aborted.add(heapq.heappop(waiting)[1])
        if batch.is_abort_marker:
            aborted.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in aborted:
            found.append(OffsetRange(batch.base_offset, batch.last_offset))
    return found
