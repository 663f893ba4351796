"""`ottla log repair`: what it takes for a log directory, and what it says where it cannot write."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ottla.cli.log import repair
from ottla.cli.main import main
from ottla.filesystem import OsFileSystem


@pytest.mark.parametrize("place", ["", "dbus-1", "orders-0"])
def test_another_directory_is_left_alone(tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Names such as `dbus-1` in /etc look like partitions."""
    (tmp_path / "dbus-1").mkdir()
    for command in (["repair"], ["repair", "--apply"], ["verify"]):
        assert main(["log", *command, str(tmp_path / place)]) == 1
        assert str(tmp_path) in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["dbus-1"]


def test_a_partition_that_nobody_knows_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 17\n")
    assert main(["log", "repair", "--apply", str(tmp_path / "order-0")]) == 1
    assert "no checkpoint lists records" in capsys.readouterr().err
    assert not (tmp_path / "order-0").exists()
    assert main(["log", "repair", "--apply", str(tmp_path / "orders-0")]) == 0
    assert (tmp_path / "orders-0" / f"{17:020d}.log").exists()


def test_a_look_needs_no_disk_that_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: OsFileSystem, path: str) -> None:
        raise OSError(errno.EROFS, "Read-only file system", path)

    monkeypatch.setattr(OsFileSystem, "lock", refuse)
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 17\n")
    assert main(["log", "repair", str(tmp_path / "orders-0")]) == 1
    captured = capsys.readouterr()
    assert "start an empty segment at offset 17" in captured.out and not captured.err
    assert main(["log", "repair", "--apply", str(tmp_path / "orders-0")]) == 1
    assert "Read-only file system" in capsys.readouterr().err


def test_a_full_disk_says_that_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(repair.repairs, "apply", fail)
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 17\n")
    assert main(["log", "repair", "--apply", str(tmp_path / "orders-0")]) == 1
    error = capsys.readouterr().err
    assert "orders-0: No space left on device" in error and "nothing is lost" in error
