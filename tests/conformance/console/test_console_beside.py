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


def test_the_console_leaves_the_processor_to_the_node(tmp_path: Path) -> None:
    """Its niceness counts in the node's session only, where Linux has autogroups; Ctrl-C is for the node."""
    node = ("server", "start", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    with started(*node, "--console", "127.0.0.1:0") as (process, _):
        (console,) = [
            int(each) for each in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        ]
        assert os.getpriority(os.PRIO_PROCESS, console) == 19
        assert os.getsid(console) == os.getsid(process.pid)
        assert os.getpgid(console) == console


def test_beside_a_cluster(tmp_path: Path) -> None:
    directory = str(tmp_path / "cluster")
    with started("cluster", "up", "2", directory, "--port", "0", "--console", "0") as (cluster, url):
        assert "2 brokers are up" in httpx.get(url, timeout=LIMIT_S).text
        cluster.terminate()
        assert cluster.wait(LIMIT_S) == 0
        eventually(lambda: is_gone(url))


ROLE = '[[role]]\nname = "r"\nusers = ["*"]\ndata = ["{}"]\n'


def replace(path: Path, text: str) -> None:
    """At once, so that nobody reads half of it."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def test_a_console_beside_a_node_has_its_options_and_reads_roles_again(tmp_path: Path) -> None:
    roles, file = tmp_path / "roles.toml", tmp_path / "console.toml"
    roles.write_text(ROLE.format("orders"))
    file.write_text('roles = "roles.toml"\nread_only = true\n')
    node = ("server", "start", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    with started(*node, "--console", "127.0.0.1:0", "--console-config", str(file)) as (_, url):
        assert httpx.post(f"{url}/api/v1/acts/create-topic", json={"topic": "t"}, timeout=LIMIT_S).status_code == 405
        audit = f"{url}/api/v1/audit?kind=rules"
        assert httpx.get(audit, timeout=LIMIT_S).json()["data"]["rows"] == []
        replace(roles, ROLE.format("other").replace("users", "groups"))
        eventually(lambda: httpx.get(audit, timeout=LIMIT_S).status_code == 403)  # nobody has a role now
        replace(roles, ROLE.format("orders") + "audit = true\n")
        eventually(lambda: httpx.get(audit, timeout=LIMIT_S).status_code == 200)
        rows = httpx.get(audit, timeout=LIMIT_S).json()["data"]["rows"]
        assert [(each["user"], each["outcome"]) for each in rows] == [("(console)", "accepted")] * 2
