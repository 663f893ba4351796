"""The heartbeat in which nothing is new, as nearly all are.

If the member has what its group gives it, it costs a look at the epochs and a new deadline. In a rebalance most members
keep what they have and get a new epoch: that is one record. Anything else is for `heartbeat.py`, which would give these
heartbeats the same answer and write the same record."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.coordinator.effects import Reply, Token, Write
from ottla.coordinator.group.consumer.group import MEMBER_CURRENT, ConsumerGroup
from ottla.coordinator.group.consumer.member import ConsumerMember, MemberState
from ottla.coordinator.group.consumer.reconcile import NO_NUMBERS
from ottla.coordinator.group.consumer.target import may_compute
from ottla.coordinator.group.consumer.timers import cancel_rebalance, start_session
from ottla.coordinator.group.requests import PlainHeartbeat
from ottla.coordinator.group.state import GroupState
from ottla.errors import ErrorCode
from ottla.model import Millis
from ottla.protocol.internal.group_records import GroupRecord
from ottla.protocol.internal.modern_group_records import ModernKey

if TYPE_CHECKING:
    from typing import TypeAlias

    Heard: TypeAlias = "tuple[ConsumerGroup, ConsumerMember]"


def plain_heartbeat(state: GroupState, heard: PlainHeartbeat) -> Millis | None:
    """Begin the member's session again, and return the interval to its next heartbeat. None: something is to be done or
    to be refused, or is not settled; nothing has changed."""
    found = _heard(state, heard)
    if found is None:
        return None
    group, member = found
    if not member.is_reconciled_to(group.assignment_epoch):
        return None
    start_session(state, heard.group_id, member)
    return state.consumer_config(heard.group_id).heartbeat_interval_ms


def advancing_heartbeat(state: GroupState, token: Token, heard: PlainHeartbeat) -> bool:
    """Move a member that keeps its assignment to the epoch of its target, and reply once that is in the log. The reply
    to one that is there already waits for what was written before. False: nothing has changed."""
    found = _heard(state, heard)
    if found is None:
        return False
    group, member = found
    records = []
    undo = _nothing
    epoch = group.assignment_epoch
    if not member.is_reconciled_to(epoch):
        if member.state is not MemberState.STABLE or member.revoking or not _has_its_target(state, group, member):
            return False
        old, member = member, member.in_epoch(epoch)
        key = ModernKey(MEMBER_CURRENT, heard.group_id, heard.member_id)
        records.append(GroupRecord(key, member.to_current()))
        state.decisions += 1
        group.set_epoch_of(old, member)
        undo = partial(group.set_epoch_of, member, old)
        cancel_rebalance(state, heard.group_id, heard.member_id)
    start_session(state, heard.group_id, member)
    answer = {
        "error_code": ErrorCode.none,
        "member_id": heard.member_id,
        "member_epoch": epoch,
        "heartbeat_interval": state.consumer_config(heard.group_id).heartbeat_interval_ms,
        "assignment": None,
    }
    state.effects += (Write(records, undo=undo), Reply(token, answer))
    return True


def _heard(state: GroupState, heard: PlainHeartbeat) -> Heard | None:
    """The member that sends it, if it is what the group knows, and no target is to be computed."""
    group = state.groups.get(heard.group_id)
    if not isinstance(group, ConsumerGroup) or group.patterns:  # patterns may be due
        return None
    member = group.members.get(heard.member_id)
    if (
        member is None
        or heard.member_epoch != member.epoch
        or member.classic is not None
        or (member.client_id, member.client_host) != (heard.client_id, heard.client_host)
        or (heard.instance_id is not None and group.static_members.get(heard.instance_id) != heard.member_id)
        or (group.assignment_epoch < group.epoch and may_compute(state, group))
        or group.has_metadata_expired(state.now.wall_ms)
    ):
        return None
    return group, member


def _has_its_target(state: GroupState, group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether nothing changes for the member but its epoch."""
    assigned, target = member.assigned, group.target(member.member_id)
    if len(assigned) != len(target):
        return False
    for topic_id, epochs in assigned.items():
        topic = state.image.topic_by_id(topic_id)
        if topic is None or topic.name not in member.topics or epochs.keys() != target.get(topic_id, NO_NUMBERS):
            return False
    return True


def _nothing() -> None:
    """Undoes a heartbeat that has changed no more than the session."""
