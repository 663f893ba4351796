"""`format("ottla")`: where Spark comes in. Loaded by every Python worker that looks for data sources, so that it
imports nothing but PySpark before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class OttlaDataSource(DataSource):
    """Topics of any cluster that speaks Kafka's protocol, with the options and columns of Spark's Kafka connector.

    spark.read.format("ottla").option("kafka.bootstrap.servers", "host:9092").option("subscribe", "orders").load()

    Spark does not tell Python sources which columns a query needs. What is not to be decoded is left out by a schema,
    `.schema("value binary, offset bigint")`, any columns in any order, or by `.option("columns", "value,offset")`.
    A task reads one partition, as with the connector; `minPartitions` and `maxRecordsPerPartition` split large ones by
    offset, so that all cores have work. With `spark.sql.python.filterPushdown.enabled=true` batch reads fetch only what
    filters by offset, partition, topic and timestamp leave.
    """

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        from ottla.spark.layout import source_schema

        return source_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from ottla.spark.layout import layout
        from ottla.spark.options import batch_options
        from ottla.spark.reader import BatchReader

        return BatchReader(batch_options(self.options), layout(self.options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from ottla.spark.layout import layout
        from ottla.spark.options import stream_options
        from ottla.spark.stream import StreamReader

        return StreamReader(stream_options(self.options), layout(self.options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ottla.spark.sink import batch_writer

        return batch_writer(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from ottla.spark.sink import stream_writer

        return stream_writer(schema, self.options, overwrite)
