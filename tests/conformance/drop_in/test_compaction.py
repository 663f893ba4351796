"""A directory compacted by Apache Kafka and by Ottla: the same batches stay, and each reads what the other left."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ottla.protocol.records.record_batch import BatchHeader, Record, iterate_batches, iterate_records
from ottla.storage.segments.segment_files import FSYNCED_GAPS
from peers.kafka import KafkaPeer, tool
from tests.conformance.drop_in.drop_in import SETTINGS, Place
from tests.conformance.operations.operations import Client, eventually
from tests.node import NodeProcess
from tests.offsets import commit

pytestmark = pytest.mark.matrix

QUIET = {name: value for name, value in SETTINGS.items() if value is not None} | {
    "log.cleaner.enable": "false",
    "offsets.topic.num.partitions": "1",
}
BUSY = {**QUIET, "log.cleaner.enable": "true", "log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0"}
TOPICS = ("plain", "gzip", "lz4", "zstd", "snappy", "transactions", "__consumer_offsets")
COMMITS = 400
COMPLAINTS = ("mismatch", "exception", "isvalid: false", "out of order", "found invalid", "largest timestamp")


def fill(client: Client, bootstrap: str) -> None:
    settings: dict[str, Any] = {
        "cleanup_policy": "compact",
        "min_cleanable_dirty_ratio": "0.0",
        "internal_segment_bytes": 3000,
        "index_interval_bytes": 200,
    }
    for codec in ("none", "gzip", "lz4", "zstd", "snappy"):
        topic = "plain" if codec == "none" else codec
        assert client.create(topic, **settings) == "none"
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 1000, "enable.idempotence": True}
        )
        for number in range(600):
            value = None if number % 13 == 5 else b"%d " % number * 5
            producer.produce(topic, value, b"key %d" % (number * 7 % 40), headers=[("n", b"%d" % number), ("z", None)])
            if number % 11 == 10:
                producer.flush()
        producer.flush()
    assert client.create("transactions", **settings) == "none"
    for number in range(60):
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"id {number % 3}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for key in range(5):
            producer.produce("transactions", b"%d" % number * 20, b"key %d" % (key * number % 7))
        producer.flush()
        producer.commit_transaction() if number % 4 else producer.abort_transaction()
    assert client.alter("__consumer_offsets", internal_segment_bytes=10_000) == "none"
    commit(bootstrap, "committer", *({("plain", 0): number + 1} for number in range(COMMITS)))


def committed(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "committer"})
    found = consumer.committed([TopicPartition("plain", 0)], 30)[0].offset
    consumer.close()
    return int(found)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that Apache Kafka filled and did not compact."""
    place = Place(tmp_path_factory.mktemp("written"), QUIET)
    with place.running("kafka") as client:
        fill(client, place.bootstrap)
    return place.kafka.data


