"""The client matrix on three nodes, one of which is restarted in the middle: of writing, and again of reading.

What is restarted leads the partition that is written, or coordinates the group that reads; the client goes on while
that node hands over, is away and comes back. Nothing is lost, and nothing is there twice.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.protocol.messages import ApiKey
from ottla.testing import Cluster
from peers.kafka import java, start_fast
from tests.cluster.admin import ask, in_sync, until
from tests.conformance.clients import build
from tests.conformance.clients.test_java import TEXT, last_of_each_key, produce, word_count
from tests.conformance.clients.test_rounds import CASES, Client, GaveUp, judge, round_of
from tests.conformance.compatibility import Ran
from tests.oracle import RELEASE

PYTHON = Path(__file__).parent / "python"
OTHERS = [
    pytest.param(Client("librdkafka", "python", (sys.executable, str(PYTHON / "confluent_round.py")))),
    pytest.param(Client("aiokafka", "python", (sys.executable, str(PYTHON / "aiokafka_round.py")))),
]
LOSES_BY_ITSELF = {
    "kafkajs": "what a leader refused is not sent again to a new leader that had answered for another partition (2.2.4)"
}
"""Clients that lose records whenever a leader moves, whoever the broker is."""

CLIENTS = [
    pytest.param(*case.values, id=case.values[0].name, marks=case.marks)
    for case in (*CASES, *OTHERS)
    if case.values[0].name not in LOSES_BY_ITSELF
]
IN_WRITING_ONLY = {
    "@platformatic/kafka": "it commits to the coordinator that it found first, and gives up",
    "kafka-python": "its consumer raises what ends the connection to its coordinator (3.0)",
}
"""Clients whose consumer does not survive it, and why: nothing is restarted while they read."""

BOTH = ("writing", "reading")
LIMIT_S = 120.0
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "ottla.log.slow.request.ms": "-1"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, SETTINGS) as started:
        yield started


class Restarts:
    """Called in the middle of what a client does to a topic: restarts a node, and does not wait for it."""

    def __init__(self, cluster: Cluster, topic: str, group: str | None, in_middle_of: Sequence[str] = BOTH) -> None:
        self._cluster, self._topic, self._group, self._in_middle_of = cluster, topic, group, in_middle_of
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        self._threads: list[threading.Thread] = []
        self._failed: list[Exception] = []
        self.restarted: list[int] = []
        """The nodes, in order."""

    def __call__(self, of: str) -> None:
        self.wait_whole()
        if of not in self._in_middle_of:
            return
        node = self._coordinator() if of == "reading" and self._group else self._cluster.leader(self._topic)
        self.restarted.append(node)
        thread = threading.Thread(target=self._restart, args=[node])
        self._threads.append(thread)
        thread.start()

    def _restart(self, node: int) -> None:
        try:
            self._cluster.restart(node)
        except Exception as error:
            self._failed.append(error)

    def wait_whole(self) -> None:
        """Until every node runs and every replica of the topic is in sync: only one is away at a time."""
        for each in self._threads:
            each.join()
        assert self._failed == []
        deadline = time.monotonic() + LIMIT_S
        while not self._is_whole():
            assert time.monotonic() < deadline, "a node does not catch up"
            time.sleep(0.05)

    def is_gone(self, topic: str) -> bool:
        """Whether the brokers have soon forgotten the topic."""
        deadline = time.monotonic() + LIMIT_S
        while topic in self._admin.list_topics(timeout=10).topics:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def partitions(self, topic: str) -> int:
        return len(self._admin.list_topics(topic, timeout=10).topics[topic].partitions)

    def _is_whole(self) -> bool:
        try:
            topics = self._admin.list_topics(timeout=10).topics
        except KafkaException:
            return False
        parts = [
            part
            for name in (self._topic, "__consumer_offsets")
            if name in topics
            for part in topics[name].partitions.values()
        ]
        return bool(parts) and all(len(each.isrs) == 3 and each.leader > 0 for each in parts)

    def _coordinator(self) -> int:
        asked = {"key_type": 0, "coordinator_keys": [self._group]}
        answer = ask(self._cluster.addresses[1], ApiKey.FIND_COORDINATOR, 4, asked)
        node = int(answer["coordinators"][0]["node_id"])
        assert node > 0
        return node


_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"


def restarted_round(
    cluster: Cluster, topic: str, client: Client, in_middle_of: Sequence[str]
) -> tuple[dict[str, Any], Restarts]:
    """Run a client's program while nodes are restarted. Raises GaveUp if the program ends with an error."""
    group = f"group-{topic}" if client.groups else None
    restarts = Restarts(cluster, topic, group, in_middle_of)
    try:
        report = round_of(client, cluster.bootstrap, topic, *([group] if group else []), middle=restarts)
    finally:
        restarts.wait_whole()
    return report, restarts


@pytest.mark.parametrize("client", CLIENTS)
def test_a_node_is_restarted_in_the_middle_of_a_round(cluster: Cluster, topic: str, client: Client) -> None:
    in_middle_of = BOTH[:1] if client.name in IN_WRITING_ONLY else BOTH
    try:
        report, restarts = restarted_round(cluster, topic, client, in_middle_of)
    except GaveUp as error:
        # A client may give up when its broker goes away at a bad moment; not every time. What it reports is judged.
        warnings.warn(f"{client.name} gave up once: {str(error)[-500:]}", stacklevel=1)
        topic = f"{topic}-again"
        report, restarts = restarted_round(cluster, topic, client, in_middle_of)
    if not report["deleted"]:  # the broker that was asked next had not heard of it yet
        report["deleted"] = restarts.is_gone(f"{topic}-gone")
    if not report["partitions"]:  # nor of the one that had just been made
        report["partitions"] = restarts.partitions(topic)
    judge(client, report, cluster.bootstrap, topic)
    assert len(restarts.restarted) == len(in_middle_of)


