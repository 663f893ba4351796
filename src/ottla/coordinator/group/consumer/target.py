"""The target assignment: computed by an assignor when the group epoch has passed the one that it was computed for,
and not before `group.consumer.assignment.interval.ms` is over (KIP-1263)."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple
from uuid import UUID

from ottla.coordinator.group.assignors import ASSIGNORS, Assignment, MemberSpec
from ottla.coordinator.group.consumer.group import MEMBER_TARGET, TARGET, ConsumerGroup, Subscriptions, target_value
from ottla.coordinator.group.consumer.member import NOTHING, ConsumerMember, Partitions
from ottla.coordinator.group.kind import ASSIGNED
from ottla.coordinator.group.modern_group import put
from ottla.coordinator.group.state import GroupState, assignment_is_due
from ottla.metadata.image import MetadataImage
from ottla.protocol.internal.group_records import GroupRecord
from ottla.protocol.schemas.records import ConsumerGroupTargetAssignmentMetadataValue


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
    if group.assignment_epoch >= epoch or not may_compute(state, group):
        return Target(group.assignment_epoch, _last(group, new))
    before = group.static_members.get(new.instance_id or "", new.member_id)
    reads = _Subscribed(state.image, group)
    specs = _specs(group, reads, before)
    specs[new.member_id] = MemberSpec(new.instance_id, new.rack_id, reads.of(new), group.target(before))
    subscriptions = group.subscriptions_after(old, new)
    is_homogeneous = _is_homogeneous(group.patterns_after(old, new), subscriptions, len(specs))
    name = group.preferred_assignor(old, new) or state.config.consumer_assignors[0]
    assigned = ASSIGNORS[name if name in ASSIGNORS else state.config.consumer_assignors[0]](
        specs, reads.counts, is_homogeneous
    )
    for member_id in _changed(assigned, group.targets):
        partitions = {topic_id: frozenset(found) for topic_id, found in assigned[member_id].items() if found}
        if group.targets.get(member_id) != partitions:
            records.append(put(group.key(MEMBER_TARGET, member_id), target_value(partitions)))
    written = ConsumerGroupTargetAssignmentMetadataValue(epoch, state.now.wall_ms)
    records.append(put(group.key(TARGET), written))
    state.observe(ASSIGNED, group, f"for epoch {epoch}")
    found = assigned.get(new.member_id, {})
    return Target(epoch, {topic_id: frozenset(numbers) for topic_id, numbers in found.items() if numbers})


def _specs(group: ConsumerGroup, reads: _Subscribed, before: str) -> dict[str, MemberSpec]:
    """What the assignor sees of all members but `before`. As a rule all read the same topics by name."""
    specs: dict[str, MemberSpec] = {}
    targets = group.targets
    names: frozenset[str] | None = None
    topics: frozenset[UUID] = frozenset()
    for member_id, member in group.members.items():
        if member_id != before:
            if member.pattern or member.topics != names:
                topics = reads.of(member)
                names = None if member.pattern else member.topics
            specs[member_id] = MemberSpec(member.instance_id, member.rack_id, topics, targets.get(member_id, NOTHING))
    return specs


def _changed(assigned: Assignment, targets: dict[str, Partitions]) -> list[str]:
    """Members whose target is not the same object as before."""
    return [member_id for member_id, mine in assigned.items() if targets.get(member_id) is not mine]


def may_compute(state: GroupState, group: ConsumerGroup) -> bool:
    """Whether the time has come for a new target, where one is needed."""
    last_ms, interval_ms = group.assignment_timestamp_ms, state.consumer_config(group.group_id).assignment_interval_ms
    return assignment_is_due(last_ms, interval_ms, state.now.wall_ms)


def _last(group: ConsumerGroup, member: ConsumerMember) -> Partitions:
    """A static member that comes back under another id has the target of the one before."""
    return group.target(group.static_members.get(member.instance_id or "", member.member_id))


class _Subscribed:
    """The existing topics of members, most of whom subscribe to the same."""

    def __init__(self, image: MetadataImage, group: ConsumerGroup) -> None:
        self._image = image
        self._group = group
        self._known: dict[frozenset[str], frozenset[UUID]] = {}
        self.counts: dict[UUID, int] = {}
        """How many partitions each topic has that was asked for."""

    def of(self, member: ConsumerMember) -> frozenset[UUID]:
        names = self._group.subscribed_topics_of(member)
        found = self._known.get(names)
        if found is None:
            topics = [topic for name in names if (topic := self._image.topic(name)) is not None]
            found = self._known[names] = frozenset(topic.id for topic in topics)
            self.counts.update((topic.id, len(topic.partitions)) for topic in topics)
        return found


def _is_homogeneous(patterns: Counter[str], subscriptions: Subscriptions, members: int) -> bool:
    """Whether all members read the same topics, as far as can be seen from the counts."""
    if not patterns:
        return all(count == members for count in subscriptions.by_name.values())
    if next(iter(patterns.values())) != members:
        return False
    return not subscriptions.by_name and all(count == 1 for count in subscriptions.by_pattern.values())
