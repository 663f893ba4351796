"""The producer beside a broker: librdkafka reads what was sent, nothing is lost or twice, others end transactions."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka.admin import AdminClient

from ottla.client import producer as producer_module
from ottla.client.cluster import Cluster
from ottla.client.config import ClientConfig
from ottla.client.connection import Connection
from ottla.client.producer import Producer
from ottla.client.transactions import describe_transactions, end_transaction, init_producer, list_transactions
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages import ApiKey
from ottla.testing import Broker

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


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
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "r",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "check.crcs": True,
        }
    )
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
        (
            None if at % 5 == 0 else b"k%d" % at,
            None if at % 3 == 0 else b"v" * (at % 50),
            1_000_000 + at,
            [("h", b"%d" % at), ("é", None), ("h", b"")] if at % 7 == 0 else None,
        )
        for at in range(3000)
    ]
    keys, contents, times, headers = zip(*rows, strict=True)
    batch = pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(contents, pa.binary()),
            "timestamp": pa.array([each * 1000 for each in times], pa.timestamp("us", "Europe/Berlin")),
            "headers": pa.array([each and [{"key": k, "value": v} for k, v in each] for each in headers], HEADERS),
        }
    )
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
    with pytest.raises(ValueError, match="refused has 1 partitions, but a row names another partition"):
        producer.send(topic, values(0, 2, partition=pa.array([0, 1], pa.int32())))
    with pytest.raises(KafkaError, match="invalid_topic"):
        producer.send("a/b", values(0, 2))


def test_a_topic_that_is_not_there() -> None:
    with Broker(settings={"auto.create.topics.enable": "false"}) as strict:
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
        producer.send(
            topic, pa.record_batch({"key": [b"%d" % (at * 100 + n) for n in range(100)], "value": [b"x" * 1000] * 100})
        )
        open_bytes = sum(section.size for section in producer._sections[topic])
        most = max(most, producer._bytes + open_bytes)
    producer.flush()
    assert 0 < most < 2_500_000
    assert producer._bytes == 0
    assert len(read(f"127.0.0.1:{broker.port}", topic, 50)) == 20_000


@pytest.mark.parametrize("when", ["before it is sent", "before the answer"])
def test_lost_connections_lose_nothing_and_repeat_nothing(
    broker: Broker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    topic = broker.create_topic(f"cut-{when.split()[-1]}", partitions=2)
    send_frame, count, chance = Connection.send_frame, 0, random.Random(1)

    def cut(self: Connection, *parts: Any, is_answered: bool = True) -> int:
        nonlocal count
        if sum(map(len, parts)) < 1000 or chance.random() < 0.5:  # only what has records
            return send_frame(self, *parts)
        count += 1
        if when == "before it is sent":
            self.close()
            raise ConnectionResetError("cut")
        sent = send_frame(self, *parts)
        time.sleep(0.05)  # it is written
        self._socket.shutdown(socket.SHUT_RDWR)
        return sent

    producer = Producer(cluster, batch_bytes=3000)
    producer.start()
    monkeypatch.setattr(Connection, "send_frame", cut)
    for at in range(0, 4000, 400):
        producer.send(topic, values(at, 400, partition=pa.array([at % 2 for at in range(400)], pa.int32())))
        producer.flush()
    monkeypatch.undo()
    assert count > 0
    found = read(f"127.0.0.1:{broker.port}", topic, 2)
    for partition in range(2):
        assert [int(one.value()) for one in found if one.partition() == partition] == list(range(partition, 4000, 2))


def test_a_node_that_restarts_while_it_is_written_to() -> None:
    with Broker() as broker:
        topic = broker.create_topic("restarts", partitions=3)
        cluster = Cluster(config(broker, 30))
        producer = Producer(cluster, batch_bytes=2000)
        producer.start()
        for at in range(0, 6000, 100):
            producer.send(topic, values(at, 100, key=[b"%d" % at for at in range(at, at + 100)]))
            if at == 2000:
                broker.restart()
        producer.flush()
        assert sorted(numbers(broker, topic, 3)) == list(range(6000))
        cluster.close()


def test_a_node_that_hangs_is_given_up(broker: Broker) -> None:
    """It is asked again when its time is over, and everything is there once when it goes on."""
    with Broker() as hung:
        topic = hung.create_topic("hangs")
        cluster = Cluster(config(hung, 1))
        producer = Producer(cluster)
        producer.start()
        producer.send(topic, values(0, 10))
        producer.flush()
        os.kill(hung.pid, signal.SIGSTOP)
        thread = threading.Timer(4, os.kill, (hung.pid, signal.SIGCONT))
        thread.start()
        producer.send(topic, values(10, 10))
        producer.flush()
        thread.join()
        assert numbers(hung, topic) == list(range(20))
        cluster.close()


def test_nobody_to_send_to_is_said_in_time() -> None:
    with Broker() as gone:
        topic = gone.create_topic("gone")
        cluster = Cluster(config(gone, 1))
        producer = Producer(cluster, delivery_timeout_s=2)
        producer.start()
        producer.send(topic, values(0, 1))
        gone.kill()
        began = time.monotonic()
        with pytest.raises((OSError, KafkaError)):
            producer.flush()
        assert time.monotonic() - began < 10


def transactional(cluster: Cluster, name: str, timeout_ms: int = 60_000) -> Producer:
    producer = Producer(cluster, transactional_id=name, transaction_timeout_ms=timeout_ms)
    producer.start()
    producer.begin()
    return producer


def test_transactions_one_after_the_other(broker: Broker, cluster: Cluster) -> None:
    topic = broker.create_topic("transactions", partitions=2)
    producer = transactional(cluster, "one-by-one")
    for at in range(20):
        producer.begin()
        producer.send(topic, values(at * 100, 100))
        if at % 2:
            producer.abort()
        else:
            producer.commit()
    producer.begin()
    producer.commit()  # nothing in it
    assert sorted(numbers(broker, topic, 2)) == [at for at in range(2000) if at // 100 % 2 == 0]


def test_partitions_that_are_expected_are_added_at_once(
    broker: Broker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = []
    add = producer_module.add_partitions

    def counted(cluster: Cluster, name: str, producer: Any, partitions: Any) -> None:
        added.append([str(at) for at in partitions])
        add(cluster, name, producer, partitions)

    monkeypatch.setattr(producer_module, "add_partitions", counted)
    for name in ("first", "later"):
        broker.create_topic(name)
    producer = transactional(cluster, "expecting")
    for number in range(2):
        producer.begin([producer_module.TopicPartition("later", 0)])
        for name in ("first", "later"):
            producer.send(name, values(number, 1))
            producer.flush()
        producer.commit()
    assert added == 2 * [["first-0", "later-0"]]
    assert numbers(broker, "first") == numbers(broker, "later") == [0, 1]


def test_another_process_ends_a_transaction(broker: Broker, cluster: Cluster) -> None:
    topic = broker.create_topic("ended-elsewhere")
    other = Cluster(config(broker))
    for commit in (True, False):
        producer = transactional(cluster, f"elsewhere-{commit}")
        producer.send(topic, values(100 if commit else 200, 5))
        producer.flush()
        producer.close()
        assert numbers(broker, topic) == ([] if commit else list(range(100, 105)))
        known = describe_transactions(other, [f"elsewhere-{commit}", "nobody"])
        assert set(known) == {f"elsewhere-{commit}"}
        described = known[f"elsewhere-{commit}"]
        assert (described.state, described.producer_id, described.epoch, described.timeout_ms) == (
            "Ongoing",
            producer.producer_id,
            producer.epoch,
            60_000,
        )
        assert abs(described.started_ms / 1000 - time.time()) < 30
        assert list_transactions(other, "elsewhere-") == [f"elsewhere-{commit}"]
        for _ in range(2):
            end_transaction(other, f"elsewhere-{commit}", producer.producer_id, producer.epoch, commit=commit)
        with pytest.raises(KafkaError) as raised:
            end_transaction(other, f"elsewhere-{commit}", producer.producer_id, producer.epoch, commit=not commit)
        assert raised.value.code is ErrorCode.invalid_txn_state
        assert list_transactions(other, "elsewhere-") == []
    assert numbers(broker, topic) == list(range(100, 105))
    other.close()


def test_a_later_producer_of_the_same_id_fences_the_earlier_one(broker: Broker, cluster: Cluster) -> None:
    topic = broker.create_topic("fenced")
    first = transactional(cluster, "one-of-two")
    first.send(topic, values(0, 5))
    first.flush()
    second = transactional(cluster, "one-of-two")
    assert (second.producer_id, second.epoch > first.epoch) == (first.producer_id, True)
    first.send(topic, values(5, 5))
    with pytest.raises(KafkaError) as raised:
        first.commit()
    assert raised.value.code in (ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced)
    with pytest.raises(KafkaError):
        end_transaction(cluster, "one-of-two", first.producer_id, first.epoch, commit=True)
    second.send(topic, values(10, 5))
    second.commit()
    assert numbers(broker, topic) == list(range(10, 15))


def test_a_transaction_that_times_out() -> None:
    with Broker(settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}) as broker:
        topic = broker.create_topic("late")
        cluster = Cluster(config(broker))
        producer = transactional(cluster, "late", 300)
        producer.send(topic, values(0, 5))
        producer.flush()
        deadline = time.monotonic() + 20
        while describe_transactions(cluster, ["late"])["late"].state != "CompleteAbort":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with pytest.raises(KafkaError) as raised:
            producer.commit()
        assert raised.value.code in (ErrorCode.invalid_producer_epoch, ErrorCode.producer_fenced)
        assert numbers(broker, topic) == []
        cluster.close()


def test_an_abort_waits_for_what_is_on_its_way(broker: Broker, cluster: Cluster) -> None:
    """A batch behind the marker of its abort would hold readers up for ever, where nobody verifies."""
    settings = {"transaction.partition.verification.enable": "false"}
    with Broker(settings=settings) as careless:
        topic = careless.create_topic("aborted-midway", partitions=4)
        client = Cluster(config(careless))
        for number in range(20):
            producer = Producer(client, transactional_id=f"midway-{number}", batch_bytes=20_000)
            producer.start()
            producer.begin()
            producer.send(topic, values(0, 20_000, key=[b"%d" % at for at in range(20_000)]))
            producer.abort()
        producer = Producer(client)
        producer.start()
        producer.send(topic, values(7, 1, partition=pa.array([0], pa.int32())))
        producer.flush()
        assert numbers(careless, topic, 4) == [7]
        client.close()


def test_a_producer_that_may_not_create_topics_does_not(
    broker: Broker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror's deleted topic must not come back by the copier, without its older records."""
    monkeypatch.setattr(producer_module, "_CREATION_S", 0.0)
    producer = Producer(cluster, creates_topics=False)
    producer.start()
    with pytest.raises(KafkaError) as caught:
        producer.send("not-there", values(0, 1))
    assert caught.value.code is ErrorCode.unknown_topic_or_partition
    assert "not-there" not in AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics().topics


def test_settings_that_exclude_each_other(cluster: Cluster) -> None:
    for settings in ({"acks": "1"}, {"acks": "0", "idempotent": False, "transactional_id": "t"}):
        with pytest.raises(ValueError, match="acks=all"):
            Producer(cluster, **settings)  # type: ignore[arg-type]


def test_a_broker_without_a_block_of_producer_ids_is_asked_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of the controller may take longer than the broker waits for a block."""
    ask, refused = cluster.ask_any, [ErrorCode.request_timed_out, ErrorCode.coordinator_load_in_progress]

    def refusing(key: ApiKey, values: Any) -> Any:
        return {"error_code": refused.pop()} if refused else ask(key, values)

    monkeypatch.setattr(cluster, "ask_any", refusing)
    assert init_producer(cluster, None).producer_id >= 0 and not refused
