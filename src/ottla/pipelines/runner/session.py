"""The Spark session of a run: on this machine's cores, on a cluster, or the one that `spark-submit` made."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.pipelines.runner.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
}
"""Where the driver has all the work, on a machine that has other work too."""
STREAMING: Final = {
    "spark.sql.streaming.stateStore.providerClass":
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.noDataProgressEventInterval": "1000",
}  # fmt: skip
"""State larger than memory is normal for a pipeline: RocksDB keeps it on disk, and transformWithState needs it. A batch
that writes what it has changed, not new files of RocksDB, is over sooner."""
ALWAYS: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.metricsEnabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    **STREAMING,
}
"""Unless the settings of a run say otherwise."""

LOCAL_CHECKPOINTS: Final = {
    "spark.sql.streaming.checkpointFileManagerClass":
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
}  # fmt: skip
"""In a directory of this machine. Either of Spark's ways looks whether a file is there and then renames another; this
one without a process to look with, a few for each batch and each partition of state."""


def session(
    name: str,
    master: str | None,
    settings: Mapping[str, str],
    archive: Path | None,
    log: Path,
    *,
    local_checkpoints: bool,
) -> SparkSession:
    """Make it, or take the one that there is. `archive` is what `ottla spark archive` wrote, for executors without
    Ottla; what Spark and its JVM have to say goes to the file `log`. Raises PipelineError where Spark cannot run."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise PipelineError(f"pipelines need {error.name}: pip install 'ottla[pipelines]'") from None
    builder: Any = SparkSession.builder
    builder = builder.appName(f"ottla-{name}")
    if master is not None:
        builder = builder.master(master)
    local = master is not None and master.startswith("local")
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    chosen = {**ALWAYS, **_of_checkpoints(local_checkpoints), **(LOCAL if local else {}), **_of_archive(archive)}
    chosen |= settings
    if "SPARK_ENV_LOADED" in os.environ:
        # Under `spark-submit` its own arguments win, as with any job.
        chosen = _without_those_of_submit(chosen)
    for option, value in chosen.items():
        builder = builder.config(option, value)
    try:
        with _errors_to(log):
            spark: SparkSession = builder.getOrCreate()
    except (PySparkException, OSError) as error:
        raise PipelineError(f"Spark does not start: {error} (see {log})") from None
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def activate(spark: SparkSession) -> None:
    """For this thread: Spark looks for data sources in Python where a session is active, which a new thread has not."""
    from pyspark.sql import SparkSession

    assert spark._jvm is not None
    SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def prepare(spark: SparkSession, *, local_checkpoints: bool) -> SparkSession:
    """Give a session that others made what pipelines need."""
    for option, value in {**STREAMING, **_of_checkpoints(local_checkpoints)}.items():
        spark.conf.set(option, value)
    return spark


@contextlib.contextmanager
def _errors_to(log: Path) -> Iterator[None]:
    """A process that is started within has the file as its standard error: the JVM writes there as long as it lives."""
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _of_checkpoints(are_local: bool) -> Mapping[str, str]:
    return LOCAL_CHECKPOINTS if are_local else {}


def _of_archive(archive: Path | None) -> dict[str, str]:
    if archive is None:
        return {}
    return {"spark.archives": f"{archive}#ottla", "spark.executorEnv.PYTHONPATH": "./ottla"}


def _without_those_of_submit(chosen: Mapping[str, str]) -> dict[str, str]:
    from pyspark import SparkConf

    given = dict(SparkConf().getAll())
    return {name: given.get(name, value) for name, value in chosen.items()}
