"""Stock ticks to candles: open, high, low, close, volume and vwap by symbol and window.

Ticks are JSON in the topic `input`: `{"symbol": "ACME", "price": 12.5, "size": 100, "at": "2026-11-25T09:00:00Z"}`.
`candles` gets one for each symbol and window in which there were ticks, when the window is over and `delay` has passed.
Open and close are the first and the last by the times of the ticks (of two at the same time, by their places in the
topic), however they arrived. A tick that is more than `delay` behind the newest changes nothing any more; how many
there were is in the status.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ottla.pipelines.runner import Job, Setting

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessorHandle, TimerValues

SETTINGS = (
    Setting("input", "ticks", "topic of the ticks"),
    Setting("candles", "candles", "topic of the candles, keyed by symbol"),
    Setting("window_s", 60, "length of a candle in seconds"),
    Setting("delay", "10 seconds", "how late a tick may arrive; later ones are dropped"),
)
TICK = "symbol STRING, price DOUBLE, size BIGINT, at TIMESTAMP"
VALID = "value.symbol is not null and value.price is not null and value.size > 0 and value.at is not null"
CANDLE = (
    "open DOUBLE, high DOUBLE, low DOUBLE, close DOUBLE, volume BIGINT, turnover DOUBLE, ticks BIGINT,"
    " first STRUCT<at_us: BIGINT, partition: INT, offset: BIGINT>,"
    " last STRUCT<at_us: BIGINT, partition: INT, offset: BIGINT>"
)
OUT = (
    "symbol STRING, start_us BIGINT, open DOUBLE, high DOUBLE, low DOUBLE, close DOUBLE, volume BIGINT, vwap DOUBLE,"
    " ticks BIGINT"
)
FIELDS = ("open", "high", "low", "close", "volume", "vwap", "ticks")


def build(job: Job) -> None:
    ticks = (
        job.read("input", TICK)
        .where(VALID)
        .select("partition", "offset", "value.*", F.unix_micros("value.at").alias("at_us"))
        .withWatermark("at", job["delay"])
    )
    candles = ticks.groupBy("symbol").transformWithState(Symbol(job["window_s"]), OUT, "append", "eventTime")
    start = F.timestamp_micros("start_us").alias("start")
    job.write("candles", candles.select("symbol", start, *FIELDS), "candles", key="symbol")


class Symbol(StatefulProcessor):
    """The state of one symbol: its candles that are not over, by their start."""

    def __init__(self, window_s: int) -> None:
        self.window_us = window_s * 1_000_000

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.candles = handle.getMapState("candles", "start_us BIGINT", CANDLE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        # Once a candle and batch: a call to Spark's state costs as much as many rows.
        open_: dict[int, Any] = {}
        for row in rows:
            start = row.at_us // self.window_us * self.window_us
            if start not in open_:
                open_[start] = self.candles.getValue((start,))
                if open_[start] is None:
                    self.handle.registerTimer((start + self.window_us) // 1000)
            open_[start] = _with(open_[start], row)
        for start, candle in open_.items():
            self.candles.updateValue((start,), candle)
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        start = expiredTimerInfo.getExpiryTimeInMs() * 1000 - self.window_us
        known = self.candles.getValue((start,))
        if known is None:
            return
        self.candles.removeKey((start,))
        opened, high, low, closed, volume, turnover, ticks, _, _ = known
        yield Row(
            symbol=key[0],
            start_us=start,
            open=opened,
            high=high,
            low=low,
            close=closed,
            volume=volume,
            vwap=round(turnover / volume, 6),
            ticks=ticks,
        )

    def close(self) -> None:
        """Nothing is open."""


def _with(known: Any, row: Row) -> tuple[Any, ...]:
    """A candle with one more tick in it."""
    at = (row.at_us, row.partition, row.offset)
    price, turnover = row.price, row.price * row.size
    if known is None:
        return (price, price, price, price, row.size, turnover, 1, at, at)
    opened, high, low, closed, volume, before, ticks, first, last = known
    if at < tuple(first):
        opened, first = price, at
    if at > tuple(last):
        closed, last = price, at
    high, low = max(high, price), min(low, price)
    return (opened, high, low, closed, volume + row.size, before + turnover, ticks + 1, tuple(first), tuple(last))
