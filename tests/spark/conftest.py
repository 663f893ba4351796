"""One Spark for all tests (it takes 12 s to start; `tests/order.py` gives them to one process), one standalone cluster,
and a broker: a node, or whatever listens at OTTLA_TEST_BOOTSTRAP, to see the same tests pass on Apache Kafka."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import peers.spark
from ottla.testing import Broker
from tests.spark import forks
from tests.spark.standalone import START_S, StandaloneCluster
from tests.spark.topics import Topics

ROOT = Path(__file__).parents[2]
JARS = sorted((ROOT / ".cache" / "spark-jars").glob("*.jar"))
LAKE_JARS = sorted((ROOT / ".cache" / "lake-jars").glob("*.jar"))
_numbers = itertools.count()


@pytest.fixture(scope="session", autouse=True)
def _start_fast() -> Iterator[None]:
    """JVMs of Spark that tests start, in their process or of their own."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in peers.spark.start_fast().items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("Spark is not set up: no pyspark here")
    if shutil.which("java") is None:
        pytest.skip("Spark is not set up: no Java here")
    from pyspark.sql import SparkSession

    work = tmp_path_factory.mktemp("spark")
    patch = pytest.MonkeyPatch()
    patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    patch.setenv("TZ", "UTC")  # PySpark gives timestamps as local ones of this process, whatever the session's zone
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    patch.setenv("PYTHONPATH", path.rstrip(os.pathsep))
    time.tzset()
    workers = contextlib.ExitStack()
    patch.setenv("PYSPARK_PYTHON", workers.enter_context(forks.python(work)))
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("ottla-tests")
        .config("spark.jars", ",".join(map(str, [*JARS, *LAKE_JARS])))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", str(work / "local"))
        .config("spark.sql.warehouse.dir", str(work / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
    )
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
    workers.close()
    patch.undo()
    time.tzset()


@pytest.fixture(scope="session")
def _standalone() -> Iterator[StandaloneCluster]:
    if importlib.util.find_spec("pyspark") is None or shutil.which("java") is None:
        pytest.skip("Spark is not set up: no pyspark or no Java here")
    # An editable install in this Python is behind PYTHONPATH on its path: what a job ships or names comes before it.
    with StandaloneCluster(workers=2, environment={"PYTHONPATH": ""}) as running:
        yield running


@pytest.fixture
def standalone(_standalone: StandaloneCluster) -> StandaloneCluster:
    """A Spark standalone cluster of two workers, all of whose executors are the test's."""
    deadline = time.monotonic() + START_S
    while left := _standalone.executor_pids():
        assert time.monotonic() < deadline, f"executors of an earlier test: {left}\n{_standalone.logs()}"
        time.sleep(0.05)
    return _standalone


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """Address of the broker under test."""
    external = os.environ.get("OTTLA_TEST_BOOTSTRAP")
    if external:
        yield external
        return
    with Broker(log_retention_check_interval_ms=500, group_initial_rebalance_delay_ms=0) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    """A `peers.postgres.Postgres` for the tests of a module."""
    pytest.importorskip("psycopg", reason="PostgreSQL is not set up: no psycopg here")
    from peers.postgres import Postgres, programs

    if programs() is None:
        pytest.skip("PostgreSQL is not set up: peers/debian.sh pg_ctlcluster:postgresql")
    with Postgres() as server:
        yield server


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses."""
    return f"spark-{os.getpid()}-{next(_numbers)}"


@pytest.fixture(scope="session")
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap)


@pytest.fixture
def connector() -> None:
    """For tests that compare with Spark's Kafka connector."""
    if not JARS:
        pytest.skip("Spark is not set up: no jars of its Kafka connector (peers/spark/jars.sh)")


@pytest.fixture
def delta(spark: Any) -> list[Path]:
    """The jars of Delta, which the session of the tests has."""
    if not LAKE_JARS:
        pytest.skip("Spark is not set up: no jars of Delta (peers/spark/lake.sh)")
    spark.conf.set("spark.databricks.delta.requiredSparkConfsCheck.enabled", "false")
    spark.conf.set("spark.databricks.delta.snapshotPartitions", "2")
    return LAKE_JARS
