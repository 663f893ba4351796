"""Exit codes, and sentences on stderr."""

from __future__ import annotations

import io
import json
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.exits import FAILED, MISUSED, OK, UNREACHABLE
from ottla.cli.main import _complain, main
from ottla.cli.records.missing_topic import _is_wanted
from ottla.cli.records.produce import Delivered, _conclude
from ottla.testing import Broker


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        assert main(["topic", "list", "--bootstrap", address]) == UNREACHABLE
    error = capsys.readouterr().err
    assert address in error and "ottla server start" in error


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "nonsense"],
        ["topic", "create"],
        ["topic", "alter", "t", "--bootstrap", "127.0.0.1:1"],
        ["topic", "list", "--bootstrap", "nowhere"],
        ["consume", "t", "--to", "5", "--follow"],
        ["consume", "t", "--group", "g", "--from", "17"],
        ["produce", "t", "v", "--idempotent", "--acks", "1"],
        ["server", "start", "--nonsense"],
    ],
)
def test_mistakes_in_the_command_line(arguments: list[str]) -> None:
    assert main(arguments) == MISUSED


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["server", "start", "--help"], ["log", "dump", "--help"], ["--version"]):
        assert main(arguments) == OK
    out = capsys.readouterr().out
    assert "topic" in out and "server.properties" in out


def test_help_of_a_command_and_what_is_typed_without_its_noun(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == main(["help", "topic", "create"]) == main(["help", "server", "start"]) == OK
    out = capsys.readouterr().out
    assert "ottla topic create [OPTIONS] TOPICS" in out
    listed = re.findall("^│ ([a-z]+) ", out.partition("completion")[0], re.MULTILINE)
    assert listed[:9] == ["server", "dev", "topic", "produce", "consume", "group", "share", "config", "cluster"]
    assert main(["start"]) == main(["start", "./data"]) == MISUSED
    assert "ottla server start" in capsys.readouterr().err


def test_version_and_the_module_load_little() -> None:
    """A script that asks for the version does not wait for the libraries of the command line."""
    program = "import sys; from ottla.cli.main import main; main(['--version']); print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert re.match(r"ottla \d+\.\d+\.\d+\S* \((compiled|interpreted|\d+ of \d+ modules compiled)\)\n", out)
    assert not {"cyclopts", "confluent_kafka", "rich", "asyncio"} & set(out.splitlines()[1].split())
    of_module = subprocess.run([sys.executable, "-m", "ottla", "--version"], capture_output=True, text=True, check=True)
    assert of_module.stdout == f"{out.splitlines()[0]}\n"


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x46", b"SSH-2.0-x\r\n"]
)
def test_something_else_answers(answer: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            opened, _ = listener.accept()
            with opened:
                opened.recv(100)
                opened.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        assert main(["topic", "list", "-b", f"127.0.0.1:{listener.getsockname()[1]}"]) == UNREACHABLE
        thread.join()
    assert re.search("(an HTTP server|TLS|SSH) answers there, no broker", capsys.readouterr().err)


@pytest.mark.parametrize("arguments", [["create", "t"], ["alter", "t"]])
def test_a_misspelt_setting_of_a_topic(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", *arguments, "--set", "retention.mss=1"]) == MISUSED
    assert "did you mean: retention.ms" in capsys.readouterr().err


def test_many_partitions_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    few = Delivered({number: [2, 10, 11] for number in range(2)})
    many = Delivered({number: [2, 10, 11] for number in range(300)})
    assert _conclude("t", few, False, "all", "") == _conclude("t", many, False, "all", "") == OK
    assert capsys.readouterr().out.splitlines() == [
        "4 records to t: partition 0, offset 10 to 11; partition 1, offset 10 to 11",
        "600 records to t: in 300 partitions; offsets: --json",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"port": 70000}, "port must be a number from 0 .* to 65535, not 70000"),
        ({"port": "9092"}, "port must be a number"),
        ({"settings": "localhost:9092"}, "starts a node of its own"),
        ({"topic": "t"}, "did you mean topics"),
    ],
)
def test_a_broker_for_tests_says_what_it_wants(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        Broker(**arguments)


@pytest.mark.parametrize(
    ("typed", "is_terminal", "wanted"),
    [("y\n", True, True), ("\n", True, False), ("n\n", True, False), ("y\n", False, False)],
)
def test_a_terminal_is_asked(typed: str, is_terminal: bool, wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    monkeypatch.setattr(sys, "stdin", Stream(typed))
    monkeypatch.setattr(sys, "stderr", said := Stream())
    assert _is_wanted("topic 'ordres' does not exist") is wanted
    assert ("create it?" in said.getvalue()) is is_terminal


def test_a_path_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "dump", "/nowhere/at/all"]) == FAILED
    assert "/nowhere/at/all" in capsys.readouterr().err


def test_a_name_of_two_lines_stays_on_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What begins a line is a complaint of its own or advice."""
    named = tmp_path / "two\nlines"
    named.mkdir()
    assert main(["storage", "format", "data", "--ignore-formatted", "--config", str(named)]) == MISUSED
    [line] = capsys.readouterr().err.splitlines()
    assert "two\\nlines: Is a directory" in line
    _complain("no two\nlines\n  make\n  them\nottla: nor more", MISUSED, as_json=True)
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(each["error"], each["hint"]) for each in found] == [("no two\\nlines", "make them"), ("nor more", None)]
