"""What Python data sources of Spark can do at most: a source of batches made beforehand, a sink that throws away.

A module of its own, as Spark's workers import it. No broker is behind it, so that on a machine of two cores it has
what a broker takes of them as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from ottla.arrow import BYTES_MAX, ROWS_MAX, SCHEMA

COLUMNS = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"


class Ceiling(DataSource):
    """Options: rows, size (of values, in bytes), partitions, topic (as wide as that of the others)."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: Any) -> DataSourceReader:
        rows, size, partitions = (int(self.options[name]) for name in ("rows", "size", "partitions"))
        return Batches(rows, size, partitions, self.options["topic"])

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return Nowhere()


class Batches(DataSourceReader):
    """One Arrow batch again and again."""

    def __init__(self, rows: int, size: int, partitions: int, topic: str) -> None:
        self.rows, self.size, self.count, self.topic = rows, size, partitions, topic

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self.count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        left = self.rows // self.count
        count = min(left, ROWS_MAX, BYTES_MAX // self.size)
        numbers = pa.repeat(pa.scalar(partition.value, pa.int64()), count)
        batch = pa.record_batch(
            [
                pa.nulls(count, pa.binary()),
                pa.repeat(pa.scalar(bytes(self.size)), count),
                pa.repeat(self.topic, count),
                numbers.cast(pa.int32()),
                numbers,
                numbers.cast(SCHEMA.field("timestamp").type),
                numbers.cast(pa.int32()),
            ],
            schema=SCHEMA,
        )
        while left > 0:
            yield batch.slice(0, left)
            left -= count


class Nowhere(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()
