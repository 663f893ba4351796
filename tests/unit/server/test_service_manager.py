"""What systemd hears of a node: that it serves, that it stops, and that its event loop runs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ottla.server.service_manager import TICK_S, ServiceManager

WATCHDOG_USEC = 200_000


@contextmanager
def listening(directory: Path, *, abstract: bool = False) -> Iterator[tuple[socket.socket, str]]:
    """A socket as systemd has one, and its name for NOTIFY_SOCKET."""
    name = f"@ottla-test-{os.getpid()}" if abstract else str(directory / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{name[1:]}" if name.startswith("@") else name)
        sock.settimeout(300)
        yield sock, name


def heard(sock: socket.socket, until: str) -> list[str]:
    """The assignments of each message, up to the one that holds `until`."""
    lines: list[str] = []
    while until not in lines:
        lines += sock.recv(4096).decode().splitlines()
    return lines


def two_free_ports() -> int:
    """The first of two that follow each other: two nodes count up from it."""
    while True:
        with socket.socket() as first, socket.socket() as second, suppress(OSError):
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            second.bind(("127.0.0.1", port + 1))
            return port


@pytest.mark.parametrize(("nodes", "abstract"), [((), True), (("--nodes", "2"), False)], ids=["one", "two"])
def test_a_node_says_when_it_serves_and_when_it_stops(tmp_path: Path, nodes: tuple[str, ...], abstract: bool) -> None:
    port = two_free_ports()
    command = [sys.executable, "-m", "ottla.cli.main", "server", "start", str(tmp_path / "data"), *nodes]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OTTLA_")}
    with listening(tmp_path, abstract=abstract) as (sock, name):
        environment |= {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": str(WATCHDOG_USEC)}
        process = subprocess.Popen([*command, "--listen", f"127.0.0.1:{port}"], env=environment)
        try:
            before = heard(sock, "READY=1")
            assert "EXTEND_TIMEOUT_USEC=30000000" in before
            assert "WATCHDOG=1" not in before, "the watchdog is for a node that serves"
            status = "STATUS=2 of 2 nodes serve" if nodes else "STATUS=node 1 of cluster "
            while not any(line.startswith(status) for line in before):
                before += heard(sock, "WATCHDOG=1")
            for _ in range(3):
                heard(sock, "WATCHDOG=1")
            process.send_signal(signal.SIGTERM)
            heard(sock, "STOPPING=1")
            heard(sock, "STATUS=stopping")
            assert process.wait(300) == 0
        finally:
            process.kill()
            process.wait()


def test_the_watchdog_hears_nothing_of_a_hung_loop(tmp_path: Path) -> None:
    """A stopped process stands for it: nothing is sent until it continues."""
    program = (
        "import asyncio, os\n"
        "from ottla.server.service_manager import ServiceManager\n"
        "async def main():\n"
        "    manager = ServiceManager.from_environment(os.environ)\n"
        "    manager.starting(lambda: 'fine', asyncio.get_running_loop())\n"
        "    manager.ready()\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    with listening(tmp_path) as (sock, name):
        environment = {**os.environ, "NOTIFY_SOCKET": name, "WATCHDOG_USEC": str(WATCHDOG_USEC)}
        process = subprocess.Popen([sys.executable, "-c", program], env=environment)
        try:
            heard(sock, "WATCHDOG=1")
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            sock.setblocking(False)
            with pytest.raises(BlockingIOError):
                while True:
                    sock.recv(4096)
            sock.settimeout(WATCHDOG_USEC * 2 / 1e6)
            with pytest.raises(TimeoutError):
                sock.recv(4096)
            process.send_signal(signal.SIGCONT)
            sock.settimeout(300)
            heard(sock, "WATCHDOG=1")
        finally:
            process.kill()
            process.wait()


class Heard:
    """The other end of a manager, without a socket."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def __call__(self, address: str, data: bytes) -> None:
        self.messages.append(data.decode())


def test_status_is_said_when_it_changes() -> None:
    heard, words = Heard(), ["starting", "starting", "two\nlines", "two lines"]
    manager = ServiceManager("/run/x", None, heard)
    manager.starting(lambda: words.pop(0))
    manager.tick()
    manager.ready()
    manager.tick()
    more = "EXTEND_TIMEOUT_USEC=30000000"
    assert heard.messages == [f"{more}\nSTATUS=starting", more, "READY=1", "STATUS=two lines"]
    manager.stopping()
    assert heard.messages[4:] == ["STOPPING=1", f"{more}\nSTATUS=stopping"]


def test_ticks_are_as_often_as_the_watchdog_needs() -> None:
    own = str(os.getpid())
    of = ServiceManager.from_environment
    assert of({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "4000000"}).tick_s == 2
    assert of({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "4000000", "WATCHDOG_PID": own}).tick_s == 2
    assert of({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "1"}).tick_s == TICK_S
    assert of({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "90000000"}).tick_s == TICK_S
    for nobody in ({}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1"}, {"WATCHDOG_USEC": "4000000"}):
        assert of(nobody).tick_s == float("inf")


def test_nothing_is_sent_where_nobody_listens(tmp_path: Path) -> None:
    heard = Heard()
    alone = ServiceManager("", 2.0, heard)
    alone.starting(lambda: "fine")
    alone.ready()
    alone.stopping()
    assert heard.messages == []
    gone = ServiceManager(str(tmp_path / "gone"), None)
    gone.starting(lambda: "fine")
    gone.ready()
