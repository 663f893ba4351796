"""What clients say that ask for the group protocol of KIP-848, which is not there yet: a fatal error, no long wait."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaError

from peers.kafka import tool
from tests.conformance.operations import DEADLINE_S


def test_librdkafka_ends_with_a_fatal_error(bootstrap: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": "kip-848", "group.protocol": "consumer", "log_level": 0}
    consumer = Consumer(settings)
    consumer.subscribe(["any"])
    message = consumer.poll(DEADLINE_S)
    assert message is not None
    error = message.error()
    assert error is not None and error.code() == KafkaError._FATAL
    assert "ConsumerGroupHeartbeat fatal error: Broker: API version not supported" in error.str()
    consumer.close()


@pytest.mark.matrix
def test_java_names_the_setting(bootstrap: str) -> None:
    ended = tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, "--topic", "any",
        "--group", "kip-848-java", "--command-property", "group.protocol=consumer", check=False,
    )  # fmt: skip
    assert "The cluster does not support the new CONSUMER group protocol. Set group.protocol=classic" in ended.stderr
