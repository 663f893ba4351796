"""The target assignment: computed by an assignor when the group epoch has passed the one that it was computed for,
and not before `group.consumer.assignment.interval.ms` is over (KIP-1263)."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple
from uuid import UUID

from ottla.coordinator.group.assignors import ASSIGNORS, MemberSpec
from ottla.coordinator.group.consumer.group import (
    MEMBER_TARGET,
    TARGET,
    ConsumerGroup,
    Subscriptions,
    put,
    target_value,
)
from ottla.coordinator.group.consumer.member import ConsumerMember, Partitions
from ottla.coordinator.group.state import GroupState
from ottla.metadata.image import MetadataImage
from ottla.protocol.internal.consumer_group_records import ConsumerGroupTargetAssignmentMetadataValue
from ottla.protocol.internal.group_records import GroupRecord


class Target(NamedTuple):
    """Target assignment of a member."""

    epoch: int
    partitions: Partitions


def update(
    state: GroupState,
    group: ConsumerGroup,
    epoch: int,
    old: ConsumerMember,
    new: ConsumerMember,
    records: list[GroupRecord],
) -> Target:
    """The target of `new`, which will be in the place of `old`; with records of a new one for all where the group
    needs it. `epoch` is what the group will have."""
    if group.assignment_epoch >= epoch or not _may_compute(state, group):
        return Target(group.assignment_epoch, _last(group, new))
    before = group.static_members.get(new.instance_id or "", new.member_id)
    specs = {
        member_id: _spec(state.image, group, member, group.target(member_id))
        for member_id, member in group.members.items()
        if member_id != before
    }
    specs[new.member_id] = _spec(state.image, group, new, group.target(before))
    counts = {
        topic_id: len(topic.partitions)
        for topic_id in dict.fromkeys(topic_id for spec in specs.values() for topic_id in spec.topics)
        if (topic := state.image.topic_by_id(topic_id)) is not None
    }
    subscriptions = group.subscriptions_after(old, new)
    is_homogeneous = _is_homogeneous(group.patterns_after(old, new), subscriptions, len(specs))
    name = group.preferred_assignor(old, new) or state.config.consumer_assignors[0]
    assigned = ASSIGNORS[name if name in ASSIGNORS else state.config.consumer_assignors[0]](
        specs, counts, is_homogeneous
    )
    for member_id in specs:
        partitions = {topic_id: frozenset(found) for topic_id, found in assigned.get(member_id, {}).items() if found}
        if group.targets.get(member_id) != partitions:
            records.append(put(group.key(MEMBER_TARGET, member_id), target_value(partitions)))
    written = ConsumerGroupTargetAssignmentMetadataValue(epoch, state.now.wall_ms)
    records.append(put(group.key(TARGET), written))
    state.observe("assigned", group, f"for epoch {epoch}")
    found = assigned.get(new.member_id, {})
    return Target(epoch, {topic_id: frozenset(numbers) for topic_id, numbers in found.items() if numbers})


def _may_compute(state: GroupState, group: ConsumerGroup) -> bool:
    last_ms, interval_ms = group.assignment_timestamp_ms, state.consumer_config(group.group_id).assignment_interval_ms
    return last_ms == 0 or interval_ms == 0 or state.now.wall_ms >= last_ms + interval_ms


def _last(group: ConsumerGroup, member: ConsumerMember) -> Partitions:
    """A static member that comes back under another id has the target of the one before."""
    return group.target(group.static_members.get(member.instance_id or "", member.member_id))


def _spec(image: MetadataImage, group: ConsumerGroup, member: ConsumerMember, assigned: Partitions) -> MemberSpec:
    topics = (image.topic(name) for name in group.subscribed_topics_of(member))
    ids: frozenset[UUID] = frozenset(topic.id for topic in topics if topic is not None)
    return MemberSpec(member.instance_id, member.rack_id, ids, assigned)


def _is_homogeneous(patterns: Counter[str], subscriptions: Subscriptions, members: int) -> bool:
    """Whether all members read the same topics, as far as can be seen from the counts."""
    if not patterns:
        return all(count == members for count in subscriptions.by_name.values())
    if next(iter(patterns.values())) != members:
        return False
    return not subscriptions.by_name and all(count == 1 for count in subscriptions.by_pattern.values())
