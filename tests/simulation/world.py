"""One partition on a simulated disk, and a model of what it has to hold.

The model keeps every batch that was ever acknowledged, in order. After a crash the log has to be a prefix of that
history: whole up to the last acknowledged batch if the process was killed, up to the last flush if power was lost; the
batch whose append was cut short may be there or not. `World.check` compares everything a reader can ask with the model.
"""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.protocol.records.record_batch import (
    SimpleRecord,
    build_batch,
    iterate_batches,
    iterate_records,
    read_batch_header,
    set_base_offset_and_epoch,
)
from ottla.storage.config import LogConfig
from ottla.storage.log.append_info import AppendInfo
from ottla.storage.log.log import Log
from ottla.storage.log_manager import LogManager
from ottla.storage.producers.producer_state import RECALL_MS, ProducerSettings
from ottla.testing.disk import SimulatedCrash, SimulatedFileSystem
from tests.simulation import checks

ROOT = "/data"
PARTITION = TopicPartition("t", 0)
TOPIC_ID = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
SMALL = LogConfig(segment_bytes=3000, index_interval_bytes=300, file_delete_delay_ms=1000, retention_ms=3_600_000)
TRANSACTIONAL = (10, 11)
"""Producers that write in transactions only."""
PRODUCER_EXPIRATION_MS = 10**15


@dataclass
class Written:
    """A batch of the model."""

    header_sequence: int
    producer_id: int
    sent: bytes
    base_offset: int
    data: bytes
    """As the log has to hold it: offset and leader epoch assigned."""

    @property
    def last_offset(self) -> int:
        return self.base_offset + read_batch_header(self.data).last_offset_delta


@dataclass
class SimulatedClock:
    now: int = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.now


