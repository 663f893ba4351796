"""`ottla check` on clusters: silent about a sound one, and not about a Kafka whose settings lose records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from peers.kafka import START_FAST, KafkaPeer

UNSAFE = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "120000",
    "unclean.leader.election.enable": "true",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
}


class Check:
    """The command as a process, which says how it goes on standard error only to a terminal."""

    def __init__(self, bootstrap: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ottla.cli.main", "check", "--bootstrap", bootstrap, "--json", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ensure_running(self) -> None:
        """Raises AssertionError with what it printed where it has ended before it should."""
        if self.process.poll() is not None:
            raise AssertionError(self.process.communicate())

    def result(self) -> tuple[int, dict[str, Any]]:
        out, err = self.process.communicate(timeout=300)
        assert err == "" and out, (self.process.returncode, err)
        report: dict[str, Any] = json.loads(out)
        print(json.dumps(report, indent=2))
        return self.process.returncode, report


@pytest.fixture(scope="module")
def unsafe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KafkaPeer, KafkaPeer]]:
    """Two brokers, the first of them the controller too."""
    directory = tmp_path_factory.mktemp("unsafe")
    first = KafkaPeer(directory / "1", heap="384m", flags=START_FAST, settings=UNSAFE)
    second = KafkaPeer(
        directory / "2",
        heap="384m",
        flags=START_FAST,
        settings=UNSAFE,
        roles="broker",
        node_id=2,
        voters=first.voters,
        cluster_id=first.cluster_id,
    )
    try:
        for peer in (first, second):
            peer.format()
            peer.start()
        yield first, second
    finally:
        for peer in (second, first):
            if peer.process is not None:
                peer.process.send_signal(signal.SIGCONT)
            peer.kill()


def wait_until_all_follow(check: Check, bootstrap: str, topic: str) -> None:
    """Every partition has both replicas in sync, and broker 2 leads one or more."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    for _ in range(3000):
        found = client.list_topics(timeout=30).topics.get(topic)
        partitions = list(found.partitions.values()) if found else []
        if (
            partitions
            and all(len(each.isrs) == 2 for each in partitions)
            and any(each.leader == 2 for each in partitions)
        ):
            return
        check.ensure_running()
        client.poll(0.02)
    raise AssertionError(f"{topic} is not in sync")


@pytest.mark.nightly(
    "tests/conformance/cli/test_check.py::test_the_end_of_a_log_cut_off",
    "tests/unit/histories/test_records.py::test_each_planted_fault_is_found",
)
@pytest.mark.skipif("OTTLA_TEST_BOOTSTRAP" in os.environ, reason="breaks a Kafka of its own")
def test_it_finds_what_a_kafka_with_unsafe_settings_loses(unsafe: tuple[KafkaPeer, KafkaPeer]) -> None:
    """The follower hangs; records that only the leader acknowledged are lost with it: acks=1."""
    first, second = unsafe
    arguments = ("--topic", "unsafe", "-p", "2", "-r", "2", "--acks", "1", "--rate", "500")
    check = Check(first.bootstrap, *arguments, "--seconds", "30")
    wait_until_all_follow(check, first.bootstrap, "unsafe")
    wait_until_written(check, second.data, "unsafe")
    assert first.process is not None
    first.process.send_signal(signal.SIGSTOP)
    wait_until_written(check, second.data, "unsafe")
    second.kill()
    first.process.send_signal(signal.SIGCONT)
    second.start()
    code, report = check.result()
    assert code == 1
    assert not report["sound"]
    assert report["found"]["lost"] > 0
    assert {each["kind"] for each in report["examples"]} >= {"lost"}


def wait_until_written(check: Check, data: Path, topic: str) -> None:
    """Returns when a broker's logs of the topic have grown by some hundred records."""

    def size() -> int:
        return sum(each.stat().st_size for each in data.glob(f"{topic}-*/*.log"))

    before = size()
    for _ in range(3000):
        if size() > before + 50_000:
            return
        check.ensure_running()
        time.sleep(0.02)
    raise AssertionError("the leader takes nothing")


@pytest.mark.nightly(
    "tests/conformance/cli/test_check.py::test_a_node_alone", "tests/cluster/brokers/test_transactions.py"
)
@pytest.mark.skipif("OTTLA_TEST_BOOTSTRAP" in os.environ, reason="with a Kafka of its own")
def test_it_finds_nothing_in_a_sound_run(unsafe: tuple[KafkaPeer, KafkaPeer]) -> None:
    """On the same brokers, of which one is killed: what all in-sync replicas have is not lost."""
    first, second = unsafe
    check = Check(first.bootstrap, "--topic", "safe", "-p", "2", "-r", "2", "--rate", "500", "--seconds", "20")
    wait_until_all_follow(check, first.bootstrap, "safe")
    wait_until_written(check, second.data, "safe")
    second.kill()
    second.start()
    code, report = check.result()
    assert (code, report["sound"]) == (0, True)
    assert report["acknowledged"] > 500
    assert report["read"] >= 2 * report["acknowledged"]


def test_a_node_alone(bootstrap: str) -> None:
    code, report = Check(bootstrap, "--seconds", "3", "-p", "3").result()
    assert (code, report["sound"]) == (0, True)
    assert report["acknowledged"] > 100 and report["partitions"] == 3
    assert report["topic"] not in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).topics


def test_the_end_of_a_log_cut_off(tmp_path: Path) -> None:
    """As a loss of power does where nothing was fsynced: the checker sees what is missing, and what was read of it."""
    from tests.node import NodeProcess

    with NodeProcess(tmp_path / "data") as node:
        check = Check(node.bootstrap, "--topic", "cut", "-p", "1", "--seconds", "8")
        log = tmp_path / "data" / "cut-0" / "00000000000000000000.log"
        _wait_until_larger(log, 100_000)
        node.kill()
        os.truncate(log, 50_000)
        node.start()
        code, report = check.result()
    assert code == 1
    assert report["found"]["lost"] > 100


def _wait_until_larger(path: Path, size: int) -> None:
    for _ in range(3000):
        if path.exists() and path.stat().st_size > size:
            return
        time.sleep(0.02)
    raise AssertionError(f"{path} does not grow")
