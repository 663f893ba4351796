"""ShareGroupHeartbeat: members join, stay, change what they read, leave, and learn which partitions they have.

A member is one from its first heartbeat on (`GroupMetadataManager.shareGroupHeartbeat`). Partitions that nobody has
read for the group before are first made known to the share coordinator, and assigned when it has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.coordinator.config import ShareGroupConfig
from ottla.coordinator.effects import InitializeShares, Token
from ottla.coordinator.group.kind import REBALANCES
from ottla.coordinator.group.requests import ShareHeartbeat
from ottla.coordinator.group.share.group import (
    LEAVING,
    NOTHING,
    Assignment,
    ShareGroup,
    ShareMember,
    StateOf,
    States,
    combined,
    hash_of,
    partition_rows,
)
from ottla.coordinator.group.state import GroupState, assignment_is_due
from ottla.coordinator.share.assignor import assign
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.group_records import SHARE, GroupRecord, ModernKey
from ottla.protocol.schemas.records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from ottla.protocol.schemas.sent import ShareGroupDescribeResponseDescribedGroup

SESSION: Final = "share session"
"""The kind of the timer that removes the members."""


def find(state: GroupState, group_id: str) -> ShareGroup:
    """Raises GROUP_ID_NOT_FOUND."""
    group = state.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
    if not isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} is not a share group.")
    return group


def heartbeat(state: GroupState, token: Token, request: ShareHeartbeat) -> None:
    """Replies {"member_id", "member_epoch", "heartbeat_interval", "assignment"}, the last None where it is as it was.

    Raises INVALID_REQUEST, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, GROUP_MAX_SIZE_REACHED.
    """
    _check(request)
    if request.member_epoch == LEAVING:
        _leave(state, token, request)
        return
    config = state.config.of_share_group(state.image, request.group_id)
    joins = request.member_epoch == 0
    if joins and request.group_id not in state.groups:
        group = ShareGroup(request.group_id)
    elif not joins and request.group_id not in state.groups:
        raise KafkaError(ErrorCode.group_id_not_found, f"Share group {request.group_id} not found.")
    else:
        group = find(state, request.group_id)
    known = group.members.get(request.member_id)
    if known is None and len(group.members) >= config.max_size:  # whatever its epoch, as Kafka
        sentence = f"The share group has reached its maximum capacity of {config.max_size} members."
        raise KafkaError(ErrorCode.group_max_size_reached, sentence)
    if known is None and not joins:
        sentence = f"Member {request.member_id} is not a member of group {request.group_id}."
        raise KafkaError(ErrorCode.unknown_member_id, sentence)
    before = known or ShareMember(request.member_id)
    _check_epoch(before, request.member_epoch)
    group.now_ms = state.now.wall_ms
    decision = _Decision(state, group, config)
    member = decision.decide(before, known is None, request)
    change = decision.to_initialize(member)
    state.groups[group.group_id] = group
    tell = request.topics is not None or joins or before.assigned != member.assigned
    group.deadlines[member.member_id] = state.now.timer_ms + config.session_timeout_ms
    wait_for_sessions(state, group)

    def initialize() -> None:
        wanted = {topic_id: each.partitions for topic_id, each in change.items()}
        state.effects.append(InitializeShares(group.group_id, group.epoch, wanted))

    write(state, group, decision.records, initialize if change else None)
    state.reply(
        token,
        {
            "error_code": ErrorCode.none,
            "error_message": None,
            "member_id": member.member_id,
            "member_epoch": member.epoch,
            "heartbeat_interval": config.heartbeat_interval_ms,
            "assignment": member.assigned if tell else None,
        },
    )


def _check(request: ShareHeartbeat) -> None:
    for name, value in (("MemberId", request.member_id), ("GroupId", request.group_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip():
            raise KafkaError(ErrorCode.invalid_request, f"{name} can't be empty.")
    if request.member_epoch == 0 and not request.topics:
        raise KafkaError(ErrorCode.invalid_request, "SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVING:
        raise KafkaError(ErrorCode.invalid_request, "MemberEpoch is invalid.")


def _check_epoch(member: ShareMember, epoch: int) -> None:
    if epoch > member.epoch:
        raise KafkaError(
            ErrorCode.fenced_member_epoch,
            f"The share group member has a greater member epoch ({epoch}) than the one known by the group coordinator "
            f"({member.epoch}). The member must abandon all its partitions and rejoin.",
        )
    if epoch < member.epoch and epoch not in (0, member.previous_epoch):
        raise KafkaError(
            ErrorCode.fenced_member_epoch,
            f"The share group member has a smaller member epoch ({epoch}) than the one known by the group coordinator "
            f"({member.epoch}), and it does not match the previous member epoch ({member.previous_epoch}). The member "
            "must abandon all its partitions and rejoin.",
        )


class _Decision:
    """The changes of one heartbeat, as records."""

    def __init__(self, state: GroupState, group: ShareGroup, config: ShareGroupConfig) -> None:
        self._state = state
        self._now_ms = state.now.wall_ms
        self._group = group
        self._image = state.image
        self._config = config
        self.records: list[GroupRecord] = []

    def decide(self, before: ShareMember, is_new: bool, request: ShareHeartbeat) -> ShareMember:
        """The member as it is then."""
        group = self._group
        member = replace(
            before,
            rack_id=before.rack_id if request.rack_id is None else request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topics=before.topics if request.topics is None else tuple(sorted({*request.topics})),
        )
        if member != before or is_new:
            value = ShareGroupMemberMetadataValue(member.rack_id, member.client_id, member.client_host, member.topics)
            self.records.append(group.record(SHARE.member, value, member.member_id))
        bump = member.topics != before.topics
        if group.assignment_epoch >= group.epoch:
            bump |= group.has_unassigned()
        epoch = self._group_epoch(member, bump)
        changed = epoch != group.epoch
        target_epoch, target = self._target(member, epoch)
        if changed or member.epoch != target_epoch:
            member = self._reconciled(member, target_epoch, target)
        return member

    def _group_epoch(self, member: ShareMember, bump: bool) -> int:
        group, image = self._group, self._image
        topics = group.topics_of(member)
        seen = {name: image.topic(name) for name in topics}
        is_other = len(seen) != len(group.seen) or any(group.seen.get(name) is not seen[name] for name in seen)
        group.image, group.seen = image, seen
        if not bump and not is_other:
            return group.epoch
        found = hash_of(topics, image)
        if not bump and found == group.metadata_hash:
            return group.epoch
        self.records.append(group.record(SHARE.metadata, ShareGroupMetadataValue(group.epoch + 1, found)))
        self._state.observe(REBALANCES, group, f"epoch {group.epoch + 1}")
        return group.epoch + 1

    def _target(self, member: ShareMember, epoch: int) -> tuple[int, Assignment]:
        group, interval_ms = self._group, self._config.assignment_interval_ms
        last = group.assignment_epoch, group.target.get(member.member_id, NOTHING)
        if group.assignment_epoch >= epoch:
            return last
        if not assignment_is_due(group.assignment_ms, interval_ms, self._now_ms):
            return last
        members = {**group.members, member.member_id: member}
        ids = {name: topic.id for name in group.seen if (topic := self._image.topic(name)) is not None}
        shared = assign(
            {each: [ids[name] for name in row.topics if name in ids] for each, row in members.items()},
            {topic_id: sorted(found.partitions) for topic_id, found in group.initialized.items()},
            {
                each: [(topic_id, number) for topic_id, some in found.items() for number in some]
                for each, found in group.target.items()
            },
        )
        for each, partitions in shared.items():
            target: dict[UUID, set[int]] = {}
            for topic_id, number in partitions:
                target.setdefault(topic_id, set()).add(number)
            new = {topic_id: frozenset(numbers) for topic_id, numbers in target.items()}
            if group.target.get(each) != new:
                value = ShareGroupTargetAssignmentMemberValue(partition_rows(new))
                self.records.append(group.record(SHARE.member_target, value, each))
            if each == member.member_id:
                last = epoch, new
        value_of_all = ShareGroupTargetAssignmentMetadataValue(epoch, self._now_ms)
        self.records.append(group.record(SHARE.target, value_of_all))
        return last

    def _reconciled(self, member: ShareMember, epoch: int, target: Assignment) -> ShareMember:
        ids = {topic.id for name in member.topics if (topic := self._image.topic(name)) is not None}
        assigned = {topic_id: numbers for topic_id, numbers in target.items() if topic_id in ids}
        after = replace(member, assigned=assigned)
        if epoch != member.epoch:
            after = replace(after, epoch=epoch, previous_epoch=member.epoch)
        if after != member:
            value = ShareGroupCurrentMemberAssignmentValue(
                after.epoch, after.previous_epoch, 0, partition_rows(after.assigned)
            )
            self.records.append(self._group.record(SHARE.member_current, value, member.member_id))
        return after

    def to_initialize(self, member: ShareMember) -> States:
        """Partitions that are read and of which the share coordinator keeps no state yet."""
        group, since_ms = self._group, self._now_ms - self._config.initialize_retry_ms
        asked = {topic_id: each for topic_id, each in group.initializing.items() if each.asked_ms > since_ms}
        known = combined(group.initialized, asked)
        change: States = {}
        for name in group.topics_of(member):
            topic = self._image.topic(name)
            if topic is None:
                continue
            there = known[topic.id].partitions if topic.id in known else frozenset()
            missing = frozenset(topic.partitions) - there
            if len(there) < len(topic.partitions) and missing:
                change[topic.id] = StateOf(name, missing, self._now_ms)
        if change:
            deleting = {topic_id: each for topic_id, each in group.deleting.items() if topic_id not in change}
            record = group.states_record(combined(group.initializing, change), group.initialized, deleting)
            self.records.append(record)
        return change


# Who goes


def _leave(state: GroupState, token: Token, request: ShareHeartbeat) -> None:
    group = find(state, request.group_id)
    if request.member_id not in group.members:
        sentence = f"Member {request.member_id} is not a member of group {request.group_id}."
        raise KafkaError(ErrorCode.unknown_member_id, sentence)
    group.image = state.image
    remove(state, group, [request.member_id])
    state.reply(
        token,
        {
            "error_code": ErrorCode.none,
            "error_message": None,
            "member_id": request.member_id,
            "member_epoch": request.member_epoch,
            "heartbeat_interval": 0,
            "assignment": None,
        },
    )


def remove(state: GroupState, group: ShareGroup, member_ids: Iterable[str]) -> None:
    """Members leave, or were not heard of for too long."""
    records: list[GroupRecord] = []
    epoch, left = group.epoch, len(group.members)
    for member_id in member_ids:
        left -= 1
        kinds = (SHARE.member_current, SHARE.member_target, SHARE.member)
        records += (group.record(number, None, member_id) for number in kinds)
        found = hash_of(group.topics_of(without=member_id), group.image)
        epoch += 1
        records.append(group.record(SHARE.metadata, ShareGroupMetadataValue(epoch, found)))
    if not left:  # nobody to assign to: the target assignment is up to date (KAFKA-20442), and the next need not wait
        value = ShareGroupTargetAssignmentMetadataValue(epoch, 0)
        records.append(group.record(SHARE.target, value))
    group.seen = {}
    write(state, group, records)
    wait_for_sessions(state, group)


def expire(state: GroupState, group: ShareGroup) -> None:
    """A deadline has come: remove the members whose sessions are over."""
    group.session_ms = 0
    group.now_ms = state.now.wall_ms
    over = [member_id for member_id, deadline in group.deadlines.items() if deadline <= state.now.timer_ms]
    if over:
        state.observe("members removed", group, f"{len(over)} missed their session timeout")
        remove(state, group, over)
    wait_for_sessions(state, group)


def wait_for_sessions(state: GroupState, group: ShareGroup) -> None:
    """Set the group's timer to the next deadline; without members there is none."""
    if not group.deadlines:
        stop_sessions(state, group)
    elif not group.session_ms:
        group.session_ms = min(group.deadlines.values())
        state.timers.schedule((SESSION, group.group_id), group.session_ms)


