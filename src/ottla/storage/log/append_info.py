"""What an append reports."""

from __future__ import annotations

from ottla.model import LeaderEpoch, Offset
from ottla.storage.producers.producer_entry import Duplicate


class AppendInfo:
    """What an append did. For a duplicate these are the numbers of the original append."""

    __slots__ = (
        "batch_count", "first_offset", "is_duplicate", "last_offset", "leader_epoch", "log_append_time_ms",
        "log_start_offset", "max_timestamp_ms", "needs_flush", "size_bytes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.first_offset = 0
        self.last_offset = 0
        self.log_append_time_ms = 0
        """The broker's time when the topic uses LogAppendTime, else -1; of a duplicate its timestamp, as in Kafka."""
        self.log_start_offset = 0
        self.max_timestamp_ms = 0
        self.leader_epoch = 0
        self.size_bytes = 0
        """Bytes written; 0 for a duplicate."""
        self.batch_count = 0
        self.is_duplicate = False
        self.needs_flush = False
        """`flush.messages` or `flush.ms` asks for an fsync before the answer, and before it is committed."""


def duplicate_info(duplicate: Duplicate, leader_epoch: LeaderEpoch, log_start: Offset, needs_flush: bool) -> AppendInfo:
    """The result for a batch that was appended before."""
    info = AppendInfo()
    info.first_offset = duplicate.base_offset
    info.last_offset = duplicate.last_offset
    info.log_append_time_ms = info.max_timestamp_ms = duplicate.timestamp
    info.log_start_offset = log_start
    info.leader_epoch = leader_epoch
    info.is_duplicate = True
    info.needs_flush = needs_flush
    return info
