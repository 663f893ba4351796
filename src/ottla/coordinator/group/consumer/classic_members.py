"""Members of a consumer group that use the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

They follow the same steps as others. A member that is to change is told so by a heartbeat, joins again, which is its
next step, and asks for what it has by then.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.coordinator.effects import Token
from ottla.coordinator.group.classic import replies
from ottla.coordinator.group.consumer import heartbeat as heartbeats
from ottla.coordinator.group.consumer import migration, timers
from ottla.coordinator.group.consumer.consumer_protocol import (
    by_id,
    decode_subscription,
    encode_assignment,
    version_of,
)
from ottla.coordinator.group.consumer.group import ConsumerGroup, partitions_of
from ottla.coordinator.group.consumer.heartbeat import Step, static_joins, static_member
from ottla.coordinator.group.consumer.member import ConsumerMember, MemberState
from ottla.coordinator.group.consumer.member_removal import fence
from ottla.coordinator.group.consumer.target import Target
from ottla.coordinator.group.group import Group
from ottla.coordinator.group.requests import JoinGroup, Leaving, SyncGroup
from ottla.coordinator.group.state import GroupState
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.internal.group_records import GroupRecord


def join(state: GroupState, token: Token, group: Group, request: JoinGroup) -> None:
    """Join a group that has members. Always replies."""
    assert isinstance(group, ConsumerGroup)
    try:
        _join(state, token, group, request)
    except KafkaError as error:
        state.reply(token, replies.join_error(error.code))


def _join(state: GroupState, token: Token, group: ConsumerGroup, request: JoinGroup) -> None:
    instance_id, is_unknown = request.instance_id, not request.member_id
    member_id = request.member_id or state.new_uuid_text()
    if heartbeats.would_grow(group, member_id, instance_id):
        heartbeats.check_size(state, group)
    if not group.supports_classic(request.protocol_type, request.protocols):
        raise KafkaError(ErrorCode.inconsistent_group_protocol, f"Member {member_id}'s protocols are not supported.")
    if is_unknown and instance_id is None and request.require_known_member_id:
        state.reply(token, replies.join_error(ErrorCode.member_id_required, member_id))
        return
    records: list[GroupRecord] = []
    replaced = None
    if instance_id is None:
        old = group.members.get(member_id) or ConsumerMember(member_id)
    elif is_unknown:
        replaced = group.static_member(instance_id)
        old = static_joins(group, member_id, instance_id, records, is_classic=True)
    else:
        old = replaced = static_member(group, member_id, instance_id)
    try:
        subscription = decode_subscription(next(iter(request.protocols.values())))
    except MalformedRecord as error:
        raise KafkaError(ErrorCode.inconsistent_group_protocol, str(error)) from error
    new = old._replace(
        instance_id=old.instance_id if instance_id is None else instance_id,
        rack_id=subscription.rack_id or old.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        pattern="",
        client_id=request.client_id,
        client_host=request.client_host,
        classic=migration.classic_metadata(request.session_timeout_ms, request.protocols.items()),
    )
    owned = by_id(subscription.owned_partitions, state.image)
    step = Step(state, group, records)
    downgrades = (
        replaced is not None
        and not replaced.uses_classic_protocol
        and group.becomes_classic_without([replaced])
        and state.config.may_downgrade
        and len(group.members) <= state.config.max_size
    )
    if downgrades:
        assert replaced is not None
        changed = step.change(old, new, is_classic=True)
        rebalances = group.assignment_epoch < step.epoch
        if not rebalances:
            goal = Target(group.assignment_epoch, group.target(replaced.member_id))
            new = step.reconcile(new, goal, owned, changed)
        reason = f"the static member {instance_id} rejoined with the classic protocol"
        migration.downgrade(state, group, [replaced], new, reason, records=records, rebalances=rebalances)
    else:
        new = step.run(old, new, owned, is_classic=True)
        state.apply(records, lambda: timers.undo(state, group.group_id, member_id, replaced))
        if replaced is not None:
            timers.cancel_all(state, group, replaced.member_id)
        step.after(new)
        timers.cancel(state, timers.JOIN, group.group_id, member_id)
        timers.start_session(state, group.group_id, new)
        timers.start_sync(state, group.group_id, new)
    state.reply(token, _joined(new))
    step.resolve(request.visible)


def _joined(member: ConsumerMember) -> replies.Response:
    assert member.classic is not None
    return {
        "error_code": ErrorCode.none,
        "generation_id": member.epoch,
        "protocol_type": "consumer",
        "protocol_name": member.classic.supported_protocols[0].name,
        "leader": "",
        "skip_assignment": False,
        "member_id": member.member_id,
        "members": (),
    }


def _checked(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ConsumerMember:
    """Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID or ILLEGAL_GENERATION."""
    member = group.member(member_id) if instance_id is None else static_member(group, member_id, instance_id)
    if not member.uses_classic_protocol:
        raise KafkaError(ErrorCode.unknown_member_id, f"Member {member_id} does not use the classic protocol.")
    if member.epoch != generation:
        raise KafkaError(ErrorCode.illegal_generation)
    return member


def sync(state: GroupState, token: Token, group: Group, request: SyncGroup) -> None:
    """Reply with the member's current assignment; it need not wait. Always replies."""
    assert isinstance(group, ConsumerGroup)
    try:
        member = _checked(group, request.member_id, request.instance_id, request.generation)
        assert member.classic is not None
        first = member.classic.supported_protocols[0]
        for asked, actual in ((request.protocol_type, "consumer"), (request.protocol_name, first.name)):
            if asked is not None and asked != actual:
                raise KafkaError(ErrorCode.inconsistent_group_protocol)
        if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            timers.start_join(state, group.group_id, member)
            raise KafkaError(ErrorCode.rebalance_in_progress)
        assignment = encode_assignment(partitions_of(member.assigned), state.image, version_of(first.metadata))
    except KafkaError as error:
        state.reply(token, replies.sync_error(error.code))
        return
    timers.cancel(state, timers.SYNC, group.group_id, member.member_id)
    timers.start_session(state, group.group_id, member)
    state.write([])
    state.reply(
        token,
        {
            "error_code": ErrorCode.none,
            "protocol_type": request.protocol_type,
            "protocol_name": request.protocol_name,
            "assignment": assignment,
        },
    )


