"""Ticks to candles, whatever order they come in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.spark.pipelines.pipelines import feed, names, rows, run_once


def tick(symbol: str, price: float, size: int, minute: int, second: int) -> dict[str, Any]:
    return {"symbol": symbol, "price": price, "size": size, "at": f"2026-11-25T10:{minute:02}:{second:02}Z"}


FIRST = [
    tick("A", 11, 10, 0, 30),
    tick("A", 10, 10, 0, 5),  # the first of its minute comes second
    tick("B", 5, 1, 0, 0),
    tick("A", 14, 20, 0, 59),
    tick("A", 9, 10, 0, 40),
    tick("A", 20, 1, 1, 0),
    tick("A", 21, 1, 1, 0),  # of two at the same time the later in the topic closes
    tick("A", 0.5, 0, 1, 0),
    b"{]",
]
SECOND = [
    tick("A", 13, 10, 0, 52),
    tick("A", 99, 1, 0, 49),
    tick("C", 1, 1, 5, 0),
]  # still in time: 1:00 less 10 s is 0:50
THIRD = [tick("A", 99, 1, 0, 2), tick("C", 2, 3, 9, 0), tick("C", 2, 3, 9, 30)]  # too late


def test_candles(spark: Any, bootstrap: str, tmp_path: Path) -> None:
    settings = names("input", "candles")
    late = 0
    for part in (FIRST, SECOND, THIRD):
        feed(bootstrap, settings["input"], part)
        status = run_once(spark, "ticks", bootstrap, tmp_path, settings)
        late += status.queries[0].late_rows
    candles = rows(bootstrap, settings["candles"])
    found = {
        (row["symbol"], row["start"][11:16]): [row[name] for name in ("open", "high", "low", "close", "volume", "vwap")]
        for row in candles
    }
    assert len(found) == len(candles)
    assert found == {
        ("A", "10:00"): [10, 14, 9, 14, 60, round((110 + 100 + 280 + 90 + 130) / 60, 6)],
        ("B", "10:00"): [5, 5, 5, 5, 1, 5],
        ("A", "10:01"): [20, 21, 20, 21, 2, 20.5],
        ("C", "10:05"): [1, 1, 1, 1, 1, 1],
    }
    assert late == 2, "one in the second run, one in the third"
    assert status.dead_letters == 1
