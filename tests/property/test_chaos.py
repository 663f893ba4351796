"""A node and a seeded crowd of clients that do everything at once; a model of what was acknowledged checks every read.

Each batch carries its own number. What was acknowledged at an offset must be what anybody reads there, until the topic
is deleted; no batch is ever at two offsets of a topic (idempotent producers repeat theirs); no read goes beyond the
high watermark, and with `flush.messages=1` not beyond what is fsynced.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import socket
import struct
from typing import Any

import pytest
import uvloop

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch, iterate_batches, iterate_records
from ottla.server.node import Node
from tests.unit.server.node import TIME, Client, fetch_values, produce_values, running

TOPICS = ("a", "b", "c")
GONE = frozenset({ErrorCode.unknown_topic_or_partition, ErrorCode.kafka_storage_error, ErrorCode.offset_out_of_range,
                  ErrorCode.unknown_topic_id, ErrorCode.not_leader_or_follower})  # fmt: skip
CONFIGS = (
    {"flush.messages": "1"}, {"flush.messages": "3"}, {"segment.bytes": "1048576"},
    {"message.timestamp.type": "LogAppendTime"}, {"compression.type": "lz4"}, {"retention.bytes": "500000"},
)  # fmt: skip


ENOUGH = 400
"""Reads and writes of a crowd: about a second's."""


class Crowd:
    def __init__(self, node: Node, rng: random.Random) -> None:
        self.node, self.rng = node, rng
        self.number = 0
        self.acknowledged: dict[Any, dict[int, int]] = {}
        """By the log, which starts again in a topic that is recreated: offset -> number."""
        self.seen: dict[Any, dict[int, int]] = {}
        self.reads = self.writes = 0
        self.ends = False

    def log(self, topic: str) -> Any:
        partition = self.node.replicas.get(topic, 0)
        return None if partition is None else partition.log

    async def connect(self) -> Client:
        return await Client.connect(self.node)

    async def leave(self, client: Client) -> None:
        if self.rng.random() < 0.5:
            sock = client.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.writer.transport.abort()
        else:
            client.close()

    def next_number(self) -> int:
        self.number += 1
        return self.number

    async def produce(self, producer_id: int) -> None:
        """An idempotent producer (or one without id) for some requests, several of them in flight."""
        rng = self.rng
        topic = rng.choice(TOPICS)
        client = await self.connect()
        version = rng.choice([3, 7, 9, 12])
        acks = rng.choice([-1, -1, 1, 0])
        log = self.log(topic)
        idempotent = rng.random() < 0.5
        sequence = 0
        for _ in range(rng.randrange(1, 12)):
            flight = rng.randrange(1, 6)
            numbers = []
            for _ in range(flight):
                number = self.next_number()
                ids = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence} if idempotent else {}
                sequence += 1
                padding = bytes(rng.choice([0, 100, 5000, 60_000]))
                codec = rng.choice([0, 0, 3])
                data = build_batch([SimpleRecord(TIME, b"%d" % number, padding)], codec=codec, **ids)
                repeat = 2 if idempotent and rng.random() < 0.2 else 1
                for _ in range(repeat):
                    client.send(ApiKey.PRODUCE, version, produce_values(topic, bytes(data), acks))
                    numbers.append(number)
            if rng.random() < 0.1:
                break
            if not acks:
                continue
            for number in numbers:
                answer = await client.receive(ApiKey.PRODUCE, version)
                answer = answer["responses"][0]["partition_responses"][0]
                if answer["error_code"]:
                    sequences = {ErrorCode.out_of_order_sequence_number, ErrorCode.unknown_producer_id}
                    assert answer["error_code"] in GONE | sequences, answer
                elif log is not None and self.log(topic) is log:
                    known = self.acknowledged.setdefault(log, {}).setdefault(answer["base_offset"], number)
                    assert known == number
                    self.writes += 1
        await self.leave(client)

    async def consume(self) -> None:
        rng = self.rng
        topic = rng.choice(TOPICS)
        client = await self.connect()
        offset, session_id, epoch = 0, 0, rng.choice([0, -1])
        for _ in range(rng.randrange(1, 15)):
            log = self.log(topic)
            asked = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": rng.choice([1, 10_000, 1 << 20])}
            others = [{"topic": name, "partitions": [{**asked, "fetch_offset": 0}]} for name in TOPICS if name != topic]
            more = others if rng.random() < 0.2 else []
            client.send(
                ApiKey.FETCH,
                12,
                fetch_values(
                    topic,
                    offset,
                    max_wait=rng.choice([0, 5, 20]),
                    min_bytes=rng.choice([0, 1, 100_000]),
                    isolation_level=rng.choice([0, 1]),
                    session_id=session_id,
                    session_epoch=epoch,
                    max_bytes=rng.choice([1, 50_000, 1 << 24]),
                    topics=[{"topic": topic, "partitions": [asked]}, *more],
                ),
            )
            if rng.random() < 0.05:
                break
            if rng.random() < 0.1:
                await asyncio.sleep(rng.random() * 0.01)
            answer = await client.receive(ApiKey.FETCH, 12)
            assert answer["error_code"] in (0, ErrorCode.fetch_session_id_not_found), answer
            if answer["error_code"]:
                session_id = epoch = 0
                continue
            session_id = answer["session_id"]
            epoch = epoch + 1 if session_id else rng.choice([0, -1])
            for row in answer["responses"]:
                for partition in row["partitions"]:
                    end = self.check(row["topic"], partition, log if row["topic"] == topic else None)
                    if row["topic"] == topic:
                        offset = end or (max(0, partition["log_start_offset"]) if partition["error_code"] else offset)
            if self.log(topic) is not log:
                offset = 0
        await self.leave(client)

    def check(self, topic: str, partition: Any, log: Any) -> int:
        """Compare read records with those acknowledged and read before; returns the next offset."""
        if partition["error_code"]:
            assert partition["error_code"] in GONE, partition
            assert not partition["records"]
            return 0
        data = partition["records"] or b""
        end = 0
        for position, header in iterate_batches(data):
            assert header.last_offset < partition["high_watermark"]
            assert not end or header.base_offset == end
            end = header.next_offset
            if log is None or self.log(topic) is not log:
                continue
            if log.config.flush_messages == 1:
                assert end <= log.durable_offset
            for record in iterate_records(data[position : position + header.size]):
                assert record.key is not None
                number = int(record.key)
                assert self.acknowledged.get(log, {}).get(record.offset, number) == number
                assert self.seen.setdefault(log, {}).setdefault(record.offset, number) == number
                self.reads += 1
        assert end or not data
        return end

    async def administer(self) -> None:
        rng = self.rng
        client = await self.connect()
        while not self.ends:
            topic = rng.choice(TOPICS)
            what = rng.randrange(8)
            if what == 0:
                await client.ask(ApiKey.DELETE_TOPICS, 5, {"topic_names": [topic], "timeout": 1000})
            elif what == 1:
                parts = [{"partition_index": 0, "offset": rng.choice([-1, rng.randrange(50)])}]
                values = {"topics": [{"name": topic, "partitions": parts}], "timeout": 1000}
                await client.ask(ApiKey.DELETE_RECORDS, 2, values)
            elif what == 2:
                self.node.logs.periodic(self.node.clock.now_ms() + 1)
                for log in self.node.logs:
                    log.delete_old_segments(self.node.clock.now_ms())
            elif what == 3:
                await self.node.logs.background(self.node.clock.now_ms() + rng.choice([0, 10**6]))
            elif what == 4 and self.log(topic) is not None:
                with contextlib.suppress(Exception):
                    self.log(topic).roll()
            if self.log(topic) is None:
                config = rng.choice([{}, *CONFIGS])
                with contextlib.suppress(AssertionError):  # the other administrator was faster
                    await client.create(topic, config)
            await asyncio.sleep(rng.random() * 0.02)
        client.close()

    async def again_and_again(self, work: Any) -> None:
        while not self.ends:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await work()

    async def run(self, enough: int) -> None:
        """Until so many records were read and so many batches acknowledged."""
        client = await self.connect()
        for topic in TOPICS:
            await client.create(topic, self.rng.choice([{}, *CONFIGS]))
        client.close()
        producer_ids = iter(range(1, 1 << 30))
        work = [self.again_and_again(lambda: self.produce(next(producer_ids))) for _ in range(4)]
        work += [self.again_and_again(self.consume) for _ in range(6)]
        work += [self.administer() for _ in range(2)]

        async def clock() -> None:
            while self.reads < enough or self.writes < enough:  # noqa: ASYNC110  nothing tells
                await asyncio.sleep(0.01)
            self.ends = True

        await asyncio.gather(clock(), *work)


