"""The console beside a node and a cluster: a process that starts and ends with them.

Only real processes show that one ends with the other, also where it is killed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

LIMIT_S = 60.0


@contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and the URL of its console."""
    command = [sys.executable, "-m", "ottla.cli.main", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        printed = []
        for line in process.stdout:
            printed.append(line)
            if found := re.search(r"console at (http://\S+)$", line):
                yield process, found[1]
                break
        else:
            raise AssertionError("".join(printed))
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT_S)


def eventually(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_gone(url: str) -> bool:
    try:
        httpx.get(url, timeout=1)
    except httpx.TransportError:
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_beside_a_node(tmp_path: Path, number: int) -> None:
    directory = str(tmp_path / "data")
    with started("server", "start", directory, "--listen", "127.0.0.1:0", "--console", "127.0.0.1:0") as (node, url):
        assert "1 broker is up" in httpx.get(url, timeout=LIMIT_S).text
        os.kill(node.pid, number)
        assert node.wait(LIMIT_S) == (0 if number == signal.SIGTERM else -number)
        eventually(lambda: is_gone(url))


def test_beside_a_cluster(tmp_path: Path) -> None:
    directory = str(tmp_path / "cluster")
    with started("cluster", "up", "2", directory, "--port", "0", "--console", "0") as (cluster, url):
        assert "2 brokers are up" in httpx.get(url, timeout=LIMIT_S).text
        cluster.terminate()
        assert cluster.wait(LIMIT_S) == 0
        eventually(lambda: is_gone(url))
