"""What a share group (KIP-932) is to the requests of other protocols, and the records that it is made of.

Whoever deletes the group writes a tombstone for each of its records, in the order that Kafka checks when it loads them
(member before group, `GroupMetadataManager.replay`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.coordinator.group.classic import ClassicGroup, State
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.group_records import GroupRecord
from ottla.protocol.internal.modern_group_records import (
    ModernKey,
    ModernTypes,
    epoch_of,
    member_state,
)

if TYPE_CHECKING:
    from ottla.coordinator.group.state import Group, GroupState

SESSION = "share session"
"""The kind of the timer that removes the members."""


class ModernGroup(ClassicGroup):
    """A group that classic requests see without classic members: Empty, or Stable while it has members of its own."""

    def __init__(self, group_id: str, types: ModernTypes) -> None:
        super().__init__(group_id, -1)  # its offsets expire by the times of their commits
        self.types = types
        self.group_type = types.group_type
        self.protocol_type = types.group_type
        self.keeps_offsets = self.expires = False  # Kafka's `shouldExpire`
        self.records: dict[ModernKey, bytes] = {}
        """Everything in the log but offsets."""
        self.member_ids: dict[str, None] = {}
        """**Invariant**: those with a record of their metadata."""

    def replay(self, key: ModernKey, value: bytes | None) -> None:
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

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.member_ids)

    def refuse_commit(self) -> KafkaError:
        """The error of a commit: such a group has no committed offsets."""
        return KafkaError(ErrorCode.group_id_not_found, f"Group {self.group_id} is not a consumer group.")

    # Records

    def member_tombstones(self, member_ids: Iterable[str]) -> list[GroupRecord]:
        types, group_id, member_ids = self.types, self.group_id, list(member_ids)
        return [
            GroupRecord(key, None)
            for key in (
                *(ModernKey(types.member_current, group_id, each) for each in member_ids),
                *(ModernKey(types.member_target, group_id, each) for each in member_ids),
                *(ModernKey(types.member, group_id, each) for each in member_ids),
            )
        ]

    def tombstones(self) -> list[GroupRecord]:
        """For all records of the group but its offsets."""
        types, group_id = self.types, self.group_id
        leftover = {key.member for key in self.records if key.type in (types.member_current, types.member_target)}
        members = sorted({*self.member_ids, *(each for each in leftover if each is not None)})
        others = [key for key in self.records if key.type in types.others and key.member is None]
        last = (ModernKey(types.target, group_id), *others, ModernKey(types.metadata, group_id))
        return [*self.member_tombstones(members), *(GroupRecord(key, None) for key in last)]


def replay(state: GroupState, key: ModernKey, value: bytes | None, types: ModernTypes) -> None:
    """Apply a record of a log that is being loaded. A value that cannot be read raises MalformedRecord, at once."""
    group = state.groups.get(key.group)
    if not isinstance(group, ModernGroup) or group.types is not types:
        if value is None:
            return
        group = state.groups[key.group] = _new_group(key.group)
    if value is not None:
        _check(key, value, types)
    group.replay(key, value)
    if group.is_deleted:
        del state.groups[key.group]


def _new_group(group_id: str) -> ModernGroup:
    from ottla.coordinator.group.share.group import ShareGroup  # most nodes have no share group

    return ShareGroup(group_id)


def _check(key: ModernKey, value: bytes, types: ModernTypes) -> None:
    if key.type == types.member_current:
        member_state(value)
    elif key.type in (types.metadata, types.target):
        epoch_of(value)


def start_session(state: GroupState, group: ModernGroup) -> None:
    """Give the members a session, as Kafka does with those that it finds in its log."""
    from ottla.coordinator.group.share.heartbeat import start_sessions

    start_sessions(state, group)


def session_expired(state: GroupState, group: Group) -> None:
    """Remove the members whose session is over. A group of another kind has none of them."""
    if not isinstance(group, ModernGroup):
        return
    from ottla.coordinator.group.share.heartbeat import expire

    expire(state, group)
