"""At least once: the position is committed last. A crash before that has records handled again, and none is lost."""

from collections.abc import Callable

from confluent_kafka import Consumer


def read(bootstrap: str, handle: Callable[[bytes], None]) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "at-least-once",
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
            handle(message.value())
            consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()
