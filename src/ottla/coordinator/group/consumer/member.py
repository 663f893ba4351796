"""One member of a consumer group, as a value that never changes; what is known of it is in two records."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.model import Millis
from ottla.protocol.schemas.records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    CurrentPartitions,
)

LEAVING: Final = -1
"""The epoch of a member that leaves for good."""
LEAVING_STATIC: Final = -2
"""The epoch of a static member that leaves for a while."""

Partitions = Mapping[UUID, frozenset[int]]
"""Keyed by topic. **Invariant**: no topic without any."""
Epochs = Mapping[UUID, Mapping[int, int]]
"""Keyed by topic and partition: the epoch in which it was assigned. **Invariant**: no topic without partitions."""
NOTHING: Final[Mapping[UUID, frozenset[int]]] = {}
NO_PARTITIONS: Final[Epochs] = {}


class MemberState(enum.IntEnum):
    """Numbered as in Kafka."""

    STABLE = 0
    """It has the assignment of its epoch."""
    UNREVOKED_PARTITIONS = 1
    """It must revoke partitions before it can have the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It has its epoch, and waits for partitions that other members must revoke."""
    UNKNOWN = 127
    """Written by a newer Kafka."""


STABLE: Final = MemberState.STABLE
UNREVOKED: Final = MemberState.UNREVOKED_PARTITIONS
UNRELEASED: Final = MemberState.UNRELEASED_PARTITIONS
UNKNOWN: Final = MemberState.UNKNOWN
"""For compiled code, which reads a name fifty times as fast as a member of an enum."""
_STATES: Final = {int(state): state for state in MemberState}


class ConsumerMember(NamedTuple):
    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    """The epoch sent by a member that has missed the answer with its new one."""
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Millis = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    """Subscribed by name."""
    pattern: str = ""
    """Subscribed by a regular expression; empty for none. None only in what an old Kafka wrote, and read as empty."""
    assignor: str | None = None
    assigned: Epochs = NO_PARTITIONS
    revoking: Epochs = NO_PARTITIONS
    """Partitions that it still has to revoke."""
    classic: ClassicMemberMetadata | None = None
    """Set for a member that uses the classic protocol."""

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is STABLE and self.epoch == epoch

    def assignment_epoch(self, topic_id: UUID, partition: int) -> int | None:
        """When a partition that it has, or has still to give up, was assigned to it."""
        found = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if found is None else found

    def in_epoch(self, epoch: int) -> ConsumerMember:
        """The member with the next epoch and nothing else. A rebalance makes one for each: `ConsumerMember()` is a
        function of Python's, and `_replace` takes longer still."""
        return _in_epoch(self[:], epoch)

    def moved(self, state: MemberState, epoch: int, assigned: Epochs, revoking: Epochs) -> ConsumerMember:
        """The member after a step towards its target. As fast as `in_epoch`."""
        fields = (self.member_id, epoch, self.epoch, state, *self[4:12], assigned, revoking, self.classic)
        return tuple.__new__(ConsumerMember, fields)

    # Records

    def to_metadata(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=tuple(sorted(self.topics)),
            subscribed_topic_regex=self.pattern,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=self.classic,
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        return self._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            pattern=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def to_current(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            self.epoch, self.previous_epoch, self.state, _to_record(self.assigned), _to_record(self.revoking)
        )

    def with_current(self, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> ConsumerMember:
        """After its current assignment was replayed; None: it was deleted, and so will be the member."""
        if value is None:
            return self._replace(epoch=LEAVING, previous_epoch=LEAVING, assigned=NO_PARTITIONS, revoking=NO_PARTITIONS)
        return self._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=_STATES.get(value.state, MemberState.UNKNOWN),
            assigned=_from_record(value.assigned_partitions, value.member_epoch),
            revoking=_from_record(value.partitions_pending_revocation, value.member_epoch),
        )


def _in_epoch(row: tuple[Any, ...], epoch: int) -> ConsumerMember:
    head = row[0], epoch, row[1]
    return tuple.__new__(ConsumerMember, head + row[3:])


def with_epoch(partitions: Partitions, epoch: int) -> Epochs:
    """All of them assigned in one epoch."""
    return {topic_id: dict.fromkeys(sorted(numbers), epoch) for topic_id, numbers in partitions.items()}


def _to_record(epochs: Epochs) -> tuple[CurrentPartitions, ...]:
    if not epochs:
        return ()
    rows = epochs.items() if len(epochs) == 1 else sorted(epochs.items())
    return tuple([CurrentPartitions(topic_id, tuple(found), tuple(found.values())) for topic_id, found in rows])


def _from_record(topics: Sequence[CurrentPartitions], member_epoch: int) -> Epochs:
    """Brokers before 4.3 wrote no epochs of partitions: they are taken to be of the member's."""
    if not topics:
        return NO_PARTITIONS
    found = {}
    for each in topics:
        topic_id, partitions, epochs = each.topic_id, each.partitions, each.assignment_epochs
        if epochs is not None and len(epochs) == len(partitions):
            found[topic_id] = dict(zip(partitions, epochs, strict=True))
        else:
            found[topic_id] = dict.fromkeys(partitions, max(member_epoch, 0))
    return found
