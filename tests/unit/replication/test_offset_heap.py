"""The heap of offsets beside `heapq`."""

from __future__ import annotations

import heapq
import random

from ottla.replication.share.offset_heap import pop, push


def test_it_is_a_heap_like_that_of_the_library() -> None:
    for seed in range(50):
        chance = random.Random(seed)
        heap: list[int] = []
        library: list[int] = []
        for _ in range(300):
            if library and chance.random() < 0.5:
                pop(heap)
                heapq.heappop(library)
            else:
                offset = chance.randrange(2**62) if chance.random() < 0.1 else chance.randrange(40)
                push(heap, offset)
                heapq.heappush(library, offset)
            assert sorted(heap) == sorted(library) and heap[:1] == library[:1]