def heartbeat(state: GroupState, group: Group, member_id: str, instance_id: str | None, generation: int) -> None:
    """Raises KafkaError; REBALANCE_IN_PROGRESS asks the member to join again."""
    assert isinstance(group, ConsumerGroup)
    member = _checked(group, member_id, instance_id, generation)
    timers.start_session(state, group.group_id, member)
    waits = member.state is MemberState.UNRELEASED_PARTITIONS and group.is_waiting_for_partitions(member)
    if member.epoch < group.assignment_epoch or not (member.state is MemberState.STABLE or waits):
        timers.start_join(state, group.group_id, member)
        raise KafkaError(ErrorCode.rebalance_in_progress)


def leave(state: GroupState, token: Token, group: Group, leaving: Sequence[Leaving]) -> None:
    """Also what an operator asks for; members of the new protocol go too."""
    assert isinstance(group, ConsumerGroup)
    results = []
    gone: dict[str, ConsumerMember] = {}
    for member_id, instance_id in leaving:
        error = ErrorCode.none
        try:
            if instance_id is None:
                member = group.member(member_id)
            elif not member_id:
                found = group.static_member(instance_id)
                if found is None:
                    raise KafkaError(ErrorCode.unknown_member_id)
                member = found
            else:
                member = static_member(group, member_id, instance_id)
            gone[member.member_id] = member
        except KafkaError as failed:
            error = failed.code
        results.append({"member_id": member_id, "group_instance_id": instance_id, "error_code": error})
    fence(state, group, [*gone.values()], "members left")
    state.reply(token, {"error_code": ErrorCode.none, "members": results})
