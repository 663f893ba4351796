"""A real Spark standalone cluster on loopback: a master and workers, each a JVM of its own, as `start-all.sh` starts.

    with StandaloneCluster(workers=2) as cluster:
        SparkSession.builder.master(cluster.url)...
        os.kill(cluster.executor_pids()[0], signal.SIGKILL)

The jars are those of the pyspark package. Executors are children of the workers, and Python workers are theirs.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import peers.spark

START_S = 60.0
"""For a JVM to listen, on a busy machine."""
LOOK_S = 0.05

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


class StandaloneFailed(Exception):
    """A master or worker that did not come up; with the end of its log."""


class StandaloneCluster:
    """A master and workers. `environment` is added to that of the workers, which executors inherit."""

    def __init__(
        self, workers: int = 2, *, cores: int = 1, memory: str = "1g", environment: Mapping[str, str] | None = None
    ) -> None:
        self.workers = workers
        self.cores = cores
        self.memory = memory
        self.environment = dict(environment or {})
        self.url = ""
        """The URL for `master`."""
        self.directory = Path()
        """Logs of the master and the workers, and the workers' directories, where those of executors are."""
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> StandaloneCluster:
        self.directory = Path(tempfile.mkdtemp(prefix="ottla-standalone-"))
        try:
            # Its port is the system's choice, and in its log.
            master = self._launch("master", _MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self.url = self._wait("master", master, _URL.search)[1]
            for number in range(self.workers):
                self.start_worker(number)
            for number in range(self.workers):
                self._wait(f"worker-{number}", self._processes[1 + number], lambda log: _REGISTERED in log)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def master_pid(self) -> int:
        return self._processes[0].pid

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers in the order of their start, including killed ones."""
        return [each.pid for each in self._processes[1:]]

    def executor_pids(self) -> list[int]:
        """Process ids of the running executors; there are none before a job or session asks for them."""
        return self._running(_EXECUTOR)

    def python_pids(self) -> list[int]:
        """Process ids of the Python processes of the executors."""
        return self._running("pyspark.daemon")

    def _running(self, word: str) -> list[int]:
        return sorted(pid for pid in _processes() if word in _words(pid) and str(self.directory) in _cwd(pid))

    def wait_executors(self, count: int, seconds: float = START_S) -> list[int]:
        """The executors, when there are so many. Raises StandaloneFailed."""
        deadline = time.monotonic() + seconds
        while len(found := self.executor_pids()) < count:
            if time.monotonic() > deadline:
                raise StandaloneFailed(f"{len(found)} of {count} executors\n{self.logs()}")
            time.sleep(LOOK_S)
        return found

    def start_worker(self, number: int) -> int:
        """Start one worker; its process id. `__enter__` has started `workers` of them."""
        work = self.directory / f"work-{number}"
        process = self._launch(
            f"worker-{number}",
            _WORKER,
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--webui-port",
            "0",
            "--cores",
            str(self.cores),
            "--memory",
            self.memory,
            "--work-dir",
            str(work),
            self.url,
        )
        return process.pid

    def stop(self) -> None:
        """End all processes, the executors too, and remove the directory."""
        # Processes of executors, Python workers among them, are in their directories, whoever their parent is by now.
        for each in reversed(self._processes):
            each.kill()
            each.wait()
        for pid in [pid for pid in _processes() if self._processes and str(self.directory) in _cwd(pid)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._processes = []
        if self.directory != Path():
            shutil.rmtree(self.directory, ignore_errors=True)

    def logs(self) -> str:
        """The ends of the logs of the master, the workers and the executors."""
        paths = [*self.directory.glob("*.log"), *self.directory.glob("work-*/app-*/*/stderr")]
        return "\n".join(f"--- {path}\n{path.read_text(errors='replace')[-3000:]}" for path in sorted(paths))

    def _launch(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(home),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
            **peers.spark.of_executors(),
            **self.environment,
        }
        with (self.directory / f"{name}.log").open("wb") as log:
            # A script that becomes the JVM, with all the options that Spark's classes need.
            process = subprocess.Popen(
                [home / "bin" / "spark-class", main, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.directory,
            )
        self._processes.append(process)
        return process

    def _wait(self, name: str, process: subprocess.Popen[bytes], found: Callable[[str], Any]) -> Any:
        deadline = time.monotonic() + START_S
        path = self.directory / f"{name}.log"
        while True:
            log = path.read_text(errors="replace")
            match = found(log)
            if match:
                return match
            if process.poll() is not None or time.monotonic() > deadline:
                raise StandaloneFailed(f"{name} is not up (exit code {process.poll()}):\n{log[-3000:]}")
            time.sleep(LOOK_S)


def _words(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:  # it has ended
        return []


def _cwd(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
