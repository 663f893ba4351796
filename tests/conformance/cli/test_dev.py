"""`ottla dev`: one line when everything serves, and nothing left when it ends, however it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from ottla.cli.dev import directory as dev_directory
from ottla.testing.records import Record
from ottla.testing.wire import consume, produce
from tests.conformance.embedding.test_embedding import wait_until_gone

END_S = 60
SMALL = ["--no-registry", "--port", "0", "--http-port", "0"]
COMMAND = [sys.executable, "-m", "ottla.cli.main", "dev"]


@contextmanager
def running(*arguments: str, **how: Any) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """The command, and what its one line says."""
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str], number: signal.Signals | None = None) -> tuple[int, str, str]:
    """(exit code, the rest of what it printed, complaints)."""
    if number is not None:
        process.send_signal(number)
    out, err = process.communicate(timeout=END_S)
    return process.returncode, out, err


def get(url: str, path: str) -> tuple[int, bytes]:
    connection = HTTPConnection(url.removeprefix("http://"), timeout=END_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_all_of_it_serves_when_the_line_comes() -> None:
    ports = ["--port", "0", "--http-port", "0", "--registry-port", "0"]
    with running(*ports, "--topic", "orders:3", "--topic", "audit") as (process, facts):
        assert set(facts) == {
            "bootstrap",
            "registry",
            "http",
            "containers",
            "pid",
            "directory",
            "temporary",
            "version",
        }
        assert (facts["pid"], facts["temporary"], facts["containers"]) == (process.pid, True, None)
        topics = AdminClient({"bootstrap.servers": facts["bootstrap"]}).list_topics(timeout=END_S).topics
        assert {name: len(topics[name].partitions) for name in ("orders", "audit")} == {"orders": 3, "audit": 1}
        produce(facts["bootstrap"], "orders", [Record("two coffees", timestamp=1)], END_S)
        (record,) = consume(facts["bootstrap"], "orders", 1, END_S, None, True, None)
        assert (record.value, record.timestamp) == (b"two coffees", 1)
        assert get(facts["registry"], "/subjects") == (200, b"[]")
        assert get(facts["http"], "/ready")[0] == 200
        directory = Path(facts["directory"])
        assert directory.is_dir()
        assert ended(process, signal.SIGTERM) == (0, "", "")
        assert not directory.exists()


def test_for_people(tmp_path: Path) -> None:
    """Also without a topic, with a directory that stays, and Ctrl-C."""
    argv = [*COMMAND, str(tmp_path / "data"), *SMALL]
    for partitions in (4, 4):
        process = subprocess.Popen(
            [*argv, "--set", f"num.partitions={partitions}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        printed = [process.stdout.readline() for _ in range(3)]
        bootstrap = printed[0].removeprefix("ottla: listening on ").strip()
        assert bootstrap.startswith("127.0.0.1:")
        assert f"{tmp_path / 'data'} (kept)" in printed[2]
        produce(bootstrap, "orders", [Record("two coffees", partition=3)], END_S)
        count = len(consume(bootstrap, "orders", None, END_S, None, True, None))
        assert ended(process, signal.SIGINT) == (0, "", "")
    assert count == 2
    assert (tmp_path / "data" / "orders-3").is_dir()


def test_the_next_one_removes_what_a_killed_one_left() -> None:
    with running(*SMALL) as (killed, of_killed), running(*SMALL) as (alive, of_alive):
        ended(killed, signal.SIGKILL)
        assert Path(of_killed["directory"]).is_dir()
        with running(*SMALL, "--until-eof", stdin=subprocess.PIPE) as (third, _):
            assert not Path(of_killed["directory"]).exists()
            assert Path(of_alive["directory"]).is_dir()
            assert ended(third) == (0, "", "")  # its standard input is closed
        assert ended(alive, signal.SIGTERM)[0] == 0


def test_it_ends_with_its_parent() -> None:
    """Which is killed, and can close nothing."""
    code = (
        f"import subprocess, time; subprocess.Popen({[*COMMAND, *SMALL, '--json', '--with-parent']!r}); time.sleep(99)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    facts = json.loads(parent.stdout.readline())
    parent.kill()
    wait_until_gone(facts["pid"])
    assert not Path(facts["directory"]).exists()
    parent.communicate()


def test_programs_in_containers_have_an_address_of_their_own() -> None:
    """A client is sent to the address of the listener that it asked. A registry that dies comes back where it was."""
    arguments = ["--port", "0", "--http-port", "0", "--registry-port", "0", "--topic", "orders"]
    with running(*arguments, "--advertise", "host.docker.internal") as (process, facts):
        host, _, port = facts["containers"]["bootstrap"].rpartition(":")
        assert host == "host.docker.internal"
        for bootstrap, expected in (
            (facts["bootstrap"], facts["bootstrap"]),
            (f"127.0.0.1:{port}", facts["containers"]["bootstrap"]),
        ):
            brokers = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=END_S).brokers.values()
            assert [f"{each.host}:{each.port}" for each in brokers] == [expected]
        far = facts["containers"]["registry"].removeprefix("http://host.docker.internal")
        assert get(f"http://{any_address()}{far}", "/subjects")[0] == 200
        (registry,) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        os.kill(registry, signal.SIGKILL)
        wait_until_gone(registry)
        wait_until_served(facts["registry"])
        code, out, complaints = ended(process, signal.SIGTERM)
        assert (code, out) == (0, "")
        assert 'a program beside the node ended and is restarted program="schema registry"' in complaints
        assert f"CONTAINERS port {port} is bound to every interface" in complaints
        assert "schema registry port" in complaints


def wait_until_served(url: str) -> None:
    until_s = time.monotonic() + END_S
    while True:
        try:
            assert get(url, "/subjects") == (200, b"[]")
            return
        except OSError:
            assert time.monotonic() < until_s
            time.sleep(0.05)


def any_address() -> str:
    """An address of this machine, other than loopback if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            return "127.0.0.1"
        return str(asked.getsockname()[0])


