"""`python -m tests.crash.compacted --minutes N`: a node that compacts, and is killed, keeps its word all the same.

librdkafka's idempotent producers write versions of keys, deletions among them, into compacted topics with small
segments while the settings of the topics change and the node is killed. Readers start over again and again and compare
with what was acknowledged. Exits with 1 on the first broken promise.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.node import NodeProcess

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = 300
DELETE_RETENTION_MS = 4_000
IN_FLIGHT_MAX = 5_000
"""Records of one producer that are not acknowledged yet."""
SETTINGS = {
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.threads": "2",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    "log.segment.delete.delay.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "log.retention.check.interval.ms": "500",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "1048576",
}
TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": "300",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": str(DELETE_RETENTION_MS),
}
CHANGES: dict[str, tuple[str, ...]] = {
    "cleanup.policy": ("compact", "compact", "delete", "compact,delete"),
    "segment.ms": ("100", "500", "5000"),
    "segment.bytes": ("1048576", "4194304"),
    "min.cleanable.dirty.ratio": ("0.01", "0.3", "0.6"),
    "max.compaction.lag.ms": ("500", "9223372036854775807"),
    "min.compaction.lag.ms": ("0", "1000"),
    "compression.type": ("producer", "zstd", "uncompressed"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "index.interval.bytes": ("0", "4096"),
}


class Broken(AssertionError):
    """A promise that was not kept."""


@dataclass
class Acknowledged:
    version: int
    offset: int
    is_deletion: bool


@dataclass
class Model:
    """Known state of one topic. One producer writes it; a record's header tells its version."""

    topic: str
    sent: dict[bytes, int] = field(default_factory=dict)
    acknowledged: dict[bytes, Acknowledged] = field(default_factory=dict)
    oldest: dict[bytes, int] = field(default_factory=dict)
    """By key, the lowest version that the last reading met: none below it may come back."""
    records: int = 0
    readings: int = 0
    seen: int = 0
    compacted: int = 0
    """Records that were missing from readings."""

    def check(self, known: dict[bytes, Acknowledged], found: dict[bytes, list[tuple[int, bool]]], late: bool) -> None:
        """`known` was acknowledged before the reading began; `late` says it took longer than deletions are kept."""
        for key, was in known.items():
            versions = found.get(key, [])
            last = versions[-1][0] if versions else -1
            if last < was.version and not (was.is_deletion and (not versions or late)):
                raise Broken(f"{self.topic} {key!r}: version {was.version} was acknowledged ({was}), found {versions}")
        for key, versions in found.items():
            numbers = [version for version, _ in versions]
            if numbers != sorted(set(numbers)):
                raise Broken(f"{self.topic} {key!r}: versions in the wrong order: {numbers}")
            if numbers[-1] > self.sent[key]:
                raise Broken(f"{self.topic} {key!r}: version {numbers[-1]} was never sent")
            if numbers[0] < self.oldest.get(key, 0):
                raise Broken(f"{self.topic} {key!r}: version {numbers[0]} came back, {self.oldest[key]} was the oldest")
        for key, was in known.items():
            if key in found:
                self.oldest[key] = found[key][0][0]
            elif was.is_deletion:
                self.oldest[key] = was.version + 1


