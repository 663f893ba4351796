"""A Delta table: the number of the last batch of a query is part of each commit (`txnAppId`, `txnVersion`), so that the
table itself leaves out what it has."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from ottla.pipelines.runner import PipelineError

_CHECK = "spark.databricks.delta.requiredSparkConfsCheck.enabled"
_SIZE = "spark.databricks.delta.optimize.maxFileSize"
_SMALL = "spark.databricks.delta.optimize.minFileSize"


class Delta:
    """A Delta table in a directory."""

    def __init__(self, spark: SparkSession, path: str, target_bytes: int) -> None:
        self.path = path
        self.target_bytes = target_bytes
        if not hasattr(spark._jvm.io.delta.tables.DeltaTable, "forPath"):  # type: ignore[union-attr]
            raise PipelineError(
                "Spark has no Delta JARs: set delta to the Maven coordinate to fetch, or spark.jars to their paths"
            )
        # A session that was made before Delta was asked for has no SQL of its; nothing here needs that.
        if "io.delta" not in str(spark.conf.get("spark.sql.extensions", "")):
            spark.conf.set(_CHECK, "false")
            spark.conf.set("spark.databricks.delta.snapshotPartitions", "2")

    def write(self, rows: DataFrame, query: str, number: int) -> None:
        chosen = {"txnAppId": f"ottla-{query}", "txnVersion": str(number), "mergeSchema": "true"}
        rows.write.format("delta").options(**chosen).partitionBy("date").mode("append").save(self.path)

    def compact(self, rows: DataFrame, query: str, number: int) -> None:
        """OPTIMIZE. Replaced files stay for readers of older versions, until VACUUM is run."""
        from delta.tables import DeltaTable

        session = rows.sparkSession
        session.conf.set(_SIZE, str(self.target_bytes))
        session.conf.set(_SMALL, str(self.target_bytes * 3 // 4))
        DeltaTable.forPath(session, self.path).optimize().executeCompaction()
