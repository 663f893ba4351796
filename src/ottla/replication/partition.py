"""One replica of a partition on this node: leadership, in-sync replicas, high watermark, waiting fetches.

Kafka's `Partition` and its `PartitionState`. With one node the in-sync set is the leader alone, so that what was
appended is committed, unless it must be fsynced first; the high watermark rule is written for more.
"""

from __future__ import annotations

from typing import Any, Protocol

from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import PartitionRegistration
from ottla.metrics.instruments import TopicTraffic
from ottla.model import NO_LEADER_EPOCH, LeaderEpoch, Millis, NodeId, Offset, TopicId, TopicPartition
from ottla.replication.purgatory import DelayedFetch

ACKS_ALL = -1
ACKS_NONE = 0
ACKS_LEADER = 1


class ReplicaLog(Protocol):
    """A log as replication sees it; `ottla.storage.log.Log` is one."""

    high_watermark: Offset

    @property
    def log_start_offset(self) -> Offset: ...
    @property
    def log_end_offset(self) -> Offset: ...
    @property
    def last_stable_offset(self) -> Offset: ...
    def append_as_leader(
        self, records: Any, leader_epoch: LeaderEpoch, *, now_ms: Millis, origin: Any = ..., request_version: int = ...
    ) -> Any: ...
    def read(self, offset: Offset, max_bytes: int, *, up_to: Offset, min_one_batch: bool = True) -> Any: ...
    def assign_epoch(self, epoch: LeaderEpoch) -> None: ...
    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]: ...


class Partition:
    """State of one partition. Only the event loop's thread touches it."""

    __slots__ = (
        "is_leader", "isr", "leader_epoch", "leader_id", "log", "min_isr", "node_id", "partition_epoch", "replicas",
        "sole_in_sync", "topic_id", "topic_partition", "traffic", "waiters",
    )  # fmt: skip

    def __init__(self, node_id: NodeId, topic_partition: TopicPartition, topic_id: TopicId, log: ReplicaLog) -> None:
        self.node_id = node_id
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log: Any = log
        self.leader_id: NodeId = -1
        self.is_leader = False
        self.leader_epoch: LeaderEpoch = -1
        """Never goes back."""
        self.partition_epoch = -1
        self.replicas: tuple[NodeId, ...] = ()
        self.isr: tuple[NodeId, ...] = ()
        """While this node leads it is a member."""
        self.sole_in_sync = False
        """This node leads and is the whole in-sync set: every append is committed as soon as it is as safe as asked."""
        self.min_isr = 1
        self.traffic = TopicTraffic()
        """Counts what is appended and read; the partitions of a topic share one."""
        self.waiters: dict[DelayedFetch, None] = {}
        """Fetches waiting for more bytes below the high watermark, in the order they came."""

    def update(self, registration: PartitionRegistration) -> bool:
        """Follow the controller; returns whether leadership or its epoch changed. Older registrations are ignored."""
        if registration.partition_epoch < self.partition_epoch or registration.leader_epoch < self.leader_epoch:
            return False
        changed = registration.leader_epoch != self.leader_epoch or registration.leader != self.leader_id
        self.partition_epoch = registration.partition_epoch
        self.replicas = registration.replicas
        self.isr = registration.isr
        self.leader_id = registration.leader
        self.is_leader = registration.leader == self.node_id
        self.sole_in_sync = self.is_leader and registration.isr == (self.node_id,)
        if registration.leader_epoch != self.leader_epoch:
            self.leader_epoch = registration.leader_epoch
            if self.is_leader:
                self.log.assign_epoch(registration.leader_epoch)
        if self.sole_in_sync:
            self.advance_high_watermark(self.log.log_end_offset)
        return changed

    def check_leader(self, claimed_epoch: LeaderEpoch = NO_LEADER_EPOCH) -> None:
        """Refuse a client that talks to the wrong replica or with an epoch that is not the current one (KIP-320)."""
        if claimed_epoch != NO_LEADER_EPOCH and claimed_epoch != self.leader_epoch:
            if claimed_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.fenced_leader_epoch)
            raise KafkaError(ErrorCode.unknown_leader_epoch)
        if not self.is_leader:
            raise KafkaError(ErrorCode.not_leader_or_follower)

    def append_as_leader(
        self, records: Any, acks: int, *, now_ms: Millis, origin: Any = None, request_version: int = 13
    ) -> Any:
        """Append a producer's batch; returns the log's AppendInfo. Raises KafkaError.

        An append that needs no fsync is committed at once while this node is the only in-sync replica; after one that
        does, the caller awaits the fsync and calls `advance_high_watermark`.
        """
        if not self.is_leader:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        if acks == ACKS_ALL and len(self.isr) < self.min_isr:
            raise KafkaError(
                ErrorCode.not_enough_replicas,
                f"The size of the current ISR {list(self.isr)} is insufficient to satisfy the min.isr requirement of "
                f"{self.min_isr} for partition {self.topic_partition}",
            )
        if origin is None:
            info = self.log.append_as_leader(records, self.leader_epoch, now_ms=now_ms, request_version=request_version)
        else:
            info = self.log.append_as_leader(
                records, self.leader_epoch, now_ms=now_ms, origin=origin, request_version=request_version
            )
        size = info.size_bytes
        if size:  # a duplicate was not written again
            traffic = self.traffic
            traffic.bytes_in += size
            traffic.messages_in += info.last_offset - info.first_offset + 1
            traffic.produces += 1
        if self.sole_in_sync and not info.needs_flush:
            self.log.high_watermark = info.last_offset + 1
            if self.waiters:
                self.notify(size)
        return info

    def advance_high_watermark(self, offset: Offset) -> None:
        """Raise the high watermark to `offset` (never lower it) and let waiting fetches look again."""
        if offset > self.log.high_watermark:
            self.log.high_watermark = offset
            if self.waiters:
                self.wake()

    def notify(self, size_bytes: int) -> None:
        """`size_bytes` more can be fetched."""
        for waiter in list(self.waiters):
            waiter.on_bytes(size_bytes)

    def wake(self) -> None:
        """Something changed that shows in no bytes (leadership, deletion): every waiting fetch looks again."""
        for waiter in list(self.waiters):
            waiter.on_bytes(1 << 62)

    def end_of_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """(epoch, end offset) for OffsetForLeaderEpoch: the current epoch ends at the log end (KIP-101, KIP-279)."""
        if epoch == self.leader_epoch:
            return epoch, self.log.log_end_offset
        found: tuple[LeaderEpoch, Offset] = self.log.end_offset_for_epoch(epoch)
        return found
