"""How consumer groups change: by their records, of the log while it is loaded, and of a decision as it is made
(`group/applying.py`). Records come in any order that a compacted log can have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.consumer.group import (
    MEMBER,
    MEMBER_CURRENT,
    MEMBER_TARGET,
    METADATA,
    PARTITION_METADATA,
    PATTERN,
    TARGET,
    ConsumerGroup,
    ResolvedPattern,
)
from ottla.coordinator.group.consumer.member import ConsumerMember
from ottla.coordinator.group.kind import Undo, saved_group
from ottla.protocol.internal.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.internal.group_records import Value
from ottla.protocol.internal.modern_group_records import ModernKey

if TYPE_CHECKING:
    from ottla.coordinator.group.state import GroupState


def replay(state: GroupState, key: ModernKey, value: Value | None) -> None:
    """Apply a record of the log, or of a decision."""
    group = state.groups.get(key.group)
    if not isinstance(group, ConsumerGroup):
        if value is None:
            return
        # A classic group of that name has only offsets, or its tombstone was compacted away.
        group = state.groups[key.group] = ConsumerGroup(key.group)
    name = key.member or ""
    if key.type == METADATA:
        if value is None:
            del state.groups[key.group]
            _unsubscribe(state, group)
        else:
            assert isinstance(value, ConsumerGroupMetadataValue)
            group.set_epoch(value.epoch, value.metadata_hash)
    elif key.type == PARTITION_METADATA:
        group.has_partition_metadata = value is not None
    elif key.type == TARGET:
        assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
        if value is None:
            group.set_assignment_epoch(-1, 0)
        else:
            group.set_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)
    elif key.type == MEMBER_TARGET:
        assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
        rows = None if value is None else {row.topic_id: frozenset(row.partitions) for row in value.topic_partitions}
        group.set_target(name, rows)
    else:
        _replay_subscription(group, key.type, name, value)
        if key.type != MEMBER_CURRENT:  # by far the most frequent, and nothing about topics
            _subscribe(state, group)


def _replay_subscription(group: ConsumerGroup, number: int, name: str, value: Value | None) -> None:
    if number == PATTERN:
        assert value is None or isinstance(value, ConsumerGroupRegularExpressionValue)
        resolved = None
        if value is not None:
            resolved = ResolvedPattern(frozenset(value.topics), value.version, value.timestamp)
        group.set_resolved(name, resolved)
    elif number == MEMBER:
        assert value is None or isinstance(value, ConsumerGroupMemberMetadataValue)
        before = group.members.get(name) or ConsumerMember(name)
        if value is not None or name in group.members:
            group.set_member(name, None if value is None else before.with_metadata(value))
    else:
        assert number == MEMBER_CURRENT
        assert value is None or isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
        before = group.members.get(name) or ConsumerMember(name)
        if value is not None or name in group.members:
            group.set_member(name, before.with_current(value))


def _subscribe(state: GroupState, group: ConsumerGroup) -> None:
    """Keep `groups_by_topic` right, which says whom a change of a topic concerns."""
    for topic in group.subscriptions.topics:
        state.groups_by_topic.setdefault(topic, set()).add(group.group_id)


def _unsubscribe(state: GroupState, group: ConsumerGroup) -> None:
    for topic in group.subscriptions.topics:
        state.groups_by_topic.get(topic, set()).discard(group.group_id)


def saved(state: GroupState, key: ModernKey) -> Undo:
    """A function that restores what a record is about to change."""
    group = state.groups.get(key.group)
    if not isinstance(group, ConsumerGroup) or key.type == METADATA:
        of_group = saved_group(state, key.group)
        if not isinstance(group, ConsumerGroup):
            return of_group
        epoch, metadata_hash = group.epoch, group.metadata_hash

        def restore_epoch() -> None:
            of_group()
            group.set_epoch(epoch, metadata_hash)
            _subscribe(state, group)

        return restore_epoch
    name = key.member or ""
    if key.type in (MEMBER, MEMBER_CURRENT):
        member = group.members.get(name)
        return lambda: group.set_member(name, member)
    if key.type == MEMBER_TARGET:
        target = group.targets.get(name)
        return lambda: group.set_target(name, target)
    if key.type == TARGET:
        epoch, timestamp_ms = group.assignment_epoch, group.assignment_timestamp_ms
        return lambda: group.set_assignment_epoch(epoch, timestamp_ms)
    if key.type == PATTERN:
        resolved = group.resolved.get(name)
        return lambda: group.set_resolved(name, resolved)
    has_partition_metadata = group.has_partition_metadata

    def restore_flag() -> None:
        group.has_partition_metadata = has_partition_metadata

    return restore_flag
