"""The load: idempotent producers with five requests in flight, each with its own idea of what was acknowledged."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from dataclasses import dataclass, field
from random import Random

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from tests.crash.client import Connection, Disconnected

IN_FLIGHT_MAX = 5
RECONNECT_S = 0.02
PRODUCE_VERSION = 11
VALUE = struct.Struct(">IQ")
"""Number of the producer, number of the record."""

RETRIABLE = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.request_timed_out,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)
"""Errors that a node may answer while it starts."""


@dataclass
class SentBatch:
    sequence: int
    first_record: int
    count: int
    data: bytes


@dataclass
class IdempotentProducer:
    """Writes numbered records to one partition, for as long as `run` is let."""

    number: int
    topic: str
    partition: int
    random: Random
    acknowledged: dict[int, int] = field(default_factory=dict)
    """Offsets by number of record."""
    written: int = 0
    """Records given to some batch so far, acknowledged or not."""
    producer_id: int = -1
    stopping: bool = False
    unacknowledged: deque[SentBatch] = field(default_factory=deque)

    async def run(self, port: int) -> None:
        """Produce until `stopping`, then return once everything is acknowledged. Reconnects for ever."""
        while not (self.stopping and not self.unacknowledged):
            try:
                connection = await Connection.open(port)
                try:
                    await self._session(connection)
                finally:
                    connection.close()
            except Disconnected:
                await asyncio.sleep(RECONNECT_S)

    async def _session(self, connection: Connection) -> None:
        if self.producer_id < 0:
            values = {
                "transactional_id": None,
                "transaction_timeout": 60_000,
                "producer_id": -1,
                "producer_epoch": -1,
            }
            response = await connection.call(ApiKey.INIT_PRODUCER_ID, 4, values)
            if response.error_code is not ErrorCode.none:
                await self._wait_after(response.error_code)
                return
            self.producer_id = response.producer_id
        retry = deque(self.unacknowledged)
        in_flight: deque[SentBatch] = deque()
        while retry or in_flight or not self.stopping:
            while len(in_flight) < IN_FLIGHT_MAX and (retry or not self.stopping):
                batch = retry.popleft() if retry else self._next_batch()
                in_flight.append(batch)
                self._send(connection, batch)
            response = await connection.receive()
            answer = response.responses[0].partition_responses[0]
            batch = in_flight.popleft()
            if not self._note(batch, answer.error_code, answer.base_offset):
                await self._wait_after(answer.error_code)
                return

    def _next_batch(self) -> SentBatch:
        count = self.random.choice((1, 1, 3, 20))
        records = [
            SimpleRecord(
                1_700_000_000_000 + number,
                b"key" if number % 3 else None,
                VALUE.pack(self.number, number) + self.random.randbytes(self.random.choice((10, 200, 2000))),
            )
            for number in range(self.written, self.written + count)
        ]
        data = build_batch(
            records,
            codec=self.number % 5,
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self.written & 0x7FFFFFFF,
        )
        batch = SentBatch(self.written, self.written, count, bytes(data))
        self.written += count
        self.unacknowledged.append(batch)
        return batch

    def _send(self, connection: Connection, batch: SentBatch) -> None:
        partition = {"index": self.partition, "records": batch.data}
        topic = {"name": self.topic, "partition_data": [partition]}
        values = {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": [topic]}
        connection.send(ApiKey.PRODUCE, PRODUCE_VERSION, values)

    def _note(self, batch: SentBatch, error: ErrorCode, base_offset: int) -> bool:
        """Whether the batch is in the log now. Fails on an error that a producer cannot get over."""
        if error is ErrorCode.none:
            assert batch is self.unacknowledged[0]
            self.unacknowledged.popleft()
            for number in range(batch.count):
                self.acknowledged[batch.first_record + number] = base_offset + number
            return True
        assert error in RETRIABLE, f"producer {self.number}: {error.name} for records from {batch.first_record} on"
        return False

    async def _wait_after(self, error: ErrorCode) -> None:
        assert error in RETRIABLE, f"producer {self.number}: {error.name}"
        await asyncio.sleep(RECONNECT_S)
