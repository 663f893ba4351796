"""How streams groups change: by their records, of the log while it is loaded, and of a decision as it is made
(`group/applying.py`). Records come in any order that a compacted log can have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.coordinator.group.kind import Undo, saved_group
from ottla.coordinator.group.streams.group import (
    MEMBER,
    MEMBER_CURRENT,
    MEMBER_TARGET,
    METADATA,
    TARGET,
    TOPOLOGY,
    StreamsGroup,
    Topology,
)
from ottla.coordinator.group.streams.member import StreamsMember, target_tasks
from ottla.protocol.internal.group_records import Value
from ottla.protocol.internal.modern_group_records import ModernKey
from ottla.protocol.internal.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyValue,
)

if TYPE_CHECKING:
    from ottla.coordinator.group.state import GroupState


def replay(state: GroupState, key: ModernKey, value: Value | None) -> None:
    """Apply a record of the log, or of a decision."""
    group = state.groups.get(key.group)
    if not isinstance(group, StreamsGroup):
        if value is None:
            return
        # A classic group of that name has only offsets, or its tombstone was compacted away.
        group = state.groups[key.group] = StreamsGroup(key.group)
    if key.type == METADATA and value is None:
        del state.groups[key.group]
        _subscribe(state, key.group, _topics(group), ())
    else:
        _REPLAYS[key.type](state, group, key.member or "", value)


def _replay_metadata(state: GroupState, group: StreamsGroup, _: str, value: Value | None) -> None:
    assert isinstance(value, StreamsGroupMetadataValue)
    configs = {each.key: each.value for each in value.last_assignment_configs or ()}
    group.set_metadata(value.epoch, value.metadata_hash, value.validated_topology_epoch, configs)


def _replay_target(state: GroupState, group: StreamsGroup, _: str, value: Value | None) -> None:
    assert value is None or isinstance(value, StreamsGroupTargetAssignmentMetadataValue)
    if value is None:
        group.set_assignment_epoch(-1, 0)
    else:
        group.set_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)


def _replay_member_target(state: GroupState, group: StreamsGroup, name: str, value: Value | None) -> None:
    assert value is None or isinstance(value, StreamsGroupTargetAssignmentMemberValue)
    group.set_target(name, None if value is None else target_tasks(value))


def _replay_member(state: GroupState, group: StreamsGroup, name: str, value: Value | None) -> None:
    assert value is None or isinstance(value, StreamsGroupMemberMetadataValue)
    before = group.members.get(name) or StreamsMember(name)
    if value is not None or name in group.members:
        group.set_member(name, None if value is None else before.with_metadata(value))


def _replay_current(state: GroupState, group: StreamsGroup, name: str, value: Value | None) -> None:
    assert value is None or isinstance(value, StreamsGroupCurrentMemberAssignmentValue)
    before = group.members.get(name) or StreamsMember(name)
    if value is not None or name in group.members:
        group.set_member(name, before.with_current(value))


def _replay_topology(state: GroupState, group: StreamsGroup, _: str, value: Value | None) -> None:
    assert value is None or isinstance(value, StreamsGroupTopologyValue)
    before = _topics(group)
    group.set_topology(None if value is None else Topology(value))
    _subscribe(state, group.group_id, before, _topics(group))


_REPLAYS: dict[int, Callable[[GroupState, StreamsGroup, str, Value | None], None]] = {
    METADATA: _replay_metadata,
    TARGET: _replay_target,
    MEMBER_TARGET: _replay_member_target,
    MEMBER: _replay_member,
    MEMBER_CURRENT: _replay_current,
    TOPOLOGY: _replay_topology,
}


def _topics(group: StreamsGroup) -> frozenset[str]:
    return frozenset() if group.topology is None else group.topology.topics


def _subscribe(state: GroupState, group_id: str, before: Iterable[str], after: Iterable[str]) -> None:
    """Keep `groups_by_topic` right, which says whom a change of a topic concerns."""
    for topic in before:
        state.groups_by_topic.get(topic, set()).discard(group_id)
    for topic in after:
        state.groups_by_topic.setdefault(topic, set()).add(group_id)


def saved(state: GroupState, key: ModernKey) -> Undo:
    """A function that restores what a record is about to change."""
    group = state.groups.get(key.group)
    if not isinstance(group, StreamsGroup):
        return saved_group(state, key.group)
    name = key.member or ""
    if key.type == METADATA:
        of_group = saved_group(state, key.group)
        metadata = group.epoch, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs

        def restore() -> None:
            of_group()
            group.set_metadata(*metadata)
            _subscribe(state, key.group, (), _topics(group))

        return restore
    if key.type in (MEMBER, MEMBER_CURRENT):
        member = group.members.get(name)
        return lambda: group.set_member(name, member)
    if key.type == MEMBER_TARGET:
        target = group.targets.get(name)
        return lambda: group.set_target(name, target)
    if key.type == TARGET:
        epoch, timestamp_ms = group.assignment_epoch, group.assignment_timestamp_ms
        return lambda: group.set_assignment_epoch(epoch, timestamp_ms)
    topology = group.topology

    def restore_topology() -> None:
        before = _topics(group)
        group.set_topology(topology)
        group.set_configured(None)
        _subscribe(state, key.group, before, _topics(group))

    return restore_topology
