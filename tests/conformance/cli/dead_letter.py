"""A share group with a dead letter, for commands that show both."""

from __future__ import annotations

import uuid

from confluent_kafka import Producer

from tests.conformance.groups.raw_share_member import RawMember


def leave_a_dead_letter(bootstrap: str, group: str, topic: str, dead_topic: str) -> None:
    """Create a share group that has read `topic`, and write the letter of its record 0, as Kafka 4.4 does, into
    `dead_topic`; both topics are there. Brokers that write none themselves serve too."""
    member = RawMember(bootstrap, group, topic, uuid.uuid4())
    member.join()
    member.leave()
    headers = {
        "topic": topic,
        "partition": "0",
        "offset": "0",
        "group": group,
        "delivery.count": "1",
        "message": "Offset rejected by client.",
    }
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(dead_topic, headers=[(f"__dlq.errors.{name}", value.encode()) for name, value in headers.items()])
    assert producer.flush(60) == 0
