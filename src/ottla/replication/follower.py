"""What a follower does with its leader's answer about one partition, pure (Kafka's `AbstractFetcherThread`).

It appends what the leader sent, as it came. Where the leader says that the logs diverge (KIP-595), it cuts its log at
the end of the last epoch that both have; if it asked for an offset that the leader does not have, it asks for the start
and end of the leader's log; and of an error it thinks again after a while that doubles.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from ottla.errors import ErrorCode, KafkaError, MissingOffsets, OverlappingBatch
from ottla.model import LeaderEpoch, Millis, NodeId, Offset, TopicPartition
from ottla.protocol.fetch import EpochEndOffset, FetchedPartition, FetchPartition, records_length
from ottla.protocol.records.record_batch import HEADER_SIZE, LOG_OVERHEAD
from ottla.replication.partition import Partition
from ottla.replication.replica_log import Appended, ReplicaLog

FIRST_BACKOFF_MS = 20
"""After the first error of a row of them. Most are those of a leader that has not heard yet that it is one, and what is
to be committed waits for its followers; `replica.fetch.backoff.ms` is what it doubles up to."""


GAP_BELIEVED_AFTER = 32
"""Errors in a row, half a minute: a leader that hears of a gap (`Outcome.is_suspicious`) has looked by then whether its
log is damaged, also where that is at the end of a large segment on a slow disk, and would not lead any more. What it
still sends was compacted before the topic's policy changed."""

_SUSPICIOUS = frozenset({ErrorCode.corrupt_message, ErrorCode.invalid_record})


class Next(enum.Enum):
    """The next step for a partition after an answer."""

    FETCH = "fetch"
    """Ask for what follows the log end."""
    TRUNCATE = "truncate"
    """Cut the log at `Outcome.offset`, then fetch."""
    FIND_OFFSETS = "find offsets"
    """Ask where the leader's log begins and ends."""
    BACK_OFF = "back off"
    """Fetch, but not at once."""
    GIVE_UP = "give up"
    """Stop, until the controller sends something new."""


class Outcome(NamedTuple):
    next: Next
    offset: Offset = -1
    appended: Appended | None = None
    error: KafkaError | None = None
    is_suspicious: bool = False
    """Whether the leader's data may be damaged in its log, which is reported to it."""


_FETCH = Outcome(Next.FETCH)


