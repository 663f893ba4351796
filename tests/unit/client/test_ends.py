"""Where a partition ends: what passes is waited for, anything else is said."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from ottla.client import ends


class Consumer:
    """Fails with each of these, then knows the end."""

    def __init__(self, *errors: int) -> None:
        self.errors = [*errors]

    def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        return 0, 7


PASSING = (
    KafkaError._DESTROY_BROKER, KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.FENCED_LEADER_EPOCH, KafkaError.OFFSET_NOT_AVAILABLE,
)  # fmt: skip


@pytest.mark.parametrize("error", PASSING)
def test_what_passes_is_asked_again(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    monkeypatch.setattr(ends, "RETRY_S", 0.0)
    assert ends.end_offset(Consumer(error, error), "t", 0, 60.0) == 7
    with pytest.raises(KafkaException):
        ends.end_offset(Consumer(error, error), "t", 0, -1.0)


def test_what_does_not_pass_is_raised_at_once() -> None:
    consumer = Consumer(KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._TRANSPORT)
    with pytest.raises(KafkaException):
        ends.end_offset(consumer, "t", 0, 60.0)
    assert len(consumer.errors) == 1
