"""`ottla features upgrade --release` beside Kafka's `kafka-features upgrade --release-version`: the same levels,
release by release, and a quorum whose voters are fixed becomes one whose voters change. What no cheaper test finds: a
feature that Kafka's tool sends and this software does not know, or at another level.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.metadata.features import METADATA_VERSION_3_9, METADATA_VERSIONS, release_levels
from peers.kafka import KafkaPeer, start_fast
from tests.cluster.admin import until
from tests.cluster.kafka.test_mixed_quorum import levels
from tests.cluster.processes import ONE_REPLICA, Voter
from tests.conformance.shell import Shell
from tests.node import FOR_EVER, NodeProcess

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")

TOOL = "FeatureCommand"
BEFORE = 20
"""3.8-IV0, the newest whose release says nothing of the quorum."""
RELEASES = [each for each in METADATA_VERSIONS if each.level >= BEFORE]
SENT = re.compile(r"^(?:Can \w+ \w+ )?(\S+\.version) (?:can be \w+ )?to (\d+)\.", re.M)


@pytest.fixture(scope="module")
def tools() -> Iterator[Shell]:
    started = Shell("4.4")
    yield started
    started.close()


def voter(directory: Path, release: str) -> Voter:
    """A node of Ottla at the levels of a release that is the one voter of a static quorum, and can be reached by
    others; not started."""
    node = Voter(directory / "ottla", is_broker=True)
    node.settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listeners": node.listeners,
        "controller.quorum.voters": f"1@{node.controller}",
        **ONE_REPLICA,
        **FOR_EVER,
    }
    words = [word for name, value in node.settings.items() for word in ("--set", f"{name}={value}")]
    done = ottla("storage", "format", str(node.data), "-r", release, *words)
    assert done.returncode == 0, done.stderr
    return node


def ottla(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ottla.cli.main", *words], capture_output=True, text=True, check=False)


def sent(tools: Shell, address: str, verb: str, release: str) -> dict[str, int]:
    """Feature to level: what the tool asks for, which it says of each whether that is refused or not."""
    done = tools.run(TOOL, "--bootstrap-server", address, verb, "--release-version", release, "--dry-run", check=False)
    found = {name: int(level) for name, level in SENT.findall(done.out + done.err)}
    assert found, done
    return found


def test_a_release_is_the_same_levels(tmp_path: Path, tools: Shell) -> None:
    with voter(tmp_path, "3.8") as node:
        for each in RELEASES:
            wanted = release_levels(each.level)
            assert sent(tools, node.bootstrap, "downgrade", each.name) == wanted, each
            raised = {name: level for name, level in wanted.items() if level}  # a feature that is off is not sent
            assert sent(tools, node.bootstrap, "upgrade", each.name) == raised, each
            assert ("kraft.version" in raised) == (each.level >= METADATA_VERSION_3_9)


def both_ways(node: NodeProcess | KafkaPeer, tools: Shell) -> list[str]:
    """By this software's command, from 3.8 up to 3.9 and 4.4, and back; returns what it was refused with."""
    address = node.bootstrap

    def upgraded() -> str:
        done = ottla("features", "upgrade", "--release", "3.9", "--bootstrap", address)
        return done.stdout + done.stderr

    until(upgraded, lambda said: "kraft.version is 1 (was 0)" in said)  # once the voter has said where it is reached
    until(lambda: levels(address), release_on(METADATA_VERSION_3_9).__eq__)
    assert ottla("features", "upgrade", "--release", "4.2", "--bootstrap", address).returncode == 0
    until(lambda: levels(address), release_on(29).__eq__)
    refused = []
    for words in (["upgrade", "--feature", "kraft.version=0"], ["downgrade", "--release", "3.8"]):
        done = ottla("features", *words, "--bootstrap", address)
        assert done.returncode == 1 and "INVALID_UPDATE_VERSION" in done.stderr, done
        refused.append(done.stderr)
    back = tools.run(TOOL, "--bootstrap-server", address, "downgrade", "--release-version", "3.8", check=False)
    assert back.status and "kraft.version" in back.out + back.err
    assert levels(address) == release_on(29)
    return refused


def release_on(level: int) -> dict[str, int]:
    return {name: each for name, each in release_levels(level).items() if each}


def test_a_static_quorum_of_ottla(tmp_path: Path, tools: Shell) -> None:
    with voter(tmp_path, "3.8") as node:
        both_ways(node, tools)


def test_a_static_quorum_of_kafka(tmp_path: Path, tools: Shell) -> None:
    kafka = KafkaPeer(tmp_path / "kafka", heap="384m", release="4.4", flags=start_fast("4.4"))
    kafka.format("-r", "3.8")
    kafka.start()
    try:
        both_ways(kafka, tools)
    finally:
        kafka.kill()
