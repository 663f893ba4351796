"""librdkafka's idempotent producer over two partitions, whose leaders refuse batches and are killed (librdkafka#4953).

One node of three is down, and what a topic requires in sync goes to and fro between two and three: a batch is refused,
the next one behind it would be taken. Told that this one is out of order, librdkafka raises its epoch for all
partitions, and sends what is in doubt on another one again as new. So it must never be told so, and no record may be
there twice, also where a leader is killed meanwhile.
"""

from __future__ import annotations

import argparse
import logging
import random
import threading
import time
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from ottla.cli.cluster.members import members
from ottla.testing import Cluster

TOPIC = "bumped"
PARTITIONS = 2
DELIVERY_S = 120
TURNS_FACTOR = 20
"""Times the turns asked for: the most that are played to meet a refused batch for each."""
MINIMUM = "min.insync.replicas"


class Played(NamedTuple):
    acknowledged: int
    refused: int
    """Batches that the producer was told to send again."""
    bumps: list[str]
    """Epochs raised by librdkafka, from its log."""
    wrong: list[str]
    """Records that are not there once, in their order."""


class Log(logging.Handler):
    """librdkafka's debug log."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0
        self.bumps: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        self.refused += "encountered error: Broker: Not enough in-sync replicas" in line
        if "out of order" in line.lower() or "bumped epoch" in line or "draining" in line.lower():
            self.bumps.append(line)


class Writer:
    """Produces numbered values until it is stopped."""

    def __init__(self, bootstrap: str, pause_s: float = 0.0005) -> None:
        """`pause_s`: between two records of each partition."""
        self._pause_s = pause_s
        self.log = Log()
        logger = logging.Logger("librdkafka")
        logger.addHandler(self.log)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "debug": "msg,eos",
                "logger": logger,
                "message.timeout.ms": DELIVERY_S * 1000,
                "retry.backoff.ms": 1,
                "retry.backoff.max.ms": 1,
                "batch.num.messages": 5,
                "queue.buffering.max.messages": 2000,
            }
        )
        self.acknowledged: list[set[int]] = [set() for _ in range(PARTITIONS)]
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        numbers = [0] * PARTITIONS
        while not self._stop.wait(self._pause_s):
            for partition in range(PARTITIONS):
                value = b"%d" % numbers[partition]
                try:
                    self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._delivered)
                    numbers[partition] += 1
                except BufferError:
                    self._producer.poll(0.05)
            self._producer.poll(0)
        self._producer.flush(DELIVERY_S)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged[message.partition()].add(int(message.value()))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def play(cluster: Any, *, turns: int, kills: int, seed: int) -> Played:
    """So many turns of the requirement, and so many leaders killed among them. More turns where few batches were
    refused: those in flight at a turn may wait for its end, and then none follows."""
    chance = random.Random(seed)
    create(AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0}))
    kill_at = set(chance.sample(range(turns), kills))
    cluster.kill(3)
    # librdkafka may wait a minute for a broker that it has met and that is gone.
    left = ",".join(cluster.bootstrap.split(",")[:2])
    while [each.id for each in members(left).running] != [1, 2]:
        time.sleep(0.05)
    admin = AdminClient({"bootstrap.servers": left, "log_level": 0})
    writer = Writer(cluster.bootstrap)
    for turn in range(TURNS_FACTOR * turns):
        if turn >= turns and writer.log.refused > turns:
            break
        _require(admin, 3)
        time.sleep(chance.uniform(0, 0.05))
        if turn in kill_at:
            node = chance.choice((1, 2))
            cluster.kill(node)
            cluster.restart(node)
        _require(admin, 2)
        time.sleep(chance.uniform(0, 0.15))
    cluster.restart(3)
    writer.stop()
    acknowledged = sum(map(len, writer.acknowledged))
    return Played(acknowledged, writer.log.refused, writer.log.bumps, writer.failed[:3] + wrong(cluster, writer))


def create(admin: Any) -> None:
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, config={MINIMUM: "2"})])[TOPIC].result(60)


def _require(admin: Any, replicas: int) -> None:
    entry = ConfigEntry(MINIMUM, str(replicas), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)


def wrong(cluster: Any, writer: Writer) -> list[str]:
    found = []
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "bumped", "log_level": 0})
    for partition in range(PARTITIONS):
        place = TopicPartition(TOPIC, partition, 0)
        end = consumer.get_watermark_offsets(place, timeout=60)[1]
        consumer.assign([place])
        values: list[int] = []
        deadline = time.monotonic() + 60
        while len(values) < end and time.monotonic() < deadline:
            values += [int(each.value()) for each in consumer.consume(500, 1) if each.error() is None]
        twice = len(values) - len(set(values))
        if twice or values != sorted(values):
            found.append(f"partition {partition}: {twice} records twice, in order {values == sorted(values)}")
        if lost := writer.acknowledged[partition] - set(values):
            found.append(f"partition {partition}: {len(lost)} acknowledged records are not there")
    consumer.close()
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster bumps")
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    with Cluster(3) as cluster:
        played = play(cluster, turns=asked.turns, kills=asked.kills, seed=asked.seed)
    print(played)
    return int(bool(played.wrong or played.bumps))
