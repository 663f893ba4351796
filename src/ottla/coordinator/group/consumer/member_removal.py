"""How members go: they leave, a timer expires, or a static member goes for a while and keeps its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ottla.coordinator.group.consumer import migration, timers
from ottla.coordinator.group.consumer.group import (
    MEMBER_CURRENT,
    METADATA,
    PATTERN,
    TARGET,
    ConsumerGroup,
    Subscriptions,
)
from ottla.coordinator.group.consumer.member import LEAVING_STATIC, NO_PARTITIONS, ConsumerMember, MemberState
from ottla.coordinator.group.consumer.metadata_hash import group_hash
from ottla.coordinator.group.consumer.timers import cancel_all, start_rebalance, start_session
from ottla.coordinator.group.modern_group import put
from ottla.coordinator.group.state import GroupState
from ottla.protocol.internal.group_records import GroupRecord
from ottla.protocol.schemas.records import ConsumerGroupMetadataValue, ConsumerGroupTargetAssignmentMetadataValue

REASONS = {
    timers.SESSION: "the session of {} expired",
    timers.REBALANCE: "{} did not revoke partitions in time",
    timers.JOIN: "{} did not join in time",
    timers.SYNC: "{} did not ask for its assignment in time",
}


def fence(state: GroupState, group: ConsumerGroup, members: Sequence[ConsumerMember], reason: str) -> None:
    """Remove members, and begin a new group epoch; a group whose other members all use the classic protocol becomes a
    classic group, if it may."""
    if not members:
        state.write([])
        return
    if migration.may_downgrade(state, group, members):
        migration.downgrade(state, group, members, None, reason)
        return
    records = [record for member in members for record in group.removal(member.member_id)]
    subscriptions = Subscriptions(group.subscriptions.by_name.copy(), group.subscriptions.by_pattern.copy())
    for pattern, count in Counter(member.pattern for member in members if member.pattern).items():
        if group.patterns[pattern] == count:
            records.append(GroupRecord(group.key(PATTERN, pattern), None))
            if pattern in group.resolved:
                subscriptions.by_pattern.subtract(group.resolved[pattern].topics)
    for member in members:
        subscriptions.by_name.subtract(member.topics)
    left = {topic for counts in subscriptions for topic, count in counts.items() if count > 0}
    found = group_hash(left, state.image, state.topic_hashes)
    records.append(put(group.key(METADATA), ConsumerGroupMetadataValue(group.epoch + 1, found)))
    if len(members) == len(group.members):
        records += emptied(group)
    state.observe("members removed", group, reason)

    def undone() -> None:
        """Restart the sessions: the members are removed when these expire."""
        for member in members:
            start_session(state, group.group_id, member)

    state.apply(records, undone)
    for member in members:
        cancel_all(state, group, member.member_id)


def emptied(group: ConsumerGroup) -> list[GroupRecord]:
    """The target assignment of a group whose last member goes is up to date, for there is nobody to assign to
    (KAFKA-20442). It has no time: the next member does not wait for it."""
    written = ConsumerGroupTargetAssignmentMetadataValue(group.epoch + 1, 0)
    return [put(group.key(TARGET), written)]


def put_to_sleep(state: GroupState, group: ConsumerGroup, member: ConsumerMember) -> None:
    """A static member goes and will be back: nobody gets its partitions while its session lasts."""
    sleeping = member._replace(
        epoch=LEAVING_STATIC,
        revoking=NO_PARTITIONS,
        assigned={topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in member.assigned.items()},
    )
    state.apply([put(group.key(MEMBER_CURRENT, member.member_id), sleeping.to_current())])


def expired(state: GroupState, kind: str, group_id: str, member_id: str) -> None:
    """A timer of a member is past."""
    group = state.groups.get(group_id)
    member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
    if not isinstance(group, ConsumerGroup) or member is None:
        return
    if kind == timers.REBALANCE and group.fence_epochs.pop(member_id, None) != member.epoch:
        return
    if kind in (timers.JOIN, timers.SYNC) and not member.uses_classic_protocol:
        return
    fence(state, group, [member], REASONS[kind].format(member_id))


def on_loaded(state: GroupState, group: ConsumerGroup) -> None:
    """Members that were found in the log have a session from now on."""
    for member in group.members.values():
        # As in Kafka, a member of the classic protocol has the group's session, until it is heard of.
        start_session(state, group.group_id, member._replace(classic=None))
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            start_rebalance(state, group, member)
