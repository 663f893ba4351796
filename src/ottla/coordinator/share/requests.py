"""What is asked of the share coordinator, one share-partition at a time, whatever the version of the API; and what it
asks of its driver beside writes and replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from ottla.model import NO_LEADER_EPOCH, LeaderEpoch, Offset
from ottla.protocol.internal.share_records import NOT_COUNTED, SharePartitionKey
from ottla.protocol.schemas.records import StateBatch

StateRow: TypeAlias = dict[str, Any]
"""The reply to one of these: the fields of the API's PartitionResult."""


class InitializeState(NamedTuple):
    """A group begins to read a partition, or an operator has moved it (InitializeShareGroupState)."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: Offset
    """-1 while its start is unknown."""

    def row(self) -> dict[str, Any]:
        """The fields of the API's PartitionData, as those below."""
        return {
            "partition": self.key.partition,
            "state_epoch": self.state_epoch,
            "start_offset": self.start_offset,
        }


class ReadState(NamedTuple):
    """A new leader of the partition asks, and is the one that may write from then on (ReadShareGroupState)."""

    key: SharePartitionKey
    leader_epoch: LeaderEpoch

    def row(self) -> dict[str, Any]:
        return {"partition": self.key.partition, "leader_epoch": self.leader_epoch}


class WriteState(NamedTuple):
    """Changes of a state (WriteShareGroupState)."""

    key: SharePartitionKey
    state_epoch: int
    leader_epoch: LeaderEpoch
    start_offset: Offset
    """-1 if it stays as it is."""
    state_batches: Sequence[StateBatch]
    delivery_complete_count: int = NOT_COUNTED

    def row(self) -> dict[str, Any]:
        batches = [
            {
                "first_offset": each.first_offset,
                "last_offset": each.last_offset,
                "delivery_state": each.delivery_state,
                "delivery_count": each.delivery_count,
            }
            for each in self.state_batches
        ]
        return {
            "partition": self.key.partition,
            "state_epoch": self.state_epoch,
            "leader_epoch": self.leader_epoch,
            "start_offset": self.start_offset,
            "delivery_complete_count": self.delivery_complete_count,
            "state_batches": batches,
        }


class DeleteState(NamedTuple):
    """The group reads the partition no more (DeleteShareGroupState)."""

    key: SharePartitionKey

    def row(self) -> dict[str, Any]:
        return {"partition": self.key.partition}


class SummarizeState(NamedTuple):
    """An operator asks (ReadShareGroupStateSummary)."""

    key: SharePartitionKey
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH

    def row(self) -> dict[str, Any]:
        return {"partition": self.key.partition, "leader_epoch": self.leader_epoch}


StateRequest: TypeAlias = InitializeState | ReadState | WriteState | DeleteState | SummarizeState


class Prune(NamedTuple):
    """Delete the records before an offset: newer ones say all that they say."""

    before_offset: Offset
