"""The query: records of the source to the same partitions of the destination, and in the same transactions what
offsets they had."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from ottla.mirror.ledger import PREFIX, copied_rows
from ottla.mirror.mapping import Stretch

COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
_NAMES: Final = ("key", "value", "topic", "partition", "timestamp", "headers")


def read(spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
    stream = spark.readStream.format("ottla").options(**options)
    return stream.option("includeHeaders", "true").option("kafka.isolation.level", "read_committed").load()


def with_offsets(records: DataFrame, source: str, prefix: str) -> DataFrame:
    """The rows to write: `records` under the names of the destination, and behind them those of the control topic."""
    return records.mapInArrow(_copy(source, prefix), COLUMNS)


def _copy(source: str, prefix: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def copy(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen: dict[tuple[str, int], list[Stretch]] = {}
        last = None
        for batch in batches:
            if batch.num_rows == 0:
                continue
            _see(batch, seen)
            columns = {name: batch.column(name) for name in _NAMES}
            if prefix:
                columns["topic"] = pc.binary_join_element_wise(pa.scalar(prefix), columns["topic"], "")
            out = pa.RecordBatch.from_arrays(list(columns.values()), names=list(_NAMES))
            last = out.slice(out.num_rows - 1)
            yield out
        if last is not None:
            yield _control(seen, PREFIX + source, last)

    return copy


def _see(batch: pa.RecordBatch, seen: dict[tuple[str, int], list[Stretch]]) -> None:
    """Add a batch's offsets. Most batches are one stretch of one partition, which is seen without a loop."""
    topics, partitions, offsets = (batch.column(name) for name in ("topic", "partition", "offset"))
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    topic, partition = topics[0].as_py(), partitions[0].as_py()
    whole = pc.all(pc.equal(topics, topic)).as_py() and pc.all(pc.equal(partitions, partition)).as_py()
    if whole and last - first + 1 == batch.num_rows:
        _add(seen.setdefault((topic, partition), []), Stretch(first, batch.num_rows))
        return
    rows: Iterator[Any] = zip(topics.to_pylist(), partitions.to_pylist(), offsets.to_pylist(), strict=True)
    for topic, partition, offset in rows:
        _add(seen.setdefault((topic, partition), []), Stretch(offset, 1))


def _add(found: list[Stretch], more: Stretch) -> None:
    if found and found[-1].start + found[-1].records == more.start:
        found[-1] = Stretch(found[-1].start, found[-1].records + more.records)
    else:
        found.append(more)


def _control(seen: Mapping[tuple[str, int], list[Stretch]], topic: str, last: pa.RecordBatch) -> pa.RecordBatch:
    """With the time of the last record: a task that runs again is to write the same again."""
    rows = copied_rows(seen)
    columns: dict[str, list[Any]] = {
        "key": [key for key, _ in rows], "value": [value for _, value in rows], "topic": [topic] * len(rows),
        "partition": [0] * len(rows), "timestamp": last.column("timestamp").to_pylist() * len(rows),
        "headers": [None] * len(rows),
    }  # fmt: skip
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in last.schema], schema=last.schema
    )