def test_a_taken_port_and_a_bad_setting_are_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for option in ("--port", "--registry-port", "--http-port"):
            done = subprocess.run([*COMMAND, option, port, "--json"], capture_output=True, text=True, timeout=END_S)
            complaint = json.loads(done.stderr)
            assert (done.returncode, done.stdout) == (1, "")
            assert complaint["error"] == f"port {port} is taken: choose another with {option}, where 0 is any free one"
    done = subprocess.run([*COMMAND, *SMALL, "--set", "num.partition=3"], capture_output=True, text=True, timeout=END_S)
    assert done.returncode == 2
    assert "did you mean num.partitions" in done.stderr


WITHOUT_REGISTRY = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "uvicorn":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
sys.argv = ["ottla", "dev", *sys.argv[1:]]
from ottla.cli.main import main
sys.exit(main())
"""


def test_without_the_libraries_of_a_registry() -> None:
    """It is left out, unless it is asked for."""
    argv = [sys.executable, "-c", WITHOUT_REGISTRY, "--port", "0", "--http-port", "0"]
    process = subprocess.Popen([*argv, "--json"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["registry"] is None
    assert ended(process, signal.SIGTERM)[0] == 0
    done = subprocess.run([*argv, "--registry-port", "0"], capture_output=True, text=True, timeout=END_S)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'ottla[registry]'" in done.stderr


def test_memory_without_room_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev_directory.tempfile, "tempdir", str(tmp_path))
    for needed, in_memory in ((0, True), (1 << 60, False)):
        monkeypatch.setattr(dev_directory, "MEMORY", tmp_path / "memory")
        (tmp_path / "memory").mkdir(exist_ok=True)
        monkeypatch.setattr(dev_directory, "MEMORY_BYTES_MIN", needed)
        with dev_directory.temporary() as found:
            assert found.in_memory is in_memory
            assert found.path.parent == (tmp_path / "memory" if in_memory else tmp_path)
        assert not found.path.exists()