@dataclass
class World:
    seed: int
    config: LogConfig = SMALL
    history: list[Written] = field(default_factory=list)
    """Acknowledged batches by offset; those below the log start stay here."""
    uncertain: Written | None = None
    """The batch whose append was cut short."""
    durable: int = 0
    """Below this a flush returned: not even a power loss may take it."""
    log_start: int = 0
    checkpointed_start: int = 0
    trimmed: int = 0
    """The highest log start so far; a crash may bring older records back, without their leader epochs."""
    leader_epoch: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.clock = SimulatedClock()
        self.fs = SimulatedFileSystem(Random(self.seed + 1), now_ms=self.clock.now_ms)
        self.fs.makedirs(ROOT)
        self.fs.fsync_all()
        self.open()

    @property
    def directory(self) -> str:
        return f"{ROOT}/{PARTITION}"

    # Starting and stopping

    def open(self) -> None:
        """Start as a node does: lock, load, create what is missing, become leader."""
        self.manager = LogManager(
            self.fs,
            [ROOT],
            self.config,
            self.clock,
            Random(self.seed + 2),
            topic_config=lambda topic: self.config,
            producers=ProducerSettings(PRODUCER_EXPIRATION_MS),
        )
        self.manager.lock()
        self.manager.load()
        self.log: Log = self.manager.get(PARTITION) or self.manager.create(PARTITION, TOPIC_ID, self.config)
        self.log.high_watermark = self.log.log_end_offset

    def restart_cleanly(self) -> None:
        self.manager.shutdown()
        self.durable = self.end
        self.checkpointed_start = self.log_start
        crash = self.fs.planned_crash
        self.fs.restart(power_loss=self.random.random() < 0.5)
        if crash is not None:  # it is still to come
            self.fs.plan(crash)
        self.open()
        self.settle(self.end)

    def crash(self, *, power_loss: bool) -> None:
        """The process or the machine dies and comes back; then everything is checked."""
        self.fs.crash()
        self.recover(power_loss=power_loss)

    def recover(self, *, power_loss: bool) -> None:
        self.fs.restart(power_loss=power_loss)
        self.open()
        self.settle(self.durable if power_loss else self.end)

    @property
    def end(self) -> int:
        """The end of the acknowledged log."""
        return max(self.history[-1].last_offset + 1 if self.history else 0, self.log_start)

    def settle(self, safe_end: int) -> None:
        """Compare what came back with what had to, and make it the model."""
        end, start = self.log.log_end_offset, self.log.log_start_offset
        lost_below_start = end == start and end <= self.log_start
        assert end >= safe_end or lost_below_start, f"lost offsets {end} to {safe_end}"
        assert self.checkpointed_start <= start <= max(self.log_start, self.checkpointed_start), start
        if self.uncertain is not None and end > self.end:
            self.history.append(self.uncertain)
        self.uncertain = None
        assert end <= self.end, f"the log ends at {end}, {self.end} were written"
        while self.history and self.history[-1].last_offset >= end:
            self.history.pop()
        self.log_start = start
        self.durable = min(self.durable, end)
        self.check()

    def attempt(self, action: object, *arguments: object, power_loss: bool) -> bool:
        """Do an action; if the planned crash falls on it, recover. Returns whether it was completed."""
        try:
            action(*arguments)  # type: ignore[operator]
        except SimulatedCrash:
            self.recover(power_loss=power_loss)
            return False
        return True

    # What clients and timers do

    def last_of(self, producer_id: int) -> Written | None:
        """Its last batch of records; markers have no sequence."""
        mine = (batch for batch in reversed(self.history) if batch.producer_id == producer_id)
        return next((batch for batch in mine if batch.header_sequence >= 0), None)

    def build(self, producer_id: int, count: int, size: int, *, codec: int = 0, transactional: bool = False) -> bytes:
        last = self.last_of(producer_id)
        sequence = 0 if last is None else read_batch_header(last.sent).last_sequence + 1
        records = [
            SimpleRecord(
                self.clock.now - self.random.randrange(3000), self.random.randbytes(4), self.random.randbytes(size)
            )
            for _ in range(count)
        ]
        if producer_id < 0:
            return bytes(build_batch(records, codec=codec))
        batch = build_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=transactional,
        )
        return bytes(batch)

    def append(self, producer_id: int = 1, count: int = 1, size: int = 100, *, codec: int = 0) -> AppendInfo:
        return self.send(self.build(producer_id, count, size, codec=codec))

    def send(self, sent: bytes) -> AppendInfo:
        """Append a batch, expecting the end of the log for it; those of transactions as a follower."""
        header = read_batch_header(sent)
        data = bytearray(sent)
        base_offset = self.end
        set_base_offset_and_epoch(data, 0, base_offset, self.leader_epoch)
        written = Written(header.base_sequence, header.producer_id, sent, base_offset, bytes(data))
        self.uncertain = written
        if header.is_transactional:
            info = self.log.append_as_follower(memoryview(data), now_ms=self.clock.now)
        else:
            records = memoryview(bytearray(sent))
            info = self.log.append_as_leader(records, self.leader_epoch, now_ms=self.clock.now)
        assert not info.is_duplicate
        assert (info.first_offset, info.last_offset) == (base_offset, written.last_offset)
        if info.needs_flush:
            asyncio.run(self.log.flush_async(info.last_offset + 1))
            self.durable = info.last_offset + 1
        self.history.append(written)
        self.uncertain = None
        self.log.high_watermark = self.log.log_end_offset
        self.clock.now += 10
        return info

    def append_in_transaction(self, producer_id: int) -> None:
        """A batch of a transactional producer, which opens a transaction unless one is open."""
        self.send(self.build(producer_id, 2, 100, transactional=True))

    def end_transaction(self, producer_id: int, *, abort: bool) -> None:
        """The coordinator's marker."""
        record = SimpleRecord(self.clock.now, b"\0\0\0" + bytes([not abort]), bytes(6))
        marker = build_batch([record], producer_id=producer_id, producer_epoch=0, transactional=True, control=True)
        self.send(bytes(marker))

    def transactions(self) -> tuple[set[tuple[int, int, int]], int | None]:
        """From the history: (producer, first offset, marker's offset) of the aborted; start of the oldest open one."""
        opened: dict[int, int] = {}
        aborted = set()
        for batch in self.history:
            header = read_batch_header(batch.data)
            if header.is_control:
                first = opened.pop(header.producer_id, None)
                key = next(iterate_records(batch.data)).key
                if first is not None and key == bytes(4):
                    aborted.add((header.producer_id, first, header.base_offset))
            elif header.is_transactional:
                opened.setdefault(header.producer_id, header.base_offset)
        return aborted, min(opened.values(), default=None)

    def retry(self, batch: Written) -> AppendInfo:
        """Send a batch of the history again, which has to be recognised."""
        end = self.log.log_end_offset
        info = self.log.append_as_leader(memoryview(bytearray(batch.sent)), self.leader_epoch, now_ms=self.clock.now)
        assert info.is_duplicate
        assert (info.first_offset, info.last_offset) == (batch.base_offset, batch.last_offset)
        assert self.log.log_end_offset == end
        return info

    def flush(self) -> None:
        self.log.flush()
        self.durable = self.end

    def roll(self) -> None:
        self.log.roll()

    def delete_records(self, offset: int) -> None:
        target = min(max(offset, self.log_start), self.end)
        before = self.log_start
        self.trimmed = max(self.trimmed, target)
        self.log_start = target  # a crash may leave either; settle takes what it finds
        assert self.log.delete_records(target) == max(target, before)

    def new_epoch(self) -> None:
        self.leader_epoch += 1

    def tick(self, ms: int) -> None:
        """Time passes, and the timers fire."""
        self.clock.now += ms
        self.log_start = max(self.log_start, self.retention_start())
        self.trimmed = max(self.trimmed, self.log_start)
        self.manager.periodic(self.clock.now)
        asyncio.run(self.manager.background(self.clock.now))
        assert self.log.log_start_offset <= self.log_start
        self.log_start = self.log.log_start_offset

    def retention_start(self) -> int:
        """The highest log start that retention may give now: everything old goes, the active segment included."""
        horizon = self.clock.now - self.config.retention_ms
        start = self.log_start
        for batch in self.history:
            if batch.last_offset < start:
                continue
            if read_batch_header(batch.data).max_timestamp >= horizon:
                break
            start = batch.last_offset + 1
        return start

    # What has to hold

    def live(self) -> list[Written]:
        return [batch for batch in self.history if batch.last_offset >= self.log_start]

    def check(self) -> None:
        """Everything that a reader or a producer can observe agrees with the model, and so do the files."""
        files = self.fs.files(ROOT)
        found = [data for _, data in checks.batches(files, self.directory)]
        expected = [batch.data for batch in self.history]
        live = [batch.data for batch in self.live()]
        assert found[len(found) - len(live) :] == live
        assert found == expected[len(expected) - len(found) :]
        checks.check_indexes(files, self.directory)
        assert self.log.log_end_offset == self.end
        assert self.log.log_start_offset == self.log_start
        self.check_reads()
        self.check_times()
        self.check_transactions()
        self.check_producers()

    def check_reads(self) -> None:
        """Bug 12: a read from any offset of a batch begins with that batch."""
        end = self.end
        for batch in self.live():
            for offset in range(max(batch.base_offset, self.log_start), batch.last_offset + 1):
                found = self.log.read(offset, 1, up_to=end)
                assert found is not None
                assert found.read()[: len(batch.data)] == batch.data
            if batch.last_offset >= self.trimmed:
                assert self.log.epoch_for_offset(batch.last_offset) == read_batch_header(batch.data).leader_epoch
        assert self.log.read(end, 1000, up_to=end) is None
        for outside in (self.log_start - 1, end + 1):
            try:
                self.log.read(outside, 1000, up_to=end)
            except KafkaError as error:
                assert error.code is ErrorCode.offset_out_of_range
            else:
                raise AssertionError(f"read at {outside} of [{self.log_start}, {end}]")
        everything, offset = b"", self.log_start
        while offset < end:
            found = self.log.read(offset, 700, up_to=end)
            assert found is not None
            data = found.read()
            everything += data
            offset = max(header.next_offset for _, header in iterate_batches(data))
        assert everything == b"".join(batch.data for batch in self.live())

    def check_times(self) -> None:
        """Look-up by time agrees with a look at every record, never below the log start (bug 11)."""
        records = [
            (record.timestamp, record.offset)
            for batch in self.live()
            for record in iterate_records(batch.data)
            if record.offset >= self.log_start
        ]
        stamps = sorted({timestamp for timestamp, _ in records})
        for timestamp in {0, *self.random.sample(stamps, min(len(stamps), 8)), self.clock.now + 1}:
            expected = next((record for record in records if record[0] >= timestamp), None)
            found = self.log.offset_for_timestamp(timestamp)
            assert (None if found is None else found[:2]) == expected, timestamp
        latest = self.log.offset_of_max_timestamp()
        if records:
            top = max(timestamp for timestamp, _ in records)
            assert latest is not None
            assert latest[:2] == (top, next(offset for timestamp, offset in records if timestamp == top))
        else:
            assert latest is None

    def check_transactions(self) -> None:
        """Readers of committed records stop at the oldest open transaction and learn of every aborted one."""
        aborted, oldest_open = self.transactions()
        if oldest_open is None or oldest_open >= self.trimmed:
            stable = self.end if oldest_open is None else oldest_open
            assert self.log.last_stable_offset == stable, (self.log.last_stable_offset, stable)
        cut = {marker for _, first, marker in aborted if first < self.trimmed}  # their beginning may be forgotten
        found = {entry[:3] for entry in self.log.aborted_transactions(self.log_start, self.end)}
        assert {entry for entry in found if entry[2] not in cut} == {entry for entry in aborted if entry[2] not in cut}

    def check_producers(self) -> None:
        """The last five batches of a producer are recognised, unless they are gone from the log (bugs 7 and 8).

        Of older ones a restart remembers only the last.
        """
        idempotent = {batch.producer_id for batch in self.live()} - {-1, *TRANSACTIONAL}
        for producer_id in idempotent:
            mine = [batch for batch in self.live() if batch.producer_id == producer_id]
            for batch in mine[-5:]:
                age_ms = self.clock.now - read_batch_header(batch.data).max_timestamp
                if age_ms < RECALL_MS // 2 or batch is mine[-1]:
                    self.retry(batch)
            header = read_batch_header(mine[-1].sent)
            gap = build_batch(
                [SimpleRecord(self.clock.now, None, b"")],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=header.last_sequence + 2,
            )
            try:
                self.log.append_as_leader(memoryview(gap), self.leader_epoch, now_ms=self.clock.now)
            except KafkaError as error:
                assert error.code is ErrorCode.out_of_order_sequence_number
            else:
                raise AssertionError("a gap in the sequence was accepted")


def with_flush_on_append(config: LogConfig = SMALL) -> LogConfig:
    return dataclasses.replace(config, flush_messages=1)
