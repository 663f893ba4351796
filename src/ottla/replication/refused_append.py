"""An append that its partition's leader cannot do, or a node that does not lead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ottla.errors import ErrorCode, KafkaError
from ottla.model import LeaderEpoch, Millis, NodeId, TopicPartition
from ottla.replication.replica_log import Appended, ReplicaLog


class RefusingPartition(Protocol):
    """A `Partition`, as far as it is asked here."""

    topic_partition: TopicPartition
    log: ReplicaLog
    is_leader: bool
    leader_epoch: LeaderEpoch

    @property
    def isr(self) -> Sequence[NodeId]: ...
    @property
    def effective_min_isr(self) -> int: ...
    def note_waiting(self, info: Appended) -> None: ...


def repeated_or_refused(partition: RefusingPartition, records: Any, now_ms: Millis, origin: Any) -> Appended:
    """Nothing can be appended: this is no leader, or the in-sync set is too small. There a client's batch that is in
    the log already only waits for the high watermark, as any retry does; Kafka refuses it. The client sends the others
    again, and what it has sent behind them is no hole. Raises KafkaError."""
    if not partition.is_leader:
        error = KafkaError(ErrorCode.not_leader_or_follower)
    else:
        info = partition.log.find_duplicate(records, partition.leader_epoch) if origin is None else None
        if info is not None:
            partition.note_waiting(info)
            return info
        error = KafkaError(
            ErrorCode.not_enough_replicas,
            f"The size of the current ISR {list(partition.isr)} is insufficient to satisfy the min.isr requirement of "
            f"{partition.effective_min_isr} for partition {partition.topic_partition}",
        )
    if origin is None:
        partition.log.producer_state.note_refusal(records, error.code, now_ms)
    raise error
