"""Spark's JVMs as tests want them: started in half the time, and for half the CPU.

`python -m peers.spark` keeps the parsed classes of a job that does a little of everything (Java's class data sharing).
`start_fast()` is an environment in which Spark's launcher, drivers, masters and workers use them; executors have what
their worker has.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ARCHIVE = Path(__file__).resolve().parents[2] / ".cache" / "spark.jsa"
_JOB_TIMEOUT_S = 300.0

# A job of a minute never earns back what the better compiler costs. Java would write about an archive that does not
# fit, after an update of it for one, on the standard output of its program.
_SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xlog:disable")


def start_fast() -> dict[str, str]:
    """What to add to the environment. Without an archive all works as well, and starts more slowly."""
    shared = [f"-XX:SharedArchiveFile={ARCHIVE}"] if ARCHIVE.exists() else []
    spark, small = " ".join([*_SHORT_LIVED, *shared]), " ".join(_SHORT_LIVED)
    return {"SPARK_SUBMIT_OPTS": spark, "SPARK_LAUNCHER_OPTS": small, "SPARK_DAEMON_JAVA_OPTS": spark}


def of_executors() -> dict[str, str]:
    """What to add to the environment of a worker of a standalone cluster, for the executors that it starts."""
    return {"JDK_JAVA_OPTIONS": start_fast()["SPARK_SUBMIT_OPTS"]}  # the only variable that they would look at


def is_there() -> bool:
    """Whether there is an archive for the Spark that is installed."""
    spark = importlib.util.find_spec("pyspark")
    return (
        spark is None
        or spark.origin is None
        or (ARCHIVE.exists() and ARCHIVE.stat().st_mtime > Path(spark.origin).stat().st_mtime)
    )


def install() -> None:
    """Make the archive. Raises RuntimeError with what the job said where it fails."""
    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    part = ARCHIVE.with_suffix(f".part{os.getpid()}")
    done = _run_job([*_SHORT_LIVED, f"-XX:ArchiveClassesAtExit={part}"])
    if done.returncode:
        part.unlink(missing_ok=True)
        raise RuntimeError(f"Spark's classes could not be kept:\n{done.stdout}{done.stderr}")
    if part.exists():
        part.replace(ARCHIVE)


def _run_job(options: Sequence[str]) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "SPARK_SUBMIT_OPTS": " ".join(options),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    return subprocess.run(
        [sys.executable, Path(__file__).with_name("job.py")],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_JOB_TIMEOUT_S,
        check=False,
    )
