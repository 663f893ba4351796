"""The producer beside a broker: librdkafka reads what was sent, nothing is lost or twice; ends from outside."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka import Producer as LibrdkafkaProducer

from ottla.client.cluster import Cluster
from ottla.client.config import ClientConfig
from ottla.client.producer import Producer
from ottla.errors import ErrorCode, KafkaError
from ottla.testing import Broker

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(**SETTINGS) as running:
        yield running


SETTINGS: dict[str, Any] = {}


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    client = Cluster(config(broker))
    yield client
    client.close()


def config(broker: Broker, seconds: float = 10) -> ClientConfig:
    return ClientConfig((f"127.0.0.1:{broker.port}",), request_timeout_s=seconds)


def values(first: int, count: int, **columns: Any) -> pa.RecordBatch:
    return pa.record_batch({"value": [b"%d" % at for at in range(first, first + count)], **columns})


def read(address: str, topic: str, partitions: int = 1, *, committed: bool = True) -> list[Any]:
    """All messages up to the ends of the partitions, by librdkafka."""
    consumer = Consumer({
        "bootstrap.servers": address, "group.id": "r", "enable.auto.commit": False, "enable.partition.eof": True,
        "isolation.level": "read_committed" if committed else "read_uncommitted", "check.crcs": True,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, at, OFFSET_BEGINNING) for at in range(partitions)])
    found, ended = [], 0
    deadline = time.monotonic() + 30
    while ended < partitions:
        assert time.monotonic() < deadline
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is None:
            found.append(message)
        else:
            ended += 1
    consumer.close()
    return found


def numbers(broker: Broker, topic: str, partitions: int = 1, *, committed: bool = True) -> list[int]:
    return [int(one.value()) for one in read(f"127.0.0.1:{broker.port}", topic, partitions, committed=committed)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", "1"])
def test_librdkafka_reads_what_was_sent(broker: Broker, cluster: Cluster, codec: str, acks: str) -> None:
    topic = broker.create_topic(f"codec-{codec}-{acks}")
    rows = [
        (None if at % 5 == 0 else b"k%d" % at, None if at % 3 == 0 else b"v" * (at % 50), 1_000_000 + at,
         [("h", b"%d" % at), ("é", None), ("h", b"")] if at % 7 == 0 else None)
        for at in range(3000)
    ]  # fmt: skip
    keys, contents, times, headers = zip(*rows, strict=True)
    batch = pa.record_batch({
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(contents, pa.binary()),
        "timestamp": pa.array([each * 1000 for each in times], pa.timestamp("us", "Europe/Berlin")),
        "headers": pa.array([each and [{"key": k, "value": v} for k, v in each] for each in headers], HEADERS),
    })  # fmt: skip
    producer = Producer(cluster, acks=acks, idempotent=acks == "all", compression=codec, batch_bytes=10_000)
    producer.start()
    for at in range(0, 3000, 700):
        producer.send(topic, batch.slice(at, 700))
    producer.flush()
    assert producer.rows == 3000
    found = read(f"127.0.0.1:{broker.port}", topic)
    assert [(one.key(), one.value(), one.timestamp()[1], one.headers()) for one in found] == rows


def test_nobody_waits_without_acks(broker: Broker, cluster: Cluster) -> None:
    topic = broker.create_topic("acks-0")
    producer = Producer(cluster, acks="0", idempotent=False)
    producer.start()
    producer.send(topic, values(0, 1000))
    producer.flush()
    deadline = time.monotonic() + 10
    while (found := numbers(broker, topic)) != list(range(1000)):
        assert time.monotonic() < deadline, len(found)


def test_keys_go_where_librdkafka_puts_them_for_java(broker: Broker, cluster: Cluster) -> None:
    ours, theirs = (broker.create_topic(name, partitions=7) for name in ("keys-ours", "keys-theirs"))
    keys = [random.Random(seed).randbytes(seed % 23) for seed in range(300)]
    producer = Producer(cluster)
    producer.start()
    producer.send(ours, pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(keys, pa.binary())}))
    producer.flush()
    other = LibrdkafkaProducer({"bootstrap.servers": f"127.0.0.1:{broker.port}", "partitioner": "murmur2_random"})
    for key in keys:
        if key:  # an empty key counts as none there
            other.produce(theirs, b"", key)
    other.flush()
    place = {one.key(): one.partition() for one in read(f"127.0.0.1:{broker.port}", ours, 7)}
    expected = {one.key(): one.partition() for one in read(f"127.0.0.1:{broker.port}", theirs, 7)}
    assert {key: place[key] for key in expected} == expected
    assert len(place) == len(set(keys))


def test_rows_without_a_key_are_dealt_out(broker: Broker, cluster: Cluster) -> None:
    topic = broker.create_topic("sticky", partitions=3)
    producer = Producer(cluster)
    producer.start()
    for at in range(40):
        producer.send(topic, values(at * 1000, 1000))
    producer.flush()
    found = read(f"127.0.0.1:{broker.port}", topic, 3)
    assert sorted(int(one.value()) for one in found) == list(range(40_000))
    assert {one.partition() for one in found} == {0, 1, 2}


def test_each_row_goes_to_the_topic_it_names(broker: Broker, cluster: Cluster) -> None:
    one, other = (broker.create_topic(name) for name in ("by-column-1", "by-column-2"))
    producer = Producer(cluster)
    producer.start()
    producer.send(None, values(0, 999, topic=[one, other, one] * 333).slice(1, 900))
    producer.flush()
    assert numbers(broker, one) == [at for at in range(1, 901) if at % 3 != 1]
    assert numbers(broker, other) == [at for at in range(1, 901) if at % 3 == 1]


def test_what_cannot_be_sent_is_said(broker: Broker, cluster: Cluster) -> None:
    topic = broker.create_topic("refused")
    producer = Producer(cluster)
    producer.start()
    with pytest.raises(ValueError, match="the column topic is null"):
        producer.send(None, values(0, 2, topic=[topic, None]))
    with pytest.raises(ValueError, match="no topic"):
        producer.send(None, values(0, 2))
    with pytest.raises(ValueError, match="no column value"):
        producer.send(topic, pa.record_batch({"key": [b"k"]}))
    with pytest.raises(ValueError, match="refused has 1 partitions, and a row names another one"):
        producer.send(topic, values(0, 2, partition=pa.array([0, 1], pa.int32())))
    with pytest.raises(KafkaError, match="invalid_topic"):
        producer.send("a/b", values(0, 2))


def test_a_topic_that_is_not_there() -> None:
    with Broker(**{"auto.create.topics.enable": "false"}) as strict:
        cluster = Cluster(config(strict))
        producer = Producer(cluster)
        producer.start()
        with pytest.raises(KafkaError, match="topic absent") as raised:
            producer.send("absent", values(0, 1))
        assert raised.value.code is ErrorCode.unknown_topic_or_partition
        cluster.close()


def test_a_topic_that_the_broker_creates(broker: Broker, cluster: Cluster) -> None:
    producer = Producer(cluster)
    producer.start()
    producer.send("made-for-me", values(0, 10))
    producer.flush()
    partitions = len(cluster.partitions(["made-for-me"]))
    assert sorted(numbers(broker, "made-for-me", partitions)) == list(range(10))


def test_one_row_that_is_too_large(broker: Broker, cluster: Cluster) -> None:
    topic = broker.create_topic("too-large")
    producer = Producer(cluster)
    producer.start()
    producer.send(topic, pa.record_batch({"value": [b"x" * 2_000_000]}))
    with pytest.raises(KafkaError) as raised:
        producer.flush()
    assert raised.value.code is ErrorCode.message_too_large


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_topic_with_small_batches_gets_smaller_ones(broker: Broker, cluster: Cluster, codec: str) -> None:
    """As Kafka's producer splits a batch that is refused. The sequence numbers stay without a gap."""
    topic = broker.create_topic(f"small-batches-{codec}", **{"max.message.bytes": 2000})
    producer = Producer(cluster, compression=codec)
    producer.start()
    noise = [random.Random(at).randbytes(40) for at in range(3000)]
    batch = pa.record_batch({"key": pa.array(noise, pa.binary()), "value": [b"%d" % at for at in range(3000)]})
    for at in range(0, 3000, 500):
        producer.send(topic, batch.slice(at, 500))
        producer.flush()
    assert numbers(broker, topic) == list(range(3000))


def test_what_is_not_acknowledged_is_limited(broker: Broker, cluster: Cluster) -> None:
    """Batches that are open count too: many partitions get smaller ones."""
    topic = broker.create_topic("limited", partitions=50)
    producer = Producer(cluster, buffer_bytes_max=1_000_000)
    producer.start()
    most = 0
    for at in range(200):
        producer.send(topic, pa.record_batch({"key": [b"%d" % (at * 100 + n) for n in range(100)],
                                              "value": [b"x" * 1000] * 100}))  # fmt: skip
        open_bytes = sum(section.size for section in producer._sections[topic])
        most = max(most, producer._bytes + open_bytes)
    producer.flush()
    assert 0 < most < 2_500_000
    assert producer._bytes == 0
    assert len(read(f"127.0.0.1:{broker.port}", topic, 50)) == 20_000
