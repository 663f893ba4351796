"""The largest matching between two sides (Kuhn's algorithm): which old alternative goes with which new one."""

from __future__ import annotations

from collections.abc import Iterable

Edge = tuple[int, int]


def largest_matching(edges: Iterable[Edge], left_count: int) -> list[Edge]:
    """A largest set of edges of which no two share an end, in the order of their left ends. The first possible edge of
    each end is kept: alternatives that did not move stay together.

    The first edge of each that can be kept is: alternatives that did not move stay together.
    """
    to: dict[int, list[int]] = {left: [] for left in range(left_count)}
    for left, right in sorted(edges):
        to[left].append(right)
    taken: dict[int, int] = {}

    def place(left: int, seen: set[int]) -> bool:
        for right in to[left]:
            if right in seen:
                continue
            seen.add(right)
            if right not in taken or place(taken[right], seen):
                taken[right] = left
                return True
        return False

    for left in range(left_count):
        place(left, set())
    return sorted((left, right) for right, left in taken.items())
