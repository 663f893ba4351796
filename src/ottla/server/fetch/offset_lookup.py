"""The offset of a timestamp in a partition, and of the special timestamps: for ListOffsets and share groups."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ottla.drivers.cooperative import Cost
from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_LEADER_EPOCH, NO_TIMESTAMP, UNKNOWN_OFFSET, Millis, Offset, TimestampAndOffset
from ottla.protocol.records.record_batch import LongWork
from ottla.replication.partition import Partition
from ottla.server.api import RequestContext
from ottla.server.fetch.partition_read import READ_COMMITTED

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6

LOG_END = -1
"""Given in place of an isolation level for replicas, for which every record counts."""

OFFSET_NOT_AVAILABLE_SINCE = 5

LOOK_UP_COST = 200
"""Cost of a look-up by timestamp: it reads an index, some headers and a batch."""

NOTHING: TimestampAndOffset = (NO_TIMESTAMP, UNKNOWN_OFFSET, NO_LEADER_EPOCH)


def find_offset(
    context: RequestContext, partition: Partition, timestamp: Millis, isolation: int
) -> Generator[Cost, Any, TimestampAndOffset]:
    """(timestamp, offset, epoch) of what is asked for, NOTHING if there is no such record. Raises KafkaError."""
    log = partition.log
    if timestamp == LATEST:
        _check_known(context, partition, isolation)
        return NO_TIMESTAMP, _end(partition, isolation), partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        # Where there is no record yet, it is the current epoch's that comes next.
        epoch = log.epoch_for_offset(start) if start < log.log_end_offset else partition.leader_epoch
        return NO_TIMESTAMP, start, epoch
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    found: TimestampAndOffset | None = None
    start = 0
    while found is None:
        try:
            if timestamp == MAX_TIMESTAMP:
                found = log.offset_of_max_timestamp(start)
            else:
                found = log.offset_for_timestamp(timestamp, start)
            break
        except LongWork as long:
            work, start = long.do, long.next_offset
        found = yield context.node.long_work(work)
    yield LOOK_UP_COST
    if found is None or found[1] >= _end(partition, isolation):
        _check_known(context, partition, isolation)
        return NOTHING
    return found


def _end(partition: Partition, isolation: int) -> Offset:
    log = partition.log
    if isolation == LOG_END:
        return log.log_end_offset
    return log.last_stable_offset if isolation == READ_COMMITTED else log.high_watermark


def _check_known(context: RequestContext, partition: Partition, isolation: int) -> None:
    """A new leader does not know what is committed before that reaches the start of its epoch: what it said could be
    less than what its predecessor did (KIP-207)."""
    if isolation != LOG_END and partition.log.high_watermark < partition.epoch_start:
        known = context.api_version >= OFFSET_NOT_AVAILABLE_SINCE
        raise KafkaError(ErrorCode.offset_not_available if known else ErrorCode.leader_not_available)
