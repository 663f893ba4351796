"""What is offered at the cursor, and the scripts that ask for it in real shells (those that are installed)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli import completion
from ottla.cli.completion import offers
from ottla.cli.exits import OK
from ottla.cli.main import main
from tools import cli_page as page


def words(*typed: str) -> list[str]:
    return [each.word for each in offers(typed)]


def test_commands_and_options() -> None:
    assert words("")[:3] == ["server", "dev", "topic"]
    assert words("group", "de") == ["describe", "delete"]
    assert words("topic", "create", "t", "--pa") == ["--partitions"]
    assert "--partitions" not in words("topic", "create", "t", "--partitions", "3", "--")
    assert words("topic", "alter", "t", "--set", "retention.ms=5", "--se") == ["--set"], "may be repeated"
    assert words("topic", "describe", "--un") == ["--under-replicated", "--under-min-isr"]
    assert words("topic", "elect", "t", "--partition", "0", "--pa") == ["--partition"], "may be repeated"
    assert words("topic", "elect", "t", "--u") == ["--unclean"]
    assert words("txn", "") == ["list", "describe", "hanging", "abort"]
    shared = ["--json", "--bootstrap", "--config"]
    assert words("txn", "abort", "--") == ["--topic", "--partition", "--start-offset", *shared]
    assert words("nonsense", "") == []
    assert words("consume", "t", "--nonsense", "") == []


def test_values() -> None:
    assert words("completion", "") == ["bash", "zsh", "fish"]
    assert words("produce", "t", "--compression", "z") == ["zstd"]
    forms = ["lines", "json", "hex", "base64", "avro", "json-schema", "protobuf"]
    assert words("produce", "t", "--format", "") == forms
    assert words("consume", "t", "-o", "he") == ["hex", "hexdump"]
    assert words("consume", "t", "--from", "b") == ["beginning"]
    assert words("topic", "alter", "t", "--set", "retention.") == ["retention.bytes=", "retention.ms="]
    assert words("config", "get", "--group", "g", "consumer.s") == ["consumer.session.timeout.ms"]
    assert words("config", "set", "--broker", "1", "log.retention.h") == ["log.retention.hours="]
    assert words("txn", "list", "--state", "C") == ["CompleteCommit", "CompleteAbort"]
    assert words("log", "dump", "/tm") == [":files"]
    assert words("consume", "t", "--count", "") == []


def test_names_that_nobody_tells_are_no_error() -> None:
    assert words("consume", "--bootstrap", "127.0.0.1:1", "") == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ottla group de", ["ottla", "group", "de"]),
        ("ottla group ", ["ottla", "group", ""]),
        ("ottla consume 'a b' --fr", ["ottla", "consume", "a b", "--fr"]),
        ("ottla produce t 'it", ["ottla", "produce", "t", "it"]),
    ],
)
def test_the_words_of_an_unfinished_line(line: str, expected: list[str]) -> None:
    assert completion._split(line) == expected


def test_every_place_and_option_that_is_offered_values_is_there() -> None:
    known = set()
    for name, command in page.commands():
        for each in command.assemble_argument_collection(parse_docstring=True):
            known |= {each.names[0], f"{name.removeprefix('ottla ')} {each.names[0]}"}
    assert set(completion._KINDS) <= known


@pytest.fixture
def on_the_path(tmp_path: Path) -> dict[str, str]:
    """`ottla` as a command of this checkout."""
    (tmp_path / "ottla").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ottla.cli.main "$@"\n')
    (tmp_path / "ottla").chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "OTTLA_BOOTSTRAP": "127.0.0.1:1"}


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == OK
    return capsys.readouterr().out


def test_bash(on_the_path: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    text = script("bash", capsys)
    asked = {
        "ottla group de": ["describe", "delete"],
        "ottla config set --topic t retention.m": ["retention.ms="],
        "ottla produce t --format b": ["base64"],
    }
    for line, expected in asked.items():
        ask = f"COMP_LINE={line!r}; COMP_POINT=${{#COMP_LINE}}; compopt() {{ :; }}; _ottla; echo ${{COMPREPLY[*]}}"
        done = subprocess.run(
            ["bash", "-c", f"{text}\n{ask}"], env=on_the_path, capture_output=True, timeout=300, check=True
        )
        assert done.stdout.decode().split() == expected


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish(on_the_path: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    text = script("fish", capsys)
    done = subprocess.run(
        ["fish", "-c", f"{text}\ncomplete -C 'ottla group de'"],
        env=on_the_path,
        capture_output=True,
        timeout=300,
        check=True,
    )
    assert {line.partition("\t")[0] for line in done.stdout.decode().splitlines()} == {"describe", "delete"}


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh(on_the_path: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    text = script("zsh", capsys)
    ask = "_describe() { print -l -- $values; }; words=(ottla group de); CURRENT=3; _ottla"
    done = subprocess.run(
        ["zsh", "-fc", f"compdef() {{ :; }}\n{text}\n{ask}"],
        env=on_the_path,
        capture_output=True,
        timeout=300,
        check=True,
    )
    assert [line.partition(":")[0] for line in done.stdout.decode().splitlines()] == ["describe", "delete"]
