"""At most once: the position is committed first. A crash in `handle` loses the record, and nothing is handled twice."""

from collections.abc import Callable

from confluent_kafka import Consumer


def read(bootstrap: str, handle: Callable[[bytes], None]) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "at-most-once",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,  # only so that this example ends
        }
    )
    consumer.subscribe(["orders"])
    try:
        while message := consumer.poll(60):
            if message.error():
                break
            consumer.commit(message, asynchronous=False)
            handle(message.value())
    finally:
        consumer.close()
