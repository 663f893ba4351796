"""`ottla cluster describe`, `topic explain`, `server status` and formats end to end."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cluster.admin import quorum
from tests.conformance.cli.test_cli import ottla
from tests.node import NodeProcess


def test_a_cluster(bootstrap: str, topic: str) -> None:
    ottla(bootstrap, "topic", "create", topic, "-p", "3")
    ottla(bootstrap, "produce", topic, "x" * 1000)
    cluster = json.loads(ottla(bootstrap, "cluster", "describe", "--json"))
    (broker,) = cluster["brokers"]
    assert (broker["id"], broker["address"]) == (1, bootstrap)
    assert cluster["controller"] == quorum(bootstrap)["leader_id"], "which may be no broker"
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


def test_formats_and_values_after_options(bootstrap: str, topic: str) -> None:
    ottla(bootstrap, "topic", "create", "-p", "1", topic, f"{topic}-2")
    ottla(bootstrap, "produce", topic, "-K", "=", "-H", "source=shop", "a=1", "b=2")
    ottla(bootstrap, "produce", f"{topic}-2", "-f", "/dev/stdin", text="a line of a file\n")
    lines = ottla(bootstrap, "consume", topic, "--format", "{partition}:{offset} {key}={value:hex} {header.source}")
    assert lines == "0:0 a=31 shop\n0:1 b=32 shop\n"
    dump = ottla(bootstrap, "consume", f"{topic}-2", "--format", "hexdump")
    assert "61 20 6c 69 6e 65 20 6f  66 20 61 20 66 69 6c 65  |a line of a file|" in dump
    assert "0:1" in ottla(bootstrap, "consume", topic, "--format", "text", "--from", "1")
    assert "known: topic" in ottla(bootstrap, "consume", topic, "--format", "{colour}", code=2)


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
