"""`ottla cluster restart` ends nodes, and nothing else that a number in a file may stand for."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from ottla.cli.cluster.restart import _signal, is_node
from ottla.cli.exits import CommandFailed


def test_a_process_that_is_not_the_node_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    other = subprocess.Popen(["sleep", "600"])
    try:
        (tmp_path / "pid").write_text(f"{other.pid}\n")
        with pytest.raises(CommandFailed, match=f"names process {other.pid}, which is not the node"):
            _signal(tmp_path, 1, 1.0)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    with pytest.raises(CommandFailed, match=f"names process {other.pid}, which is not the node"):
        _signal(tmp_path, 1, 1.0)  # nor is one that is no more


def test_the_node_is_who_holds_the_lock_of_its_data(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    assert not is_node(os.getpid(), tmp_path)
    with open(tmp_path / "data" / ".lock", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_node(os.getpid(), tmp_path)
        assert not is_node(os.getppid(), tmp_path)


def test_one_that_is_still_starting_is_known_by_its_program(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    starting = subprocess.Popen(["bash", "-c", "exec -a ottla sleep 600"])
    try:
        while not is_node(starting.pid, tmp_path):  # until bash has become it
            assert starting.poll() is None
    finally:
        starting.kill()
        starting.wait()
