"""aiokafka: a pure-Python client with compression and a protocol layer of its own."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic


@pytest.mark.client(
    "aiokafka",
    "produces with {codec}, with and without idempotence, and reads it back",
    "commits and resumes in a group",
)
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_produce_consume_and_commit(bootstrap: str, topic: str, codec: str, idempotent: bool) -> None:
    def member() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=f"g-{topic}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )

    compression = None if codec == "none" else codec

    async def scenario() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=compression, enable_idempotence=idempotent, linger_ms=5
        )
        async with producer:
            sent = [await producer.send(topic, f"v{i}".encode(), key=f"k{i}".encode()) for i in range(300)]
            offsets = [(await future).offset for future in sent]
        assert offsets == list(range(300))
        async with member() as consumer:
            got = [await asyncio.wait_for(consumer.getone(), 300) for _ in range(300)]
            assert [m.value for m in got] == [f"v{i}".encode() for i in range(300)]
            await consumer.commit({TopicPartition(topic, 0): 123})
            assert await consumer.committed(TopicPartition(topic, 0)) == 123
            assert await consumer.beginning_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 0}
            assert await consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 300}
        async with member() as again:
            rest = [(await asyncio.wait_for(again.getone(), 300)).offset for _ in range(300 - 123)]
            assert rest == list(range(123, 300))

    asyncio.run(scenario())


@pytest.mark.client("aiokafka", "creates, describes, lists and deletes topics")
def test_admin(bootstrap: str, topic: str) -> None:
    async def scenario() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await client.start()
        try:
            await client.create_topics([NewTopic(topic, 2, 1)])
            (described,) = await client.describe_topics([topic])
            assert len(described["partitions"]) == 2
            await client.delete_topics([topic])
            assert topic not in await client.list_topics()
        finally:
            await client.close()

    asyncio.run(scenario())
