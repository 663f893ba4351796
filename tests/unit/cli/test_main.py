"""Exit codes, and sentences on stderr."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from ottla.cli.exits import FAILED, MISUSED, OK, UNREACHABLE
from ottla.cli.main import _complain, main


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
