"""Offsets of groups, committed through librdkafka as a program without a subscription does."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition

NOT_YET = {"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"}
"""What a Kafka answers that has just started, or whose coordinator is just being elected."""
DEADLINE_S = 30


def commit(bootstrap: str, group: str, *commits: Mapping[tuple[str, int], int]) -> None:
    """Commits the offsets by topic and partition, one mapping after the other, and waits for each answer.

    Raises:
        KafkaException: Whatever is answered for other reasons than a coordinator that is not ready yet, or that one
            after 30 s.
    """
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    for offsets in commits:
        wanted = [TopicPartition(*at, offset) for at, offset in offsets.items()]
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                consumer.commit(offsets=wanted, asynchronous=False)
                break
            except KafkaException as error:
                if error.args[0].name() not in NOT_YET or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
    consumer.close()
