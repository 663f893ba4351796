"""A consumer group: it answers questions and keeps its own counts right. All of it is in the log, and only `replay.py`
changes it, but for what is marked as soft."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple
from uuid import UUID

from ottla.coordinator.group.consumer.member import NOTHING, ConsumerMember, Epochs, Partitions
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Millis
from ottla.protocol.internal.consumer_group_records import (
    ConsumerGroupTargetAssignmentMemberValue,
    TargetPartitions,
)
from ottla.protocol.internal.group_records import GroupRecord, Value
from ottla.protocol.internal.modern_group_records import ModernKey

METADATA, PARTITION_METADATA, MEMBER, TARGET, MEMBER_TARGET, MEMBER_CURRENT, PATTERN = 3, 4, 5, 6, 7, 8, 16
"""Types of records."""
NEW_EPOCH = "rebalances"
"""An event of a group, as `GroupState.observe` gets it: members or topics have changed."""
NO_EPOCH = -1
"""Epoch of a partition without an owner."""


class ResolvedPattern(NamedTuple):
    """The topics that a regular expression matched."""

    topics: frozenset[str]
    version: int
    """Version of the metadata: the offset of the image."""
    timestamp_ms: Millis


class Subscriptions(NamedTuple):
    """How many members, and how many patterns, name each topic; counts above zero only."""

    by_name: Counter[str]
    by_pattern: Counter[str]

    @property
    def topics(self) -> set[str]:
        return {*self.by_name, *self.by_pattern}


class ConsumerGroup:
    group_type: Literal["consumer"] = "consumer"
    protocol_type = "consumer"
    protocol_name = None
    uses_consumer_protocol = True
    keeps_offsets = True
    expires = True

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1
        """Grows whenever members, subscriptions or their topics change."""
        self.metadata_hash = 0
        self.assignment_epoch = 1
        """The group epoch that the target assignment is for."""
        self.assignment_timestamp_ms: Millis = 0
        """Time at which it was computed; 0 if unknown."""
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Partitions] = {}
        """Target assignment of each member."""
        self.static_members: dict[str, str] = {}
        """Instance id to member id."""
        self.resolved: dict[str, ResolvedPattern] = {}
        self.has_partition_metadata = False
        """Whether a record is in the log that a Kafka before 4.1 wrote, to be deleted."""
        self.subscriptions = Subscriptions(Counter(), Counter())
        self.patterns: Counter[str] = Counter()
        """How many members subscribe to each pattern."""
        self.assignors: Counter[str] = Counter()
        self.classic_protocols: Counter[str] = Counter()
        """How many members of the classic protocol support each assignor of theirs."""
        self.classic_count = 0
        """Members of the classic protocol."""
        self.partition_epochs: dict[UUID, dict[int, int]] = {}
        """The epoch of the member that has a partition, or has still to give it up. **Invariant**: at most one has."""
        self.refresh_deadline_ms: Millis = 0
        """Soft: when the metadata hash is computed again, on the wall clock."""
        self.refresh_epoch = 0
        """Soft: the group epoch that `refresh_deadline_ms` belongs to; a greater one than the group's was undone."""
        self.fence_epochs: dict[str, int] = {}
        """Soft: the epoch that a member has to leave before its rebalance timer expires."""
        self._state: str | None = None

    def request_refresh(self) -> None:
        """A topic has changed: the next heartbeat looks at the topics."""
        self.refresh_deadline_ms = self.refresh_epoch = 0

    # Questions

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def generation(self) -> int:
        return self.epoch

    @property
    def shown_state(self) -> str:
        if self._state is None:
            self._state = self._compute_state()
        return self._state

    def _compute_state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        settled = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        return "Stable" if settled else "Reconciling"

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions.by_name or topic in self.subscriptions.by_pattern

    def member(self, member_id: str) -> ConsumerMember:
        """Raises UNKNOWN_MEMBER_ID."""
        found = self.members.get(member_id)
        if found is None:
            message = f"Member {member_id} is not a member of group {self.group_id}."
            raise KafkaError(ErrorCode.unknown_member_id, message)
        return found

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.member(member_id)

    def target(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NOTHING)

    def partition_epoch(self, topic_id: UUID, partition: int) -> int:
        return self.partition_epochs.get(topic_id, {}).get(partition, NO_EPOCH)

    def subscribed_topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Topics that it subscribes to by name and by its pattern; an unresolved pattern matches nothing."""
        resolved = self.resolved.get(member.pattern) if member.pattern else None
        return member.topics if resolved is None else member.topics | resolved.topics

    def subscriptions_after(self, old: ConsumerMember | None, new: ConsumerMember | None) -> Subscriptions:
        """The subscriptions after `new` has replaced `old`."""
        by_name, by_pattern = self.subscriptions.by_name.copy(), self.subscriptions.by_pattern.copy()
        _replace_counts(by_name, old.topics if old else (), new.topics if new else ())
        before, after = old.pattern if old else "", new.pattern if new else ""
        if before and before != after and self.patterns[before] == 1 and before in self.resolved:
            _replace_counts(by_pattern, self.resolved[before].topics, ())
        return Subscriptions(by_name, by_pattern)

    def patterns_after(self, old: ConsumerMember, new: ConsumerMember) -> Counter[str]:
        patterns = self.patterns.copy()
        _replace_counts(patterns, _some(old.pattern), _some(new.pattern))
        return patterns

    def has_metadata_expired(self, now_ms: Millis) -> bool:
        return now_ms >= self.refresh_deadline_ms or self.epoch < self.refresh_epoch

    def preferred_assignor(self, old: ConsumerMember | None = None, new: ConsumerMember | None = None) -> str | None:
        """The one that most members ask for, once `new` is in the place of `old`."""
        counts = self.assignors.copy()
        _replace_counts(counts, _some(old.assignor if old else None), _some(new.assignor if new else None))
        return max(sorted(counts), key=counts.__getitem__) if counts else None

    def supports_classic(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a member of the classic protocol could be in the group beside those that are."""
        if protocol_type != self.protocol_type:
            return False
        if not self.members:
            return any(True for _ in protocols)
        return any(self.classic_protocols[name] == self.classic_count for name in protocols)

    def is_waiting_for_partitions(self, member: ConsumerMember) -> bool:
        """Whether a partition of its target is still another's."""
        return any(
            partition not in member.assigned.get(topic_id, {}) and self.partition_epoch(topic_id, partition) != NO_EPOCH
            for topic_id, partitions in self.target(member.member_id).items()
            for partition in partitions
        )

    def becomes_classic_without(self, leaving: Iterable[ConsumerMember]) -> bool:
        """Whether all but these members use the classic protocol."""
        left = [*leaving]
        classic = self.classic_count - sum(member.uses_classic_protocol for member in left)
        return classic == len(self.members) - len(left)

    # Records

    def key(self, number: int, name: str | None = None) -> ModernKey:
        return ModernKey(number, self.group_id, name)

    def removal(self, member_id: str) -> list[GroupRecord]:
        """Records that delete a member, in the order that Kafka checks."""
        return [GroupRecord(self.key(number, member_id), None) for number in (MEMBER_CURRENT, MEMBER_TARGET, MEMBER)]

    def tombstones(self) -> list[GroupRecord]:
        """Tombstones that delete the group, except for its offsets."""
        return [
            GroupRecord(key, None)
            for key in (
                *(self.key(MEMBER_CURRENT, member_id) for member_id in self.members),
                *(self.key(MEMBER_TARGET, member_id) for member_id in {**self.members, **self.targets}),
                self.key(TARGET),
                *(self.key(MEMBER, member_id) for member_id in self.members),
                *(self.key(PATTERN, pattern) for pattern in self.resolved),
                self.key(PARTITION_METADATA),
                self.key(METADATA),
            )
        ]

    # Changes, for `replay.py`

    def set_epoch(self, epoch: int, metadata_hash: int) -> None:
        self.epoch, self.metadata_hash = epoch, metadata_hash
        self._state = None

    def set_assignment_epoch(self, epoch: int, timestamp_ms: Millis) -> None:
        self.assignment_epoch, self.assignment_timestamp_ms = epoch, timestamp_ms
        self._state = None

    def set_target(self, member_id: str, partitions: Partitions | None) -> None:
        if partitions is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = partitions

    def set_member(self, member_id: str, new: ConsumerMember | None) -> None:
        """Put a member in place of the one with its id, or (None) remove it."""
        old = self.members.pop(member_id, None) if new is None else self.members.get(member_id)
        if new is not None:
            self.members[member_id] = new
        self._state = None
        if old is not None:
            self._release(old)
            if new is None and old.instance_id is not None and self.static_members.get(old.instance_id) == member_id:
                del self.static_members[old.instance_id]
        if new is not None:
            self._own(new)
            if new.instance_id is not None:
                self.static_members[new.instance_id] = member_id
        if old is not None and new is not None and old.subscribes_as(new):
            return
        for counts, of in _COUNTED:
            _replace_counts(counts(self), of(old) if old else (), of(new) if new else ())
        self.classic_count += (new is not None and new.uses_classic_protocol) - (
            old is not None and old.uses_classic_protocol
        )

    def set_resolved(self, pattern: str, resolved: ResolvedPattern | None) -> None:
        old = self.resolved.pop(pattern, None)
        if resolved is not None:
            self.resolved[pattern] = resolved
        by_pattern = self.subscriptions.by_pattern
        _replace_counts(by_pattern, old.topics if old else (), resolved.topics if resolved else ())

    def _own(self, member: ConsumerMember) -> None:
        """Record a member's partitions. Of two members that claim the same partition, the one with the later epoch owns
        it."""
        epoch = member.epoch
        for epochs in (member.assigned, member.revoking) if member.revoking else (member.assigned,):
            for topic_id, partitions in epochs.items():
                owned = self.partition_epochs.get(topic_id)
                if owned is None:
                    owned = self.partition_epochs[topic_id] = {}
                for partition in partitions:
                    before = owned.get(partition)
                    if before is None or before < epoch:  # that of a member that sleeps is less than NO_EPOCH
                        owned[partition] = epoch

    def _release(self, member: ConsumerMember) -> None:
        epoch = member.epoch
        for epochs in (member.assigned, member.revoking) if member.revoking else (member.assigned,):
            for topic_id, partitions in epochs.items():
                owned = self.partition_epochs.get(topic_id)
                if owned is None:
                    continue
                for partition in partitions:
                    if owned.get(partition) == epoch:
                        del owned[partition]
                if not owned:
                    del self.partition_epochs[topic_id]


