"""A node of Ottla in a process of its own, on a free port and a directory of its own."""

from __future__ import annotations

import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0


class NodeFailed(Exception):
    """The node did not come up or did not go down; the sentence says what it printed."""


class Node:
    """`ottla server start`, stopped when the `with` block ends."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bootstrap = f"127.0.0.1:{_free_port()}"
        self._process: subprocess.Popen[str] | None = None

    @property
    def command(self) -> list[str]:
        return ["ottla", "server", "start", str(self.directory), "--listen", self.bootstrap]

    def __enter__(self) -> Node:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ottla.cli.main", *self.command[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.greeting = self._first_line()
        return self

    def _first_line(self) -> str:
        process = self._process
        assert process is not None and process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(START_TIMEOUT_S):
                process.kill()
                raise NodeFailed(f"the node said nothing for {START_TIMEOUT_S:.0f} s")
        said = []
        while line := process.stdout.readline().strip():
            if line.startswith("ottla: listening"):
                return line
            said.append(line)  # of its log, which comes on the same pipe
        raise NodeFailed("the node did not start: " + "\n".join(said))

    def memory_mib(self) -> float:
        """Resident memory of the node's process."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) / 1024

    def stop(self) -> float:
        """Ask it to stop, as an init system would. Returns the seconds it took."""
        process = self._process
        if process is None or process.poll() is not None:
            return 0.0
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise NodeFailed(f"the node did not stop within {STOP_TIMEOUT_S:.0f} s") from error
        if process.returncode != 0:
            raise NodeFailed(f"the node stopped with exit code {process.returncode}")
        return time.monotonic() - began

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
