"""`ottla pipeline run` in a process of its own, for tests that watch it, stop it and kill it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.testing import Cluster
from tests.spark.kills import below

ROOT = Path(__file__).parents[3]


class Command:
    """`ottla pipeline run ... --json`; `until` waits for a status that is as it should be."""

    def __init__(self, pipeline: str, work: Path, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        command = [
            sys.executable,
            "-m",
            "ottla.cli.main",
            "pipeline",
            "run",
            pipeline,
            "--directory",
            str(work / "state"),
            "--json",
            *arguments,
        ]
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.errors: list[str] = []
        assert self.process.stderr is not None
        threading.Thread(target=lambda: self.errors.extend(self.process.stderr or ()), daemon=True).start()

    def until(self, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            status: dict[str, Any] = json.loads(line)
            if is_so(status):
                return status
        raise AssertionError(f"it ended with {self.process.wait(60)}: {''.join(self.errors)}")

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> int:
        self.process.communicate(timeout=120)
        return self.process.returncode


def kill(victim: str, command: Command, cluster: Cluster) -> None:
    """kill -9: a `node` that coordinates transactions, which comes back, the `driver`, or all its Python `worker`s."""
    if victim == "node":
        node = cluster.leader("__transaction_state")
        cluster.kill(node)
        cluster.restart(node)
    elif victim == "driver":
        assert command.end(signal.SIGKILL) == -signal.SIGKILL
    else:
        workers = [pid for pid, line in below(command.process.pid).items() if "pyspark.daemon" in line]
        assert workers
        for pid in workers:
            os.kill(pid, signal.SIGKILL)


def ottla(*arguments: str) -> Any:
    """Output of a command with --json."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli.main", *arguments, "--json"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def set_(settings: dict[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def has_read(count: int) -> Callable[[dict[str, Any]], bool]:
    return lambda status: bool(status["queries"]) and all(query["rows"] >= count for query in status["queries"])


def is_done(status: dict[str, Any]) -> bool:
    return bool(status["queries"]) and all(query["lag_records"] == 0 for query in status["queries"])