def target_value(partitions: Partitions) -> ConsumerGroupTargetAssignmentMemberValue:
    rows = sorted((topic_id, tuple(sorted(numbers))) for topic_id, numbers in partitions.items())
    return ConsumerGroupTargetAssignmentMemberValue(tuple(TargetPartitions(*row) for row in rows))


def put(key: ModernKey, value: Value) -> GroupRecord:
    return GroupRecord(key, value)


def partitions_of(epochs: Epochs) -> Partitions:
    return {topic_id: frozenset(partitions) for topic_id, partitions in epochs.items()}


def _some(name: str | None) -> tuple[str, ...]:
    return (name,) if name else ()


def _protocols(member: ConsumerMember) -> list[str]:
    return [] if member.classic is None else [each.name for each in member.classic.supported_protocols]


_COUNTED: tuple[tuple[Callable[[ConsumerGroup], Counter[str]], Callable[[ConsumerMember], Iterable[str]]], ...] = (
    (lambda group: group.subscriptions.by_name, lambda member: member.topics),
    (lambda group: group.patterns, lambda member: _some(member.pattern)),
    (lambda group: group.assignors, lambda member: _some(member.assignor)),
    (lambda group: group.classic_protocols, _protocols),
)


def _replace_counts(counts: Counter[str], old: Iterable[str], new: Iterable[str]) -> None:
    """One less of each of `old`, one more of each of `new`; what comes to nothing goes."""
    if old == new:
        return
    for name in new:
        counts[name] += 1
    for name in old:
        if counts[name] <= 1:
            del counts[name]
        else:
            counts[name] -= 1
