"""What the supervisor of several nodes does beside starting them (`tests/conformance/test_cluster_up.py`)."""

from __future__ import annotations

import os
import time
from pathlib import Path
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
