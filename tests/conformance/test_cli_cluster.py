"""`ottla cluster describe`, `topic explain` and `server status` end to end."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.conformance.test_cli import ottla
from tests.node import NodeProcess


def test_a_cluster(bootstrap: str, topic: str) -> None:
    ottla(bootstrap, "topic", "create", topic, "-p", "3")
    ottla(bootstrap, "produce", topic, "x" * 1000)
    cluster = json.loads(ottla(bootstrap, "cluster", "describe", "--json"))
    (broker,) = cluster["brokers"]
    assert (broker["id"], broker["address"], cluster["controller"]) == (1, bootstrap, 1)
    assert broker["leads"] == broker["replicas"] == cluster["partitions"] >= 3
    assert broker["bytes"] > 1000 and broker["free_bytes"] > 0
    assert cluster["features"]["metadata.version"] >= 20
    assert cluster["leaderless"] == cluster["under_replicated"] == []
    assert cluster["cluster_id"] in ottla(bootstrap, "cluster", "describe")


def test_a_topic_in_words(bootstrap: str, topic: str) -> None:
    ottla(bootstrap, "topic", "create", topic, "--set", "flush.messages=1", "--set", "retention.ms=7200000")
    (explained,) = json.loads(ottla(bootstrap, "topic", "explain", topic, "--json"))
    assert explained["topic"] == topic
    assert "survives a power loss" in explained["power"]
    assert "2 hours" in explained["kept"]
    text = ottla(bootstrap, "topic", "explain", topic)
    assert max(map(len, text.splitlines())) <= 100
    assert "ottla topic list" in ottla(bootstrap, "topic", "explain", "no-such-topic", code=1)


@pytest.mark.skipif("OTTLA_TEST_BOOTSTRAP" in os.environ, reason="needs a node of its own")
class TestStatus:
    def test_of_a_running_and_of_a_stopped_node(self, fresh_node: NodeProcess) -> None:
        bootstrap, data = fresh_node.bootstrap, str(fresh_node.data)
        ottla(bootstrap, "topic", "create", "t", "-p", "2")
        assert fresh_node.process is not None
        for arguments in ((data,), ()):
            found = json.loads(ottla(bootstrap, "server", "status", "--json", *arguments))
            assert (found["running"], found["address"], found["pid"]) == (True, bootstrap, fresh_node.process.pid)
            assert (found["topics"], found["partitions"], found["log_dirs"]) == (1, 2, [data])
            assert found["uptime_s"] < 120 and found["program"].startswith("Ottla")
        text = ottla(bootstrap, "server", "status")
        assert f"runs at {bootstrap}" in text and "2 partitions" in text
        fresh_node.stop()
        ottla(bootstrap, "server", "status", data, code=3)
        assert "ottla server start" in ottla(bootstrap, "server", "status", code=3)

    def test_of_what_is_no_node(self, tmp_path: Path) -> None:
        assert "meta.properties" in ottla("", "server", "status", str(tmp_path), code=1)
