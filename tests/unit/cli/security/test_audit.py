"""`ottla audit verify` and `search` over files that a node wrote, and that somebody has been at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.exits import FAILED, MISUSED, OK
from ottla.cli.main import main
from ottla.security.audit import FIRST_HASH, Chain

NOW = 1_700_000_000_000


def event(name: str, user: str = "User:alice", **more: Any) -> dict[str, Any]:
    return {"class": "x", "event": name, "principal": user, "host": "10.0.0.1", "allowed": True, **more}


def write(directory: Path, *files: Sequence[dict[str, Any]], node: int = 1, at_ms: int = NOW) -> Chain:
    """The log of a node with these events in its files."""
    place = directory / f"node-{node}"
    place.mkdir(parents=True)
    chain, at_ms = Chain(), at_ms
    for events in files:
        name = f"audit-{chain.seq + 1:020d}.jsonl"
        lines = [chain.seal(at_ms, {"class": "audit", "event": "FileOpened", "previous": chain.hash})]
        for each in events:
            at_ms += 60_000
            lines.append(chain.seal(at_ms, each))
        (place / name).write_bytes(b"".join(lines))
    (place / "head").write_text(f"{chain.head}\n")
    return chain


@pytest.fixture
def log(tmp_path: Path) -> Path:
    changes = [{"what": "retention.ms", "before": "1", "after": "2"}]
    write(
        tmp_path,
        [event("CreateTopics", resource="topic:orders"), event("LoginFailed", "User:x", claimed="bob", allowed=False)],
        [event("AlterConfigs", resource="topic:orders", changes=changes, rule="SuperUser")],
    )
    write(tmp_path, [event("AccessDenied", resource="group:g", allowed=False)], node=2, at_ms=NOW + 30_000)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["audit", *arguments])
    found = capsys.readouterr()
    return code, found.out, found.err


def test_a_whole_log(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "verify", str(log))
    assert code == OK and out.count(": whole") == 2 and f"{log / 'node-1'}: 5 events in 2 files: whole" in out
    code, out, _ = said(capsys, "verify", "--json", str(log / "node-1"))
    (report,) = json.loads(out)
    head = (log / "node-1/head").read_text().strip()
    assert (code, report["problems"], report["head"]) == (OK, [], head)
    assert said(capsys, "verify", str(log / "node-1"), "--expect", head)[0] == OK
    (second,) = (log / "node-1").glob("*4.jsonl")
    assert said(capsys, "verify", str(second))[0] == OK, "a file alone"


def test_where_it_was_touched(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = log / "node-1" / "audit-00000000000000000001.jsonl"
    whole = first.read_bytes()
    first.write_bytes(whole.replace(b"topic:orders", b"topic:0rders"))
    code, out, _ = said(capsys, "verify", str(log))
    assert code == FAILED and f"{first} line 2: event 2 does not follow event 1: one of both was changed" in out
    first.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    code, out, _ = said(capsys, "verify", str(log / "node-1"))
    assert code == FAILED and "line 1: event 3 is missing before event 4" in out


def test_an_end_that_was_cut(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (second,) = (log / "node-1").glob("*4.jsonl")
    head = (log / "node-1/head").read_text().strip()
    second.write_bytes(second.read_bytes().splitlines(keepends=True)[0])
    code, out, _ = said(capsys, "verify", str(log / "node-1"))
    assert code == FAILED and "ends with event 4, and there was an event 5: its end was cut off" in out
    (log / "node-1/head").unlink()
    assert said(capsys, "verify", str(log / "node-1"))[0] == OK, "nothing in the directory tells of it"
    assert said(capsys, "verify", str(log / "node-1"), "--expect", head)[0] == FAILED


def test_all_files_gone(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for each in (log / "node-1").glob("*.jsonl"):
        each.unlink()
    code, out, _ = said(capsys, "verify", str(log))
    assert code == FAILED and "is empty, and there was an event 5" in out


def test_a_running_node_may_be_in_the_middle_of_a_line(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (second,) = (log / "node-1").glob("*4.jsonl")
    with second.open("ab") as file:
        file.write(b'{"seq":6,"time":')
    code, out, _ = said(capsys, "verify", str(log / "node-1"))
    assert code == OK and "the last line is incomplete" in out


def search(capsys: pytest.CaptureFixture[str], log: Path, *arguments: str) -> list[str]:
    code, out, err = said(capsys, "search", str(log), "--json", *arguments)
    assert code == OK and not err
    return [json.loads(line)["event"] for line in out.splitlines()]


def test_search(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert search(capsys, log) == [
        "FileOpened",
        "FileOpened",
        "CreateTopics",
        "AccessDenied",
        "LoginFailed",
        "FileOpened",
        "AlterConfigs",
    ]
    assert search(capsys, log, "--user", "alice") == ["CreateTopics", "AccessDenied", "AlterConfigs"]
    assert search(capsys, log, "--user", "User:bob") == ["LoginFailed"]
    assert search(capsys, log, "--resource", "topic:*") == ["CreateTopics", "AlterConfigs"]
    assert search(capsys, log, "--denied") == ["AccessDenied", "LoginFailed"]
    assert search(capsys, log, "--event", "*Topics") == ["CreateTopics"]
    assert search(capsys, log, "--since", "2023-11-14T22:15:20+00:00") == ["LoginFailed", "FileOpened", "AlterConfigs"]
    assert search(capsys, log, "--since", "10m") == []
    _, out, _ = said(capsys, "search", str(log), "--event", "AlterConfigs")
    assert "SuperUser: retention.ms: 1 -> 2" in out and "alice" in out and "User:alice" not in out


def test_search_of_a_damaged_log_says_so(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (log / "node-2/audit-00000000000000000001.jsonl").open("ab") as file:
        file.write(b"\x1b[31mnothing\n")
    code, out, err = said(capsys, "search", str(log))
    assert code == OK and "1 line cannot be read" in err and "\x1b" not in out


def test_what_is_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "does not exist" in said(capsys, "verify", str(tmp_path / "none"))[2]
    code, _, err = said(capsys, "search", str(tmp_path))
    assert code == FAILED and "has no audit log" in err
    write(tmp_path, [])
    for wrong in ("5", f"x:{FIRST_HASH}"):
        code, _, err = said(capsys, "verify", str(tmp_path), "--expect", wrong)
        assert code == MISUSED and "SEQ:HASH" in err
    assert said(capsys, "search", str(tmp_path), "--since", "yesterday")[0] == MISUSED
