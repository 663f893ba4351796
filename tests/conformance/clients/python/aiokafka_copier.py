"""Copies a topic in transactions with aiokafka, each record once; as `confluent_copier.py`."""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

RECORDS = 25
"""In one transaction."""


async def main(bootstrap: str, transactional_id: str, source: str, target: str, count: int) -> None:
    partition = TopicPartition(source, 0)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=transactional_id,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    async with producer, consumer:
        consumer.assign([partition])
        position = await consumer.committed(partition) or 0
        transactions = 0
        while position < count:
            consumer.seek(partition, position)
            wanted = min(RECORDS, count - position)
            found = await consumer.getmany(partition, timeout_ms=1_000, max_records=wanted)
            messages = found.get(partition)
            if not messages:
                continue
            transactions += 1
            await producer.begin_transaction()
            for message in messages:
                await producer.send(target, message.value, partition=0)
            following = messages[-1].offset + 1
            await producer.send_offsets_to_transaction({partition: following}, transactional_id)
            if transactions % 3 == 0:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
                position = following
                print(position, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5], int(sys.argv[5])))
