"""What the supervisor of several nodes does beside starting them (`tests/conformance/cli/test_cluster_up.py`)."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.server import supervisor as module
from ottla.server.supervisor import Supervised, Supervisor, rotate


def test_the_output_of_a_node_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OUTPUT_BYTES_KEPT", 100)
    path = tmp_path / "output"
    config: Any = None
    supervisor = Supervisor(
        [Supervised(1, config, output=str(path))], restart=True, ready=lambda: None, say=lambda text: None
    )
    with open(path, "ab", buffering=0) as node:
        for number in range(4):
            node.write(b"%d" % number * 60)
            supervisor._look_at_s = time.monotonic()
            supervisor._step()
            assert supervisor._look_at_s > time.monotonic(), "it does not look all the time"
    assert path.read_bytes() == b"", "the fourth was too much again"
    assert (tmp_path / "output.1").read_bytes() == b"2" * 60 + b"3" * 60


def test_an_output_that_cannot_be_rotated_stays(tmp_path: Path) -> None:
    rotate(str(tmp_path / "none"))
    assert os.listdir(tmp_path) == []


def test_an_output_that_fails_leaves_no_node_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the next `cluster up` would find the directory still in use."""

    def serve(_config: object, said: int) -> int:
        (tmp_path / str(os.getpid())).touch()
        os.write(said, b".")
        signal.pause()
        return 0

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "_run", serve)
    before = {number: signal.getsignal(number) for number in module._SIGNALS}
    config: Any = SimpleNamespace(is_controller=True)
    nodes = [Supervised(number, config) for number in (1, 2)]
    try:
        with pytest.raises(OSError, match="No space left"):
            Supervisor(nodes, restart=True, ready=full, say=lambda text: None).run()
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
    pids = [int(each.name) for each in tmp_path.iterdir()]
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
