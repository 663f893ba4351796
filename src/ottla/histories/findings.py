"""Findings: one thing that is wrong with a run each. A checker has an `Enum` of its kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Enum)

Partition = Any
"""What names a partition in a run: its number, or its topic and number."""


class Finding(NamedTuple, Generic[K]):
    kind: K
    partition: Partition
    """-1 where it is of several."""
    text: str


def in_order(kinds: type[K], found: Iterable[Finding[K]]) -> list[Finding[K]]:
    """By kind, and then by partition."""
    order = {kind: number for number, kind in enumerate(kinds)}
    return sorted(found, key=lambda each: (order[each.kind], each.partition))


def counts(kinds: type[K], found: Iterable[Finding[K]]) -> dict[K, int]:
    """How many of each kind, those with none too."""
    counter = Counter(each.kind for each in found)
    return {kind: counter[kind] for kind in kinds}
