"""`ottla quorum repair` on a directory: what it shows, what it does, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.cli.exits import FAILED, OK, CommandFailed
from ottla.cli.quorum import repair
from ottla.protocol.internal.quorum_records import QuorumStateFile, decode_quorum_state, encode_quorum_state
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.quorum.epochs import EPOCH_LAST, EPOCHS_AHEAD_MAX


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of a metadata log that ends with epoch 7, and whose voter believed the last epoch."""
    path = tmp_path / "__cluster_metadata-0"
    path.mkdir()
    batch = build_batch([SimpleRecord(1, None, b"x")], base_offset=0, leader_epoch=7)
    (path / f"{0:020d}.log").write_bytes(batch)
    state = QuorumStateFile(leader_epoch=EPOCH_LAST - 1, voted_id=2, voters=(1, 2, 3), data_version=0)
    (path / "quorum-state").write_bytes(encode_quorum_state(state))
    return path


def test_a_repair_is_shown_and_then_done(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (directory / "quorum-state").read_bytes()
    assert repair(directory.parent) == FAILED
    shown = capsys.readouterr().out
    assert f"quorum-state: epoch {EPOCH_LAST - 1} becomes {7 + EPOCHS_AHEAD_MAX}" in shown
    assert "Nothing was changed: repair with --apply." in shown
    assert (directory / "quorum-state").read_bytes() == before
    assert repair(directory.parent, apply=True, json=True) == OK
    step, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert step["applied"] is True and summary == {"kind": "summary", "to_do": 0, "applied": True}
    mended = decode_quorum_state((directory / "quorum-state").read_bytes())
    assert (mended.leader_epoch, mended.leader_id, mended.voted_id) == (7 + EPOCHS_AHEAD_MAX, -1, -1)
    assert mended.voters == (1, 2, 3)
    assert repair(directory.parent) == OK
    assert capsys.readouterr().out == "Nothing to repair.\n"


def test_a_directory_without_a_metadata_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="there is no metadata log in"):
        repair(tmp_path)


def test_a_file_that_cannot_be_read_is_refused(directory: Path) -> None:
    (directory / "quorum-state").write_bytes(b"{")
    with pytest.raises(CommandFailed, match="cannot be read"):
        repair(directory.parent)
