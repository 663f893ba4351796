"""A controller's log does not go back to its beginning: a broker fetches a snapshot, then what follows (KIP-630)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ottla.quorum.snapshot import parse_snapshot_name
from tests.cluster.admin import create, leaders, until
from tests.cluster.processes import kafka_controller, ottla_broker, ottla_controller
from tests.node import NodeProcess

TOPICS = 40
SMALL = {"metadata.log.max.record.bytes.between.snapshots": "1500", "metadata.max.retention.bytes": "1000"}
"""A snapshot after a few topics; the log below the last but one goes at once."""


def snapshots(directory: Path) -> list[str]:
    found = (directory / "__cluster_metadata-0").glob("*.checkpoint")
    return sorted(path.name for path in found if parse_snapshot_name(path.name))


def make_topics(broker: NodeProcess) -> None:
    for number in range(TOPICS):
        assert create(broker.bootstrap, f"t{number}") == 0


def check(broker: NodeProcess, node_id: int) -> None:
    """The broker knows every topic, and hears of new ones."""
    for number in range(TOPICS):
        until(lambda name=f"t{number}": leaders(broker.bootstrap, name), bool)  # type: ignore[misc]
    assert create(broker.bootstrap, f"later-{node_id}") == 0
    assert leaders(broker.bootstrap, f"later-{node_id}")


def test_under_a_controller_of_ottla(tmp_path: Path) -> None:
    with (
        ottla_controller(tmp_path / "controller", SMALL) as controller,
        ottla_broker(tmp_path / "one", controller.bootstrap) as one,
    ):
        make_topics(one)
        until(lambda: snapshots(controller.data), lambda found: bool(found) and not found[0].startswith("0" * 20))
        with ottla_broker(tmp_path / "two", controller.bootstrap, node_id=2) as two:
            assert snapshots(two.data)
            check(two, 2)
        one.stop()
        one.start()  # on its copy, which may be behind the beginning of the controller's log by now
        check(one, 1)


@pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")
def test_under_a_kafka_controller(tmp_path: Path) -> None:
    peer = kafka_controller(tmp_path / "controller")
    peer.settings.update(SMALL)
    try:
        peer.start()
        with ottla_broker(tmp_path / "one", peer.controllers) as one:
            make_topics(one)
            until(lambda: snapshots(peer.data), bool)
            with ottla_broker(tmp_path / "two", peer.controllers, node_id=2) as two:
                assert snapshots(two.data)
                check(two, 2)
    finally:
        peer.kill()
