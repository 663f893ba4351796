"""Groups that change between the classic and the consumer protocol while they are in use, in both directions.

A classic group becomes a consumer group with the first member of the new protocol; its members stay in it, with what
they have, and speak the classic protocol on (`classic_members.py`). When none but they are left, it becomes a classic
group again. `group.consumer.migration.policy` says which of the two may happen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.coordinator.group.classic.group import ClassicGroup, State
from ottla.coordinator.group.classic.member import Member
from ottla.coordinator.group.classic.rebalance import prepare, refuse_waiters
from ottla.coordinator.group.consumer import timers
from ottla.coordinator.group.consumer.consumer_protocol import (
    by_id,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    version_of,
)
from ottla.coordinator.group.consumer.group import (
    MEMBER,
    MEMBER_CURRENT,
    MEMBER_TARGET,
    METADATA,
    TARGET,
    ConsumerGroup,
    target_value,
)
from ottla.coordinator.group.consumer.member import NOTHING, ConsumerMember, with_epoch
from ottla.coordinator.group.consumer.metadata_hash import group_hash
from ottla.coordinator.group.modern_group import put
from ottla.coordinator.group.state import GroupState
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Millis
from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.internal.group_records import GroupRecord
from ottla.protocol.schemas.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from ottla.coordinator.group.group import Group


class Conversion(NamedTuple):
    """A consumer group, perhaps one that is to be made."""

    group: ConsumerGroup
    """Read-only: if there are `records`, another group with the same content will replace it."""
    records: list[GroupRecord]
    """Delete what was there before, and make the group what it was."""
    replaced: ClassicGroup | None = None

    def commence(self, state: GroupState) -> None:
        """The records count: nobody waits for the classic group any more."""
        if self.replaced is not None:
            retire(state, self.replaced)
            for member in self.group.members.values():
                timers.start_session(state, self.group.group_id, member)

    def revert(self, state: GroupState) -> None:
        """The records do not count after all."""
        if self.replaced is not None:
            for member_id in self.group.members:
                timers.cancel_all(state, self.group, member_id)
            resume(state, self.replaced)


def not_found(group_id: str, group: Group | None, what: str = "Group") -> KafkaError:
    """The error for a consumer group that does not exist or is of another type."""
    missing = f"{what} {group_id} not found."
    return KafkaError(
        ErrorCode.group_id_not_found, missing if group is None else f"Group {group_id} is not a consumer group."
    )


def consumer_group(state: GroupState, group_id: str, *, create: bool) -> Conversion:
    """The group for a member of the new protocol. Raises GROUP_ID_NOT_FOUND."""
    group = state.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return Conversion(group, [])
    if group is None and create:
        return Conversion(ConsumerGroup(group_id), [])
    if not create or not isinstance(group, ClassicGroup):
        raise not_found(group_id, group, "Consumer group")
    if group.state is State.EMPTY:
        return Conversion(ConsumerGroup(group_id), group.tombstones(), group)
    return _upgrade(state, group)


def _upgrade(state: GroupState, classic: ClassicGroup) -> Conversion:
    if not state.config.may_upgrade:
        raise _refused(classic, "online upgrade is disabled")
    if not classic.uses_consumer_protocol:
        raise _refused(classic, "the group does not use the consumer embedded protocol")
    if len(classic.members) > state.config.consumer_max_size:
        raise _refused(classic, "the group size exceeds the consumer group maximum size")
    group = ConsumerGroup(classic.group_id)
    group.set_epoch(classic.generation, 0)
    group.set_assignment_epoch(classic.generation, 0)
    for member in classic.members.values():
        try:
            upgraded = _upgraded(state, classic, member)
        except MalformedRecord as error:
            raise _refused(classic, "the embedded consumer protocol is malformed") from error
        group.set_target(
            upgraded.member_id, {topic_id: frozenset(epochs) for topic_id, epochs in upgraded.assigned.items()}
        )
        group.set_member(upgraded.member_id, upgraded)
    group.set_epoch(classic.generation, group_hash(group.subscriptions.topics, state.image, state.topic_hashes))
    target_metadata = ConsumerGroupTargetAssignmentMetadataValue(group.assignment_epoch, group.assignment_timestamp_ms)
    records = [
        *classic.tombstones(),
        *(put(group.key(MEMBER, each.member_id), each.to_metadata()) for each in group.members.values()),
        put(group.key(METADATA), ConsumerGroupMetadataValue(group.epoch, group.metadata_hash)),
        *(put(group.key(MEMBER_TARGET, each), target_value(target)) for each, target in group.targets.items()),
        put(group.key(TARGET), target_metadata),
        *(put(group.key(MEMBER_CURRENT, each.member_id), each.to_current()) for each in group.members.values()),
    ]
    return Conversion(group, records, classic)


def _refused(classic: ClassicGroup, why: str) -> KafkaError:
    message = f"Cannot upgrade classic group {classic.group_id} to consumer group because {why}."
    return KafkaError(ErrorCode.group_id_not_found, message)


def _upgraded(state: GroupState, classic: ClassicGroup, member: Member) -> ConsumerMember:
    """A member as its classic group left it: stable, with its last assignment. Raises MalformedRecord, and
    GROUP_ID_NOT_FOUND for one whose assignor needs what the new protocol has no place for."""
    name = classic.protocol_name
    metadata = member.protocols[name if name in member.protocols else next(iter(member.protocols))]
    subscription = decode_subscription(metadata)
    assigned = NOTHING
    if member.assignment:
        assignment = decode_assignment(member.assignment)
        if assignment.user_data:
            raise _refused(classic, "an unsupported custom assignor is in use")
        assigned = {each: found for each, found in by_id(assignment.assigned_partitions, state.image).items() if found}
    return ConsumerMember(
        member_id=member.member_id,
        epoch=classic.generation,
        previous_epoch=classic.generation,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(subscription.topics),
        assigned=with_epoch(assigned, classic.generation),
        classic=classic_metadata(member.session_timeout_ms, member.protocols.items()),
    )


def classic_metadata(session_timeout_ms: Millis, protocols: Iterable[tuple[str, bytes]]) -> ClassicMemberMetadata:
    rows = tuple(ClassicProtocol(name, metadata) for name, metadata in protocols)
    return ClassicMemberMetadata(session_timeout_ms, rows)


def retire(state: GroupState, classic: ClassicGroup) -> None:
    """Detach a classic group: members waiting in a rebalance join the next one, and no timer of the group is left."""
    for member in classic.members.values():
        refuse_waiters(state, classic, member, ErrorCode.rebalance_in_progress, member.member_id)
        state.cancel_session(classic, member.member_id)
    for member_id in sorted(classic.pending_members):
        state.cancel_session(classic, member_id)
    state.cancel_join_timer(classic)
    state.cancel_sync_timer(classic)


def resume(state: GroupState, classic: ClassicGroup) -> None:
    """Undo `retire`, but for the waiters: they were answered."""
    for member in classic.members.values():
        state.start_session(classic, member)
    if classic.state is State.PREPARING_REBALANCE:
        state.start_join_timer(classic, classic.rebalance_timeout_ms)
    elif classic.state is State.COMPLETING_REBALANCE:
        state.start_sync_timer(classic)


def may_downgrade(state: GroupState, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> bool:
    """Whether the group without these members is to be a classic one."""
    left = len(group.members) - len(leaving)
    return (
        group.becomes_classic_without(leaving)
        and left > 0
        and state.config.may_downgrade
        and left <= state.config.max_size
    )


def downgrade(
    state: GroupState,
    group: ConsumerGroup,
    leaving: Sequence[ConsumerMember],
    joining: ConsumerMember | None,
    reason: str,
    *,
    records: Sequence[GroupRecord] = (),
    rebalances: bool = True,
) -> None:
    """Make a classic group of the members that are left. `joining` is in the place of the static member among
    `leaving`, which `records` have replaced already, and has its assignment."""
    members = {each.member_id: each for each in group.members.values() if each not in leaving}
    targets = {member_id: group.target(member_id) for member_id in members}
    tombstones = group.tombstones()
    if joining is not None:
        members[joining.member_id] = joining
        targets[joining.member_id] = group.target(leaving[0].member_id)
        tombstones = [*group.removal(joining.member_id), *tombstones]
    classic = ClassicGroup(group.group_id, state.now.wall_ms)
    for member in members.values():
        classic.add(_downgraded(member))
    classic.generation = group.epoch
    classic.state = State.STABLE
    classic.protocol_name = classic.select_protocol()
    classic.refresh_subscription()
    for member_id, downgraded in classic.members.items():
        version = _version(downgraded.protocols[classic.protocol_name])
        downgraded.assignment = encode_assignment(targets[member_id], state.image, version)
    assignments = {each.member_id: each.assignment for each in classic.members.values()}

    def undo() -> None:
        retire(state, classic)
        state.groups[group.group_id] = group
        for each in group.members.values():
            timers.start_session(state, group.group_id, each)

    for member_id in group.members:
        timers.cancel_all(state, group, member_id)
    state.groups[group.group_id] = classic
    written = [*records, *tombstones, classic.to_record(assignments)]
    state.write_applied(written, undo, [state.reversal_to(group.group_id, group)])
    state.observe("downgraded", classic, reason)
    for downgraded in classic.members.values():
        state.start_session(classic, downgraded)
    if rebalances:
        prepare(state, classic, reason)


def _version(metadata: bytes) -> int:
    """The version of the assignment that goes with metadata. Only those of a member's first assignor were checked
    before."""
    try:
        return version_of(metadata)
    except MalformedRecord:
        return 0


def _downgraded(member: ConsumerMember) -> Member:
    assert member.classic is not None
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocol_type="consumer",
        protocols={each.name: each.metadata for each in member.classic.supported_protocols},
    )
