"""The round of the client matrix with librdkafka, from Python: `python confluent_round.py BOOTSTRAP TOPIC GROUP`.

`BOOTSTRAP` may be several addresses, with commas between them. In the middle of writing and of reading, and when all
is read, it prints a line and goes on when it is given one, or has no input.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

PER_CODEC, PARTITIONS, AGAIN, LIMIT_S = 50, 2, 5, 120.0
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
AS_THE_BROKER_SAYS = -1


def middle(of: str) -> None:
    print(json.dumps({"middle": of}), flush=True)
    sys.stdin.readline()


def value_of(key: str) -> str:
    return f"{key}:{'x' * 100}"


def produce(bootstrap: str, topic: str, codec: str) -> int:
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True})
    for i in range(PER_CODEC):
        if i == PER_CODEC // 2:
            producer.flush(LIMIT_S)
            if codec == CODECS[len(CODECS) // 2]:
                middle("writing")
        key = f"{codec}-{i}"
        producer.produce(
            topic,
            value_of(key),
            key,
            i % PARTITIONS,
            headers={"codec": codec, "n": str(i)},
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(LIMIT_S) == 0
    assert failed == []
    return PER_CODEC


def member(bootstrap: str, topic: str, group: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    consumer.subscribe([topic])
    return consumer


def poll(consumer: Consumer) -> Any:
    """The next record. Raises AssertionError after a while."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and not message.error():
            return message
    raise AssertionError("nothing comes")


def consume(report: dict[str, Any], admin: AdminClient, bootstrap: str, topic: str, group: str) -> None:
    """Read everything in a group and commit a little before the end of each partition."""
    seen: set[tuple[int, int]] = set()
    following: dict[int, int] = {}
    consumer = member(bootstrap, topic, group)
    while len(seen) < PER_CODEC * len(CODECS):
        message = poll(consumer)
        place = message.partition(), message.offset()
        if place in seen:
            report["repeated"] += 1
            continue
        seen.add(place)
        headers = {name: value.decode() for name, value in message.headers()}
        assert message.key().decode() == f"{headers['codec']}-{headers['n']}"
        assert message.value().decode() == value_of(message.key().decode())
        report["consumed"][headers["codec"]] = report["consumed"].get(headers["codec"], 0) + 1
        following[message.partition()] = message.offset() + 1
        if len(seen) == PER_CODEC * len(CODECS) // 2:
            middle("reading")
    middle("end")
    described = admin.describe_consumer_groups([group])[group].result(LIMIT_S)
    report.update(group_state=described.state.name, group_members=len(described.members))
    commit(consumer, [TopicPartition(topic, each, offset - AGAIN) for each, offset in following.items()])
    consumer.close()
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(LIMIT_S)
    report["committed"] = {str(each.partition): each.offset for each in listed.topic_partitions}


def commit(consumer: Consumer, offsets: list[TopicPartition]) -> None:
    """A synchronous commit tells the program that its coordinator has moved: it asks again."""
    for attempt in range(100):
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
            return
        except KafkaException as error:
            if attempt == 99 or not error.args[0].retriable():
                raise
            consumer.poll(0.1)


def resume(report: dict[str, Any], bootstrap: str, topic: str, group: str) -> None:
    """Join again: only what was not committed comes back."""
    consumer = member(bootstrap, topic, group)
    for _ in range(AGAIN * PARTITIONS):
        message = poll(consumer)
        assert message.offset() >= report["committed"][str(message.partition())]
    report["resumed"] = AGAIN * PARTITIONS
    consumer.close()


def main(bootstrap: str, topic: str, group: str) -> None:
    started = time.perf_counter()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, AS_THE_BROKER_SAYS)])[topic].result(LIMIT_S)
    report: dict[str, Any] = {
        "client": "librdkafka",
        "version": confluent_kafka.libversion()[0],
        "partitions": len(admin.list_topics(topic, LIMIT_S).topics[topic].partitions),
        "produced": {codec: produce(bootstrap, topic, codec) for codec in CODECS},
        "consumed": {},
        "repeated": 0,
    }
    consume(report, admin, bootstrap, topic, group)
    resume(report, bootstrap, topic, group)
    # A client of its own: with what it knew before a leader moved it asks in an old epoch, and is told so.
    asking = AdminClient({"bootstrap.servers": bootstrap})
    for name, spec in (("earliest", OffsetSpec.earliest()), ("latest", OffsetSpec.latest())):
        listed = asking.list_offsets({TopicPartition(topic, each): spec for each in range(PARTITIONS)})
        report[name] = {str(place.partition): found.result(LIMIT_S).offset for place, found in listed.items()}
    gone = f"{topic}-gone"
    admin.create_topics([NewTopic(gone, 1, AS_THE_BROKER_SAYS)])[gone].result(LIMIT_S)
    admin.delete_topics([gone])[gone].result(LIMIT_S)
    report["deleted"] = gone not in admin.list_topics(timeout=LIMIT_S).topics
    print(json.dumps({**report, "seconds": round(time.perf_counter() - started, 3)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
