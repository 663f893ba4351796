"""confluent-kafka (librdkafka): producers, consumers and the admin client."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)


@cache
def admin(bootstrap: str) -> AdminClient:
    """One client, kept: a pending call fails when its client is collected."""
    return AdminClient({"bootstrap.servers": bootstrap})


def create(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    new = NewTopic(topic, partitions, 1, config={name.replace("_", "."): value for name, value in config.items()})
    admin(bootstrap).create_topics([new])[topic].result(300)


def produce(bootstrap: str, topic: str, records: list[dict[str, Any]], **config: Any) -> list[Any]:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, **config})
    delivered: list[Any] = []

    def report(error: object, message: Any) -> None:
        assert error is None, error
        delivered.append(message)

    for record in records:
        producer.produce(topic, on_delivery=report, **record)
    assert producer.flush(300) == 0
    return delivered


def consume(bootstrap: str, topic: str, count: int, *, group: str = "unused", **config: Any) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", **config})
    consumer.subscribe([topic])
    messages: list[Any] = []
    deadline = time.monotonic() + 60
    while len(messages) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(messages), 0.2):
            assert message.error() is None, message.error()
            messages.append(message)
    consumer.close()
    return messages


@pytest.mark.client("confluent-kafka", "produces with {codec}, with and without idempotence, and reads it back")
@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_keys_values_headers_and_timestamps_survive(bootstrap: str, topic: str, codec: str, idempotent: bool) -> None:
    create(bootstrap, topic)
    records = [
        {
            "key": None if i % 3 == 0 else f"k{i}".encode(),
            "value": None if i % 7 == 0 else bytes([i % 256]) * (i % 300),
            "headers": [("a", b"1"), ("a", None), ("ü", bytes([i % 256]))],
            "timestamp": 1_700_000_000_000 + i,
        }
        for i in range(500)
    ]
    config = {"compression.type": codec, "enable.idempotence": idempotent}
    produce(bootstrap, topic, records, **config)
    got = consume(bootstrap, topic, len(records), group=f"g-{topic}")
    assert [m.offset() for m in got] == list(range(500))
    for record, message in zip(records, got, strict=True):
        assert message.key() == record["key"]
        assert message.value() == record["value"]
        assert message.headers() == record["headers"]
        assert message.timestamp()[1] == record["timestamp"]


@pytest.mark.client("confluent-kafka", "acks={acks}")
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(bootstrap: str, topic: str, acks: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, [{"value": b"x"} for _ in range(100)], acks=acks)
    assert len(consume(bootstrap, topic, 100, group=f"g-{topic}")) == 100


@pytest.mark.client("confluent-kafka", "large records up to the limit of a topic")
def test_large_records_and_the_limit(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, max_message_bytes="100000")
    produce(bootstrap, topic, [{"value": bytes(90_000)}])
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 500_000})
    errors: list[Any] = []
    producer.produce(topic, bytes(200_000), on_delivery=lambda error, _: errors.append(error))
    producer.flush(300)
    assert errors[0] is not None
    assert errors[0].name() == "MSG_SIZE_TOO_LARGE"


@pytest.mark.client("confluent-kafka", "two members share a group and hand over")
def test_two_consumers_share_a_group_and_hand_over(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic, 4)
    config = {"bootstrap.servers": bootstrap, "group.id": f"g-{topic}", "auto.offset.reset": "earliest"}
    first, second = Consumer(config), Consumer(config)
    first.subscribe([topic])
    deadline = time.monotonic() + 60
    while len(first.assignment()) < 4 and time.monotonic() < deadline:
        first.poll(0.1)
    assert len(first.assignment()) == 4
    second.subscribe([topic])
    while (len(first.assignment()), len(second.assignment())) != (2, 2) and time.monotonic() < deadline:
        first.poll(0.1)
        second.poll(0.1)
    assert {p.partition for p in first.assignment()} | {p.partition for p in second.assignment()} == {0, 1, 2, 3}
    second.close()
    while len(first.assignment()) < 4 and time.monotonic() < deadline:
        first.poll(0.1)
    assert len(first.assignment()) == 4
    first.close()


@pytest.mark.client("confluent-kafka", "commits with metadata and resumes")
def test_commits_are_kept_with_their_metadata(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    produce(bootstrap, topic, [{"value": str(i).encode()} for i in range(10)])
    group = f"g-{topic}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, 7, "note")], asynchronous=False)
    (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=300)
    assert (committed.offset, committed.metadata) == (7, "note")
    consumer.close()
    assert [m.value() for m in consume(bootstrap, topic, 3, group=group)] == [b"7", b"8", b"9"]
    listed = admin(bootstrap).list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(300)
    assert [(p.topic, p.offset) for p in listed.topic_partitions] == [(topic, 10)]


@pytest.mark.client("confluent-kafka", "creates, grows, describes and deletes topics")
def test_topics_are_created_described_grown_and_deleted(bootstrap: str, topic: str) -> None:
    client = admin(bootstrap)
    create(bootstrap, topic, 3, retention_ms="3600000")
    with pytest.raises(KafkaException) as exists:
        create(bootstrap, topic)
    assert exists.value.args[0].name() == "TOPIC_ALREADY_EXISTS"
    client.create_partitions([NewPartitions(topic, 5)])[topic].result(300)
    assert len(client.list_topics(topic, timeout=300).topics[topic].partitions) == 5
    client.delete_topics([topic])[topic].result(300)
    assert topic not in client.list_topics(timeout=300).topics


@pytest.mark.client("confluent-kafka", "is refused impossible topics")
@pytest.mark.parametrize(
    ("name", "partitions", "replicas", "config", "error"),
    [
        ("bad name", 1, 1, {}, "TOPIC_EXCEPTION"),
        ("..", 1, 1, {}, "TOPIC_EXCEPTION"),
        ("x" * 250, 1, 1, {}, "TOPIC_EXCEPTION"),
        ("fine-1", 0, 1, {}, "INVALID_PARTITIONS"),
        ("fine-2", 1, 3, {}, "INVALID_REPLICATION_FACTOR"),
        ("fine-3", 1, 1, {"retention.ms": "soon"}, "INVALID_CONFIG"),
        ("fine-4", 1, 1, {"no.such.setting": "1"}, "INVALID_CONFIG"),
        ("fine-5", 1, 1, {"cleanup.policy": "burn"}, "INVALID_CONFIG"),
    ],
)
def test_impossible_topics_are_refused(
    bootstrap: str, name: str, partitions: int, replicas: int, config: dict[str, str], error: str
) -> None:
    with pytest.raises(KafkaException) as refused:
        admin(bootstrap).create_topics([NewTopic(name, partitions, replicas, config=config)])[name].result(300)
    assert refused.value.args[0].name() == error


@pytest.mark.client("confluent-kafka", "validates a topic without creating it")
def test_a_validated_only_topic_is_not_there(bootstrap: str, topic: str) -> None:
    client = admin(bootstrap)
    client.create_topics([NewTopic(topic, 1, 1)], validate_only=True)[topic].result(300)
    assert topic not in client.list_topics(timeout=300).topics


@pytest.mark.client("confluent-kafka", "describes and alters settings")
def test_topic_settings_are_described_and_altered(bootstrap: str, topic: str) -> None:
    client = admin(bootstrap)
    create(bootstrap, topic, retention_ms="1000")
    resource = ConfigResource(ResourceType.TOPIC, topic)
    described = client.describe_configs([resource])[resource].result(300)
    assert described["retention.ms"].value == "1000"
    assert described["segment.bytes"].is_default
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry("max.message.bytes", "5000", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    client.incremental_alter_configs([change])[change].result(300)
    described = client.describe_configs([resource])[resource].result(300)
    assert described["retention.ms"].value in ("-1", "604800000"), "of a broker for tests, or of another"
    assert described["max.message.bytes"].value == "5000"


@pytest.mark.client("confluent-kafka", "lists offsets and deletes records")
def test_offsets_are_listed_and_records_deleted(bootstrap: str, topic: str) -> None:
    client = admin(bootstrap)
    create(bootstrap, topic)
    produce(bootstrap, topic, [{"value": b"x", "timestamp": 1_700_000_000_000 + i * 1000} for i in range(20)])
    partition = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> int:
        return int(client.list_offsets({partition: spec})[partition].result(300).offset)

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 20
    assert offset(OffsetSpec.max_timestamp()) == 19
    assert offset(OffsetSpec.for_timestamp(1_700_000_000_000 + 4500)) == 5
    deleted = client.delete_records([TopicPartition(topic, 0, 8)])
    assert deleted[TopicPartition(topic, 0, 8)].result(300).low_watermark == 8
    assert offset(OffsetSpec.earliest()) == 8
    assert [m.offset() for m in consume(bootstrap, topic, 12, group=f"g-{topic}")] == list(range(8, 20))


@pytest.mark.client("confluent-kafka", "describes the cluster")
def test_the_cluster_describes_itself(bootstrap: str) -> None:
    cluster = admin(bootstrap).describe_cluster().result(300)
    assert [f"{n.host}:{n.port}" for n in cluster.nodes] == [bootstrap]
    assert cluster.controller.id == 1
    assert len(cluster.cluster_id) == 22


@pytest.mark.client("confluent-kafka", "creates a topic on first use")
def test_an_unknown_topic_is_created_on_first_use_unless_forbidden(bootstrap: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "allow.auto.create.topics": False})
    consumer.subscribe([topic])
    deadline = time.monotonic() + 60
    error = None
    while error is None and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        error = message.error() if message is not None else None
    assert error is not None
    assert error.name() == "UNKNOWN_TOPIC_OR_PART"
    consumer.close()
    produce(bootstrap, topic, [{"value": b"now it is"}])
    assert topic in admin(bootstrap).list_topics(timeout=300).topics
