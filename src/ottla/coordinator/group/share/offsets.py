"""The offsets of a share group, and its deletion: what an operator moves, deletes and sees.

How far a group has come is the share coordinator's; here is of which partitions it keeps that. What it is asked to
change is written first (`initializing`, `deleting`), so that a new coordinator of the group knows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from ottla.coordinator.effects import Token
from ottla.coordinator.group.requests import (
    DeleteShareGroup,
    DeleteShareOffsets,
    DeleteShareStates,
    MoveShareOffsets,
    SharesDeleted,
    SharesInitialized,
)
from ottla.coordinator.group.share.group import ShareGroup, StateOf, States, combined
from ottla.coordinator.group.share.heartbeat import find, write
from ottla.coordinator.group.state import GroupState
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import MetadataImage
from ottla.protocol.internal.group_records import SHARE
from ottla.protocol.schemas.records import ShareGroupMetadataValue


def partitions(state: GroupState, group_id: str) -> dict[UUID, list[int]]:
    """Partitions whose state the share coordinator keeps; none for a group that does not exist."""
    group = state.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        return {}
    return {topic_id: sorted(each.partitions) for topic_id, each in group.initialized.items()}


def _empty(state: GroupState, group_id: str) -> ShareGroup:
    """Raises GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP."""
    group = find(state, group_id)
    if group.members:
        raise KafkaError(ErrorCode.non_empty_group, "The group is not empty.")
    group.now_ms = state.now.wall_ms
    return group


def _begin_move(state: GroupState, token: Token, request: MoveShareOffsets) -> None:
    """Offsets of an empty group, which is made where there is none, are about to be set; replies {"epoch"}, which the
    state is to have. Raises GROUP_ID_NOT_FOUND for a group of another kind, NON_EMPTY_GROUP."""
    group_id, image = request.group_id, state.image
    is_new = group_id not in state.groups
    if is_new:
        state.groups[group_id] = ShareGroup(group_id)
    group = _empty(state, group_id)
    group.image = image
    change: States = {}
    for topic_id, numbers in request.offsets.items():
        topic = image.topic_by_id(topic_id)
        change[topic_id] = StateOf("" if topic is None else topic.name, frozenset(numbers), state.now.wall_ms)
    deleting = {topic_id: each for topic_id, each in group.deleting.items() if topic_id not in change}
    records = [group.states_record(combined(group.initializing, change), group.initialized, deleting)]
    if is_new:  # unlike Kafka, which writes no record of the group itself, and so has none after a restart
        records.insert(0, group.record(SHARE.metadata, ShareGroupMetadataValue(group.epoch, 0)))
    write(state, group, records)
    state.reply(token, {"epoch": group.epoch})


def _begin_deletion(state: GroupState, token: Token, request: DeleteShareOffsets) -> None:
    """The state of topics is about to be deleted. Replies {"found", "failed"}: the partitions that it is kept of by
    topic id, and by name the errors of topics of which there is none.

    Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
    image = state.image
    group = _empty(state, request.group_id)
    found: dict[UUID, list[int]] = {}
    failed: dict[str, KafkaError] = {}
    initialized, deleting = dict(group.initialized), dict(group.deleting)
    for name in request.topics:
        topic = image.topic(name)
        if topic is None:
            message = "This server does not host this topic-partition."
            failed[name] = KafkaError(ErrorCode.unknown_topic_or_partition, message)
        elif topic.id in initialized:
            found[topic.id] = sorted(initialized.pop(topic.id).partitions)
            deleting[topic.id] = name
        elif topic.id in deleting:
            found[topic.id] = sorted(topic.partitions)
        else:
            message = "There is no offset information to delete."
            failed[name] = KafkaError(ErrorCode.unknown_topic_or_partition, message)
    if found:
        write(state, group, [group.states_record(group.initializing, initialized, deleting)])
    state.reply(token, {"found": found, "failed": failed})


