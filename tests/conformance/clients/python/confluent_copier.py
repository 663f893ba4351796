"""Copies a topic in transactions with librdkafka, each record once: BOOTSTRAP TRANSACTIONAL_ID INPUT OUTPUT COUNT.

Prints the number of records that it committed after each transaction. Every third transaction is aborted and done
again. Started again after a crash it goes on where the last committed transaction ended.
"""

from __future__ import annotations

import sys
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

ELSEWHERE = frozenset({
    KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
})  # fmt: skip
RECORDS = 25
"""In one transaction."""


def main(bootstrap: str, transactional_id: str, source: str, target: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0})
    retried(lambda: producer.init_transactions(120))
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": transactional_id,
            "auto.offset.reset": "earliest",
            "log_level": 0,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    partition = TopicPartition(source, 0)
    position = committed(consumer, partition)
    consumer.assign([TopicPartition(source, 0, position)])
    transactions = 0
    while position < count:
        messages = [each for each in consumer.consume(min(RECORDS, count - position), 1) if not each.error()]
        if not messages:
            continue
        transactions += 1
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value(), partition=0)
        following = TopicPartition(source, 0, messages[-1].offset() + 1)
        try:
            group = consumer.consumer_group_metadata()
            retried(partial(producer.send_offsets_to_transaction, [following], group, 120))
            if transactions % 3 == 0:
                retried(lambda: producer.abort_transaction(120))
            else:
                retried(lambda: producer.commit_transaction(120))
                position = following.offset
                print(position, flush=True)
                continue
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            retried(lambda: producer.abort_transaction(120))
        consumer.seek(TopicPartition(source, 0, position))


def retried(call: object) -> None:
    """Again while the client says that it may."""
    assert callable(call)
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def committed(consumer: Consumer, partition: TopicPartition) -> int:
    while True:
        try:
            (found,) = consumer.committed([partition], 120)
            return max(found.offset, 0)
        except (
            KafkaException
        ) as error:  # a coordinator that moves is nothing to give up for, though it is not retriable
            if not error.args[0].retriable() and error.args[0].code() not in ELSEWHERE:
                raise


if __name__ == "__main__":
    main(*sys.argv[1:5], int(sys.argv[5]))
