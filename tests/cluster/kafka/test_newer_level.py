"""A cluster of Kafka has a metadata.version that Ottla does not know: each role ends with a sentence about it.

4.5-IV0 is not for production in Kafka 4.4, which has it all the same where `unstable.feature.versions.enable` is set.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from peers.kafka import KafkaPeer, install, start_fast
from tests.cluster.processes import ottla_broker, ottla_controller
from tests.node import NodeProcess

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")

SENTENCE = (
    "metadata.version is 34, and this software supports 3.3-IV3 to 4.4-IV2 (33): start a release that supports this "
    "level"
)


def refused(node: NodeProcess) -> str:
    """What a node prints that ends instead of serving."""
    with pytest.raises(RuntimeError, match="ended with status 1") as caught:
        node.start(ready_s=60)
    return str(caught.value)


def test_every_role_says_which_level_it_does_not_support(tmp_path: Path) -> None:
    """A broker that follows, and a controller alone on the directory: first with bootstrap.checkpoint, then with a
    log."""
    install("4.4")
    kafka = KafkaPeer(
        tmp_path / "kafka",
        roles="controller",
        node_id=9,
        heap="256m",
        flags=start_fast("4.4"),
        release="4.4",
        settings={"unstable.feature.versions.enable": "true"},
    )
    kafka.format("--release-version", "4.5-IV0")
    fresh = tmp_path / "fresh"
    shutil.copytree(kafka.data, fresh)
    controller = ottla_controller(fresh)
    controller.settings |= {"node.id": "9", "controller.quorum.voters": f"9@{controller.bootstrap}"}
    assert "has feature levels of a newer release: metadata.version is 34" in refused(controller)
    kafka.start()
    try:
        follower = ottla_broker(tmp_path / "broker", kafka.controllers)
        assert SENTENCE in refused(follower)
    finally:
        kafka.stop()
    controller = ottla_controller(kafka.data)
    controller.settings |= {"node.id": "9", "controller.quorum.voters": f"9@{controller.bootstrap}"}
    assert SENTENCE in refused(controller)
