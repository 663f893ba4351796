"""Reading everything back: no acknowledged record lost, none twice, order kept, offsets as acknowledged."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import crc_is_valid, iterate_batches, iterate_records
from tests.crash.client import Connection
from tests.crash.producers import RECONNECT_S, RETRIABLE, VALUE, IdempotentProducer

FETCH_VERSION = 12


@dataclass
class PartitionHistory:
    """Reads a partition on from where it was read before; what was read once must never change."""

    topic: str
    partition: int
    offset: int = 0
    seen: dict[int, list[int]] = field(default_factory=dict)
    """By producer, the offsets of its records in their order: list index = number of the record."""

    async def read_on(self, port: int) -> None:
        """To where the log ended when the reading began: producers that go on may be faster than this."""
        connection = await Connection.open(port)
        try:
            end = None
            while end is None or self.offset < end:
                high_watermark = await self._fetch(connection)
                end = high_watermark if end is None else end
        finally:
            connection.close()

    async def _fetch(self, connection: Connection) -> int | None:
        """One fetch; the high watermark, None if the node cannot tell it yet."""
        partition = {"partition": self.partition, "fetch_offset": self.offset, "partition_max_bytes": 1 << 20}
        values = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": 1 << 22,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": self.topic, "partitions": [partition]}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }
        response = await connection.call(ApiKey.FETCH, FETCH_VERSION, values)
        answer = response.responses[0].partitions[0]
        if answer.error_code in RETRIABLE:
            await asyncio.sleep(RECONNECT_S)
            return None
        assert answer.error_code is ErrorCode.none, f"{answer.error_code.name} at {self.offset}"
        data = bytes(answer.records or b"")
        for position, header in iterate_batches(data):
            assert crc_is_valid(data, position, header)
            if header.last_offset < self.offset:
                continue
            assert header.base_offset == self.offset, f"offsets {self.offset} to {header.base_offset} are missing"
            for record in iterate_records(data, position):
                assert record.value is not None
                producer, number = VALUE.unpack_from(record.value)
                offsets = self.seen.setdefault(producer, [])
                assert number == len(offsets), f"producer {producer}: record {number} after {len(offsets) - 1}"
                offsets.append(record.offset)
            self.offset = header.next_offset
        return int(answer.high_watermark)

    def check(self, producer: IdempotentProducer, acknowledged: dict[int, int]) -> None:
        """Everything acknowledged before the reading is at its offset, and nothing is there that was never sent."""
        offsets = self.seen.get(producer.number, [])
        lost = [number for number in acknowledged if number >= len(offsets)]
        assert not lost, f"producer {producer.number}: lost {len(lost)} acknowledged records, the first is {min(lost)}"
        wrong = [number for number, offset in acknowledged.items() if offsets[number] != offset]
        assert not wrong, f"producer {producer.number}: record {wrong[0]} is not at its offset"
        assert len(offsets) <= producer.written
