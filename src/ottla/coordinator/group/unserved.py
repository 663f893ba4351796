"""Groups of protocols that are not served here (KIP-932, KIP-1071) that Apache Kafka left in the log.

No member of such a group can send heartbeats here, since this version does not speak their protocols. So the group is
kept as it was found, its offsets are served, its members are given the time of a session and then removed, and whoever
deletes the group or takes it over writes a tombstone for each of its records, in the order that Kafka checks when it
loads them (member before group, `GroupMetadataManager.replay`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.coordinator.group.classic import ClassicGroup, State
from ottla.coordinator.group.requests import OffsetCommit
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.group_records import GroupRecord
from ottla.protocol.internal.unserved_group_records import (
    SHARE,
    STABLE_MEMBER,
    STREAMS,
    UnservedKey,
    UnservedTypes,
    epoch_of,
    member_state,
    with_epoch,
)

if TYPE_CHECKING:
    from ottla.coordinator.group.state import GroupState

SESSION = "unserved"
"""The kind of the timer that removes the members."""


class UnservedGroup(ClassicGroup):
    """To classic requests, a group without classic members: Empty, or Stable while it has members of its own."""

    def __init__(self, group_id: str, types: UnservedTypes) -> None:
        super().__init__(group_id, -1)  # its offsets expire by the times of their commits
        self.types = types
        self.group_type = types.group_type
        self.protocol_type = types.group_type
        self.keeps_offsets = self.expires = types is not SHARE  # Kafka's `shouldExpire`
        self.records: dict[UnservedKey, bytes] = {}
        """Everything in the log but offsets."""
        self.member_ids: dict[str, None] = {}
        """**Invariant**: those with a record of their metadata."""

    def replay(self, key: UnservedKey, value: bytes | None) -> None:
        """Apply a record of the log."""
        if value is None:
            self.records.pop(key, None)
        else:
            self.records[key] = value
        if key.type == self.types.member and key.member is not None:
            if value is None:
                self.member_ids.pop(key.member, None)
            else:
                self.member_ids[key.member] = None
            self.state = State.STABLE if self.member_ids else State.EMPTY

    @property
    def is_deleted(self) -> bool:
        """Whether its last record is gone."""
        return not self.records

    # Questions

    @property
    def can_be_taken_over(self) -> bool:
        """By a member of the classic protocol."""
        return self.types is STREAMS and self.state is State.EMPTY

    @property
    def shown_state(self) -> str:
        """As Kafka computes it from the epochs of group, assignment and members."""
        if self.types is SHARE or not self.member_ids:
            return self.state.value
        target = self._epoch(UnservedKey(self.types.target, self.group_id))
        if self._epoch(UnservedKey(self.types.metadata, self.group_id)) > target:
            return "Assigning"
        settled = (target, STABLE_MEMBER)
        is_stable = all(self._member_state(each) == settled for each in self.member_ids)
        return State.STABLE.value if is_stable else "Reconciling"

    def _epoch(self, key: UnservedKey) -> int:
        value = self.records.get(key)
        return 0 if value is None else epoch_of(value)

    def _member_state(self, member_id: str) -> tuple[int, int]:
        value = self.records.get(UnservedKey(self.types.member_current, self.group_id, member_id))
        return (0, STABLE_MEMBER) if value is None else member_state(value)

    def is_subscribed_to(self, topic: str) -> bool:
        """A topology of streams is taken to read every topic."""
        return bool(self.member_ids)

    def check_commit(self, request: OffsetCommit) -> None:
        """Whether the sender may commit (`ConsumerGroup.validateOffsetCommit`). Raises KafkaError."""
        if not self.keeps_offsets:
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {self.group_id} is not a consumer group.")
        if request.generation < 0 and self.state is State.EMPTY:
            return
        if request.member_id not in self.member_ids:
            raise KafkaError(ErrorCode.unknown_member_id)
        if not request.knows_unknown_group:
            raise KafkaError(ErrorCode.unsupported_version)
        if request.generation != self._member_state(request.member_id)[0]:
            raise KafkaError(ErrorCode.stale_member_epoch)

    def check_commit_in_transaction(self, request: OffsetCommit, is_named: bool) -> None:
        """The same for a commit of a transaction, whose sender knows no epochs of members. Raises KafkaError."""
        if not self.keeps_offsets:
            raise KafkaError(ErrorCode.group_id_not_found, f"Group {self.group_id} is not a consumer group.")
        if not is_named or (request.generation < 0 and self.state is State.EMPTY):
            return
        if request.member_id not in self.member_ids:
            raise KafkaError(ErrorCode.unknown_member_id)
        if request.generation != self._member_state(request.member_id)[0]:
            raise KafkaError(ErrorCode.illegal_generation)

    # Records

    def member_tombstones(self, member_ids: Iterable[str]) -> list[GroupRecord]:
        types, group_id, member_ids = self.types, self.group_id, list(member_ids)
        return [
            GroupRecord(key, None)
            for key in (
                *(UnservedKey(types.member_current, group_id, each) for each in member_ids),
                *(UnservedKey(types.member_target, group_id, each) for each in member_ids),
                *(UnservedKey(types.member, group_id, each) for each in member_ids),
            )
        ]

    def tombstones(self) -> list[GroupRecord]:
        """For all records of the group but its offsets."""
        types, group_id = self.types, self.group_id
        leftover = {key.member for key in self.records if key.type in (types.member_current, types.member_target)}
        members = sorted({*self.member_ids, *(each for each in leftover if each is not None)})
        others = [key for key in self.records if key.type in types.others and key.member is None]
        last = (UnservedKey(types.target, group_id), *others, UnservedKey(types.metadata, group_id))
        return [*self.member_tombstones(members), *(GroupRecord(key, None) for key in last)]


def replay(state: GroupState, key: UnservedKey, value: bytes | None, types: UnservedTypes) -> None:
    """Apply a record of a log that is being loaded. A value that cannot be read raises MalformedRecord, at once."""
    group = state.groups.get(key.group)
    if not isinstance(group, UnservedGroup) or group.types is not types:
        if value is None:
            return
        group = state.groups[key.group] = _new_group(key.group, types)
    if value is not None:
        _check(key, value, types)
    group.replay(key, value)
    if group.is_deleted:
        del state.groups[key.group]


def _new_group(group_id: str, types: UnservedTypes) -> UnservedGroup:
    if types is not SHARE:
        return UnservedGroup(group_id, types)
    from ottla.coordinator.group.share.group import ShareGroup  # most nodes have no share group

    return ShareGroup(group_id)


def _check(key: UnservedKey, value: bytes, types: UnservedTypes) -> None:
    if key.type == types.member_current:
        member_state(value)
    elif key.type in (types.metadata, types.target):
        epoch_of(value)


def start_session(state: GroupState, group: UnservedGroup) -> None:
    """Give the members a session, as Kafka does with those that it finds in its log."""
    if group.types is SHARE:
        from ottla.coordinator.group.share.heartbeat import start_sessions

        start_sessions(state, group)
        return
    state.timers.schedule((SESSION, group.group_id), state.now.timer_ms + state.config.streams_session_timeout_ms)


def session_expired(state: GroupState, group: ClassicGroup) -> None:
    """Remove all members, none of which can have sent a heartbeat, and begin a new epoch of the group."""
    if isinstance(group, UnservedGroup) and group.types is SHARE:
        from ottla.coordinator.group.share.heartbeat import expire

        expire(state, group)
        return
    if not isinstance(group, UnservedGroup) or not group.member_ids:
        return
    before = dict(group.records)
    key = UnservedKey(group.types.metadata, group.group_id)
    records = group.member_tombstones(group.member_ids)
    metadata = group.records.get(key)
    if metadata is not None:
        records.append(GroupRecord(key, with_epoch(metadata, epoch_of(metadata) + 1)))
    for changed, value in records:
        assert isinstance(changed, UnservedKey) and (value is None or isinstance(value, bytes))
        group.replay(changed, value)
    state.observe("emptied", group, f"its members of the {group.group_type} protocol cannot send heartbeats")

    def failed(_: ErrorCode) -> None:
        if state.groups.get(group.group_id) is group:
            for changed, value in before.items():
                group.replay(changed, value)
            start_session(state, group)

    state.write(records, failed=failed)
