"""A simulated client that writes, deletes records and looks records up by their time, all at once.

What it finds is never below what is deleted, and the first record of that time or later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages import ApiKey
from ottla.protocol.records.record_batch import SimpleRecord, build_batch
from ottla.simulation.checks.history import History, Key, Mark
from ottla.simulation.clients.clients import Client
from ottla.simulation.clients.wire import Wire, leader_of
from ottla.simulation.world import EPOCH_MS, World

TRIMMED: Key = ("trimmed", 0)

STEP_MS = 1000
"""Between the timestamps of two records."""


class Trimmer(Client):
    key: Key = TRIMMED
    newest = -1
    """The leader epoch that look-ups name; -1: any will do."""

    def __init__(self, world: World, history: History, name: str, servers: Sequence[str]) -> None:
        self.number = 0
        self.times: dict[int, tuple[int, Mark]] = {}
        """The timestamp of each acknowledged offset, and when it was sent."""
        self.deleted = 0, Mark(), ""
        """Everything below is deleted, as the host acknowledged; a crash may bring some of it back, as in Kafka, which
        writes down once a minute where a log starts. A deposed leader that has not heard of its successor does not
        know of it."""
        self.tried = 0
        super().__init__(world, history, name, servers)

    async def where(self) -> str:
        return await leader_of(self.network, self.servers, self.random, self.key)

    async def session(self, wire: Wire) -> None:
        while not self.stopping:
            if self.random.random() < 0.4:
                good = await self._produce(wire)
            else:
                good = await self._trim_and_look(wire)
            await self.pause(0.1)
            if not good:
                return

    async def _produce(self, wire: Wire) -> bool:
        count = self.random.choice((1, 3, 8))
        times = [EPOCH_MS + (self.number + each) * STEP_MS for each in range(count)]
        self.number += count
        mark = self.history.mark(TRIMMED)
        batch = bytes(build_batch([SimpleRecord(time_ms, None, b"t" * 100) for time_ms in times]))
        data = [{"name": TRIMMED[0], "partition_data": [{"index": TRIMMED[1], "records": batch}]}]
        values = {"transactional_id": None, "acks": -1, "timeout": 1500, "topic_data": data}
        answer = (await wire.ask(ApiKey.PRODUCE, 9, values))["responses"][0]["partition_responses"][0]
        if answer["error_code"]:
            self.check_retriable(answer["error_code"], "produce")
            return False
        for each, time_ms in enumerate(times):
            self.times[answer["base_offset"] + each] = time_ms, mark
        return True

    async def _trim_and_look(self, wire: Wire) -> bool:
        """The look-up is under way while records are deleted."""
        if not self.times:
            return True
        before, mark = self.deleted, self.history.mark(TRIMMED)
        trimming = None
        if self.random.random() < 0.4:
            self.tried = max(self.tried, self.random.choice(list(self.times)[-20:]))
            row = {"partition_index": TRIMMED[1], "offset": self.tried}
            values = {"topics": [{"name": TRIMMED[0], "partitions": [row]}], "timeout": 1500}
            trimming = wire.send(ApiKey.DELETE_RECORDS, 2, values)
        asked_ms = self.random.choice([time_ms for time_ms, _ in self.times.values()][-40:]) - self.random.choice(
            (0, 500)
        )
        row = {"partition_index": TRIMMED[1], "current_leader_epoch": self.newest, "timestamp": asked_ms}
        values = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": TRIMMED[0], "partitions": [row]}]}
        looking = wire.send(ApiKey.LIST_OFFSETS, 7, values)
        if trimming is not None:
            answer = (await wire.answer(trimming))["topics"][0]["partitions"][0]
            if answer["error_code"] == ErrorCode.none:
                self.deleted = max(self.deleted, (answer["low_watermark"], mark, wire.host))
                self.history.counts["trimmed"] += 1
            elif answer["error_code"] != ErrorCode.offset_out_of_range or self.history.holds(TRIMMED, Mark()):
                self.check_retriable(answer["error_code"], "delete records")
        answer = (await wire.answer(looking))["topics"][0]["partitions"][0]
        if answer["error_code"]:
            self.check_retriable(answer["error_code"], "look-up")
            return False
        self._check(asked_ms, answer, before if before[2] == wire.host else (0, mark, wire.host), mark)
        return True

    def _check(self, asked_ms: int, answer: dict[str, Any], deleted: tuple[int, Mark, str], mark: Mark) -> None:
        offset, found_ms = answer["offset"], answer["timestamp"]
        before = deleted[0] if deleted[1] == self.history.mark(TRIMMED) else 0
        self.history.counts["looked up by time"] += 1
        if not self.history.holds(TRIMMED, mark):
            return
        text = f"look-up of {asked_ms - EPOCH_MS} found {offset} ({found_ms - EPOCH_MS}), deleted is up to {before}"
        if 0 <= offset < before:
            self.world.violated(f"look-up below the log start: {text}")
        if offset >= 0 and found_ms < asked_ms:
            self.world.violated(f"look-up by time: {text}")
        known = self.times.get(offset)
        if known is not None and known[0] != found_ms and self.history.holds(TRIMMED, known[1]):
            self.world.violated(f"look-up by time: {text}, which is of {known[0] - EPOCH_MS}")
        end = offset if offset >= 0 else 1 << 62
        for each, (time_ms, when) in self.times.items():
            if self.tried <= each < end and time_ms >= asked_ms and self.history.holds(TRIMMED, when):
                self.world.violated(f"look-up by time: {text}, and {each} is of {time_ms - EPOCH_MS}")