def stop_sessions(state: GroupState, group: ShareGroup) -> None:
    """Cancel the group's timer: no member is left, or the group is not."""
    group.session_ms = 0
    state.timers.cancel((SESSION, group.group_id))


def _resume_sessions(state: GroupState, group: ShareGroup) -> None:
    """Members that could not be removed are, when another session is over."""
    deadline = state.now.timer_ms + state.config.share_session_timeout_ms
    for member_id in group.members:
        group.deadlines.setdefault(member_id, deadline)
    wait_for_sessions(state, group)


def start_sessions(state: GroupState, group: ShareGroup) -> None:
    """Start a session for each member that a new coordinator finds in its log."""
    deadline = state.now.timer_ms + state.config.share_session_timeout_ms
    group.deadlines = dict.fromkeys(group.members, deadline)
    wait_for_sessions(state, group)


# Records


def write(
    state: GroupState, group: ShareGroup, records: list[GroupRecord], committed: Callable[[], None] | None = None
) -> None:
    """Write records that count at once; what they changed is undone if they cannot be written."""
    if not records:
        return
    before: dict[ModernKey, bytes | None] = {}
    for record in records:
        assert isinstance(record.key, ModernKey)
        before.setdefault(record.key, group.records.get(record.key))
        group.replay(record.key, _bytes(record))

    def undo() -> None:
        for key, value in before.items():
            group.replay(key, value)

    def uncounted() -> None:
        undo()
        if group.is_deleted:
            state.groups.pop(group.group_id, None)
        else:
            state.groups[group.group_id] = group

    def failed(_: ErrorCode) -> None:
        undo()
        if not group.is_deleted:
            if state.groups.setdefault(group.group_id, group) is group:
                _resume_sessions(state, group)
        elif state.groups.get(group.group_id) is group:
            del state.groups[group.group_id]
            stop_sessions(state, group)

    state.write(records, committed, failed, [(group.group_id, (group,), uncounted)])


def _bytes(record: GroupRecord) -> bytes | None:
    assert record.value is None or isinstance(record.value, bytes)
    return record.value


# What there is


def describe(state: GroupState, group_id: str) -> ShareGroupDescribeResponseDescribedGroup:
    """The row of a ShareGroupDescribe response. Raises GROUP_ID_NOT_FOUND."""
    group = find(state, group_id)
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "group_id": group_id,
        "group_state": group.shown_state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": "simple",
        "members": [
            {
                "member_id": each.member_id,
                "rack_id": each.rack_id,
                "member_epoch": each.epoch,
                "client_id": each.client_id,
                "client_host": each.client_host,
                "subscribed_topic_names": each.topics,
                "assignment": {
                    "topic_partitions": [
                        {"topic_id": topic_id, "topic_name": topic.name, "partitions": tuple(sorted(numbers))}
                        for topic_id, numbers in each.assigned.items()
                        if (topic := state.image.topic_by_id(topic_id)) is not None
                    ]
                },
            }
            for each in group.members.values()
        ],
    }
