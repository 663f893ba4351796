"""The pipelines as `ottla pipeline run` runs them, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from peers.spark import start_fast

START_TIMEOUT_S = 180.0
CATCH_UP_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 60.0
LOOK_S = 0.5
CONFIGS = {"spark.sql.shuffle.partitions": "1", "spark.driver.memory": "512m"}
"""For a little data on a small machine."""


class Pipelines:
    """As a context manager: started together, killed at its end if they are still there."""

    def __init__(
        self, bootstrap: str, work: Path, settings: Mapping[str, Mapping[str, str]], options: Mapping[str, list[str]]
    ) -> None:
        """`settings` and further `options` of the command by pipeline."""
        self.settings = settings
        self._options = options
        self.directory = work / "pipelines"
        self._logs = work
        self._bootstrap = bootstrap
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def command(self, name: str) -> list[str]:
        """What a user would type, but for how Spark is kept small."""
        chosen = [word for item, value in self.settings[name].items() for word in ("--set", f"{item}={value}")]
        return ["ottla", "pipeline", "run", name, *chosen, *self._options.get(name, [])]

    def __enter__(self) -> Pipelines:
        environment = {
            **start_fast(),
            **os.environ,
            "OTTLA_BOOTSTRAP": self._bootstrap,
            "OTTLA_PIPELINES": str(self.directory),
        }
        small = [word for name, value in CONFIGS.items() for word in ("--spark", f"{name}={value}")]
        for name in self.settings:
            command = [sys.executable, "-m", "ottla.cli.main", *self.command(name)[1:], "--master", "local[1]", *small]
            with (self._logs / f"{name}.log").open("wb") as log:
                self._processes[name] = subprocess.Popen(
                    command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
                )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self._processes.values():
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()

    def statuses(self) -> list[dict[str, Any]]:
        """The statuses of the pipelines that have written one. Raises RuntimeError for a pipeline that has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                tail = (self._logs / f"{name}.log").read_text(errors="replace")[-3000:]
                raise RuntimeError(f"the pipeline {name} ended with exit code {process.returncode}:\n{tail}")
        files = [self.directory / name / "status.json" for name in self.settings]
        return [json.loads(file.read_text()) for file in files if file.exists()]

    def until(self, is_so: Callable[[dict[str, Any]], bool], timeout_s: float) -> None:
        """Wait until all are as they should be. Raises RuntimeError after that time."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.statuses()
            if len(found) == len(self.settings) and all(map(is_so, found)):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"the pipelines do not get there: {found}")
            time.sleep(LOOK_S)


def runs(status: dict[str, Any]) -> bool:
    return bool(status["state"] == "running")


def is_at_the_end(status: dict[str, Any]) -> bool:
    """All of its queries have read all that there is."""
    return bool(status["queries"]) and all(query["lag_records"] == 0 for query in status["queries"])
