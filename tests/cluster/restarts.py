"""Rolling restarts that count doubled records: of Kafka alone, or of Kafka and Ottla, one after the other.

    python -m tests.cluster restarts [--by kafka|walk] [--times N] [--release 4.4|4.3]

Idempotent librdkafka producers with its default settings write to every partition of a topic with three replicas while
the nodes are stopped and started one after the other, and preferred leaders are elected after each, as `ottla migrate
walk` does it. With `--by kafka` every start is Kafka's, so no byte of Ottla's is there. A record that is there twice is
shown with its batches (producer, epoch, sequence, leader epoch), and with the reasons that librdkafka gave.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.cluster.reassign import elect
from ottla.cli.exits import CommandFailed
from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch, iterate_batches, iterate_records
from ottla.storage.producers.producer_snapshot import decode_snapshot
from tests.cluster.admin import ask, create, leaders, until
from tests.cluster.walked import WalkedCluster

TOPIC = "restarted"
PARTITIONS = 4
WRITERS = 4
PAUSE_S = 0.005
WHOLE_S = 300
GAP_S = 1.0
TOLD = ("encountered error", "epoch bump", "bumped epoch", "timed out")
"""What librdkafka says, in lower case, when a batch is refused and when it raises the epoch of a producer."""
RAISED = ("bumped epoch", "out of order")
BEFORE_S = 2.0
"""How much of the log before a raised epoch is shown."""
IMPATIENT = {"message.timeout.ms": 30_000, "request.timeout.ms": 10_000}
"""The producers of `ottla check`: a record whose time is over, though it may be in the log, raises the epoch too."""


class Reasons(logging.Handler):
    """What librdkafka's log says of raised epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[float, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if any(each in line.lower() for each in TOLD):
            self.lines.append((time.time(), re.sub(r"\\[thrd:[^ ]*\\]: ", "", line)))

    def raised(self) -> list[str]:
        """The lines around each raised epoch."""
        at_s = [when for when, line in self.lines if any(each in line.lower() for each in RAISED)]
        return [f"{when:.3f} {line}" for when, line in self.lines if any(0 <= each - when < BEFORE_S for each in at_s)]


class Writer:
    """One idempotent producer; its values are unique."""

    def __init__(self, bootstrap: str, name: str, settings: Mapping[str, int]) -> None:
        self.reasons = Reasons()
        logger = logging.Logger("librdkafka")
        logger.addHandler(self.reasons)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "debug": "eos,msg",
                "logger": logger,
                "message.timeout.ms": 600_000,
                **settings,
            }
        )
        self._name = name
        self.acknowledged: set[bytes] = set()
        self.failed: list[str] = []
        self._last_s = [time.time()] * PARTITIONS
        self.gaps: list[tuple[float, float, int]] = []
        """Seconds in which a partition acknowledged nothing, when they began, and the partition."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(PAUSE_S):
            for partition in range(PARTITIONS):
                try:
                    self._producer.produce(
                        TOPIC, f"{self._name}-{number}", partition=partition, on_delivery=self._delivered
                    )
                    number += 1
                except BufferError:
                    self._producer.poll(0.05)
            self._producer.poll(0)
        self._producer.flush(120)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(f"{time.time():.3f} {error}")
        else:
            now_s, number = time.time(), message.partition()
            if now_s - self._last_s[number] > GAP_S:
                self.gaps.append((round(now_s - self._last_s[number], 1), round(self._last_s[number], 1), number))
            self._last_s[number] = now_s
            self.acknowledged.add(message.value())

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class Place(NamedTuple):
    """Where a record is."""

    partition: int
    offset: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    sequence: int


def places(data: Path) -> Iterator[tuple[bytes, Place]]:
    """The records of the topic, from the segments of one directory."""
    for partition in range(PARTITIONS):
        for segment in sorted((data / f"{TOPIC}-{partition}").glob("*.log")):
            for position, header in iterate_batches(content := segment.read_bytes()):
                for delta, record in enumerate(iterate_records(content, position)):
                    yield (
                        bytes(record.value or b""),
                        Place(
                            partition,
                            header.base_offset + delta,
                            header.leader_epoch,
                            header.producer_id,
                            header.producer_epoch,
                            header.base_sequence + delta,
                        ),
                    )


def disk(data: Path, software: str) -> Iterator[str]:
    """What is wrong in the files of a node that was stopped: producers' snapshots and leader epochs beside the log."""
    for partition in range(PARTITIONS):
        directory = data / f"{TOPIC}-{partition}"
        last: dict[int, tuple[int, int, int]] = {}
        epochs: dict[int, int] = {}
        end = 0
        for segment in sorted(directory.glob("*.log")):
            for _, header in iterate_batches(segment.read_bytes()):
                last[header.producer_id] = header.producer_epoch, header.last_sequence, header.last_offset
                epochs.setdefault(header.leader_epoch, header.base_offset)
                end = header.next_offset
        snapshot = directory / f"{end:020d}.snapshot"
        if not snapshot.exists():
            if last:
                yield f"{software} has left no {snapshot}"
            continue
        kept = {
            producer: (entry.producer_epoch, entry.last_sequence, entry.batches[-1].last_offset)
            for producer, entry in decode_snapshot(snapshot.name, snapshot.read_bytes())
        }
        if kept != last:
            yield f"{software} has left {snapshot}: {kept}, and the log says {last}"
        text = (directory / "leader-epoch-checkpoint").read_text().split("\n")[2:]
        named = {int(epoch): int(start) for epoch, start in map(str.split, filter(None, text))}
        if any(named.get(epoch) != start for epoch, start in epochs.items()):
            yield f"{software} has left leader epochs {named} in {directory}, and the log says {epochs}"


