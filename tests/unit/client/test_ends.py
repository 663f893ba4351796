"""Where a partition ends, asked of a broker that has not heard of it yet."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from ottla.client import ends


class Consumer:
    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        return 0, 7


def test_a_new_topic_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "RETRY_S", 0.0)
    consumer = Consumer(KafkaError._UNKNOWN_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
    assert ends.end_offset(consumer, "t", 0, 60.0) == 7
    with pytest.raises(KafkaException, match="UNKNOWN_PARTITION"):
        ends.end_offset(Consumer(KafkaError._UNKNOWN_PARTITION), "t", 0, -1.0)
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        ends.end_offset(Consumer(KafkaError.TOPIC_AUTHORIZATION_FAILED), "t", 0, 60.0)
