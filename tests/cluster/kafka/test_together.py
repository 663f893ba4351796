"""A broker of Ottla and one of Apache Kafka under a quorum of either: replicas, leaders and groups cross over."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.protocol.messages import ApiKey
from peers.kafka import KafkaPeer, start_fast
from tests.cluster.admin import ask, brokers, create, in_sync_sets, leaders, until
from tests.cluster.brokers.test_failover import read
from tests.cluster.brokers.test_life import produce
from tests.cluster.brokers.test_replication import committed, coordinator
from tests.cluster.kafka.test_mixed_quorum import CLUSTER_ID, QUICK, Controllers, leader
from tests.cluster.processes import format_directory, ottla_broker
from tests.node import NodeProcess

pytestmark = pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Apache Kafka with")

OTTLA, KAFKA = 11, 12
BOTH = [OTTLA, KAFKA]
SETTINGS = {
    **QUICK,
    "offsets.topic.replication.factor": "2",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class Two:
    """The brokers, by id, and who controls them."""

    def __init__(self, directory: Path, controllers: Controllers) -> None:
        self.controllers = controllers
        self.ottla = ottla_broker(directory / "ottla", ",".join(controllers.addresses), SETTINGS, node_id=OTTLA)
        voters = ",".join(f"{number}@{address}" for number, address in enumerate(controllers.addresses, start=1))
        self.kafka = KafkaPeer(
            directory / "kafka",
            roles="broker",
            node_id=KAFKA,
            heap="384m",
            release="4.4",
            flags=start_fast("4.4"),
            voters=voters,
            cluster_id=CLUSTER_ID,
            settings=SETTINGS,
        )
        format_directory(self.kafka.data, KAFKA, CLUSTER_ID)
        self.all: dict[int, NodeProcess | KafkaPeer] = {OTTLA: self.ottla, KAFKA: self.kafka}
        self.bootstrap = f"{self.ottla.bootstrap},{self.kafka.bootstrap}"

    def other(self, node: int) -> str:
        """The address of the one that is not this."""
        return self.all[OTTLA + KAFKA - node].bootstrap


OTTLAS = pytest.mark.nightly(
    "tests/cluster/kafka/test_together.py::test_replicas_leaders_and_groups_cross_over",
    "tests/cluster/kafka/test_replication_with_kafka.py::test_each_follows_the_other",
)


@pytest.fixture(
    params=[
        pytest.param((3, 0), id="three of Ottla", marks=OTTLAS),
        pytest.param((1, 2), id="one of Ottla and two of Kafka"),
    ]
)
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Two]:
    controllers = Controllers(tmp_path, *request.param)
    brokers_of_both = Two(tmp_path, controllers)
    with contextlib.ExitStack() as stack:
        stack.callback(controllers.stop)
        controllers.start()
        stack.callback(brokers_of_both.kafka.kill)
        stack.enter_context(brokers_of_both.ottla)
        brokers_of_both.kafka.start()
        until(lambda: brokers(brokers_of_both.ottla.bootstrap), {OTTLA: False, KAFKA: False}.__eq__)
        yield brokers_of_both


def ends_of_epochs(two: Two) -> list[tuple[int, int, int]]:
    """(error, epoch, end offset) of each leader epoch, as the leader has it: the same whoever leads (KIP-101, 279)."""
    ((leader_id, current),) = leaders(two.ottla.bootstrap, "t")
    rows = [{"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch} for epoch in range(current + 1)]
    found = []
    for row in rows:
        values = {"replica_id": -1, "topics": [{"topic": "t", "partitions": [row]}]}
        answer = ask(two.all[leader_id].bootstrap, ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, values)
        (got,) = answer["topics"][0]["partitions"]
        found.append((got["error_code"], got["leader_epoch"], got["end_offset"]))
    return found


def test_replicas_leaders_and_groups_cross_over(two: Two) -> None:
    """Each broker is stopped once, the active controller is killed in between, and the group goes on as it was."""
    assert create(two.ottla.bootstrap, "t", replicas=BOTH) == 0
    until(lambda: in_sync_sets(two.ottla.bootstrap, "t"), [BOTH].__eq__)
    assigned: list[int] = []
    consumer = Consumer(
        {
            "bootstrap.servers": two.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "log_level": 0,
            "enable.auto.commit": False,
            "session.timeout.ms": 60_000,
        }
    )
    consumer.subscribe(["t"], on_assign=lambda *_: assigned.append(1))
    written: list[str] = []

    def write_read_and_commit(turn: str, address: str) -> None:
        values = [f"{turn}-{number}" for number in range(100)]
        produce(address, "t", values)
        written.extend(values)
        assert read(consumer, len(values)) == values
        until(lambda: committed(consumer), bool)
        assert consumer.committed([TopicPartition("t", 0)], 60)[0].offset == len(written)

    try:
        write_read_and_commit("both", two.bootstrap)
        until(lambda: in_sync_sets(two.ottla.bootstrap, "__consumer_offsets"), [BOTH].__eq__)
        led = set()
        for turn in range(2):
            node = coordinator(two.bootstrap.split(",")[0], "g")
            stopped = two.all[node]
            led.add(node)
            stopped.stop()
            until(lambda node=node: leaders(two.other(node), "t")[0][0], (OTTLA + KAFKA - node).__eq__)  # type: ignore[misc]
            until(lambda node=node: coordinator(two.other(node), "g"), (OTTLA + KAFKA - node).__eq__)  # type: ignore[misc]
            write_read_and_commit(f"without {node}", two.other(node))
            stopped.start()
            for topic in ("t", "__consumer_offsets"):
                until(lambda topic=topic: in_sync_sets(two.ottla.bootstrap, topic), [BOTH].__eq__)  # type: ignore[misc]
            if turn == 0:
                active = leader(two.ottla)
                two.controllers.all[active - 1].kill()
                until(lambda active=active: leader(two.ottla), lambda found, active=active: found not in (-1, active))  # type: ignore[misc]
                write_read_and_commit("another controller", two.bootstrap)
                two.controllers.all[active - 1].start()
        assert led == {OTTLA, KAFKA}
        assert len(assigned) == 1
        before = ends_of_epochs(two)
        assert len(before) >= 2 and before[-1] == (0, len(before) - 1, len(written))
        led_before = leaders(two.ottla.bootstrap, "t")[0][0]
        two.all[led_before].stop()
        until(lambda: leaders(two.other(led_before), "t")[0][0], (OTTLA + KAFKA - led_before).__eq__)
        two.all[led_before].start()
        until(lambda: in_sync_sets(two.ottla.bootstrap, "t"), [BOTH].__eq__)
        assert ends_of_epochs(two) == [*before, (0, len(before), len(written))]
    finally:
        consumer.close()
    logs = {(each.data / "t-0" / f"{0:020}.log").read_bytes() for each in two.all.values()}
    assert len(logs) == 1 and logs != {b""}