@pytest.mark.parametrize("seed", range(3))
def test_a_crowd_that_does_everything_at_once(tmp_path: Any, caplog: Any, seed: int) -> None:
    problems: list[Any] = []

    async def test() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: problems.append(context))
        crowd: Crowd
        settings = {"log.segment.delete.delay.ms": "5", "log.flush.offset.checkpoint.interval.ms": "10"}
        async with running(str(tmp_path), settings) as node:
            crowd = Crowd(node, random.Random(seed))
            await crowd.run(ENOUGH)
            while node.listeners[0].connections:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
            assert not any(partition.waiters for partition in node.replicas)
            logs = {topic: crowd.log(topic) for topic in TOPICS}
        async with running(str(tmp_path), settings) as node:
            client = await Client.connect(node)
            for topic, old in logs.items():
                if old is None:
                    continue
                log = node.replicas.find(topic, 0).log
                assert log.recovery.recovered_bytes == 0
                found: dict[int, int] = {}
                offset = log.log_start_offset
                while offset < log.log_end_offset:
                    answer = await client.fetch(topic, offset)
                    for position, header in iterate_batches(answer["records"]):
                        for record in iterate_records(answer["records"][position : position + header.size]):
                            found[record.offset] = int(record.key or 0)
                        offset = header.next_offset
                assert len(set(found.values())) == len(found)
                for where, number in crowd.acknowledged.get(old, {}).items():
                    assert where < log.log_start_offset or found[where] == number
            client.close()

    uvloop.run(asyncio.wait_for(test(), 300))
    gc.collect()
    assert not problems
    assert caplog.messages == []
