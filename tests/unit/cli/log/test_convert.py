"""`ottla log convert`: what it says and does with a node's directory, and what it leaves alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.filesystem import OsFileSystem
from ottla.protocol.records.record_batch import build_batch
from ottla.storage.log_directories import LOCK_FILE
from tests.old_messages import message


def filled(root: Path) -> bytes:
    """Two partitions of old messages in two segments each, and one of today; returns an old segment."""
    old = b"".join(message(at, b"v" * 100, magic=0) for at in range(50))
    for partition in range(2):
        directory = root / f"orders-{partition}"
        directory.mkdir()
        (directory / f"{0:020d}.log").write_bytes(old)
        (directory / f"{50:020d}.log").write_bytes(message(50, b"end"))
    (root / "today-0").mkdir()
    (root / "today-0" / f"{0:020d}.log").write_bytes(build_batch([(1, None, b"v", ())]))
    (root / "meta.properties").write_text("version=0\nbroker.id=1\n")
    return old


def names(root: Path) -> list[str]:
    return sorted(str(each.relative_to(root)) for each in root.rglob("*.*") if each.name != LOCK_FILE)


def test_a_node_s_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = filled(tmp_path)
    before = names(tmp_path)
    assert main(["log", "convert", str(tmp_path), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert f"{tmp_path}/orders-0: 2 segments, 6." in said and "2 partitions to convert" in said and "today" not in said
    assert (tmp_path / "orders-0" / f"{0:020d}.log").read_bytes() == old
    assert main(["log", "convert", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert f"{tmp_path}/orders-1: 51 records in 2 segments, 6." in said and "2 partitions converted" in said
    assert names(tmp_path) == before
    assert main(["log", "verify", str(tmp_path / "orders-0")]) == 0
    assert "no problems" in capsys.readouterr().out
    assert main(["log", "convert", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "Nothing to convert.\n"


def test_one_partition_keeps_its_old_segments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = filled(tmp_path)
    partition = tmp_path / "orders-0"
    assert main(["log", "convert", str(partition), "--keep-old", "--json"]) == 0
    row, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert row["records"] == 51 and row["segments"] == 2 and row["bytes_before"] > row["bytes_after"]
    assert summary == {"kind": "summary", "partitions": 1, "failed": 0, "converted": True}
    assert (partition / f"{0:020d}.log.old").read_bytes() == old
    assert main(["log", "convert", str(tmp_path)]) == 0
    assert "orders-1: 51 records" in capsys.readouterr().out
    assert not [name for name in names(tmp_path) if name.endswith(".old")]


def test_damage_and_a_full_disk_keep_nobody_else_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = filled(tmp_path)
    damaged = tmp_path / "orders-0" / f"{0:020d}.log"
    damaged.write_bytes(old[:100] + b"\xff" + old[101:])
    assert main(["log", "convert", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert f"{damaged}: byte 0: the CRC of the message at offset 0 is wrong" in said
    assert f"{tmp_path}/orders-1: 51 records" in said
    damaged.write_bytes(old)
    with monkeypatch.context() as patch:
        patch.setattr(OsFileSystem, "free_bytes", lambda self, path: (1 << 40, 1000))
        assert main(["log", "convert", str(tmp_path)]) == 1
    assert "of room are needed until the old segments are removed, and 1000 B are free" in capsys.readouterr().out
    assert main(["log", "convert", str(tmp_path)]) == 0
    assert "orders-0: 51 records" in capsys.readouterr().out
