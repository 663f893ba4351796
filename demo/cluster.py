"""Three nodes in a process of its own each, by `ottla cluster up`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

STOP_TIMEOUT_S = 60.0


class ClusterFailed(Exception):
    """The cluster did not start."""


class Cluster:
    """As a context manager; `bootstrap` is where clients go, `started_s` how long the start took."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bootstrap = ""
        self.started_s = 0.0
        self.command = ["ottla", "cluster", "up", "3", str(directory), "--port", "0"]

    def __enter__(self) -> Cluster:
        began = time.monotonic()
        command = [sys.executable, "-m", "ottla.cli.main", *self.command[1:]]
        self._up = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        assert self._up.stdout is not None
        greeting = self._up.stdout.readline().rstrip()
        if not greeting.startswith("bootstrap: "):
            raise ClusterFailed(f"the cluster did not start: {greeting}{self._up.stdout.read()}")
        self.bootstrap = greeting.removeprefix("bootstrap: ")
        self.started_s = time.monotonic() - began
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._up.terminate()  # what runs in a script's background does not hear SIGINT
        self._up.communicate(timeout=STOP_TIMEOUT_S)

    def pid_file(self, node: int) -> Path:
        return self.directory / f"node-{node}" / "pid"

    def kill(self, node: int) -> None:
        """As a power failure would: nothing is flushed and nobody is told."""
        os.kill(int(self.pid_file(node).read_text()), signal.SIGKILL)
