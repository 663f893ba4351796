"""Spark looks for modules named `pyspark_*` and registers their `DefaultSource`: this is why `format("ottla")` is known
wherever the package is installed. All else is in `ottla.spark`."""

from ottla.spark.datasource import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
