"""What an append reports."""

from __future__ import annotations

from typing import NamedTuple

from ottla.model import LeaderEpoch, Millis, Offset


class AppendInfo(NamedTuple):
    """What an append did. For a duplicate these are the numbers of the original append."""

    first_offset: Offset
    last_offset: Offset
    log_append_time_ms: Millis
    """The broker's time when the topic uses LogAppendTime, else -1; of a duplicate its timestamp, as in Kafka."""
    log_start_offset: Offset
    max_timestamp_ms: Millis
    leader_epoch: LeaderEpoch
    size_bytes: int
    """Bytes written; 0 for a duplicate."""
    batch_count: int
    is_duplicate: bool
    needs_flush: bool
    """`flush.messages` or `flush.ms` asks for an fsync before the answer: await `flush_async(last_offset + 1)`
    and only then raise the high watermark and answer."""
