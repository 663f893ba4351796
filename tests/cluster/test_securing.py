"""A cluster in use is secured by rolling restarts, and opened again; no request of a client may fail.

All of it by hand: `python -m tests.cluster securing`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster import securing


@pytest.mark.nightly("tests/cluster/test_securing.py::test_an_open_cluster_is_secured_under_load")
def test_a_cluster_is_secured_and_opened_again_under_load(tmp_path: Path) -> None:
    """Processes, on both event loops; eighteen restarts."""
    failures, acknowledged, printed = securing.play(securing.Cluster(tmp_path), securing.THERE_AND_BACK)
    assert not failures, failures[:10]
    assert acknowledged > 2000
    assert "cannot log in" not in printed and "-secret" not in printed and "denied" not in printed


def test_an_open_cluster_is_secured_under_load(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nodes in this process; then ACLs and a password change while their sessions are open."""
    threads = securing.Threads()
    securing.Embedded.loop = threads
    try:
        failures, acknowledged, _ = securing.play(securing.Cluster(tmp_path, securing.Embedded), securing.THERE)
    finally:
        threads.close()
    assert not failures, failures[:10]
    assert acknowledged > 500
    said = [each.getMessage() for each in caplog.records]
    assert not [each for each in said if "cannot log in" in each or each == "denied"]
