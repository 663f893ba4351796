"""The standalone cluster of the tests: Python on executors of their own, with what `ottla spark archive` ships."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ottla.cli.spark import archive as spark_archive
from tests.spark.standalone import StandaloneCluster

JOB = """
import os, sys
from pyspark.sql import SparkSession

session = SparkSession.builder.master(sys.argv[1]).config("spark.executor.memory", "512m")
for setting in sys.argv[2:]:
    session = session.config(*setting.split("=", 1))
spark = session.getOrCreate()

def work(rows):
    import ottla.arrow, ottla.protocol.records.record_batch as compiled
    yield os.getppid(), sum(rows), ottla.__path__[0], compiled.__file__, os.getcwd()

import json
print(json.dumps(spark.sparkContext.parallelize(range(100), 4).mapPartitions(work).collect()))
spark.stop()
"""


def run_job(standalone: StandaloneCluster, directory: Path, *settings: str) -> list[Any]:
    (directory / "job.py").write_text(JOB)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "job.py", standalone.url, *settings]
    run = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{run.stderr[-4000:]}\n{standalone.logs()}"
    found: list[Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def test_executors_run_python_with_the_archive(standalone: StandaloneCluster, tmp_path: Path) -> None:
    archive = tmp_path / "ottla.tar.gz"
    spark_archive.write(archive)
    found = run_job(standalone, tmp_path, f"spark.archives={archive}#ottla", "spark.executorEnv.PYTHONPATH=./ottla")
    assert sum(rows for _, rows, *_ in found) == sum(range(100))
    directories = {directory for *_, directory in found}
    assert len(directories) == 2, "both workers have an executor"
    for _, _, package, compiled, directory in found:
        assert directory.startswith(str(standalone.directory))
        assert Path(directory, package).resolve() == Path(directory, "ottla", "ottla").resolve()
        assert Path(directory, compiled).is_file() or not Path(directory).exists()


def test_its_processes(standalone: StandaloneCluster) -> None:
    assert standalone.url.startswith("spark://127.0.0.1:")
    pids = [standalone.master_pid, *standalone.worker_pids]
    assert len({*pids}) == 3
    for pid in pids:
        os.kill(pid, 0)
    assert not set(pids) & set(standalone.executor_pids())
