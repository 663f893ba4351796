"""`ottla server start --nodes 3`: one process on one host, whose nodes come back when they die; one signal ends all."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla.compiled import how
from ottla.protocol.messages import ApiKey
from ottla.testing.process import BrokerError, reserve
from tests.cluster.admin import ask, create, in_sync, until
from tests.conformance.cli.test_cluster_up import Up
from tests.conformance.embedding.test_embedding import receive, send, wait_until_gone

NODES = 3
CONTROLLERS = 10_000
"""Their ports are this much above those for clients, where none is given."""


@pytest.fixture
def port() -> Iterator[int]:
    """The first of three for clients, and with them three for controllers, below those that the system gives away."""
    while True:
        first = random.randrange(21_000, 22_700)
        with ExitStack() as held:
            try:
                for number in range(NODES):
                    held.enter_context(reserve(first + number))
                    held.enter_context(reserve(first + CONTROLLERS + number))
            except BrokerError:
                continue
            yield first
            return


def said(up: Up) -> str:
    """The next line of the supervisor, between the output of its nodes; "" at the end."""
    while (line := up.line()) and not line.startswith("ottla: "):
        print(line)
    return line


def start(directory: Path, port: int) -> Up:
    return Up(str(directory), "--nodes", str(NODES), "--listen", f"127.0.0.1:{port}", command=("server", "start"))


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_three_nodes_of_one_host(tmp_path: Path, port: int) -> None:
    directory = tmp_path / "data"
    bootstrap = ",".join(f"127.0.0.1:{port + number}" for number in range(NODES))
    first = bootstrap.split(",")[0]
    with start(directory, port) as up:
        assert said(up) == f"ottla: listening on {bootstrap}, data in {directory} ({how()})"
        until(lambda: racks(first), {number: socket.gethostname() for number in range(1, NODES + 1)}.__eq__)
        assert create(first, "t", factor=NODES) == 0
        send(bootstrap, "t", b"a")
        nodes = children(up.process.pid)
        assert len(nodes) == NODES
        os.kill(nodes[1], signal.SIGKILL)
        died = re.fullmatch(r"ottla: node (\d) has ended \(killed by SIGKILL\); it is restarted in 1 s", said(up))
        assert died
        assert re.fullmatch(rf"ottla: node {died[1]} is serving again \(process \d+\)", said(up))
        until(lambda: in_sync(first, "t"), [1, 2, 3].__eq__)
        nodes = children(up.process.pid)
        assert len(nodes) == NODES
        with start(directory, port) as second:
            assert "failed to start (exit code 1)" in second.rest(), "they run already"
            assert second.process.wait(120) == 1
        os.kill(up.process.pid, signal.SIGTERM)
        assert said(up) == ""
        assert up.process.wait(120) == 0
    for each in nodes:
        wait_until_gone(each)
    assert {each.name for each in directory.iterdir() if each.is_dir()} == {"node-1", "node-2", "node-3"}
    with start(directory, port) as up:
        assert "listening on" in said(up)
        assert receive(bootstrap, "t", 1) == [b"a"]
        os.killpg(up.process.pid, signal.SIGINT)  # Ctrl-C
        assert said(up) == ""
        assert up.process.wait(120) == 0


def racks(address: str) -> dict[int, str]:
    """Racks of the brokers that a node knows."""
    answer = ask(address, ApiKey.METADATA, 12, {"topics": [], "allow_auto_topic_creation": False})
    return {each["node_id"]: each["rack"] for each in answer["brokers"]}
