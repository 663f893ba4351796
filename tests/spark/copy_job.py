"""A driver to be killed: copies a topic into another by `ottla`, exactly once, until all that was there is copied.

`python -m tests.spark.copy_job --bootstrap HOST:PORT --work DIR --master local[2]`; started again it goes on.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCE, SINK = "copy-in", "copy-out"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--work", required=True, type=Path)
    parser.add_argument("--master", default="local[2,4]", help="local[CORES,FAILURES]: a task may fail")
    parser.add_argument("--records", default="2500", help="of a batch")
    parser.add_argument("--shuffle", action="store_true", help="deal the rows out again before they are written")
    options = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    spark = (
        builder.master(options.master)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.cores", "1")
        .config("spark.executorEnv.PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(options.work / "local"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    rows = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.records)
        .option("commit.group", "copier")
        .load()
        .select("key", "value")
    )
    if options.shuffle:
        rows = rows.repartition(2, "value")
    query = (
        rows.writeStream.format("ottla")
        .option("kafka.bootstrap.servers", options.bootstrap)
        .option("topic", SINK)
        .option("delivery", "exactly-once")
        .option("checkpointLocation", str(options.work / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for progress in query.recentProgress:
        print(progress["batchId"], progress["numInputRows"], progress["sources"][0]["endOffset"], flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
