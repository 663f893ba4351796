"""Where partitions end, by librdkafka's consumer."""

from __future__ import annotations

import time
from typing import Any, Final

RETRY_S: Final = 0.1
ANSWER_S: Final = 10.0


def end_offset(consumer: Any, topic: str, partition: int, patience_s: float) -> int:
    """The high watermark of a partition. Asks again for `patience_s` while the broker that is asked has not heard of
    the topic, which may be new; is not the leader, or not yet one that may say where the log ends; or does not answer,
    or has gone with the request (librdkafka also drops what waits for a bootstrap address once it knows which broker
    that is). Raises KafkaException."""
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    passing = {
        KafkaError._DESTROY_BROKER,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ANSWER_S)[1])
        except KafkaException as error:
            if error.args[0].code() not in passing or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_S)
