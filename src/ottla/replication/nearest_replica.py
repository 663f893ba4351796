"""Which replica a consumer reads from (KIP-392)."""

from __future__ import annotations

from collections.abc import Callable

from ottla.model import NodeId, Offset
from ottla.replication.partition import Partition


def nearest_replica(partition: Partition, rack: str, offset: Offset, rack_of: Callable[[NodeId], str | None]) -> NodeId:
    """Where a consumer in `rack` reads from `offset` on, -1 for the leader (Kafka's `RackAwareReplicaSelector`)."""
    if rack_of(partition.node_id) == rack:
        return -1
    near = [
        (replica.end_offset, replica.caught_up_ms, replica_id)
        for replica_id, replica in partition.others.items()
        if replica_id in partition.isr
        and replica.log_start_offset <= offset <= replica.end_offset
        and rack_of(replica_id) == rack
    ]
    return max(near)[2] if near else -1
