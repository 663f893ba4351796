"""What the checkpoint of a query says before the query is built."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def sources(spark: SparkSession, checkpoint: str) -> int | None:
    """Number of sources of the query that wrote the checkpoint, a directory or URL; None where no batch is planned
    yet. Spark refuses a query with another number."""
    jvm = spark._jvm
    assert jvm is not None
    offsets = jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/offsets")
    files = offsets.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    if not files.exists(offsets):
        return None
    names = [status.getPath().getName() for status in files.listStatus(offsets)]
    batches = [int(name) for name in names if name.isdecimal()]
    if not batches:
        return None
    with closing(files.open(jvm.org.apache.hadoop.fs.Path(offsets, str(max(batches))))) as file:
        text = jvm.org.apache.commons.io.IOUtils.toString(file, "UTF-8")
    # As Spark's OffsetSeqLog writes it: its version, metadata, and a line for each source.
    return len(text.split("\n")) - 2
