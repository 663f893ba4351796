"""Figures of several rounds: the order of the rounds, medians with their spread, ratios pair by pair. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OURS, THEIRS, BASE = "ottla", "kafka", "base"
BARE = "bare loop"
RATIO, BASE_RATIO = "ottla / kafka", "ottla / base"


def alternate(sides: Sequence[str], rounds: int) -> Iterator[str]:
    """The order of measured windows: A B A B ..., so that what changes on the machine changes for all."""
    for _ in range(rounds):
        yield from sides


@dataclass(frozen=True)
class Spread:
    """The median of some rounds between the lowest and the highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    def text(self, form: Callable[[float], str]) -> str:
        """A text like "31,700 (30,900 to 32,100)"; the median alone where nothing spreads."""
        if form(self.low) == form(self.high):
            return form(self.median)
        return f"{form(self.median)} ({form(self.low)} to {form(self.high)})"


def short(value: float) -> str:
    """Three digits of a small number, all before the point of a large one; nothing for what is not a number."""
    if math.isnan(value):
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def times(value: float) -> str:
    return f"{value:.2f} x" if value >= 0.1 or not value else f"{value:.2g} x"


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """The ratio of each round of ours to the round of theirs beside it. Raises ValueError where rounds do not match."""
    return [a / b for a, b in zip(ours, theirs, strict=True) if b]


Rounds = Sequence[Mapping[str, float]]
"""The figures of each round by name; every round has the same names."""


def medians(rounds: Rounds) -> dict[str, float]:
    return {name: statistics.median(values[name] for values in rounds) for name in rounds[0]}


def rows(
    measured: Mapping[str, Rounds], ranged: Sequence[str] = (), extra: Mapping[str, Mapping[str, str]] | None = None
) -> list[dict[str, Any]]:
    """A row for each side with the medians of its rounds, then the ratios of Ottla to Kafka and base, pair by pair.

    Figures named in `ranged` show their lowest and highest too. `extra` is set behind, by side.
    """
    found = []
    for side, rounds in measured.items():
        row: dict[str, Any] = {"side": side}
        for name in rounds[0]:
            spread = Spread.of([values[name] for values in rounds])
            row[name] = spread.text(short) if name in ranged else short(spread.median)
        found.append(row | dict((extra or {}).get(side, {})))
    for theirs, label in ((BASE, BASE_RATIO), (THEIRS, RATIO)):
        if OURS in measured and theirs in measured:
            found.append(_ratio_row(label, measured[OURS], measured[theirs], ranged))
    return found


def _ratio_row(label: str, ours: Rounds, theirs: Rounds, ranged: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"side": label}
    for name in ours[0]:
        if name in theirs[0] and (text := ratio_text(ours, theirs, name, name in ranged)):
            row[name] = text
    return row


def ratio_text(ours: Rounds, theirs: Rounds, name: str, with_range: bool = True) -> str:
    """The median of the ratios of the rounds; empty where the other side's figure is nothing."""
    pairs = ratios([values[name] for values in ours], [values[name] for values in theirs])
    if not pairs:
        return ""
    spread = Spread.of(pairs)
    return spread.text(times) if with_range else times(spread.median)


def pivot(
    label: str, measured: Mapping[str, Mapping[str, Rounds]], ranged: Sequence[str] = (), ratio_of: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """A row for each thing measured (name, then side), with the columns of all sides and the ratios in `ratio_of`.

    They are those to base, where there is one, otherwise to Kafka.
    """
    found = []
    for name, by_side in measured.items():
        row: dict[str, Any] = {label: name}
        theirs = BASE if BASE in by_side else THEIRS
        for figure in next(iter(by_side.values()))[0]:
            for side, rounds in by_side.items():
                spread = Spread.of([values[figure] for values in rounds])
                row[f"{side} {figure}"] = spread.text(short) if figure in ranged else short(spread.median)
            if figure in ratio_of and OURS in by_side and theirs in by_side:
                row[f"x {figure}"] = ratio_text(by_side[OURS], by_side[theirs], figure)
        found.append(row)
    return found
