"""A simulated idempotent producer of two partitions that recovers as librdkafka does.

Told that a batch is out of order, it takes records for lost: it waits until nothing is under way, raises its epoch for
*all* partitions, and sends what is not acknowledged again as new, also the batch in doubt of another partition whose
connection was lost, which is then there twice (librdkafka#4953). So a broker must not say that where nothing is lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.simulation.checks.history import ACKS_ALL, History, Key, Mark
from ottla.simulation.clients.clients import RECONNECT_S, Client, produced
from ottla.simulation.clients.wire import Disconnected, Wire, leader_of
from ottla.simulation.world import EPOCH_MS, World

IN_FLIGHT_MAX = 3


class Batch:
    """Values on their way; with another epoch they become another batch of the same values."""

    def __init__(self, values: list[bytes]) -> None:
        self.values = values
        self.data = b""
        self.mark = Mark()


class Lane:
    """What the producer sends to one partition."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.number = 0
        self.sequence = 0
        self.unanswered: deque[Batch] = deque()
        self.is_drained = False
        """Nothing is in flight, and nothing more is sent."""


class BumpingProducer(Client):
    def __init__(self, world: World, history: History, name: str, servers: Sequence[str], keys: Sequence[Key]) -> None:
        self.keys = keys
        self.lives = 0
        self.drop_state()
        super().__init__(world, history, name, servers)

    def drop_state(self) -> None:
        self.lanes = [Lane(key) for key in self.keys]
        self.producer_id = -1
        self.epoch = 0
        self.is_draining = False
        self.lives += 1

    def finished(self) -> bool:
        return self.stopping and not any(lane.unanswered for lane in self.lanes)

    async def _run(self) -> None:
        while self.producer_id < 0 and not self.stopping:
            await self._connected(self._initialise)
        await asyncio.gather(*(self._lane(lane) for lane in self.lanes))
        self.done = True

    async def _lane(self, lane: Lane) -> None:
        while not self.finished():
            lane.is_drained = self.is_draining
            if self.is_draining and all(each.is_drained for each in self.lanes):
                self._bump()
            if not self.is_draining:
                await self._connected(self._send_all, lane)
            await asyncio.sleep(RECONNECT_S)

    async def _connected(self, talk: Any, lane: Lane | None = None) -> None:
        try:
            if lane is None or len(self.servers) == 1:
                host = self.random.choice(self.servers)
            else:
                host = await leader_of(self.network, self.servers, self.random, lane.key)
            with closing(await Wire.connect(self.network, host)) as wire:
                await (talk(wire) if lane is None else talk(wire, lane))
        except Disconnected as error:
            self.world.counts["bumping producer disconnected"] += 1
            self.note(f"disconnected: {error}")

    async def _initialise(self, wire: Wire) -> None:
        self.producer_id = await self.new_producer_id(wire)

    async def _send_all(self, wire: Wire, lane: Lane) -> None:
        """Until an answer is an error or the epoch is to be raised; the answers to all that was sent are read."""
        again = deque(lane.unanswered)
        flying: deque[tuple[Batch, asyncio.Future[Any]]] = deque()
        is_refused = False
        while True:
            while not is_refused and not self.is_draining and len(flying) < IN_FLIGHT_MAX:
                if not again and self.stopping:
                    break
                batch = again.popleft() if again else self._next(lane)
                batch.mark = self.history.mark(lane.key)
                flying.append((batch, self._send(wire, lane, batch)))
            if not flying:
                return
            batch, future = flying.popleft()
            error, offset = produced(await wire.answer(future))
            is_refused = not self._answered(lane, batch, error, offset) or is_refused
            await self.pause(0.1 if is_refused else 0.02)

    def _next(self, lane: Lane) -> Batch:
        count, first = self.random.choice((1, 1, 2)), lane.number
        lane.number += count
        values = [f"{self.name}.{self.lives}/{lane.key[1]}-{first + each}".encode() for each in range(count)]
        batch = Batch(values)
        self._number(lane, batch)
        lane.unanswered.append(batch)
        producer = f"{self.name}.{self.lives}/{lane.key[1]}"
        self.history.sending(lane.key, values, producer, first, idempotent=True)
        return batch

    def _number(self, lane: Lane, batch: Batch) -> None:
        """Give the batch its place in the sequence of this epoch."""
        now_ms = EPOCH_MS + int(self.world.time.now_s * 1000)
        records = [SimpleRecord(now_ms, None, value) for value in batch.values]
        batch.data = bytes(
            build_batch(records, producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=lane.sequence)
        )
        lane.sequence += len(records)

    def _send(self, wire: Wire, lane: Lane, batch: Batch) -> asyncio.Future[Any]:
        topic, number = lane.key
        data = [{"name": topic, "partition_data": [{"index": number, "records": batch.data}]}]
        values = {"transactional_id": None, "acks": ACKS_ALL, "timeout": 1500, "topic_data": data}
        return wire.send(ApiKey.PRODUCE, 9, values)

    def _answered(self, lane: Lane, batch: Batch, error: int, base_offset: int) -> bool:
        code = ErrorCode(error)
        what = f"{lane.key} {batch.values[0].decode()} x{len(batch.values)}"
        if code is ErrorCode.none:
            lane.unanswered.remove(batch)
            self.history.acknowledge(lane.key, base_offset, batch.values, batch.mark, ACKS_ALL)
            return True
        if code is ErrorCode.out_of_order_sequence_number:
            self.note(f"out of order: {what}")
            self.world.counts["epochs to be raised"] += 1
            if not self.history.holds(lane.key, Mark()):
                self._may_repeat()
            self.is_draining = True
            return False
        self.check_retriable(code, f"produce {what}")
        return False

    def _may_repeat(self) -> None:
        """Records were lost, by no fault of the brokers: what is in doubt elsewhere may be there twice."""
        for lane in self.lanes:
            for batch in lane.unanswered:
                for value in batch.values:
                    self.history.write(lane.key, value).is_unique = False

    def _bump(self) -> None:
        self.epoch += 1
        self.note(f"epoch {self.epoch}")
        self.world.counts["epochs raised"] += 1
        for lane in self.lanes:
            lane.sequence = 0
            lane.is_drained = False
            for batch in lane.unanswered:
                self._number(lane, batch)
        self.is_draining = False
