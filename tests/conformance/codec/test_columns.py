"""What a broker fetches, as columns: the records that a consumer of librdkafka reads, on Ottla and on Apache Kafka."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.protocol.messages import ApiKey
from ottla.protocol.records.aborted_transactions import Aborted
from ottla.protocol.records.columns import Columns
from ottla.protocol.records.record_batch import Record
from tests.conformance.pair import Wire
from tests.property.test_columns import records_of

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
ROUNDS = 15
FETCH_BYTES = 600
"""Size of one answer: a transaction spreads over several."""


def write(bootstrap: str, topic: str) -> None:
    """Transactions of two producers that overlap, each third aborted, and plain records between them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    plain = Producer({"bootstrap.servers": bootstrap})
    for codec in CODECS:
        settings = {"bootstrap.servers": bootstrap, "compression.type": codec}
        pair = [Producer({**settings, "transactional.id": f"{topic}-{codec}-{at}"}) for at in range(2)]
        for producer in pair:
            producer.init_transactions(60)
        for number in range(ROUNDS // len(CODECS)):
            for producer in pair:
                producer.begin_transaction()
            for step in range(3):
                for at, producer in enumerate(pair):
                    text = f"{codec} {number} {step} {at} " + "x" * 40
                    headers: Any = [("name", b"h"), ("name", None)] if step == 1 else None
                    producer.produce(topic, text, None if step else b"key", headers=headers, partition=0)
                    producer.produce(topic, None, text, partition=0)
                    producer.flush(60)
                plain.produce(topic, f"plain {number} {step}", partition=0)
                plain.flush(60)
            for at, producer in enumerate(pair):
                if (number + at) % 3 == 0:
                    producer.abort_transaction(60)
                else:
                    producer.commit_transaction(60)


def consumed(bootstrap: str, topic: str, level: str) -> list[Record]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "isolation.level": level, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Record] = []
    while (message := consumer.poll(60)) is not None:
        if message.error():
            break  # the end of the partition
        kind, time = message.timestamp()
        headers: Any = tuple(message.headers() or ())
        found.append(Record(message.offset(), time, message.key(), message.value(), headers, kind - 1))
    consumer.close()
    return found


def fetched(bootstrap: str, topic: str, level: int) -> list[Record]:
    wire = Wire(bootstrap)
    found: list[Record] = []
    columns = Columns(headers=True)
    offset = 0
    while True:
        partition = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": FETCH_BYTES,
        }
        asked = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": FETCH_BYTES,
            "isolation_level": level,
            "session_id": 0,
            "session_epoch": -1,
            "forgotten_topics_data": [],
            "rack_id": "",
            "topics": [{"topic": topic, "partitions": [partition]}],
        }
        answer = wire.ask(ApiKey.FETCH, 11, asked)["responses"][0]["partitions"][0]
        assert answer["error_code"] == 0
        aborted = None
        if level:
            rows = answer["aborted_transactions"] or ()
            aborted = Aborted((each["producer_id"], each["first_offset"]) for each in rows)
        before = offset
        while (following := columns.add(answer["records"] or b"", offset, aborted=aborted, rows_max=2)) > offset:
            offset = following
            found += records_of(columns.take())
        if offset == before:
            return found


@pytest.mark.parametrize("broker", ["bootstrap", "oracle"])
def test_columns_hold_what_a_consumer_reads(request: pytest.FixtureRequest, broker: str, topic: str) -> None:
    address = request.getfixturevalue(broker)
    write(address, topic)
    counts = []
    for level, name in enumerate(("read_uncommitted", "read_committed")):
        expected = consumed(address, topic, name)
        assert fetched(address, topic, level) == expected
        counts.append(len(expected))
    assert counts[0] > counts[1] > 100
