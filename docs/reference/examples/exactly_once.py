"""Exactly once: what is written and the position it was read at are committed in one transaction, or neither."""

from collections.abc import Callable

from confluent_kafka import Consumer, Producer


def copy(bootstrap: str, transform: Callable[[bytes], bytes]) -> None:
    # The id names this copier, however often it is started: an earlier one is fenced, and what it left open is aborted.
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "billing-1"})
    producer.init_transactions()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "exactly-once",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,  # only so that this example ends
        }
    )
    consumer.subscribe(["orders"])
    try:
        at_the_end = False
        while not at_the_end:
            messages = consumer.consume(100, 1.0)
            orders = [message for message in messages if not message.error()]
            if orders:
                producer.begin_transaction()
                for order in orders:
                    producer.produce("bills", transform(order.value()))
                position = consumer.position(consumer.assignment())
                producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata())
                producer.commit_transaction()
            at_the_end = len(orders) < len(messages)
    finally:
        consumer.close()
