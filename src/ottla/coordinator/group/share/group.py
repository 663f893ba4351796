"""A share group as the records of `__consumer_offsets` have it.

What a decision writes counts at once, so that the next request meets it, and is undone where the write fails; a new
coordinator replays the same records. Unlike a consumer group's, a member's assignment is what the target says: nobody
has to give anything up before another may have it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple
from uuid import UUID

from ottla.metadata.image import EMPTY_IMAGE, MetadataImage, TopicImage
from ottla.model import Millis
from ottla.protocol.internal.group_records import SHARE, GroupRecord, ModernKey
from ottla.protocol.internal.group_values import decode_group_value, encode_group_value
from ottla.protocol.schemas.records import (
    Record,
    SharedTopic,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
    SharePartitions,
    TopicPartitionsInfo,
)

Assignment = Mapping[UUID, frozenset[int]]
NOTHING: Final[Assignment] = {}
STATE_PARTITIONS: Final = 15
"""The type of the record that says of which partitions the share coordinator keeps the state."""

LEAVING: Final = -1
EPOCH_AT_FIRST: Final = 1
"""Epoch of a group that nobody has joined yet."""


@dataclass(frozen=True, slots=True)
class ShareMember:
    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """Names, sorted."""
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Assignment = field(default_factory=dict)


class StateOf(NamedTuple):
    """Partitions of a topic whose state the share coordinator keeps, or is asked to."""

    name: str
    partitions: frozenset[int]
    asked_ms: Millis = 0
    """When it was asked last, on the wall clock."""


States = dict[UUID, StateOf]


class ShareGroup:
    group_type: Literal["share"] = "share"
    protocol_type = "share"
    protocol_name = None
    uses_consumer_protocol = False
    keeps_offsets = expires = False
    """The share coordinator has the offsets (Kafka's `shouldExpire`)."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.records: dict[ModernKey, bytes] = {}
        """Everything in the log but offsets."""
        self.members: dict[str, ShareMember] = {}
        self.epoch = EPOCH_AT_FIRST
        self.metadata_hash = 0
        self.target: dict[str, Assignment] = {}
        self.assignment_epoch = 0
        self.assignment_ms: Millis = 0
        self.initializing: States = {}
        self.initialized: States = {}
        self.deleting: dict[UUID, str] = {}
        self.deadlines: dict[str, Millis] = {}
        """When the sessions of members end, on the timer clock."""
        self.session_ms: Millis = 0
        """The next deadline that a timer is set to; 0 for none."""
        self.now_ms: Millis = 0
        """The wall clock of the decision under way."""
        self.image: MetadataImage = EMPTY_IMAGE
        """The image of the last decision."""
        self.seen: Mapping[str, TopicImage | None] = {}
        """The topics that `metadata_hash` is of."""

    # What the records say

    def replay(self, key: ModernKey, value: bytes | None) -> None:
        """Apply a record of the log. Raises MalformedRecord."""
        if value is None:
            self.records.pop(key, None)
        else:
            self.records[key] = value
        handle = _REPLAYS.get(key.type)
        if handle is not None:
            handle(self, key.member or "", None if value is None else decode_group_value(key.type, value))

    def _replay_member(self, member_id: str, value: ShareGroupMemberMetadataValue | None) -> None:
        if value is None:
            self.members.pop(member_id, None)
            self.deadlines.pop(member_id, None)
            return
        self.members[member_id] = replace(
            self.members.get(member_id) or ShareMember(member_id),
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=tuple(value.subscribed_topic_names),
        )

    def _replay_group(self, _: str, value: ShareGroupMetadataValue | None) -> None:
        self.epoch = EPOCH_AT_FIRST if value is None else value.epoch
        self.metadata_hash = 0 if value is None else value.metadata_hash

    def _replay_target_epoch(self, _: str, value: ShareGroupTargetAssignmentMetadataValue | None) -> None:
        self.assignment_epoch = 0 if value is None else value.assignment_epoch
        self.assignment_ms = 0 if value is None else value.assignment_timestamp

    def _replay_target(self, member_id: str, value: ShareGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = _partitions(value.topic_partitions)

    def _replay_current(self, member_id: str, value: ShareGroupCurrentMemberAssignmentValue | None) -> None:
        known = self.members.get(member_id)
        if value is None:
            if known is not None:
                self.members[member_id] = replace(known, epoch=0, previous_epoch=0, assigned={})
            return
        self.members[member_id] = replace(
            known or ShareMember(member_id),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=_partitions(value.assigned_partitions),
        )

    def _replay_states(self, _: str, value: ShareGroupStatePartitionMetadataValue | None) -> None:
        value = value or ShareGroupStatePartitionMetadataValue((), (), ())
        self.initializing = {
            each.topic_id: StateOf(each.topic_name, frozenset(each.partitions), self.now_ms)
            for each in value.initializing_topics
        }
        self.initialized = {
            each.topic_id: StateOf(each.topic_name, frozenset(each.partitions)) for each in value.initialized_topics
        }
        self.deleting = {each.topic_id: each.topic_name for each in value.deleting_topics}

    # Questions

    @property
    def is_deleted(self) -> bool:
        """Whether its last record is gone."""
        return not self.records

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def generation(self) -> int:
        return self.epoch

    @property
    def shown_state(self) -> str:
        return "Stable" if self.members else "Empty"

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members)

    def request_refresh(self) -> None:
        """Nothing to do: every heartbeat looks at the topics."""

    def topics_of(self, instead: ShareMember | None = None, *, without: str = "") -> list[str]:
        """The topics that members read, sorted: with a member `instead` of the one of its id, `without` another."""
        members = {**self.members, **({} if instead is None else {instead.member_id: instead})}
        return sorted({name for each in members.values() if each.member_id != without for name in each.topics})

    def has_unassigned(self) -> bool:
        """Whether there are partitions with state that the target does not have (`initializedAssignmentPending`)."""
        names = {name for each in self.members.values() for name in each.topics}
        given: dict[UUID, set[int]] = {}
        for assignment in self.target.values():
            for topic_id, numbers in assignment.items():
                given.setdefault(topic_id, set()).update(numbers)
        return any(
            state.name in names and given.get(topic_id, set()) != state.partitions
            for topic_id, state in self.initialized.items()
        )

    # Records

    def record(self, number: int, value: Record | None, member_id: str | None = None) -> GroupRecord:
        encoded = None if value is None else encode_group_value(value)
        return GroupRecord(ModernKey(number, self.group_id, member_id), encoded)

    def tombstones(self) -> list[GroupRecord]:
        """Tombstones of all records but offsets, in the order that Kafka checks when it loads them: members before the
        group (`GroupMetadataManager.replay`)."""
        leftover = {key.member for key in self.records if key.type in (SHARE.member_current, SHARE.member_target)}
        members = sorted({*self.members, *(each for each in leftover if each is not None)})
        of_members = [
            ModernKey(number, self.group_id, each)
            for number in (SHARE.member_current, SHARE.member_target, SHARE.member)
            for each in members
        ]
        others = [key for key in self.records if key.type in SHARE.others and key.member is None]
        last = (ModernKey(SHARE.target, self.group_id), *others, ModernKey(SHARE.metadata, self.group_id))
        return [GroupRecord(key, None) for key in (*of_members, *last)]

    def states_record(self, initializing: States, initialized: States, deleting: Mapping[UUID, str]) -> GroupRecord:
        value = ShareGroupStatePartitionMetadataValue(
            _infos(initializing), _infos(initialized), tuple(SharedTopic(*each) for each in deleting.items())
        )
        return self.record(STATE_PARTITIONS, value)


_REPLAYS: Final[dict[int, Callable[[ShareGroup, str, Any], None]]] = {
    10: ShareGroup._replay_member,
    11: ShareGroup._replay_group,
    12: ShareGroup._replay_target_epoch,
    13: ShareGroup._replay_target,
    14: ShareGroup._replay_current,
    STATE_PARTITIONS: ShareGroup._replay_states,
}


def _partitions(rows: Iterable[SharePartitions]) -> Assignment:
    return {each.topic_id: frozenset(each.partitions) for each in rows}


def partition_rows(assignment: Assignment) -> tuple[SharePartitions, ...]:
    return tuple(SharePartitions(topic_id, tuple(sorted(each))) for topic_id, each in sorted(assignment.items()))


def _infos(states: States) -> tuple[TopicPartitionsInfo, ...]:
    return tuple(
        TopicPartitionsInfo(topic_id, each.name, tuple(sorted(each.partitions)))
        for topic_id, each in sorted(states.items())
    )


def combined(states: Mapping[UUID, StateOf], more: Mapping[UUID, StateOf]) -> States:
    """The partitions of both; of a topic in both the name and time of `more`."""
    found = dict(states)
    for topic_id, each in more.items():
        known = found.get(topic_id)
        found[topic_id] = each if known is None else each._replace(partitions=known.partitions | each.partitions)
    return found


def hash_of(topics: Iterable[str], image: MetadataImage) -> int:
    """Changes when one of these topics is created, deleted or grown. Not Kafka's number: a group that changes between
    brokers of both kinds has one epoch more."""
    digest = hashlib.blake2b(digest_size=8)
    for name in topics:
        topic = image.topic(name)
        if topic is not None:
            digest.update(topic.id.bytes + len(topic.partitions).to_bytes(4, "big"))
    return int(struct.unpack(">q", digest.digest())[0])
