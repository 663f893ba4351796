"""The client and `ottla.arrow` beside a broker: what librdkafka wrote is what comes out."""

import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer

from ottla import arrow
from ottla.client.cluster import EARLIEST, LATEST, Cluster
from ottla.client.config import ClientConfig
from ottla.client.connection import Connection
from ottla.client.fetcher import Fetcher, FetchLimits, OffsetOutOfRange, TopicRecreated
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.testing import Broker

COUNT = 2000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    client = Cluster(config(broker))
    yield client
    client.close()


def config(broker: Broker) -> ClientConfig:
    return ClientConfig((f"127.0.0.1:{broker.port}",), request_timeout_s=10)


def produce(broker: Broker, topic: str, count: int = COUNT, *, first: int = 0, **settings: object) -> None:
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{broker.port}", "linger.ms": 0, **settings})
    transactional = "transactional.id" in settings
    if transactional:
        producer.init_transactions(10)
        producer.begin_transaction()
    for at in range(first, first + count):
        producer.produce(
            topic,
            None if at % 3 == 0 else b"v%d" % at,
            None if at % 5 == 0 else b"k%d" % at,
            partition=0,
            timestamp=1_000_000 + at,
            headers=[("h", b"%d" % at), ("n", None)] if at % 7 == 0 else None,
        )
        if at % 100 == 0:
            producer.flush()
    producer.flush()
    if transactional:
        producer.abort_transaction()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_become_columns(broker: Broker, codec: str) -> None:
    topic = f"columns-{codec}"
    broker.create_topic(topic)
    produce(broker, topic, **{"compression.type": codec})
    rows = arrow.read(topic, f"127.0.0.1:{broker.port}", headers=True).read_all().to_pylist()
    assert [row["offset"] for row in rows] == list(range(COUNT))
    for at, row in enumerate(rows):
        assert row["value"] == (None if at % 3 == 0 else b"v%d" % at)
        assert row["key"] == (None if at % 5 == 0 else b"k%d" % at)
        assert row["timestamp"] == datetime.fromtimestamp((1_000_000 + at) / 1000, UTC)
        pairs = [{"key": "h", "value": b"%d" % at}, {"key": "n", "value": None}] if at % 7 == 0 else None
        assert row["headers"] == pairs
        assert (row["topic"], row["partition"], row["timestampType"]) == (topic, 0, 0)


def test_a_slice_by_offsets_or_time_and_some_columns(broker: Broker) -> None:
    broker.create_topic("slice", partitions=2)
    produce(broker, "slice", 300)
    address = f"127.0.0.1:{broker.port}"
    table = arrow.read("slice", address, start=10, end={0: 20}, columns=["offset", "value"]).read_all()
    assert table.column_names == ["offset", "value"]
    assert table["offset"].to_pylist() == list(range(10, 20))
    since = datetime.fromtimestamp(1000.250, UTC)
    assert arrow.read("slice", address, start=since).read_all()["offset"].to_pylist() == list(range(250, 300))
    assert arrow.read("slice", address, end=since, partitions=[0]).read_all().num_rows == 250
    assert arrow.read("slice", address, start=10_000).read_all().num_rows == 0
    with pytest.raises(ValueError, match="no partition slice-7"):
        arrow.read("slice", address, partitions=[7])
    with pytest.raises(ValueError, match="no columns x"):
        arrow.read("slice", address, columns=["x"])
    with pytest.raises(KafkaError, match="unknown_topic_or_partition"):
        arrow.read("nothing-of-the-sort", address)


def test_what_was_aborted_is_left_out(broker: Broker) -> None:
    broker.create_topic("aborted")
    produce(broker, "aborted", 10)
    produce(broker, "aborted", 200, first=10, **{"transactional.id": "t"})
    produce(broker, "aborted", 10, first=210)
    address = f"127.0.0.1:{broker.port}"
    offsets = arrow.read("aborted", address).read_all()["offset"].to_pylist()
    assert offsets == [*range(10), *range(211, 221)]  # 210 is the marker
    assert arrow.read("aborted", address, read_committed=False).read_all().num_rows == 220


def test_batches_are_no_larger_than_asked(broker: Broker, cluster: Cluster) -> None:
    broker.create_topic("small")
    produce(broker, "small", 1000)
    found = list(arrow.batches(cluster, "small", 0, 5, 995, rows_max=150, limits=FetchLimits(bytes_max=4096)))
    assert max(batch.num_rows for batch in found) <= 150
    assert [offset for batch in found for offset in batch["offset"].to_pylist()] == list(range(5, 995))


def test_a_lost_connection_and_a_restart_lose_nothing() -> None:
    with Broker() as broker:
        broker.create_topic("lost")
        produce(broker, "lost", 1000)
        cluster = Cluster(config(broker))
        fetcher = Fetcher(cluster, "lost", 0, 0, 1000, limits=FetchLimits(bytes_max=2048))
        seen = 0
        for number, chunk in enumerate(fetcher):
            assert chunk.offset == seen
            seen = chunk.following
            if number == 1:
                broker.restart()
        assert seen == 1000
        cluster.close()


def test_offsets_behind_retention_are_named(broker: Broker, cluster: Cluster) -> None:
    broker.create_topic("short")
    produce(broker, "short", 10)
    with pytest.raises(OffsetOutOfRange) as raised:
        list(Fetcher(cluster, "short", 0, 50, 60))
    assert (raised.value.log_start, raised.value.end, raised.value.offset) == (0, 10, 50)


def test_a_topic_that_was_recreated_is_noticed(broker: Broker, cluster: Cluster) -> None:
    broker.create_topic("again")
    produce(broker, "again", 500)
    with pytest.raises(TopicRecreated):
        for number, _ in enumerate(Fetcher(cluster, "again", 0, 0, 500, limits=FetchLimits(bytes_max=1024))):
            if number == 0:
                recreate(broker, "again")
                produce(broker, "again", 500)


def recreate(broker: Broker, topic: str) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
    admin.delete_topics([topic])[topic].result(10)
    broker.create_topic(topic)


def test_offsets_and_commits(broker: Broker, cluster: Cluster) -> None:
    broker.create_topic("offsets", partitions=2)
    produce(broker, "offsets", 100)
    one, other = TopicPartition("offsets", 0), TopicPartition("offsets", 1)
    assert {at: found.offset for at, found in cluster.offsets({one: LATEST, other: EARLIEST}).items()} == {
        one: 100,
        other: 0,
    }
    assert cluster.offsets({one: 1_000_050, other: 1}) == {one: (50, 1_000_050), other: (-1, -1)}
    assert set(cluster.partitions(["offsets", "absent"])) == {one, other}
    assert "offsets" in cluster.topics()
    with pytest.raises(KafkaError) as raised:
        cluster.leader("offsets", 2)
    assert raised.value.code is ErrorCode.unknown_topic_or_partition
    cluster.commit_offsets("readers", {one: 42})
    assert cluster.committed_offsets("readers") == {one: 42}
    assert cluster.committed_offsets("nobody") == {}


def test_who_does_not_speak_the_protocol_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(OSError, match="does not speak Kafka's protocol"):
            Connection("127.0.0.1", port, ClientConfig((f"127.0.0.1:{port}",)))
        thread.join()
    with pytest.raises(OSError, match=f"no broker can be reached: 127.0.0.1:{port}"):
        Cluster(ClientConfig((f"127.0.0.1:{port}",))).topics()
