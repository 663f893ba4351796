"""Machine metrics: rolled up by the minute, and alerts that are raised and resolved once.

Metrics are JSON in the topic `input`, keyed by host so that those of a host are in order:
`{"host": "web-1", "name": "cpu", "value": 0.93, "at": "2026-11-25T09:00:00Z"}`. `rollups` gets for each host, name and
window how many there were, the lowest, the highest, the mean, the median and the 95th percentile, when the window is
over and `delay` has passed.

`rules` says what is wrong: `cpu > 0.9 for 3 minutes; disk_free < 10`. An alert is raised in `alerts` when a rule has
held for as long as it says by the times of the metrics, and resolved when it holds no more, once each. A metric that is
older than one that was seen before of that host and name changes no alert.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from ottla.pipelines.runner import Job, PipelineError, Setting

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

SETTINGS = (
    Setting("input", "metrics", "topic of the metrics"),
    Setting("rollups", "metrics-rollups", "topic of the windows"),
    Setting("alerts", "alerts", "topic of the alerts, keyed by host"),
    Setting("rules", "cpu > 0.9 for 3 minutes; disk_free < 10", "when to raise an alert, separated by semicolons"),
    Setting("window", "1 minute", "length of a window"),
    Setting("delay", "1 minute", "how late a metric may arrive; later ones are dropped from the windows"),
)
METRIC = "host STRING, name STRING, value DOUBLE, at TIMESTAMP"
ALERT = "host STRING, name STRING, rule STRING, what STRING, value DOUBLE, since_us BIGINT, at_us BIGINT"
VALID = "value.host is not null and value.name is not null and value.value is not null and value.at is not null"


def build(job: Job) -> None:
    rules = rules_of(job["rules"])
    metrics = job.read("input", METRIC).where(VALID).select("value.*")
    job.write("rollups", rollups(metrics, job["window"], job["delay"]), "rollups", key="host")
    metrics = job.read("input", METRIC, group="alerts", dead_letters=False).where(VALID)
    alerts = (
        metrics.select(
            "partition",
            "offset",
            *[f"value.{name}" for name in ("host", "name", "value")],
            F.unix_micros("value.at").alias("at_us"),
        )
        .groupBy("host", "name")
        .transformWithState(Series(rules), ALERT, "append", "none")
        .withColumns({"since": F.timestamp_micros("since_us"), "at": F.timestamp_micros("at_us")})
        .drop("since_us", "at_us")
    )
    job.write("alerts", alerts, "alerts", key="host")


def rollups(metrics: DataFrame, window: str, delay: str) -> DataFrame:
    """A row for each window that is over, host and name."""
    value = F.col("value")
    return (
        metrics.withWatermark("at", delay)
        .groupBy(F.window("at", window).alias("window"), "host", "name")
        .agg(
            F.count("*").alias("count"),
            F.min(value).alias("min"),
            F.max(value).alias("max"),
            F.avg(value).alias("mean"),
            F.percentile_approx(value, 0.5).alias("p50"),
            F.percentile_approx(value, 0.95).alias("p95"),
        )
        .select("host", "name", F.col("window.start").alias("start"), "count", "min", "max", "mean", "p50", "p95")
    )


@dataclass(frozen=True)
class Rule:
    """`text` is what it was written as."""

    text: str
    name: str
    compare: Callable[[float, float], bool]
    limit: float
    for_s: float


_COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_UNITS = {"second": 1, "minute": 60, "hour": 3600}
_RULE = re.compile(
    r"(?P<name>[\w.-]+)\s*(?P<compare>[<>]=?)\s*(?P<limit>-?\d+(?:\.\d+)?)"
    r"(?:\s+for\s+(?P<count>\d+)\s+(?P<unit>second|minute|hour)s?)?"
)


def rules_of(text: str) -> list[Rule]:
    """Raises PipelineError for what is none."""
    found = []
    for each in filter(None, (part.strip() for part in text.split(";"))):
        if (match := _RULE.fullmatch(each)) is None:
            raise PipelineError(f"rules: expected 'NAME > NUMBER for 3 minutes', got {each!r}")
        for_s = int(match["count"] or 0) * _UNITS[match["unit"] or "second"]
        found.append(Rule(each, match["name"], _COMPARE[match["compare"]], float(match["limit"]), for_s))
    return found


class Measurement(NamedTuple):
    """A row's columns. Those of a series are looked at in the order of these tuples."""

    partition: int
    offset: int
    host: str
    name: str
    value: float
    at_us: int


class Series(StatefulProcessor):
    """The state of one metric of one host: when each rule began to hold, and whether its alert is raised."""

    def __init__(self, rules: list[Rule]) -> None:
        self.rules = rules

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.newest = handle.getValueState("newest", "at_us BIGINT")
        self.held = handle.getMapState("held", "rule STRING", "since_us BIGINT, is_raised BOOLEAN")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:
        rules = [rule for rule in self.rules if rule.name == key[1]]
        # Once a batch: a call to Spark's state costs as much as many rows.
        before = {rule.text: self.held.getValue((rule.text,)) for rule in rules}
        held = dict(before)
        (began,) = self.newest.get() or (None,)
        newest = began
        for row in sorted(map(Measurement._make, rows)):
            if newest is not None and row.at_us < newest:
                continue
            newest = row.at_us
            for rule in rules:
                held[rule.text], what, since = changed(held[rule.text], rule, row)
                if what is not None:
                    yield _alert(rule, row, what, since)
        for text, state in held.items():
            if state is None and before[text] is not None:
                self.held.removeKey((text,))
            elif state is not None and state != before[text]:
                self.held.updateValue((text,), state)
        if newest != began:
            self.newest.update((newest,))

    def close(self) -> None:
        """Nothing is open."""


def changed(state: Any, rule: Rule, row: Measurement) -> tuple[Any, str | None, int | None]:
    """The state of a rule after a row, (since when it holds, whether its alert is raised) or None where it does not
    hold; what happens to its alert, if something does; and since when it has held."""
    since, is_raised = state or (None, False)
    if rule.compare(row.value, rule.limit):
        since = row.at_us if since is None else since
        raises = not is_raised and row.at_us - since >= rule.for_s * 1_000_000
        return (since, is_raised or raises), "raised" if raises else None, since
    return None, "resolved" if is_raised else None, since


def _alert(rule: Rule, row: Measurement, what: str, since: Any) -> Row:
    return Row(
        host=row.host, name=row.name, rule=rule.text, what=what, value=row.value, since_us=since, at_us=row.at_us
    )
