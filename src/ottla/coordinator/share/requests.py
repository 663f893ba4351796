"""What is asked of the share coordinator, one share-partition at a time, whatever the version of the API; and what it
asks of its driver beside writes and replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from ottla.model import LeaderEpoch, Offset
from ottla.protocol.internal.share_records import NOT_COUNTED, SharePartitionKey, StateBatch

StateRow: TypeAlias = dict[str, Any]
"""The reply to one of these: the fields of the API's PartitionResult."""


class InitializeState(NamedTuple):
    """A group begins to read a partition, or an operator has moved it (InitializeShareGroupState)."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: Offset
    """-1 while nobody knows where it begins."""


class ReadState(NamedTuple):
    """A new leader of the partition asks, and is the one that may write from then on (ReadShareGroupState)."""

    key: SharePartitionKey
    leader_epoch: LeaderEpoch


class WriteState(NamedTuple):
    """What has changed (WriteShareGroupState)."""

    key: SharePartitionKey
    state_epoch: int
    leader_epoch: LeaderEpoch
    start_offset: Offset
    """-1 if it stays as it is."""
    state_batches: Sequence[StateBatch]
    delivery_complete_count: int = NOT_COUNTED


class Prune(NamedTuple):
    """Delete the records before an offset: newer ones say all that they say."""

    before_offset: Offset