def cleaned(data: Path) -> dict[str, int]:
    """How far each topic was compacted."""
    try:
        lines = (data / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
    except OSError:
        return {}
    return {line.split()[0]: int(line.split()[2]) for line in lines}


def wait_until_clean(data: Path) -> None:
    """Until every topic is clean up to its active segment."""

    def done() -> bool:
        offsets = cleaned(data)
        return all(offsets.get(topic, 0) >= active(data, topic) for topic in TOPICS)

    eventually(done, "not compacted")


def active(data: Path, topic: str) -> int:
    return max(int(path.stem) for path in (data / f"{topic}-0").glob("*.log"))


def copy(written: Path, target: Path) -> Path:
    shutil.copytree(written, target)
    (target / ".lock").unlink(missing_ok=True)
    return target


@pytest.fixture(scope="module")
def by_kafka(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    peer = KafkaPeer(tmp_path_factory.mktemp("kafka"), heap="384m", settings=BUSY, release="4.4")
    copy(written, peer.data)
    peer.start()
    wait_until_clean(peer.data)
    peer.stop()
    return peer.data


@pytest.fixture(scope="module")
def by_ottla(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = copy(written, tmp_path_factory.mktemp("ottla") / "data")
    with NodeProcess(data, BUSY):
        wait_until_clean(data)
    return data


def batches(directory: Path) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Below the active segment, where everything is compacted."""
    for path in sorted(directory.glob("*.log"))[:-1]:
        content = path.read_bytes()
        for position, header in iterate_batches(content):
            yield header, list(iterate_records(content, position))


def segments(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.log"))


def comparable(directory: Path) -> list[Any]:
    """Everything but what depends on when it was compacted and on how well a codec compresses."""
    found = []
    for header, records in batches(directory):
        horizon = header.has_delete_horizon
        stable = header._replace(
            batch_length=0,
            crc=0,
            base_timestamp=0 if horizon else header.base_timestamp,
        )
        found.append((stable, records))
    return found


@pytest.mark.parametrize("topic", TOPICS)
def test_the_same_batches_stay(written: Path, by_kafka: Path, by_ottla: Path, topic: str) -> None:
    directory = f"{topic}-0"
    before = sum(len(records) for _, records in batches(written / directory))
    expected, found = comparable(by_kafka / directory), comparable(by_ottla / directory)
    assert sum(len(records) for _, records in found) < before / 2
    assert found == expected
    assert cleaned(by_ottla)[topic] == cleaned(by_kafka)[topic]
    assert segments(by_ottla / directory) == segments(by_kafka / directory)


def test_uncompressed_files_are_the_same_bytes(by_kafka: Path, by_ottla: Path) -> None:
    """Where no delete horizon tells the time of the cleaning."""
    same = 0
    for path in sorted((by_kafka / "transactions-0").glob("*.log"))[:-1]:
        other = (by_ottla / "transactions-0" / path.name).read_bytes()
        if not any(header.has_delete_horizon for _, header in iterate_batches(path.read_bytes())):
            assert other == path.read_bytes()
            same += 1
    assert same


@pytest.mark.parametrize("topic", TOPICS)
def test_kafka_dumps_what_ottla_left(by_ottla: Path, topic: str) -> None:
    directory = by_ottla / f"{topic}-0"
    files = [*directory.glob("*.log"), *directory.glob("*.*index")]
    names = ",".join(str(path) for path in files)
    output = str(tool("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", names).stdout)
    assert [line for line in output.splitlines() if any(word in line.lower() for word in COMPLAINTS)] == []


def everything(bootstrap: str, topic: str) -> dict[bytes, bytes]:
    """The table that a read_committed consumer makes of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    table: dict[bytes, bytes] = {}
    while True:
        message = consumer.poll(300)
        assert message is not None
        if message.error():
            break
        key, value = message.key(), message.value()
        assert key is not None
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    consumer.close()
    return table


def test_clients_see_the_same_before_and_after(written: Path, by_ottla: Path, by_kafka: Path, tmp_path: Path) -> None:
    """Kafka before any compaction; then each broker on what the other one compacted."""
    seen = []
    for number, data in enumerate((written, by_ottla)):
        peer = KafkaPeer(tmp_path / f"kafka {number}", heap="384m", settings=QUIET, release="4.4")
        copy(data, peer.data)
        mark = peer.data / "plain-0" / FSYNCED_GAPS
        mark.touch()
        peer.start()
        assert not mark.exists()  # Kafka's cleaner does not keep the rule that it stands for
        seen.append({topic: everything(peer.bootstrap, topic) for topic in TOPICS[:-1]})
        assert committed(peer.bootstrap) == COMMITS
        peer.stop()
    for number, data in enumerate((by_kafka, by_ottla)):
        with NodeProcess(copy(data, tmp_path / f"ottla {number}"), QUIET) as node:
            seen.append({topic: everything(node.bootstrap, topic) for topic in TOPICS[:-1]})
            assert committed(node.bootstrap) == COMMITS
    assert seen[0]["plain"]
    assert seen[1:] == seen[:1] * 3
