"""Formats of records, those that produce reads too, and the progress line."""

from __future__ import annotations

import io
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli import progress
from ottla.cli.exits import MISUSED, CommandFailed
from ottla.cli.main import main
from ottla.cli.records.emit import emitter
from ottla.cli.records.formats import hex_lines, template
from ottla.cli.records.record import Headers, Outgoing, Record
from ottla.cli.records.records_in import Line, parsed_lines


def record(key: bytes | None = b"k", value: bytes | None = b"v", headers: Headers = (("h", b"x"),)) -> Record:
    return Record("t", 2, 17, 1_700_000_000_000, key, value, headers)


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


nullable = st.none() | st.binary(max_size=20)
pairs = st.lists(st.tuples(st.text(max_size=5), nullable), max_size=3).map(tuple)


@pytest.mark.parametrize("form", ["json", "hex", "base64"])
@given(key=nullable, value=nullable, headers=pairs, timestamp=st.integers(-1, 1 << 50))
def test_what_consume_prints_is_what_produce_reads(
    form: str, key: bytes | None, value: bytes | None, headers: Headers, timestamp: int
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n", write_through=True)
    with mock.patch.object(sys, "stdout", out):
        emitter(form)(Record("t", 3, 17, timestamp, key, value, headers))
        emitter(form)(Record("t", 4, 18, timestamp, value, key, ()))
    written = out.buffer.getvalue()  # type: ignore[attr-defined]
    lines = [Line("line", number, "", line) for number, line in enumerate(written.split(b"\n")[:-1], 1)]
    assert [each for _, each in parsed_lines(lines, Outgoing(None), form)] == [
        Outgoing(value, key, headers, 3, timestamp),
        Outgoing(key, value, (), 4, timestamp),
    ]


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("hex", b"616"),
        ("hex", b"0\t1\t-"),
        ("hex", b"0\t1\t-\t6"),
        ("hex", b"a\t1\t-\t-"),
        ("hex", b"0\t1\t-\t-\t61"),
        ("base64", b"0\t1\t-\t?"),
        ("base64", b"0\t1\t-\t-\t/w==:-"),
    ],
)
def test_lines_of_another_format_are_refused(form: str, line: bytes) -> None:
    with pytest.raises(CommandFailed, match=r"^line 9 of f is not a line of"):
        list(parsed_lines([Line("line", 9, " of f", line)], Outgoing(None), form))


def test_progress_passes_everything_on() -> None:
    assert list(progress.shown(iter([b"a", b"b"]), "x", None, len)) == [b"a", b"b"]


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
    monkeypatch.setattr(progress, "REFRESH_S", -1.0)
    assert len(list(progress.shown([b"abc"] * 1000, "producing", 3000, len))) == 1000
    assert shown == [(768, 256), (1536, 512), (2304, 768), (-1, -1)]
    shown.clear()
    lists = [[b"abc"] * 200] * 5
    assert list(progress.shown(lists, "producing", 3000, len)) == lists
    assert shown == [(400, 400), (800, 800), (-1, -1)], "a list counts as what is in it"


@pytest.mark.parametrize(
    ("command", "shows"),
    [("{} > out", b"1"), ("{} | cat > out", b"1"), ("{} | sort | tail -1 > out", b"1"), ("{} | cat", b""), ("{}", b"")],
)
def test_a_bar_only_where_the_output_ends_in_a_file(command: str, shows: bytes, tmp_path: Path) -> None:
    """On a pseudo terminal, which is standard error and where `cat` shows what it got."""
    code = "from ottla.cli import progress; print(int(progress.output_leaves_the_terminal()), flush=True)"
    code += "; import sys; sys.stdin.read()"  # until the others of the pipeline have started
    program = f"(sleep 1 | {shlex.quote(sys.executable)} -c {shlex.quote(code)})"
    master, slave = pty.openpty()
    subprocess.run(["bash", "-c", command.format(program)], cwd=tmp_path, stdout=slave, stderr=slave, stdin=slave)
    out = tmp_path / "out"
    if shows:
        assert out.read_bytes().strip() == shows
    else:
        assert os.read(master, 100).strip() == b"0"
    os.close(master)
    os.close(slave)


def test_bytes_in_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert progress.bytes_in([tmp_path / "a", tmp_path / "a"]) == 10
    assert progress.bytes_in([tmp_path / "none"]) is None
    assert progress.bytes_in([Path("/dev/null")]) is None
    assert progress.bytes_in(None) is None