def _deleted(state: GroupState, token: Token, request: SharesDeleted) -> None:
    """The share coordinator keeps no state of these topics any more."""
    group = state.groups.get(request.group_id)
    if isinstance(group, ShareGroup):
        group.now_ms = state.now.wall_ms
        gone = {*request.topic_ids}
        deleting = {topic_id: name for topic_id, name in group.deleting.items() if topic_id not in gone}
        write(state, group, [group.states_record(group.initializing, group.initialized, deleting)])
    state.reply(token, {})


def _begin_deletion_of_group(state: GroupState, token: Token, request: DeleteShareStates) -> None:
    """An empty group is about to be deleted. Replies {"found"}: the partitions whose state has to go first; None if it
    is no share group. Raises NON_EMPTY_GROUP."""
    if not isinstance(state.groups.get(request.group_id), ShareGroup):
        state.reply(token, {"found": None})
        return
    group, image = _empty(state, request.group_id), state.image
    found = {topic_id: {*each.partitions} for topic_id, each in group.initialized.items()}
    for topic_id, each in group.initializing.items():
        found.setdefault(topic_id, set()).update(each.partitions)
    for topic_id in group.deleting:
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            found.setdefault(topic_id, set()).update(topic.partitions)
    names = {
        topic_id: each.name for states in (group.initializing, group.initialized) for topic_id, each in states.items()
    }
    deleting = {topic_id: names.get(topic_id, group.deleting.get(topic_id, "")) for topic_id in found}
    if found:
        write(state, group, [group.states_record({}, {}, deleting)])
    there = {
        topic_id: sorted(numbers) for topic_id, numbers in found.items() if image.topic_by_id(topic_id) is not None
    }
    state.reply(token, {"found": there})


def _delete_group(state: GroupState, token: Token, request: DeleteShareGroup) -> None:
    """Delete the records of a group whose state is deleted. Replies {"groups": {group id: ErrorCode}}."""
    group_id = request.group_id
    try:
        group = _empty(state, group_id)
    except KafkaError as error:
        state.reply(token, {"groups": {group_id: error.code}})
        return
    records = group.tombstones()
    write(state, group, records)
    del state.groups[group_id]
    state.reply(token, {"groups": {group_id: ErrorCode.none}})


def _initialized(state: GroupState, token: Token, request: SharesInitialized) -> None:
    group = state.groups.get(request.group_id)
    if isinstance(group, ShareGroup):
        _note_initialized(state, group, request.partitions, kept=request.kept)
    state.reply(token, {})


def _note_initialized(
    state: GroupState, group: ShareGroup, partitions: Mapping[UUID, Sequence[int]], *, kept: bool
) -> None:
    group.now_ms = state.now.wall_ms
    initializing: States = {}
    for topic_id, each in group.initializing.items():
        left = each.partitions - frozenset(partitions.get(topic_id, ()))
        if left:
            initializing[topic_id] = each._replace(partitions=left)
    done = group.initialized
    if kept:
        names = {topic_id: each.name for topic_id, each in group.initializing.items()}
        more = {
            topic_id: StateOf(names.get(topic_id, _name(group.image, topic_id)), frozenset(numbers))
            for topic_id, numbers in partitions.items()
        }
        done = combined(group.initialized, more)
    write(state, group, [group.states_record(initializing, done, group.deleting)])


def _name(image: MetadataImage, topic_id: UUID) -> str:
    topic = image.topic_by_id(topic_id)
    return "<UNKNOWN>" if topic is None else topic.name


DECISIONS: Final[Mapping[type, Callable[[GroupState, Token, Any], None]]] = {
    MoveShareOffsets: _begin_move,
    DeleteShareOffsets: _begin_deletion,
    SharesDeleted: _deleted,
    DeleteShareStates: _begin_deletion_of_group,
    DeleteShareGroup: _delete_group,
    SharesInitialized: _initialized,
}
"""What decides on a request about the offsets of a share group, by its type."""
