"""Replay and back-fill: a stretch of a topic once more into another, as it was or changed by an expression.

Records of `input` whose timestamps are from `from` on and before `to` (times such as 2026-11-25T09:00:00Z; nothing:
the beginning, and where the topic ends when the run begins), and that `filter` lets through, go to `output` exactly
once, with their keys, headers, timestamps and partitions. `filter` and `value` are expressions of SQL over the
columns key, value, topic, partition, offset, timestamp and headers: `filter=partition = 0`, `value=upper(cast(value
as string))`. With `schema` the value is read as JSON of that schema first, so that they can name its fields:
`filter=value.amount > 100`.

It goes by chunks of `--batch-records`, goes on where it was when it is started again, and ends where the topic ends;
a run after that takes what has come since. Partitions are kept where `output` has as many as `input`, as it has if
this creates it; else keys say where records go.
"""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import functions as F

from ottla.pipelines.runner import Job, PipelineError, Setting

SETTINGS = (
    Setting("input", "input", "topic to replay"),
    Setting("output", "output", "topic to replay into"),
    Setting("from", "", "start time, as 2026-11-25T09:00:00Z; default: the beginning"),
    Setting("to", "", "end time (exclusive); default: the end of the topic"),
    Setting("filter", "true", "records to replay: a SQL expression"),
    Setting("value", "value", "new value: a SQL expression"),
    Setting("schema", "", "schema of JSON values, as DDL; without it they are bytes"),
)


def build(job: Job) -> None:
    job.is_once = True  # a stretch has an end
    begin, end = (_moment(job, name) for name in ("from", "to"))
    options: dict[str, Any] = (
        {} if begin is None else {"startingTimestamp": str(_ms(begin)), "startingOffsetsByTimestampStrategy": "latest"}
    )
    records = job.read("input", job["schema"] or None, key_format="binary", includeHeaders="true", **options)
    chosen = records.where(F.expr(job["filter"]))
    if begin is not None:
        chosen = chosen.where(F.col("timestamp") >= F.timestamp_millis(F.lit(_ms(begin))))
    if end is not None:
        chosen = chosen.where(F.col("timestamp") < F.timestamp_millis(F.lit(_ms(end))))
    value = F.expr(job["value"]) if job["value"] != "value" or not job["schema"] else F.to_json("value")
    written = ["headers", "timestamp"]
    if _partitions(job) == _partitions(job, "output"):
        written.append("partition")
    job.write_records(
        "records", chosen.select("key", value.alias("value"), *written), "output", includeTimestamp="true"
    )


def _partitions(job: Job, setting: str = "input") -> int:
    """How many the topic has; `output` is made like `input` where it is missing."""
    with closing(job.topics()) as topics:
        count = topics.partitions(job.topic("input"))
        if setting == "input":
            return count
        job.ensure_topic(job["output"], count)
        return topics.partitions(job["output"])


def _moment(job: Job, setting: str) -> datetime | None:
    if not (text := job[setting]):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise PipelineError(f"{setting}: expected a time such as 2026-11-25T09:00:00Z, got {text!r}") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