class Followed:
    """A partition that this node follows in one leader epoch. Another epoch has another one."""

    __slots__ = (
        "asked", "failures", "has_answer", "lag", "leader_epoch", "leader_id", "log", "next_offset", "partition",
        "retry_at_ms",
    )  # fmt: skip

    def __init__(self, partition: Partition, leader_id: NodeId, leader_epoch: LeaderEpoch) -> None:
        self.partition = partition
        self.log: ReplicaLog = partition.log
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.asked: FetchPartition | None = None
        """The last request to the leader."""
        self.next_offset: Offset = -1
        """Offset at which the rest of the answer begins."""
        self.failures = 0
        """Errors in a row."""
        self.retry_at_ms: Millis = 0
        self.has_answer = False
        """Whether the leader answered a fetch in this epoch without an error."""
        self.lag = 0
        """Committed records that the leader had and this node did not, by its last answer."""

    @property
    def topic_partition(self) -> TopicPartition:
        return self.partition.topic_partition

    @property
    def has_all(self) -> bool:
        """Whether it lacked nothing that was committed when its leader last answered."""
        return self.has_answer and not self.lag

    @property
    def is_current(self) -> bool:
        """Whether the controller has not said anything else since."""
        partition = self.partition
        return partition.leader_epoch == self.leader_epoch and partition.leader_id == self.leader_id

    def request(self, max_bytes: int) -> FetchPartition:
        """The next request for the partition; it becomes `asked`."""
        log = self.log
        latest = log.latest_epoch
        self.next_offset = log.log_end_offset
        self.asked = FetchPartition(
            self.topic_partition.partition,
            log.log_end_offset,
            max_bytes,
            self.leader_epoch,
            -1 if latest is None else latest,
            log.log_start_offset,
        )
        return self.asked

    def take(self, answered: FetchedPartition, now_ms: Millis) -> Outcome:
        """Do what an answer to `asked` says, as far as it needs no other request and no disk thread. Of an answer that
        comes in pieces each is taken."""
        if not self.is_current or self.asked is None:
            return Outcome(Next.GIVE_UP)
        if answered.error_code:
            return self._on_error(ErrorCode(answered.error_code))
        if self.next_offset != self.log.log_end_offset:
            return _FETCH
        diverging = answered.diverging_epoch
        if diverging is not None and diverging.end_offset >= 0:
            return Outcome(Next.TRUNCATE, truncation_offset(self.log, diverging))
        appended = None
        try:
            if has_whole_batch(answered.records):
                appended = self.partition.append_as_follower(answered.records, self.leader_epoch, now_ms=now_ms)
                self.next_offset = self.log.log_end_offset
            self.partition.follow(answered.high_watermark, answered.log_start_offset)
        except KafkaError as error:
            if isinstance(error, OverlappingBatch) and (cut := self._overlap(error.first_offset)) is not None:
                return Outcome(Next.TRUNCATE, cut)
            if isinstance(error, MissingOffsets) and self.failures >= GAP_BELIEVED_AFTER:
                self.log.cleaned_offset = self.log.log_start_offset  # it has gaps, which the next start has to know
            # A batch that was damaged on its way comes again; a disk that cannot be written does not heal by itself.
            give_up = error.code is ErrorCode.kafka_storage_error and not self.log.is_open
            is_suspicious = error.code in _SUSPICIOUS
            return Outcome(Next.GIVE_UP if give_up else Next.BACK_OFF, error=error, is_suspicious=is_suspicious)
        self.failures = 0
        self.has_answer = True
        self.lag = max(0, answered.high_watermark - self.log.log_end_offset)
        return Outcome(Next.FETCH, appended=appended)

    def _overlap(self, first_offset: Offset) -> Offset | None:
        """Where to cut the log for a batch of the leader that overlaps its end, None where that is committed. The
        leader may not know any more that this log's last epoch ended earlier: records up to somewhere inside the batch
        were deleted, and its own epochs begin there. (Kafka stops following the partition.)"""
        cut = max(first_offset, self.log.log_start_offset)
        return cut if self.log.high_watermark <= cut < self.log.log_end_offset else None

    def _on_error(self, code: ErrorCode) -> Outcome:
        if code is ErrorCode.offset_out_of_range:
            return Outcome(Next.FIND_OFFSETS)
        # The leader is ahead: the metadata will say in which epoch it leads.
        next_ = Next.GIVE_UP if code is ErrorCode.fenced_leader_epoch else Next.BACK_OFF
        return Outcome(next_, error=KafkaError(code))

    def backoff_ms(self, backoff_ms_max: Millis) -> Millis:
        """How long to wait after one more error."""
        self.failures += 1
        return min(FIRST_BACKOFF_MS << min(self.failures - 1, 16), backoff_ms_max)


def truncation_offset(log: ReplicaLog, diverging: EpochEndOffset) -> Offset:
    """Where to cut a log whose leader has `diverging` as the end of the largest epoch up to the log's last one.

    Where the log knows no such epoch it is cut at the end of the one before, and the leader is asked again (KIP-279).
    """
    end = log.log_end_offset
    epoch, epoch_end = log.end_offset_for_epoch(diverging.epoch)
    if epoch_end < 0:
        return min(diverging.end_offset, end)
    if epoch != diverging.epoch:
        return min(epoch_end, end)
    return min(epoch_end, diverging.end_offset, end)


class NewStart(NamedTuple):
    """Where a follower goes on whose fetch was out of the leader's range."""

    offset: Offset
    starts_over: bool
    """None of its records are the leader's any more."""


def new_start(log_end: Offset, leader_start: Offset, leader_end: Offset) -> NewStart:
    """From where to fetch again, by where the leader's log begins and ends (Kafka's `fetchOffsetAndTruncate`).

    A leader that ends before the follower does was elected uncleanly: what lies above its end is not its any more.
    """
    if leader_end < log_end:
        return NewStart(leader_end, starts_over=False)
    if leader_start > log_end:
        return NewStart(leader_start, starts_over=True)
    return NewStart(log_end, starts_over=False)


def has_whole_batch(records: Any) -> bool:
    """A leader may cut off the last batch of an answer, and so the only one."""
    size = records_length(records)
    return size >= HEADER_SIZE and int.from_bytes(records[8:12], "big", signed=True) + LOG_OVERHEAD <= size
