"""The round of the client matrix with aiokafka: `python aiokafka_round.py BOOTSTRAP TOPIC GROUP`.

`BOOTSTRAP` may be several addresses, with commas between them. In the middle of writing and of reading, and when all
is read, it prints a line and goes on when it is given one, or has no input.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

PER_CODEC, PARTITIONS, AGAIN, LIMIT_S = 50, 2, 5, 120.0
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


async def middle(of: str) -> None:
    print(json.dumps({"middle": of}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)


def value_of(key: str) -> str:
    return f"{key}:{'x' * 100}"


async def produce(bootstrap: str, topic: str, codec: str) -> int:
    kind = None if codec == "none" else codec
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap, compression_type=kind, enable_idempotence=True, request_timeout_ms=120_000
    ) as producer:
        for half in (range(PER_CODEC // 2), range(PER_CODEC // 2, PER_CODEC)):
            if half.start and codec == CODECS[len(CODECS) // 2]:
                await middle("writing")
            sent = []
            for i in half:
                key = f"{codec}-{i}"
                headers = [("codec", codec.encode()), ("n", str(i).encode())]
                sent.append(
                    await producer.send(
                        topic, value_of(key).encode(), key.encode(), partition=i % PARTITIONS, headers=headers
                    )
                )
            await asyncio.gather(*sent)
    return PER_CODEC


def member(bootstrap: str, topic: str, group: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )


@asynccontextmanager
async def administering(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """A client that has just learned of the brokers: one that was away when it asked, it does not know for minutes."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def consume(report: dict[str, Any], bootstrap: str, topic: str, group: str) -> None:
    """Read everything in a group and commit a little before the end of each partition."""
    seen: set[tuple[int, int]] = set()
    following: dict[TopicPartition, int] = {}
    async with member(bootstrap, topic, group) as consumer:
        while len(seen) < PER_CODEC * len(CODECS):
            message = await asyncio.wait_for(consumer.getone(), LIMIT_S)
            place = message.partition, message.offset
            if place in seen:
                report["repeated"] += 1
                continue
            seen.add(place)
            headers = {name: value.decode() for name, value in message.headers}
            assert message.key.decode() == f"{headers['codec']}-{headers['n']}"
            assert message.value.decode() == value_of(message.key.decode())
            report["consumed"][headers["codec"]] = report["consumed"].get(headers["codec"], 0) + 1
            following[TopicPartition(topic, message.partition)] = message.offset + 1
            if len(seen) == PER_CODEC * len(CODECS) // 2:
                await middle("reading")
        await middle("end")
        async with administering(bootstrap) as admin:
            coordinator = await admin.find_coordinator(group)
            ((_, _, state, _, _, members, *_),) = (await admin.describe_consumer_groups([group], coordinator))[0].groups
        report.update(group_state=state, group_members=len(members))
        await consumer.commit({place: offset - AGAIN for place, offset in following.items()})
        report["committed"] = {str(each.partition): await consumer.committed(each) for each in following}


async def resume(report: dict[str, Any], bootstrap: str, topic: str, group: str) -> None:
    """Join again: only what was not committed comes back."""
    async with member(bootstrap, topic, group) as consumer:
        for _ in range(AGAIN * PARTITIONS):
            message = await asyncio.wait_for(consumer.getone(), LIMIT_S)
            assert message.offset >= report["committed"][str(message.partition)]
        report["resumed"] = AGAIN * PARTITIONS
        places = [TopicPartition(topic, each) for each in range(PARTITIONS)]
        for name, found in (
            ("earliest", await consumer.beginning_offsets(places)),
            ("latest", await consumer.end_offsets(places)),
        ):
            report[name] = {str(place.partition): offset for place, offset in found.items()}


async def main(bootstrap: str, topic: str, group: str) -> None:
    started = time.perf_counter()
    async with administering(bootstrap) as admin:
        replicas = min(3, len((await admin.describe_cluster())["brokers"]))  # this client cannot leave it to them
        await admin.create_topics([NewTopic(topic, PARTITIONS, replicas)])
        (described,) = await admin.describe_topics([topic])
    report: dict[str, Any] = {
        "client": "aiokafka",
        "version": aiokafka.__version__,
        "partitions": len(described["partitions"]),
        "produced": {codec: await produce(bootstrap, topic, codec) for codec in CODECS},
        "consumed": {},
        "repeated": 0,
    }
    await consume(report, bootstrap, topic, group)
    await resume(report, bootstrap, topic, group)
    gone = f"{topic}-gone"
    async with administering(bootstrap) as admin:
        await admin.create_topics([NewTopic(gone, 1, replicas)])
        await admin.delete_topics([gone])
        report["deleted"] = gone not in await admin.list_topics()
    print(json.dumps({**report, "seconds": round(time.perf_counter() - started, 3)}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
