"""A cluster in use is secured by rolling restarts, and opened again; no request of a client may fail.

All of it by hand: `python -m tests.cluster securing`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.config.properties import parse_properties
from ottla.config.server import ServerConfig
from ottla.server.listeners import sasl_listeners
from tests.cluster import securing

PAGE = Path(__file__).resolve().parents[3] / "docs" / "secure.md"
SAME = (
    "inter.broker.listener.name", "controller.listener.names", "super.users", "allow.everyone.if.no.acl.found",
    "authorizer.class.name", "sasl.mechanism.inter.broker.protocol", "sasl.mechanism.controller.protocol",
)  # fmt: skip
GONE = {3: ("allow.everyone.if.no.acl.found",)}


@pytest.mark.nightly("tests/cluster/security/test_securing.py::test_an_open_cluster_is_secured_under_load")
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


@pytest.mark.nightly("tests/cluster/security/test_securing.py::test_an_open_cluster_is_secured_under_load")
def test_a_cluster_whose_log_names_the_voters_is_secured_and_opened_again(tmp_path: Path) -> None:
    """KIP-853: each voter says at its restart where it is reached now."""
    threads = securing.Threads()
    securing.Embedded.loop = threads
    try:
        cluster = securing.Cluster(tmp_path, securing.Embedded, is_dynamic=True)
        failures, acknowledged, _ = securing.play(cluster, securing.THERE_AND_BACK)
    finally:
        threads.close()
    assert not failures, failures[:10]
    assert acknowledged > 1000


def test_the_page_has_these_phases(tmp_path: Path) -> None:
    """The settings of each step in docs/secure.md are ones that a node takes, and those of the tests above."""
    text = PAGE.read_text(encoding="utf-8").partition("## Secure a cluster that runs")[2].partition("\n## ")[0]
    blocks = re.findall(r"^\*\*(\d)\. .*?^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert [number for number, _ in blocks] == ["1", "2", "3"]
    cluster = securing.Cluster(tmp_path)
    written: dict[str, str] = {"process.roles": "broker,controller", "node.id": "1", "log.dirs": str(tmp_path)}
    for number, block in blocks:
        written |= parse_properties(block)
        for each in GONE.get(int(number), ()):
            del written[each]
        sasl_listeners.check(ServerConfig.load(None, written, {}))
        tested = cluster.settings(0, securing.PHASES[int(number)])
        for each in SAME:
            assert written.get(each) == tested.get(each), (number, each)
        ports = [each.rpartition(":")[2] for each in written["controller.quorum.voters"].split(",")]
        used = written["controller.listener.names"].split(",")[0]
        assert f"{used}://node1:{ports[0]}" in written["listeners"]
