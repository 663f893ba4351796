"""A column of a result over another, as lines, points or bars of a picture that needs no script. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ottla.sql.queries import Answer

KINDS: Final = ("auto", "line", "bars", "points", "none")
WIDTH: Final = 600
HEIGHT: Final = 200
BARS_MAX: Final = 200
"""More would be thinner than a line."""
_LABEL_MAX: Final = 40


@dataclass(frozen=True)
class Bar:
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Plot:
    kind: str
    x: str
    y: str
    """Names of the columns."""
    line: str
    """Points of a line, as SVG has them; empty for bars and points."""
    dots: list[list[float]]
    bars: list[Bar]
    zero: float | None
    """Where the line of zero is; None outside of the picture."""
    low: str
    high: str
    """Labels of the axes."""
    first: str
    last: str
    shown: int
    """Rows in the picture."""
    left_out: int
    """Rows without a number, and those beyond what a picture can show."""


def plotted(answer: Answer, kind: str, x: str, y: str) -> Plot | None:
    """The picture of a result; without names of columns those that fit. None where there is nothing to draw."""
    names = [each.name for each in answer.columns]
    kinds = {each.name: each.kind for each in answer.columns}
    y_name = (
        y
        if kinds.get(y) == "number"
        else next((each.name for each in reversed(answer.columns) if each.kind == "number" and each.name != x), "")
    )
    x_name = x if x in kinds else next((each for each in names if each != y_name), "")
    if kind == "none" or not y_name or not x_name:
        return None
    across, up = names.index(x_name), names.index(y_name)
    # Without an order of its own a text stands where its row does.
    is_scaled = kinds[x_name] in ("number", "time")
    chosen = kind if kind != "auto" else "line" if is_scaled else "bars"
    points = []
    for at, row in enumerate(answer.rows):
        place = _number(row[across], kinds[x_name]) if is_scaled and chosen != "bars" else float(at)
        height = _number(row[up], "number")
        if place is not None and height is not None:
            points.append((place, height, row[across] or "null"))
    if chosen == "line":
        points.sort(key=lambda each: each[0])
    if chosen == "bars":
        points = points[:BARS_MAX]
    return _drawn(chosen, x_name, y_name, points, len(answer.rows)) if points else None


def _drawn(kind: str, x: str, y: str, points: Sequence[tuple[float, float, str]], rows: int) -> Plot:
    heights = [each[1] for each in points]
    low, high = min(heights), max(heights)
    if kind == "bars":
        low, high = min(low, 0.0), max(high, 0.0)
    places = [each[0] for each in points]

    def up(value: float) -> float:
        return round(HEIGHT - 4 - (HEIGHT - 8) * _share(value, low, high), 1)

    def across(value: float) -> float:
        return round(4 + (WIDTH - 8) * _share(value, min(places), max(places)), 1)

    bars, dots = [], [[across(place), up(height)] for place, height, _ in points]
    if kind == "bars":
        step = WIDTH / len(points)
        bars = [
            Bar(
                round(at * step + step * 0.1, 1),
                min(up(height), up(0.0)),
                round(step * 0.8, 1),
                round(abs(up(height) - up(0.0)), 1) or 1.0,
            )
            for at, (_, height, _) in enumerate(points)
        ]
    line = " ".join(f"{left},{top}" for left, top in dots) if kind == "line" and len(dots) > 1 else ""
    ends = sorted(points, key=lambda each: each[0]) if kind == "points" else points
    return Plot(
        kind,
        x,
        y,
        line,
        [] if line or kind == "bars" else dots,
        bars,
        up(0.0) if low <= 0 <= high else None,
        _said(low),
        _said(high),
        ends[0][2][:_LABEL_MAX],
        ends[-1][2][:_LABEL_MAX],
        len(points),
        rows - len(points),
    )


def _share(value: float, low: float, high: float) -> float:
    """Where a value is between two, without an overflow for the largest numbers that there are."""
    half = high / 2 - low / 2
    return 0.5 if half == 0 else (value / 2 - low / 2) / half


def _number(cell: str | None, kind: str) -> float | None:
    if cell is None:
        return None
    try:
        if kind == "time":
            moment = datetime.fromisoformat(cell)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        found = float(cell)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _said(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"
