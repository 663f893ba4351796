"""How far the copies of moves are, in bytes: the log of a new replica beside the log of its leader. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SAMPLES_MAX: Final = 60
SAMPLE_S: Final = 2.0
"""Seconds between two samples at least: pages that are loaded often measure nothing else."""
WINDOW_S: Final = 120.0
"""A rate is of so long: moves begin and end."""

Copies = Mapping[tuple[str, int, int], tuple[int, int]]
"""By topic, partition and new replica: bytes that it has, and bytes of its leader."""


@dataclass(frozen=True)
class Pace:
    copied: int
    bytes: int
    """What is to be there in the end, as large as the leaders' logs are now."""
    per_second: int | None
    """None before there are two samples."""

    @property
    def left_s(self) -> int | None:
        """None where that is not known, or nothing is copied."""
        left = max(0, self.bytes - self.copied)
        if self.per_second is None or (self.per_second <= 0 and left):
            return None
        return 0 if not left else -(-left // self.per_second)


class Copying:
    """Samples of the last two minutes."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, dict[tuple[str, int, int], int]]] = deque(maxlen=SAMPLES_MAX)

    def add(self, at: float, copies: Copies) -> Pace:
        """`at` is by the monotonic clock."""
        while self._samples and at - self._samples[0][0] > WINDOW_S:
            self._samples.popleft()
        now = {key: min(have, whole) for key, (have, whole) in copies.items()}
        rate = self._rate(at, now)
        if not self._samples or at - self._samples[-1][0] >= SAMPLE_S:
            self._samples.append((at, now))
        return Pace(sum(now.values()), sum(whole for _, whole in copies.values()), rate)

    def _rate(self, at: float, now: Mapping[tuple[str, int, int], int]) -> int | None:
        """Bytes a second of the copies that the oldest sample has as well. A log that shrank was cut or begun again and
        counts as nothing."""
        for began, before in self._samples:
            known = [now[key] - before[key] for key in now if key in before]
            if known and at - began >= SAMPLE_S / 2:
                return round(sum(max(0, each) for each in known) / (at - began))
        return None
