"""Controllers of Ottla and of Apache Kafka vote together, in any proportion: each kind leads, and in the end their
metadata logs are the same, byte for byte."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ottla.metadata.features import METADATA_VERSION_4_3, METADATA_VERSION_4_4, default_levels
from ottla.protocol.messages import OWN_API_MIN, ApiKey
from ottla.protocol.records.record_batch import iterate_batches
from peers.kafka import KafkaPeer, install, start_fast
from tests.cluster.admin import ask, brokers, create, quorum, until
from tests.cluster.processes import Voter, format_directory, ottla_broker
from tests.node import FOR_EVER, NodeProcess

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")

CLUSTER_ID = "a-mixed-quorum-00000AA"
QUICK = {"broker.heartbeat.interval.ms": "200", "broker.session.timeout.ms": "6000"}


class Controllers:
    """Ids from 1 on, Kafka's after Ottla's."""

    def __init__(self, directory: Path, ottla: int, kafka: int) -> None:
        install("4.4")
        self.ottla = [Voter(directory / f"ottla-{number + 1}", is_broker=False) for number in range(ottla)]
        self.kafka = [
            KafkaPeer(
                directory / f"kafka-{number}",
                roles="controller",
                node_id=number,
                heap="256m",
                release="4.4",
                flags=start_fast("4.4"),
                cluster_id=CLUSTER_ID,
                settings=QUICK,
            )
            for number in range(ottla + 1, ottla + kafka + 1)
        ]
        ports = [each.port for each in self.ottla] + [each.controller_port for each in self.kafka]
        self.addresses = [f"127.0.0.1:{port}" for port in ports]
        voters = ",".join(f"{number}@{address}" for number, address in enumerate(self.addresses, start=1))
        for number, node in enumerate(self.ottla, start=1):
            format_directory(node.data, number, CLUSTER_ID)
            node.settings = {
                "process.roles": "controller",
                "node.id": str(number),
                "controller.listener.names": "CONTROLLER",
                "listeners": node.listeners,
                "controller.quorum.voters": voters,
                **FOR_EVER,
                **QUICK,
            }
        for peer in self.kafka:
            format_directory(peer.data, peer.node_id, CLUSTER_ID)
            peer.voters = voters
        self.all: Sequence[Voter | KafkaPeer] = [*self.ottla, *self.kafka]

    def start(self) -> None:
        starting = [threading.Thread(target=each.start) for each in self.all]
        for each in starting:
            each.start()
        for each in starting:
            each.join()

    def stop(self) -> None:
        for each in self.all:
            if each.process is not None:
                each.process.terminate()
        for each in self.all:
            if each.process is not None:
                each.stop() if isinstance(each, KafkaPeer) else each.process.wait(60)
                each.process = None

    def metadata(self, number: int) -> dict[int, bytes]:
        """The batches of a controller's metadata log, by base offset."""
        node = self.all[number - 1]
        found = {}
        for path in sorted((node.data / "__cluster_metadata-0").glob("*.log")):
            data = path.read_bytes()
            for start, header in iterate_batches(memoryview(data)):
                found[header.base_offset] = data[start : start + header.size]
        return found


@contextlib.contextmanager
def running(directory: Path, ottla: int, kafka: int) -> Iterator[tuple[Controllers, NodeProcess]]:
    """The controllers, and a broker of Ottla under them."""
    controllers = Controllers(directory, ottla, kafka)
    broker = ottla_broker(directory / "broker", ",".join(controllers.addresses), QUICK, node_id=11)
    try:
        controllers.start()
        with broker:
            yield controllers, broker
    finally:
        controllers.stop()


def levels(address: str) -> dict[str, int]:
    found = ask(address, ApiKey.API_VERSIONS, 3, {"client_software_name": "t", "client_software_version": "1"})
    return {each["name"]: each["max_version_level"] for each in found["finalized_features"]}


