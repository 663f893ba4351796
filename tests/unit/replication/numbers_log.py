"""A log that is only numbers: what a partition asks of one, and faults to order."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import PartitionRegistration
from ottla.model import TopicPartition
from ottla.replication.partition import Partition


class NumbersLog:
    """Every append is one record. An fsync that was begun ends when the test says so."""

    def __init__(self, flush_messages: int = 1 << 62) -> None:
        self.flush_messages = flush_messages
        self.high_watermark = 0
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.last_stable_offset = 0
        self.durable = 0
        self.is_open = True
        self.failure: OSError | None = None
        self.flushes = 0
        """How many fsyncs were begun."""
        self.flushing: int | None = None
        """The log end when the fsync began that is under way."""
        self.epochs: list[int] = []
        self.producer_state = SimpleNamespace(note_refusal=lambda records, error, now_ms: None)
        self._fsynced: Callable[[], None] = lambda: None
        self._offline: Callable[[], None] = lambda: None
        self._truncated: Callable[[int], None] = lambda offset: None
        self._start_moved: Callable[[], None] = lambda: None

    @property
    def safe_end_offset(self) -> int:
        return self.log_end_offset if self.log_end_offset - self.durable < self.flush_messages else self.durable

    def observe(
        self,
        fsynced: Callable[[], None],
        offline: Callable[[], None],
        truncated: Callable[[int], None],
        start_moved: Callable[[], None],
    ) -> None:
        self._fsynced, self._offline, self._truncated = fsynced, offline, truncated
        self._start_moved = start_moved

    def append_as_leader(self, records: bytes, leader_epoch: int, **options: Any) -> Any:
        if not self.is_open:
            raise KafkaError(ErrorCode.kafka_storage_error)
        self.log_end_offset += 1
        return SimpleNamespace(
            first_offset=self.log_end_offset - 1,
            last_offset=self.log_end_offset - 1,
            size_bytes=len(records),
            leader_epoch=leader_epoch,
            needs_flush=self.log_end_offset - self.durable >= self.flush_messages,
        )

    def find_duplicate(self, records: bytes, leader_epoch: int) -> None:
        """Its batches have no producers."""

    def begin_flush(self) -> None:
        if self.flushing is None:
            self.flushes += 1
            self.flushing = self.log_end_offset

    def end_flush(self) -> None:
        if self.flushing is not None:
            self.durable = max(self.durable, min(self.flushing, self.log_end_offset))
            self.flushing = None
            self._fsynced()

    def fail(self) -> None:
        self.is_open = False
        self._offline()

    def truncate(self, offset: int) -> None:
        self.log_end_offset = min(self.log_end_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.durable = min(self.durable, offset)
        self.flushing = None
        self._truncated(offset)

    def delete_records(self, offset: int) -> int:
        target = self.high_watermark if offset == -1 else offset
        if target > self.high_watermark:
            raise KafkaError(ErrorCode.offset_out_of_range)
        self.log_start_offset = max(self.log_start_offset, target)
        self._start_moved()
        return self.log_start_offset

    def holds_nothing(self, offset: int, high_watermark: int, log_start: int) -> bool:
        return False

    def read(self, *args: Any, **options: Any) -> None:
        return None

    def assign_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return (epoch, 17) if epoch >= 0 else (-1, -1)


def registration(
    leader: int = 1,
    epoch: int = 0,
    partition_epoch: int = 0,
    isr: tuple[int, ...] = (1,),
    replicas: tuple[int, ...] = (1, 2, 3),
    directories: tuple[UUID, ...] = (),
) -> PartitionRegistration:
    directories = directories or (UUID(int=9),) * len(replicas)
    return PartitionRegistration(replicas, isr, leader, epoch, partition_epoch, directories)


def leading(
    isr: tuple[int, ...] = (1,), *, flush_messages: int = 1 << 62, live: dict[int, int] | None = None
) -> tuple[Partition, NumbersLog]:
    """Node 1 leads a partition of three replicas. `live`: the broker epochs of nodes that may join."""
    log = NumbersLog(flush_messages)
    live_epoch = None if live is None else lambda node_id: live.get(node_id, -1)
    partition = Partition(1, TopicPartition("t", 0), UUID(int=5), log, live_epoch)  # type: ignore[arg-type]
    partition.update(registration(isr=isr))
    return partition, log


class Told:
    """Notes what a waiter hears."""

    def __init__(self) -> None:
        self.errors: list[ErrorCode] = []

    def __call__(self, error: ErrorCode) -> None:
        self.errors.append(error)


def append(partition: Partition, acks: int = -1, size: int = 10) -> Told:
    """Append and wait for it."""
    told = Told()
    info = partition.append_as_leader(b"." * size, acks, now_ms=0)
    partition.wait(info.last_offset + 1, info.leader_epoch, acks, told)
    return told
