"""DeleteRecords at a partition's leader (KIP-107): the log start moves up, and followers take it over as they fetch.

A request is answered when the low watermark is where it was asked to be: no living replica has the records any more.
"""

from __future__ import annotations

from ottla.errors import ErrorCode, KafkaError
from ottla.model import Offset
from ottla.replication.commits import Done, Wait
from ottla.replication.fetch_session import tell
from ottla.replication.partition import Partition
from ottla.replication.replica import lowest_start


def low_watermark(partition: Partition) -> Offset:
    """Records below it are gone from every replica whose broker is alive."""
    return lowest_start(partition.others, partition.log.log_start_offset, partition.live_epoch)


def delete_records(partition: Partition, offset: Offset) -> Offset:
    """Move the log start up to `offset` (-1: the high watermark), and return it. Raises KafkaError: what is not
    committed is OFFSET_OUT_OF_RANGE. Where the leader before may have committed it, and this one does not know yet, it
    is NOT_LEADER_OR_FOLLOWER, after which clients come again; Kafka calls it out of range."""
    partition.check_leader()
    if partition.log.high_watermark < offset <= partition.epoch_start:
        raise KafkaError(ErrorCode.not_leader_or_follower)
    return partition.log.delete_records(offset)


def wait_for_deletion(partition: Partition, offset: Offset, done: Done) -> Wait | None:
    """Have `done` called when the low watermark has reached `offset`. None says that it was called already."""
    if not partition.is_leader or low_watermark(partition) >= offset:
        done(ErrorCode.none if partition.is_leader else ErrorCode.not_leader_or_follower)
        return None
    tell(partition.end_sessions, 0)
    return partition.deletions.add(offset, done)