class Soak:
    def __init__(self, directory: Path, seed: int, topics: int, settings: dict[str, str]) -> None:
        self.random = Random(seed)
        self.node = NodeProcess(directory, SETTINGS | settings)
        self.models = [Model(f"compacted-{number}") for number in range(topics)]
        self.stop_writing = threading.Event()
        self.stop_reading = threading.Event()
        self.failures: list[BaseException] = []
        self.kills = self.changes = self.lives = self.commits = 0
        self.rate = 2_000

    def client(self, **options: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self.node.bootstrap, "reconnect.backoff.max.ms": 200, "log_level": 0, **options}

    def consumer(self, **options: Any) -> Consumer:
        defaults = {"group.id": "reader", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        return Consumer(self.client(**(defaults | options)))

    # The load

    def write(self, number: int) -> None:
        model, random = self.models[number], Random(number)
        producer = Producer(
            self.client(
                **{
                    "enable.idempotence": True,
                    "compression.type": CODECS[number % len(CODECS)],
                    "linger.ms": 3,
                    "message.timeout.ms": 0,
                    "batch.num.messages": random.choice((7, 50, 500)),
                }
            )
        )

        def acknowledge(key: bytes, version: int, is_deletion: bool) -> Callable[[Any, Any], None]:
            def done(error: Any, message: Any) -> None:
                if error is not None:
                    self.failures.append(Broken(f"{model.topic}: {error}"))
                else:
                    model.acknowledged[key] = Acknowledged(version, message.offset(), is_deletion)
                    model.records += 1

            return done

        while not self.stop_writing.is_set():
            for _ in range(self.rate // 100):
                key = b"key-%d" % int(random.paretovariate(0.7) % KEYS)
                version = model.sent.get(key, -1) + 1
                is_deletion = random.random() < 0.2
                value = None if is_deletion else random.randbytes(random.choice((0, 20, 300)))
                model.sent[key] = version
                producer.produce(
                    model.topic,
                    value,
                    key,
                    headers=[("version", str(version))],
                    on_delivery=acknowledge(key, version, is_deletion),
                )
            producer.poll(0.01)
            while len(producer) > IN_FLIGHT_MAX and not self.stop_writing.is_set():
                producer.poll(0.05)
        if producer.flush(300):
            raise Broken(f"{model.topic}: {len(producer)} records were never acknowledged")

    def read(self, number: int) -> None:
        while not self.stop_reading.is_set():
            self.read_all(self.models[number])
            time.sleep(0.2)

    def read_all(self, model: Model) -> None:
        """Read a topic from its beginning to where it ended when the reading began."""
        known = dict(model.acknowledged)
        end = max((each.offset for each in known.values()), default=-1) + 1
        found: dict[bytes, list[tuple[int, bool]]] = {}
        consumer = self.consumer()
        try:
            consumer.assign([TopicPartition(model.topic, 0, 0)])
            began, position, count = time.monotonic(), -1, 0
            while True:
                messages: list[Any] = consumer.consume(500, 0.2)
                for message in messages:
                    if message.error() is not None:
                        continue
                    if message.offset() <= position:
                        raise Broken(f"{model.topic}: offset {message.offset()} after {position}")
                    position = message.offset()
                    count += 1
                    ((_, version),) = message.headers()
                    found.setdefault(message.key(), []).append((int(version), message.value() is None))
                (where,) = consumer.position([TopicPartition(model.topic, 0)])
                if where.offset >= end:
                    break
                if time.monotonic() - began > 60:
                    raise Broken(f"{model.topic}: reading stops at {where.offset}, {end} is known to be there")
            seconds = time.monotonic() - began
        finally:
            consumer.close()
        model.check(known, found, seconds * 1000 > DELETE_RETENTION_MS)
        model.readings += 1
        model.seen += count
        model.compacted += position + 1 - count

    def commit(self, number: int) -> None:
        """Commits that grow; whoever asks later is told the last acknowledged one or a later one."""
        acknowledged, where = -1, TopicPartition(self.models[0].topic, 0)
        consumer = self.consumer(**{"group.id": f"committer-{number}"})
        try:
            for offset in itertools.count():
                if self.stop_writing.is_set():
                    return
                where.offset = offset
                with suppress(KafkaException):
                    consumer.commit(offsets=[where], asynchronous=False)
                    acknowledged = offset
                    self.commits += 1
                if offset % 50 == 0:
                    with suppress(KafkaException):
                        (found,) = consumer.committed([where], 10)
                        if not acknowledged <= found.offset <= offset:
                            raise Broken(f"committed {acknowledged} of {offset}, found {found.offset}")
        finally:
            consumer.close()

    def change_settings(self) -> None:
        random = Random(1)
        admin = AdminClient(self.client())
        while not self.stop_writing.wait(random.uniform(0.1, 1.5)):
            name = random.choice(sorted(CHANGES))
            entry = ConfigEntry(name, random.choice(CHANGES[name]), incremental_operation=AlterConfigOpType.SET)
            model = random.choice(self.models)
            resource = ConfigResource(ResourceType.TOPIC, model.topic, incremental_configs=[entry])
            with suppress(KafkaException):
                for future in admin.incremental_alter_configs([resource], request_timeout=5).values():
                    future.result()
                self.changes += 1

    def live_and_die(self) -> None:
        """One topic is made and deleted again and again; each finds only its own records."""
        admin = AdminClient(self.client())
        for life in self._lives():
            with suppress(KafkaException):
                (created,) = admin.create_topics(
                    [NewTopic("mortal", 1, 1, config=TOPIC_CONFIG | {"segment.ms": "20"})], request_timeout=5
                ).values()
                created.result()
                time.sleep(0.1)
                if self._fill(life):
                    time.sleep(self.random.uniform(0, 0.5))
                    self._look_at(life)
                    self.lives += 1
            with suppress(KafkaException):
                for future in admin.delete_topics(["mortal"], request_timeout=5).values():
                    future.result()

    def _lives(self) -> Iterator[int]:
        life = 0
        while not self.stop_writing.wait(0.1):
            life += 1
            yield life

    def _fill(self, life: int) -> bool:
        errors: list[Any] = []
        producer = Producer(self.client(**{"message.timeout.ms": 20_000, "batch.num.messages": 20}))
        for number in range(3000):
            key = b"%d" % (number % 30)
            producer.produce("mortal", b"%d" % life, key, on_delivery=lambda error, _: errors.append(error))
        return not producer.flush(300) and not any(errors)

    def _look_at(self, life: int) -> None:
        consumer = self.consumer()
        try:
            consumer.assign([TopicPartition("mortal", 0, 0)])
            keys: set[bytes] = set()
            began = time.monotonic()
            while len(keys) < 30 and time.monotonic() - began < 20:
                messages: list[Any] = consumer.consume(500, 0.2)
                for message in messages:
                    if message.error() is None:
                        if int(message.value()) != life:
                            raise Broken(f"life {life} finds a record of life {message.value()!r}")
                        keys.add(message.key())
            if len(keys) < 30:
                raise Broken(f"life {life} finds {len(keys)} of 30 keys")
        finally:
            consumer.close()

    # The run

    def run(self, seconds: float, round_seconds: tuple[float, float], report: Callable[[str], None] = print) -> None:
        self.node.start()
        try:
            self._run(seconds, round_seconds, report)
        finally:
            self.stop_writing.set()
            self.stop_reading.set()
            if self.node.process is not None:
                self.node.kill()

    def _run(self, seconds: float, round_seconds: tuple[float, float], report: Callable[[str], None]) -> None:
        admin = AdminClient(self.client())
        for future in admin.create_topics(
            [NewTopic(each.topic, 1, 1, config=TOPIC_CONFIG) for each in self.models]
        ).values():
            future.result()
        numbers = range(len(self.models))
        writers = [
            *(self._thread(self.write, number) for number in numbers),
            *(self._thread(self.commit, number) for number in range(2)),
            self._thread(self.change_settings),
            self._thread(self.live_and_die),
        ]
        readers = [self._thread(self.read, number) for number in numbers]
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            self._wait(self.random.uniform(*round_seconds))
            self.node.kill()
            self.kills += 1
            if self.random.random() < 0.2:
                self._start_half()
            self.node.start()
            report(f"{time.monotonic() - began:.0f} s: {self.summary()}")
        self.stop_writing.set()
        self._join(writers)
        self.stop_reading.set()
        self._join(readers)
        self.node.stop()
        self.node.start()
        for model in self.models:
            self.read_all(model)

    def _start_half(self) -> None:
        thread = threading.Thread(target=lambda: self._try(self.node.start))
        thread.start()
        time.sleep(self.random.uniform(0.05, 0.8))
        process = self.node.process
        if process is not None:
            process.kill()
            self.kills += 1
        thread.join()

    @staticmethod
    def _try(start: Callable[[], float]) -> None:
        with suppress(RuntimeError, AssertionError):
            start()

    def _thread(self, work: Callable[..., None], *arguments: int) -> threading.Thread:
        def run() -> None:
            try:
                work(*arguments)
            except BaseException as error:
                self.failures.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.failures:
                raise self.failures[0]
            time.sleep(0.05)

    def _join(self, threads: list[threading.Thread]) -> None:
        for thread in threads:
            thread.join(90)
            if thread.is_alive():
                raise Broken("a client does not come to its end")
        if self.failures:
            raise self.failures[0]

    def summary(self) -> str:
        readings, seen = sum(each.readings for each in self.models), sum(each.seen for each in self.models)
        return (
            f"{self.kills} kills, {sum(each.records for each in self.models)} records acknowledged, "
            f"{readings} readings of {seen} records where {sum(each.compacted for each in self.models)} offsets had "
            f"none any more, {self.commits} commits, "
            f"{self.changes} settings changed, {self.lives} topics deleted"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--topics", type=int, default=5)
    parser.add_argument(
        "--round", type=float, nargs=2, default=(4, 20), metavar=("MIN", "MAX"), help="seconds of a life"
    )
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the node")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="ottla-compacted-"))
    soak = Soak(
        directory / "data", arguments.seed, arguments.topics, dict(each.split("=", 1) for each in arguments.set)
    )
    print(f"seed {arguments.seed}, data in {directory}", flush=True)
    try:
        soak.run(arguments.minutes * 60, tuple(arguments.round), lambda line: print(line, flush=True))
    except (AssertionError, RuntimeError, KafkaException) as error:
        print(f"FAILED after {soak.summary()}: {type(error).__name__} {error}", file=sys.stderr)
        return 1
    print(f"ok: {soak.summary()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
