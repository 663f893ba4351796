"""A simulated idempotent producer whose records are deleted, and that then sends again what was acknowledged.

What is known of a producer outlives its records: the batch is a duplicate, whatever deleted it and however often the
node died since. Where it is not, a retry after retention is there twice (redpanda#5355).
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.simulation.checks.history import History, Key, Mark
from ottla.simulation.clients.clients import Client
from ottla.simulation.clients.wire import Wire
from ottla.simulation.world import EPOCH_MS, World

GONE: Key = ("gone", 0)


class Retrier(Client):
    def __init__(self, world: World, history: History, name: str, servers: Sequence[str]) -> None:
        self.producer_id = -1
        self.sequence = 0
        self.batch = b""
        """What it sent last; nothing until it has sent something."""
        self.offset = -1
        """Where that is, once it was acknowledged."""
        self.mark = Mark()
        """When that was sent."""
        self.is_deleted = False
        super().__init__(world, history, name, servers)

    def drop_state(self) -> None:
        self.producer_id, self.sequence, self.batch, self.offset = -1, 0, b"", -1

    async def session(self, wire: Wire) -> None:
        while not self.stopping:
            if self.producer_id < 0:
                self.producer_id = await self.new_producer_id(wire)
            if self.producer_id < 0:
                return
            for each in (self._write, self._delete, self._write_again):
                if not await each(wire):
                    await self.pause(0.1)
                    return
            await self.pause(0.2)

    async def _produce(self, wire: Wire) -> tuple[ErrorCode, int]:
        data = [{"name": GONE[0], "partition_data": [{"index": GONE[1], "records": self.batch}]}]
        values = {"transactional_id": None, "acks": -1, "timeout": 1500, "topic_data": data}
        answer = (await wire.ask(ApiKey.PRODUCE, 9, values))["responses"][0]["partition_responses"][0]
        return ErrorCode(answer["error_code"]), answer["base_offset"]

    async def _write(self, wire: Wire) -> bool:
        """The next batch, unless the one before is to be sent again first."""
        if self.offset >= 0:
            return True
        if not self.batch:
            count = self.random.choice((1, 2, 5))
            records = [SimpleRecord(EPOCH_MS, None, self.name.encode() * 50)] * count
            self.batch = bytes(
                build_batch(records, producer_id=self.producer_id, producer_epoch=0, base_sequence=self.sequence)
            )
            self.sequence += count
        mark = self.history.mark(GONE)
        error, offset = await self._produce(wire)
        if error is ErrorCode.none:
            self.offset, self.mark, self.is_deleted = offset, mark, False
        elif error is ErrorCode.out_of_order_sequence_number and not self.history.holds(GONE, Mark()):
            self.drop_state()  # a power loss took records: a new id, as clients do
        else:
            self.check_retriable(error, "produce")
        return error is ErrorCode.none

    async def _delete(self, wire: Wire) -> bool:
        """All that is there, mostly."""
        if self.is_deleted or self.random.random() < 0.3:
            return True
        row = {"partition_index": GONE[1], "offset": -1}
        values = {"topics": [{"name": GONE[0], "partitions": [row]}], "timeout": 1500}
        answer = (await wire.ask(ApiKey.DELETE_RECORDS, 2, values))["topics"][0]["partitions"][0]
        if answer["error_code"]:
            self.check_retriable(answer["error_code"], "delete records")
            return False
        self.is_deleted = True
        return True

    async def _write_again(self, wire: Wire) -> bool:
        if self.random.random() < 0.5:
            error, offset = await self._produce(wire)
            lost = not self.history.holds(GONE, self.mark)
            if error is ErrorCode.duplicate_sequence_number or (error is ErrorCode.none and offset == self.offset):
                self.note(f"a duplicate, as it was at {self.offset}, deleted {self.is_deleted}")
                self.history.counts["retried after deletion" if self.is_deleted else "retried"] += 1
            elif error is ErrorCode.none and not lost:
                text = f"{self.name}: what was at {self.offset} is at {offset} too, deleted {self.is_deleted}"
                self.world.violated(f"duplicate: {text}")
            elif error is ErrorCode.out_of_order_sequence_number and lost:
                self.drop_state()
                return False
            elif error is not ErrorCode.none:
                self.check_retriable(error, "produce again")
                return False
        if self.random.random() < 0.5:
            self.batch, self.offset = b"", -1
        return True
