"""Puts what is known of a share-partition's offsets and what is new together, without overlaps.

Where two batches speak of the same offset, the one that was delivered more often is right, and of those the one that
is further (Available < Acknowledged < Archived), not the newer one: writes may come late (Kafka's
PersisterStateBatchCombiner).
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from ottla.model import Offset
from ottla.protocol.schemas.records import StateBatch

UNCHANGED: Final = -1
"""Stands for a start offset that does not change."""


_FIRST, _LAST = attrgetter("first_offset"), attrgetter("last_offset")


def combine_into(known: list[StateBatch], new: Sequence[StateBatch], start_offset: Offset) -> None:
    """Combine new batches with `known`, which `combine` has made, in place. The work depends on how many are new: a
    share-partition with thousands of records that wait has thousands of batches."""
    if start_offset != UNCHANGED and known and known[0].first_offset < start_offset:
        behind = bisect_left(known, start_offset, key=_LAST)
        known[:behind] = []
        if known and known[0].first_offset < start_offset:
            known[:1] = combine(known[:1], (), start_offset)
    until = known[-1].last_offset if known else -1
    """The last offset that is known of."""
    for each in new:
        first_offset, last_offset = each.first_offset, each.last_offset
        if last_offset < start_offset:
            continue
        if first_offset >= start_offset and first_offset > until:
            if not known or until + 1 < first_offset:
                known.append(each)
            else:
                _append(known, first_offset, last_offset, each.delivery_state, each.delivery_count)
            until = last_offset
            continue
        # With neighbours, which may be alike.
        first = bisect_left(known, max(first_offset, start_offset) - 1, key=_LAST)
        behind = bisect_right(known, last_offset + 1, key=_FIRST)
        known[first:behind] = combine(known[first:behind], (each,), start_offset)
        until = known[-1].last_offset


def combine(known: Sequence[StateBatch], new: Sequence[StateBatch], start_offset: Offset) -> tuple[StateBatch, ...]:
    """The batches in the order of their offsets, from the start offset on; neighbours that stand alike are one."""
    if not known and (joined := _joined(new, start_offset)) is not None:
        return joined
    borders = sorted(
        [
            (max(batch.first_offset, start_offset), batch.last_offset, batch.delivery_count, batch.delivery_state)
            for batch in (*known, *new)
            if batch.last_offset >= start_offset or start_offset == UNCHANGED
        ]
    )
    combined: list[StateBatch] = []
    end = -1
    for first, last, count, state in borders:
        if first <= end:
            break
        _append(combined, first, last, state, count)
        end = last
    else:  # nothing overlaps, as nearly always
        return tuple(combined)
    combined.clear()
    waiting: list[tuple[int, int, Offset]] = []
    """A heap of those that have begun: how right they are (negative, most right first), and where they end."""
    index, offset = 0, 0
    while index < len(borders) or waiting:
        if not waiting:
            offset = max(offset, borders[index][0])
        while index < len(borders) and borders[index][0] <= offset:
            _, last, count, state = borders[index]
            heapq.heappush(waiting, (-count, -state, last))
            index += 1
        while waiting and waiting[0][2] < offset:
            heapq.heappop(waiting)
        if not waiting:
            continue
        count, state, last = waiting[0]
        end = last if index == len(borders) else min(last, borders[index][0] - 1)
        _append(combined, offset, end, -state, -count)
        offset = end + 1
    return tuple(combined)


def _joined(batches: Sequence[StateBatch], start_offset: Offset) -> tuple[StateBatch, ...] | None:
    """What `combine` makes of batches that are in order already, as those of a write are; None for others."""
    found: list[StateBatch] = []
    until, is_first = start_offset - 1, True
    for each in batches:
        first, last = each.first_offset, each.last_offset
        if first <= until:
            return None
        if not is_first and until + 1 == first:
            _append(found, first, last, each.delivery_state, each.delivery_count)
        else:
            found.append(each)
        until, is_first = last, False
    return tuple(found)


def _append(combined: list[StateBatch], first: Offset, last: Offset, state: int, count: int) -> None:
    before = combined[-1] if combined else None
    if (
        before is not None
        and before.last_offset + 1 == first
        and before.delivery_state == state
        and before.delivery_count == count
    ):
        combined[-1] = StateBatch(before.first_offset, last, state, count)
    else:
        combined.append(StateBatch(first, last, state, count))