def wait_whole(bootstrap: str) -> None:
    """Until every replica is in sync."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + WHOLE_S
    while time.monotonic() < deadline:
        found = admin.list_topics(timeout=20)
        parts = [part for topic in found.topics.values() for part in topic.partitions.values()]
        if len(found.brokers) == 3 and all(len(each.isrs) == len(each.replicas) for each in parts):
            return
        time.sleep(0.3)
    raise AssertionError("replicas stay out of sync")


def _run(command: str) -> None:
    subprocess.run(["sh", "-c", command], check=True, stdin=subprocess.DEVNULL)


def restart(cluster: WalkedCluster, node: int, kind: str, pause_s: float, *, elects: bool = True) -> str:
    wait_whole(cluster.bootstrap)
    began_s = time.time()
    software = "kafka" if b"java" in Path(f"/proc/{cluster.pids()[node]}/cmdline").read_bytes()[:200] else "ottla"
    _run(cluster.script(node, "stop"))
    for line in disk(cluster.peers[node].data, software):
        print(line, flush=True)
    _run(cluster.script(node, f"start-{kind}"))
    wait_whole(cluster.bootstrap)
    if not elects:
        return ""
    timer = threading.Timer(pause_s, os.kill, (cluster.pids()[node], signal.SIGCONT))
    if pause_s:  # others know who leads before the leader does, as on a busy machine
        threading.Timer(0.02, os.kill, (cluster.pids()[node], signal.SIGSTOP)).start()
        timer.start()
    while True:
        try:
            elected = elect(cluster.bootstrap)
            break
        except CommandFailed:  # the controller is being elected
            time.sleep(0.3)
    if pause_s:
        timer.join()
    return f"{began_s:.1f}-{time.time():.1f} node {node} is {kind}, {elected} leaders elected"


def behind_a_refused_batch(old: str, new: str, topic: str) -> list[ErrorCode]:
    """What the preferred leader `new` answers while it takes over from `old`: to the batch with sequence 1, which comes
    too early, to the one behind it, which does not, and then to all three that the producer has sent, in order.

    So it is with several requests in flight, where others know the new leader before it knows so itself.
    """
    ids = {"transactional_id": None, "transaction_timeout_ms": 0, "producer_id": -1, "producer_epoch": -1}
    answer = until(lambda: ask(new, ApiKey.INIT_PRODUCER_ID, 4, ids), lambda found: found["error_code"] == 0)
    producer = answer["producer_id"], answer["producer_epoch"]

    def send(address: str, sequence: int) -> ErrorCode:
        records = [SimpleRecord(int(time.time() * 1000), None, b"%d" % sequence)]
        batch = build_batch(records, producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence)
        data = [{"name": topic, "partition_data": [{"index": 0, "records": bytes(batch)}]}]
        values = {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": data}
        found = ask(address, ApiKey.PRODUCE, 9, values)
        return ErrorCode(found["responses"][0]["partition_responses"][0]["error_code"])

    def leads() -> ErrorCode:
        rows = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]
        values = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": rows}]}
        found = ask(new, ApiKey.LIST_OFFSETS, 7, values)
        return ErrorCode(found["topics"][0]["partitions"][0]["error_code"])

    assert send(old, 0) == ErrorCode.none
    found = [send(new, 1)]
    leader_before = leaders(new, topic)
    elect(new, [(topic, 0)])
    until(lambda: leaders(new, topic), lambda now: now != leader_before)
    until(lambda: leaders(old, topic), lambda now: now != leader_before)
    until(leads, lambda error: error == ErrorCode.none)  # metadata name a leader before it is one
    return [*found, send(new, 2), *(send(new, sequence) for sequence in (0, 1, 2))]


def play(cluster: WalkedCluster, by: str, times: int, pause_s: float = 0) -> str:
    """What was counted, and every record that is not there once."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(60)
    if by == "kafka":
        assert create(cluster.addresses[1], "refused", replicas=[1, 2]) == 0
        restart(cluster, 1, "kafka", 0, elects=False)
        print(behind_a_refused_batch(cluster.addresses[2], cluster.addresses[1], "refused"), flush=True)
    writers = [Writer(cluster.bootstrap, str(n), IMPATIENT if n % 2 else {}) for n in range(WRITERS)]
    steps = []
    for _ in range(times):
        for kind in ("kafka",) if by == "kafka" else ("ottla", "kafka"):
            for node in cluster.nodes:
                steps.append(restart(cluster, node, kind, pause_s))
                print(steps[-1], flush=True)
    for each in writers:
        each.stop()
    wait_whole(cluster.bootstrap)
    cluster.stop()
    found = defaultdict(list)
    for value, place in places(cluster.peers[1].data):
        found[value].append(place)
    twice = {value: at for value, at in found.items() if len(at) > 1}
    sent = set().union(*(each.acknowledged for each in writers))
    lines = [f"{len(sent)} acknowledged, {len(sent - found.keys())} of them lost, {len(twice)} records twice"]
    lines += [f"  {value.decode()}: {at}" for value, at in [*twice.items()][:40]]
    for number, writer in enumerate(writers):
        said = [*writer.failed[:3], *writer.reasons.raised()[:40], f"longest gaps {sorted(writer.gaps)[-6:]}"]
        lines += [f"  producer {number}: {each}" for each in said]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster restarts")
    parser.add_argument("--by", choices=("kafka", "walk"), default="kafka")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that a node stands still at its election")
    parser.add_argument("--release", choices=("4.4", "4.3"), default="4.4")
    asked = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory() as directory,
        WalkedCluster(Path(directory), release=asked.release) as cluster,
    ):
        print(play(cluster, asked.by, asked.times, asked.pause), flush=True)
    return 0