def raise_levels(address: str) -> None:
    """From those of 4.3 to those of 4.4, and then what only these have: a controller's registration goes."""
    active = quorum(address)["leader_id"]
    other = 3 if active != 3 else 2
    wanted = default_levels(METADATA_VERSION_4_4)
    updates = [{"feature": name, "max_version_level": wanted[name], "upgrade_type": 1} for name in sorted(wanted)]
    asked = {"timeout": 9000, "feature_updates": updates, "validate_only": False}
    assert ask(address, ApiKey.UNREGISTER_CONTROLLER, 0, {"controller_id": other})["error_code"] == 35
    assert ask(address, ApiKey.UPDATE_FEATURES, 2, asked)["error_code"] == 0
    until(lambda: levels(address), wanted.__eq__)
    assert ask(address, ApiKey.UNREGISTER_CONTROLLER, 0, {"controller_id": other})["error_code"] == 0
    assert ask(address, ApiKey.UNREGISTER_CONTROLLER, 0, {"controller_id": 77})["error_code"] == 136
    assert ask(address, ApiKey.UNREGISTER_CONTROLLER, 0, {"controller_id": active})["error_code"] == 42


def assert_the_command_asks_each(controllers: Controllers) -> None:
    """Both kinds of controllers tell `ottla cluster api-versions` where the others are, and serve the same of Kafka's
    APIs; a broker refuses to name controllers."""
    for first in (controllers.addresses[0], controllers.addresses[-1]):
        command = [sys.executable, "-m", "ottla", "cluster", "api-versions", "--bootstrap-controller", first, "--json"]
        rows = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        assert [(each["controller"], each["address"]) for each in rows] == [*enumerate(controllers.addresses, start=1)]
        served = [{each["api"]: each["max"] for each in row["apis"] if each["key"] < OWN_API_MIN} for row in rows]
        assert all(each["ApiVersions"] == 5 and each["UnregisterController"] == 0 for each in served)
        assert {*served[0]} == {*served[-1]}


def leader(broker: NodeProcess) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(quorum(broker.bootstrap)["leader_id"])
    return -1


ALL_KAFKA = pytest.mark.nightly(
    "tests/cluster/kafka/test_mixed_quorum.py::test_controllers_of_both_kinds_lead_and_are_killed"
)
"""In the other two as well a controller of Kafka leads, and one follows."""


@pytest.mark.parametrize(("ottla", "kafka"), [(2, 1), (1, 2), pytest.param(0, 3, marks=ALL_KAFKA)])
def test_controllers_of_both_kinds_lead_and_are_killed(tmp_path: Path, ottla: int, kafka: int) -> None:
    """One of Ottla's leads and one of Kafka's: who misses a record that the others have cannot win, so the test says
    who does."""
    with running(tmp_path, ottla, kafka) as (controllers, broker):
        changes = 0
        for wanted in (1, 3):
            active = until(lambda: leader(broker), lambda found: found > 0)
            if active == wanted:
                continue
            changes += 1
            (third,) = {1, 2, 3} - {active, wanted}
            behind, leading = controllers.all[third - 1], controllers.all[active - 1]
            behind.kill()
            assert create(broker.bootstrap, f"two-{changes}") == 0
            leading.kill()
            behind.start()
            until(lambda: leader(broker), wanted.__eq__)
            assert create(broker.bootstrap, f"then-{changes}") == 0
            assert brokers(broker.bootstrap) == {11: False}
            leading.start()
            until(lambda: all(has_caught_up(broker, number) for number in (1, 2, 3)), bool)
            if changes == 1:
                assert levels(broker.bootstrap) == default_levels(METADATA_VERSION_4_3)
                assert_the_command_asks_each(controllers)
                raise_levels(broker.bootstrap)
        assert changes >= 1
        assert levels(broker.bootstrap) == default_levels(METADATA_VERSION_4_4)
        committed = quorum(broker.bootstrap)["high_watermark"]
    logs = [controllers.metadata(number) for number in (1, 2, 3)]
    contents = [{offset: data for offset, data in log.items() if offset < committed} for log in logs]
    assert len(contents[0]) > 4 and contents[0] == contents[1] == contents[2]


def has_caught_up(broker: NodeProcess, node_id: int) -> bool:
    """Whether a controller has, as the leader knows, what is committed."""
    with contextlib.suppress(OSError, IndexError):
        found = quorum(broker.bootstrap)
        ends = {each["replica_id"]: each["log_end_offset"] for each in found["current_voters"]}
        return ends[node_id] >= found["high_watermark"] > 0
    return False
