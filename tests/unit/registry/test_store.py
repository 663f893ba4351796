"""The topic of the schemas, as far as it needs no broker."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource

from ottla.registry.state import State
from ottla.registry.store import StoreClosed, Topic, _cleanup_policy


def test_closing_ends_the_wait_for_a_record() -> None:
    """A registry that is stopped as it becomes the leader once went on for 30 s and then logged an error."""
    topic = Topic({}, "schemas", State())
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(topic.wait_for, 0)
        topic.close()
        with pytest.raises(StoreClosed):
            waiting.result(10)


def test_a_topic_that_was_just_made_is_described_by_a_broker_that_has_not_heard_of_it() -> None:
    """The registry of the demo once did not start: a broker that is asked for settings may follow the metadata later
    than the one that knew the topic's leader."""

    class Late:
        refused = [KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)]

        def describe_configs(self, resources: list[ConfigResource]) -> dict[ConfigResource, Future[Any]]:
            answer: Future[Any] = Future()
            if self.refused:
                answer.set_exception(KafkaException(self.refused.pop()))
            else:
                answer.set_result({"cleanup.policy": SimpleNamespace(value="compact")})
            return {resources[0]: answer}

    admin = Late()
    assert _cleanup_policy(admin, "_schemas") == "compact"
    admin.refused = [KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(KafkaException):
        _cleanup_policy(admin, "_schemas")
