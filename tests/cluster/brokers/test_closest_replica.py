"""Consumers read from the replica in their rack (KIP-392), with a real client: three brokers in three racks."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.testing.process import reserve
from peers.kafka import tool
from tests.cluster.admin import create, in_sync, leaders, until
from tests.cluster.brokers.test_life import produce
from tests.cluster.processes import BROKERS, addresses, three_brokers
from tests.node import NodeProcess

LEADER, NEAR, FAR = BROKERS
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SIZE, COUNT = 1000, 500


@pytest.fixture
def racks(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[dict[int, NodeProcess]]:
    """By node id; node N is in rack N, and node 1 leads the only partition of `t`. A parameter is more settings."""
    with ExitStack() as held:

        def settings_of(node_id: int, _: Path) -> dict[str, str]:
            http = held.enter_context(reserve(0)).getsockname()[1]
            place = {"broker.rack": f"rack-{node_id}", "ottla.http.listener": f"127.0.0.1:{http}"}
            return {"replica.selector.class": SELECTOR, **place, **getattr(request, "param", {})}

        nodes = held.enter_context(three_brokers(tmp_path, settings_of))
        assert create(nodes[LEADER].bootstrap, "t", replicas=BROKERS) == 0
        until(lambda: in_sync(nodes[LEADER].bootstrap, "t"), [*BROKERS].__eq__)
        yield nodes


class Reader:
    """A consumer in the rack of one node, and what it says of the bytes that it got from each."""

    def __init__(
        self, bootstrap: str, rack: int, isolation: str = "read_committed", *, in_transactions: bool = False
    ) -> None:
        self.received: dict[int, int] = {}
        self.reads_from = -1
        self.values: list[str] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.rack": f"rack-{rack}",
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": isolation,
                "socket.timeout.ms": 3000,
                "topic.metadata.refresh.interval.ms": 500,
                "fetch.wait.max.ms": 200,
                "statistics.interval.ms": 100,
                "stats_cb": self._note,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition("t", 0, 0)])
        self._end = 0
        self._in_transactions = in_transactions

    def _note(self, text: str) -> None:
        found = json.loads(text)
        self.received = {each["nodeid"]: each["rxbytes"] for each in found["brokers"].values()}
        self.reads_from = found["topics"].get("t", {}).get("partitions", {}).get("0", {}).get("broker", -1)

    def poll(self) -> None:
        for message in self._consumer.consume(1000, 0.1):
            assert not message.error(), message.error()
            assert message.offset() == self._end or self._in_transactions, "no gap, and nothing twice"
            assert message.offset() >= self._end
            self._end = message.offset() + 1
            self.values.append((message.value() or b"").decode())

    def until_read(self, expected: list[str]) -> None:
        until(lambda: (self.poll(), len(self.values))[1], lambda count: count >= len(expected))
        assert self.values == expected

    def until_from(self, node_id: int) -> None:
        """Until it reads there."""
        until(lambda: (self.poll(), self.reads_from)[1], node_id.__eq__)

    def close(self) -> None:
        self._consumer.close()


def values(prefix: str) -> list[str]:
    return [f"{prefix}-{number}".ljust(SIZE, ".") for number in range(COUNT)]


@pytest.mark.parametrize("racks", [{"replica.lag.time.max.ms": "2000"}], indirect=True, ids=["soon-behind"])
def test_a_consumer_reads_in_its_rack_and_from_the_leader_when_that_is_gone(racks: dict[int, NodeProcess]) -> None:
    reader = Reader(addresses(racks), NEAR)
    try:
        reader.until_from(NEAR)
        before = reader.received
        expected = values("near")
        produce(racks[LEADER].bootstrap, "t", expected)
        reader.until_read(expected)
        until(lambda: (reader.poll(), reader.received)[1][NEAR] - before[NEAR], lambda size: size > SIZE * COUNT)
        got = {node_id: reader.received.get(node_id, 0) - before.get(node_id, 0) for node_id in BROKERS}
        assert max(got[LEADER], got[FAR]) < SIZE * COUNT / 10, got

        # The follower falls behind: its consumer goes on with the leader, and comes back.
        process = racks[NEAR].process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        try:
            until(lambda: in_sync(racks[LEADER].bootstrap, "t"), [LEADER, FAR].__eq__)
            more = values("behind")
            produce(racks[LEADER].bootstrap, "t", more)
            expected += more
            reader.until_read(expected)
        finally:
            os.kill(process.pid, signal.SIGCONT)
        until(lambda: in_sync(racks[LEADER].bootstrap, "t"), [*BROKERS].__eq__)
        reader.until_from(NEAR)
        more = values("back")
        produce(racks[LEADER].bootstrap, "t", more)
        expected += more
        reader.until_read(expected)

        racks[NEAR].kill()
        more = values("killed")
        produce(racks[LEADER].bootstrap, "t", more)
        expected += more
        reader.until_read(expected)
        reader.until_from(LEADER)
    finally:
        reader.close()
    assert leaders(racks[LEADER].bootstrap, "t") == [(LEADER, 0)]


def consumed_from(node: NodeProcess) -> float:
    """Bytes of records that consumers were sent by this node."""
    port = int(node.settings["ottla.http.listener"].rpartition(":")[2])
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return sum(
        map(float, re.findall(r'^kafka_server_brokertopicmetrics_bytesout_total\{topic="t"\} (\S+)$', text, re.M))
    )


@pytest.mark.skipif(shutil.which("java") is None, reason="no Java here to run Kafka's consumer with")
def test_javas_consumer_reads_in_its_rack(racks: dict[int, NodeProcess]) -> None:
    written = values("java")
    produce(racks[LEADER].bootstrap, "t", written)
    done = tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server",
        addresses(racks),
        "--topic",
        "t",
        "--partition",
        "0",
        "--offset",
        "earliest",
        "--max-messages",
        str(COUNT),
        "--timeout-ms",
        "120000",
        "--command-property",
        f"client.rack=rack-{FAR}",
    )
    assert done.stdout.splitlines() == written, done.stderr
    sent = {node_id: consumed_from(node) for node_id, node in racks.items()}
    assert sent[FAR] > SIZE * COUNT
    assert sent[LEADER] == sent[NEAR] == 0, sent


def test_transactions_are_read_from_a_follower_as_from_the_leader(racks: dict[int, NodeProcess]) -> None:
    """What is aborted is left out, and what is open waits for its end; `read_uncommitted` sees all of it."""
    committed = Reader(addresses(racks), NEAR, in_transactions=True)
    everything = Reader(addresses(racks), NEAR, "read_uncommitted", in_transactions=True)
    producer = Producer({"bootstrap.servers": addresses(racks), "transactional.id": "racks"})
    try:
        for reader in (committed, everything):
            reader.until_from(NEAR)
        before = committed.received
        producer.init_transactions(60)
        sent = {each: values(each) for each in ("first", "aborted", "second", "open")}
        for name, records in sent.items():
            producer.begin_transaction()
            for record in records:
                producer.produce("t", record, partition=0)
            assert producer.flush(60) == 0
            if name == "aborted":
                producer.abort_transaction(60)
            elif name != "open":
                producer.commit_transaction(60)
        everything.until_read([record for records in sent.values() for record in records])
        committed.until_read(sent["first"] + sent["second"])
        for _ in range(5):  # it has been answered since: a fetch waits for 200 ms
            committed.poll()
        assert len(committed.values) == 2 * COUNT
        producer.commit_transaction(60)
        committed.until_read(sent["first"] + sent["second"] + sent["open"])
        until(lambda: (committed.poll(), committed.received)[1][NEAR] - before[NEAR], (3 * SIZE * COUNT).__lt__)
        got = {node_id: committed.received.get(node_id, 0) - before.get(node_id, 0) for node_id in BROKERS}
        assert max(got[LEADER], got[FAR]) < SIZE * COUNT / 10, got
    finally:
        committed.close()
        everything.close()
