"""`heapq` for a heap of offsets, compiled. A key that is held takes what is fetched apart into many runs, and a call of
`heapq` for each was a sixth of what that costs."""

from __future__ import annotations

from ottla.model import Offset


def push(heap: list[Offset], offset: Offset) -> None:
    at = len(heap)
    heap.append(offset)
    while at > 0:
        above = (at - 1) >> 1
        parent = heap[above]
        if parent <= offset:
            break
        heap[at] = parent
        at = above
    heap[at] = offset


def pop(heap: list[Offset]) -> None:
    """Remove the first. There is one."""
    offset = heap.pop()
    size, at, below = len(heap), 0, 1
    if not size:
        return
    while below < size:
        least = heap[below]
        if below + 1 < size:
            other = heap[below + 1]
            if other < least:
                below, least = below + 1, other
        if offset <= least:
            break
        heap[at] = least
        at, below = below, 2 * below + 1
    heap[at] = offset
