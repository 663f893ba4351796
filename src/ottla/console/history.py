"""What was counted in the last minutes: end offsets and lags, as rates and trends. Pure.

A sample is one array of numbers for all names, so that ten minutes of 10,000 topics are 5 MB.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

STEP_S: Final = 10.0
"""Seconds between two samples, where the cluster is read quickly."""
SAMPLES_MAX: Final = 61
"""Ten minutes."""
NAMES_MAX: Final = 100_000
"""Further names have no trend."""
_UNKNOWN: Final = -1
RATE_S_MIN: Final = 1.0
"""A rate is measured over so long at least."""
RATE_S_MAX: Final = 600.0
"""What was seen longer ago says nothing of now."""
SEEN_MAX: Final = 20_000
"""Producers in partitions of which a user's last sequences are kept."""
_SEQUENCES: Final = 1 << 31
"""They wrap from 2^31-1 to 0."""


@dataclass(frozen=True)
class Trend:
    """A number over time, oldest first."""

    seconds: int
    """From the first value to the last."""
    values: list[float | None]
    """None where it is not known."""
    low: float
    high: float
    now: float | None


class History:
    """Numbers by name, at the moments of the last samples."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        self._samples: deque[tuple[float, array[int]]] = deque(maxlen=SAMPLES_MAX)

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, at: float, values: Mapping[str, int | None]) -> None:
        """A sample, by the monotonic clock."""
        if len(self._slots) > 2 * len(values) + 1_000:
            self._drop(values)
        slots = self._slots
        for name in values:
            if name not in slots and len(slots) < NAMES_MAX:
                slots[name] = len(slots)
        sample = array("q", [_UNKNOWN]) * len(slots)
        for name, value in values.items():
            slot = slots.get(name)
            if slot is not None and value is not None:
                sample[slot] = value
        self._samples.append((at, sample))

    def _drop(self, values: Mapping[str, int | None]) -> None:
        """Drop the names that are not there any more."""
        kept = {name: slot for name, slot in self._slots.items() if name in values}
        old = list(self._samples)
        self._samples.clear()
        for at, sample in old:
            self._samples.append(
                (at, array("q", [sample[slot] if slot < len(sample) else _UNKNOWN for slot in kept.values()]))
            )
        self._slots = {name: number for number, name in enumerate(kept)}

    def clear(self) -> None:
        self._slots.clear()
        self._samples.clear()

    def level(self, name: str) -> Trend | None:
        """The numbers themselves; None before there are two."""
        found = [(at, None if value is None else float(value)) for at, value in self._of(name)]
        return _trend(found)

    def rate(self, name: str) -> Trend | None:
        """Growth in a second, between one sample and the next; None before there is one. A number that shrinks is
        another thing of the same name."""
        raw = self._of(name)
        found: list[tuple[float, float | None]] = []
        for (before, old), (at, new) in pairwise(raw):
            is_known = old is not None and new is not None and new >= old and at > before
            found.append((at, (new - old) / (at - before) if is_known else None))  # type: ignore[operator]
        return _trend(found, least=1)

    def _of(self, name: str) -> list[tuple[float, int | None]]:
        slot = self._slots.get(name)
        if slot is None:
            return []
        return [
            (at, sample[slot] if slot < len(sample) and sample[slot] != _UNKNOWN else None)
            for at, sample in self._samples
        ]


def _trend(found: list[tuple[float, float | None]], least: int = 2) -> Trend | None:
    known = [value for _, value in found if value is not None]
    if len(known) < least:
        return None
    values = [None if value is None else round(value, 2) for _, value in found]
    return Trend(round(found[-1][0] - found[0][0]), values, round(min(known), 2), round(max(known), 2), values[-1])


class Written(NamedTuple):
    """A producer in a partition, and its last sequence."""

    partition: int
    producer_id: int
    epoch: int
    sequence: int


class Paces:
    """Records per second of producers, from one look of a user to the next; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int, int, int], tuple[float, int, float | None]] = {}
        """When a sequence was seen, which, and the rate until then."""

    def look(self, at: float, topic: str, rows: Iterable[Written]) -> dict[Written, float]:
        """The rates that are known at a moment of the monotonic clock; the next look measures from here."""
        found = dict[Written, float]()
        with self._lock:
            for row in rows:
                key = topic, row.partition, row.producer_id, row.epoch
                began, sequence, rate = self._seen.pop(key, (at, row.sequence, None))
                passed_s = at - began
                if passed_s > RATE_S_MAX:
                    began, sequence, rate = at, row.sequence, None
                elif passed_s >= RATE_S_MIN:
                    rate = (row.sequence - sequence) % _SEQUENCES / passed_s
                    began, sequence = at, row.sequence
                self._seen[key] = began, sequence, rate
                if rate is not None:
                    found[row] = rate
            while len(self._seen) > SEEN_MAX:
                del self._seen[next(iter(self._seen))]
        return found