def test_kcat(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    """It writes, and reads in a group, while the leader is restarted, and then the coordinator."""
    if shutil.which("kcat") is None:
        pytest.skip("no kcat here")
    create(cluster, topic, 1)
    restarts = Restarts(cluster, topic, f"group-{topic}")
    writer = ["kcat", "-b", cluster.bootstrap, "-P", "-t", topic, "-X", "enable.idempotence=true"]
    reader = ["kcat", "-b", cluster.bootstrap, "-G", f"group-{topic}", "-q", "-u", "-X", "auto.offset.reset=earliest"]
    said = tmp_path / "said"
    with (
        said.open("w") as errors,
        subprocess.Popen(
            [*reader, topic], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as reading,
    ):
        stop = threading.Timer(LIMIT_S, reading.kill)
        stop.start()
        try:
            assert reading.stdout is not None
            for turn in ("before", "writing", "reading"):
                if turn != "before":
                    restarts(turn)
                lines = [f"{turn}-{number}" for number in range(200)]
                subprocess.run(
                    writer,
                    input="".join(f"{line}\n" for line in lines),
                    text=True,
                    timeout=LIMIT_S,
                    check=True,
                    stderr=subprocess.DEVNULL,
                )
                assert [reading.stdout.readline().strip() for _ in lines] == lines, said.read_text()
        finally:
            stop.cancel()
            reading.kill()
    restarts.wait_whole()
    assert len(restarts.restarted) == 2


def create(cluster: Cluster, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(LIMIT_S)
    # A client that asks a node that does not know the topic yet may give up, as kcat does.
    for address in cluster.bootstrap.split(","):
        until(lambda address=address: len(in_sync(address, topic)), lambda known: known == 3)


RECORDS = 3000


def test_java(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    """Kafka's own producer and consumer, as its system tests run them."""
    create(cluster, topic, 2)
    restarts = Restarts(cluster, topic, f"group-{topic}")
    common = ("--bootstrap-server", cluster.bootstrap, "--topic", topic, "--max-messages", str(RECORDS))
    tools = "org.apache.kafka.tools"
    again = tmp_path / "again"
    again.write_text("retries=2147483647\nenable.idempotence=true\n")  # this producer does not by itself
    writer = java(
        f"{tools}.VerifiableProducer",
        *common,
        "--throughput",
        "1000",
        "--acks",
        "-1",
        "--repeating-keys",
        "60",
        "--command-config",
        str(again),
        heap="256m",
        flags=start_fast(RELEASE),
        release=RELEASE,
    )
    reader = java(
        f"{tools}.VerifiableConsumer",
        *common,
        "--group-id",
        f"group-{topic}",
        "--reset-policy",
        "earliest",
        "--verbose",
        heap="256m",
        flags=start_fast(RELEASE),
        release=RELEASE,
    )
    written: dict[tuple[int, int], str] = {}
    with subprocess.Popen(writer, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as writing:
        for event in events(writing):
            assert event["name"] != "producer_send_error", event
            if event["name"] == "producer_send_success":
                written[event["partition"], event["offset"]] = event["value"]
                if len(written) == RECORDS // 3:
                    restarts("writing")
    assert len(written) == RECORDS
    ends = {partition: max(offset for each, offset in written if each == partition) for partition in (0, 1)}
    assert sum(ends.values()) + 2 == RECORDS  # nothing is there twice
    read: dict[tuple[int, int], str] = {}
    with subprocess.Popen(reader, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as reading:
        for event in events(reading):
            if event["name"] == "record_data":
                read[event["partition"], event["offset"]] = event["value"]
                if len(read) == RECORDS // 3:
                    restarts("reading")
    assert read == written
    restarts.wait_whole()
    assert len(restarts.restarted) == 2


def events(process: subprocess.Popen[str]) -> Iterator[dict[str, object]]:
    """The events that a program prints until it ends; it is killed when that takes too long, or nobody reads them any
    more.
    """
    stop = threading.Timer(LIMIT_S, process.kill)
    stop.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
    finally:
        stop.cancel()
        process.kill()


@pytest.mark.matrix
def test_streams(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    """WordCount: a repartition topic and a changelog; a record that is read again may be counted again."""
    reason = build.missing("java")
    if reason:
        pytest.skip(reason)
    create(cluster, topic, 2)
    create(cluster, f"{topic}-counts", 1)
    restarts = Restarts(cluster, topic, f"count-{topic}")
    lines = [" ".join(TEXT)] * 50
    produce(cluster.bootstrap, topic, lines)
    found: list[dict[str, int]] = []
    counting = threading.Thread(
        target=lambda: found.append(word_count(Ran(), cluster.bootstrap, topic, 100 * len(TEXT), tmp_path))
    )
    counting.start()
    try:
        deadline = time.monotonic() + LIMIT_S
        half = {word: 50 * TEXT.count(word) for word in TEXT}
        while last_of_each_key(cluster.bootstrap, f"{topic}-counts") != half:
            assert time.monotonic() < deadline and counting.is_alive()
            time.sleep(0.2)
        restarts("reading")
        produce(cluster.bootstrap, topic, lines)
    finally:
        counting.join()
    assert len(found) == 1 and found[0].keys() == half.keys()
    assert all(found[0][word] >= 2 * count for word, count in half.items())
    restarts.wait_whole()
