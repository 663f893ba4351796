"""`ottla cluster up` as somebody at a terminal has it: one command, Ctrl-C, kills, and the same command again."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.cluster.up import CONTROLLER_PORTS
from tests.conformance.embedding.test_embedding import receive, send


class Up:
    """The command, in a session of its own as in a terminal of its own."""

    def __init__(self, *arguments: str, command: Sequence[str] = ("cluster", "up")) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ottla.cli.main", *command, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")},
        )

    def line(self) -> str:
        """The next that it prints; "" at its end."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def bootstrap(self) -> str:
        line = self.line()
        assert line.startswith("bootstrap: 127.0.0.1:"), line + self.rest()
        return line.removeprefix("bootstrap: ")

    def rest(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.read()

    def end(self, number: int = signal.SIGINT) -> int:
        """Ctrl-C in its terminal reaches it and whoever is in its process group."""
        os.killpg(self.process.pid, number)
        code = self.process.wait(120)
        assert self.rest() == ""
        return code

    def __enter__(self) -> Up:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(120)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "c"
    pids = [int(each.read_text()) for each in tmp_path.glob("c/node-*/pid")]
    assert pids == [], "a node whose pid file is there is running"


NODES = 3


def pid_of(directory: Path, node: int) -> int:
    return int((directory / f"node-{node}" / "pid").read_text())


def ensure_all_known(bootstrap: str) -> None:
    """Each node serves; whichever is asked hears of the others a moment later."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + 60
    while len(found := admin.list_topics(timeout=60).brokers) != NODES:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def ensure_preferred_leaders(bootstrap: str, topic: str) -> None:
    """They lead soon, not at the next look at the imbalance, which is in minutes."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + 60
    while True:
        found = admin.list_topics(topic, timeout=60).topics[topic].partitions.values()
        if all(each.leader == each.replicas[0] for each in found):
            return
        assert time.monotonic() < deadline, [(each.leader, each.replicas) for each in found]
        time.sleep(0.1)


def test_up_down_and_up_again(directory: Path) -> None:
    with Up(str(NODES), str(directory), "--port", "0") as up:
        bootstrap = up.bootstrap()
        assert len(bootstrap.split(",")) == NODES
        ensure_all_known(bootstrap)
        send(bootstrap, "t", b"a")
        topics = AdminClient({"bootstrap.servers": bootstrap})
        topics.create_topics([NewTopic("led", 6, 3)])["led"].result(60)
        for node in range(1, NODES + 1):
            os.kill(pid_of(directory, node), 0)
        assert up.end() == 0
    assert "log.dirs=" in (directory / "node-1" / "server.properties").read_text()
    with Up(str(NODES), str(directory)) as up:
        assert up.bootstrap() == bootstrap, "the same ports"
        assert receive(bootstrap, "t", 1) == [b"a"]
        ensure_preferred_leaders(bootstrap, "led")
        assert up.end(signal.SIGTERM) == 0
    output = (directory / "node-1" / "output").read_text()
    assert output.count("node started") == output.count("node stopped") == 2


def test_a_node_that_dies_is_started_again(directory: Path) -> None:
    with Up(str(NODES), str(directory), "--port", "0") as up:
        bootstrap = up.bootstrap()
        send(bootstrap, "t", b"a")
        first = pid_of(directory, 1)
        os.kill(first, signal.SIGKILL)
        assert up.line() == "ottla: node 1 has ended (killed by SIGKILL); it is restarted in 1 s"
        assert re.fullmatch(r"ottla: node 1 is serving again \(process \d+\)", up.line())
        second = pid_of(directory, 1)
        assert second != first
        os.kill(second, signal.SIGTERM)  # what an operator does to restart one
        assert up.line() == "ottla: node 1 has ended (exit code 0); it is restarted"
        assert up.line().startswith("ottla: node 1 is serving again")
        assert receive(bootstrap, "t", 1) == [b"a"]
        assert up.end() == 0


def test_no_restart(directory: Path) -> None:
    with Up(str(NODES), str(directory), "--port", "0", "--no-restart") as up:
        up.bootstrap()
        for node in range(1, NODES + 1):
            os.kill(pid_of(directory, node), signal.SIGKILL)
            assert up.line() == f"ottla: node {node} has ended (killed by SIGKILL) and is not restarted"
        assert up.process.wait(120) == 0


def test_nodes_do_not_outlive_their_supervisor(directory: Path) -> None:
    with Up(str(NODES), str(directory), "--port", "0") as up:
        up.bootstrap()
        descriptor = os.pidfd_open(pid_of(directory, 1))
        up.process.kill()
        assert select.select([descriptor], [], [], 120)[0], "the node runs on"
        os.close(descriptor)
        up.process.wait(120)
        for each in directory.glob("node-*/pid"):
            each.unlink()


def taken_port() -> socket.socket:
    """A process listens at a port that is low enough for `--port`."""
    while True:
        found = socket.create_server(("127.0.0.1", 0))
        if found.getsockname()[1] < 5 * CONTROLLER_PORTS - 1:
            return found
        found.close()


def test_what_is_wrong_is_said(directory: Path) -> None:
    def said(*arguments: str) -> tuple[int, str]:
        with Up(*arguments) as up:
            return up.process.wait(120), up.rest()

    code, text = said("1", str(directory), "--set", "num.partitions=x")
    assert code == 2 and "num.partitions" in text
    code, text = said("1", str(directory), "--port", "65535")
    assert code == 2 and "--port 65535 is too high" in text
    with Up("1", str(directory), "--port", "0") as up:
        up.bootstrap()
        code, text = said("1", str(directory))
        assert code == 1 and f"a cluster is running on {directory} already" in text
    with taken_port() as taken:
        code, text = said("1", str(directory.parent / "d"), "--port", str(taken.getsockname()[1]))
        assert code == 1 and "node 1 failed to start (exit code 1)" in text and "ddress already in use" in text
    code, text = said("3", str(directory))
    assert code == 2 and "has 1 node, not 3" in text
    code, text = said("1", "/dev/null")
    assert code == 1 and "/dev/null" in text
