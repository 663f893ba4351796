"""Templates and hex dumps of records, the progress line, and the shells' completion scripts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli import progress
from ottla.cli.emit import emitter
from ottla.cli.exits import MISUSED, OK, CommandFailed
from ottla.cli.formats import hex_lines, template
from ottla.cli.main import main


def record(key: bytes | None = b"k", value: bytes | None = b"v", headers: Any = (("h", b"x"),)) -> Any:
    return SimpleNamespace(
        topic=lambda: "t", partition=lambda: 2, offset=lambda: 17, timestamp=lambda: (1, 1_700_000_000_000),
        key=lambda: key, value=lambda: value, headers=lambda: list(headers),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{partition}:{offset} {key} {value}", b"2:17 k v"),
        ("{topic}@{timestamp} {time}", b"t@1700000000000 2023-11-14T22:13:20.000Z"),
        ("{value:hex} {value:base64} {key:json}", b'76 dg== "k"'),
        ("{header.h} {header.none}| {headers}", b"x | h=x"),
        ("{{{offset}}}\\t\\n\\\\", b"{17}\t\n\\"),
        ("plain", b"plain"),
    ],
)
def test_templates(text: str, line: bytes) -> None:
    assert template(text)(record()) == line


def test_what_is_json_stays_json_and_what_is_null_stays_null() -> None:
    assert template("{value:json}")(record(value=b'{"a": 1}')) == b'{"a": 1}'
    assert template("{value:json}")(record(value=None)) == b"null"
    assert template("{value:json}")(record(value=b"\xff")) == b'"\\\\xff"'
    assert template("{value}{value:hex}")(record(value=None)) == b""


@pytest.mark.parametrize("text", ["{nothing}", "{value:zip}", "{value", "}", "{key.h}", "\\q"])
def test_templates_that_say_nothing_known(text: str) -> None:
    with pytest.raises(CommandFailed) as failure:
        template(text)
    assert failure.value.exit_code == MISUSED


def test_a_word_that_is_no_format() -> None:
    with pytest.raises(CommandFailed, match="values"):
        emitter("yaml")
    assert main(["consume", "t", "--format", "hex", "--json"]) == MISUSED


@given(st.binary(max_size=100))
def test_a_hex_dump_loses_nothing(data: bytes) -> None:
    lines = list(hex_lines(data))
    assert b"".join(bytes.fromhex(line[10:58]) for line in lines) == data
    assert all(line.isascii() and line.isprintable() for line in lines)


def test_progress_passes_everything_on() -> None:
    assert list(progress.watched(iter([b"a", b"b"]), "x", None, len)) == [b"a", b"b"]


def test_progress_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[int, int]] = []

    class Bar:
        def __init__(self, what: str, total: int | None) -> None:
            assert (what, total) == ("producing", 3000)

        def show(self, done: int, count: int) -> None:
            shown.append((done, count))

        def close(self) -> None:
            shown.append((-1, -1))

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(progress, "_Bar", Bar)
    monkeypatch.setattr(progress, "PATIENCE_S", -1.0)
    assert len(list(progress.watched([b"abc"] * 1000, "producing", 3000, len))) == 1000
    assert shown == [(768, 256), (1536, 512), (2304, 768), (-1, -1)]


def test_bytes_in_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert progress.bytes_in([tmp_path / "a", tmp_path / "a"]) == 10
    assert progress.bytes_in([tmp_path / "none"]) is None
    assert progress.bytes_in([Path("/dev/null")]) is None
    assert progress.bytes_in(None) is None


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == OK
    script = capsys.readouterr().out
    assert "describe" in script and "--bootstrap" in script.replace("-l bootstrap", "--bootstrap")
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script.encode(), check=True, timeout=30)


def test_bash_completes_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == OK
    script = capsys.readouterr().out
    ask = 'COMP_WORDS=(ottla group de); COMP_CWORD=2; _ottla ottla de group; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, timeout=30, check=True)
    assert set(done.stdout.decode().split()) == {"describe", "delete"}
