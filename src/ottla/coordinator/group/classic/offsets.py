"""Checks who may commit the offsets of a classic group, and says since when nobody uses them."""

from __future__ import annotations

from ottla.coordinator.group.classic.group import COMPLETING, EMPTY, PREPARING, STABLE, ClassicGroup
from ottla.coordinator.group.kind import EACH_SINCE_ITS_COMMIT
from ottla.coordinator.group.requests import OffsetCommit
from ottla.coordinator.group.state import GroupState
from ottla.errors import ErrorCode, KafkaError
from ottla.model import Millis


def check_commit(state: GroupState, group: ClassicGroup, request: OffsetCommit) -> None:
    """A member that may commit has a new session. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION or
    REBALANCE_IN_PROGRESS."""
    if request.generation >= 0 or group.state is not EMPTY:
        if request.generation < 0 and not request.member_id and request.instance_id is None:
            raise KafkaError(ErrorCode.unknown_member_id)
        _check_generation(group, request)
        if group.state is COMPLETING:
            raise KafkaError(ErrorCode.rebalance_in_progress)
    if group.state in (STABLE, PREPARING):
        member = group.members.get(request.member_id)
        if member is not None:
            state.start_session(group, member)


def check_commit_in_transaction(state: GroupState, group: ClassicGroup, request: OffsetCommit) -> None:
    """The same, but a rebalance hinders nobody (KIP-447): consumers know of it before they take over partitions."""
    if request.generation >= 0 or group.state is not EMPTY:
        _check_generation(group, request)


def _check_generation(group: ClassicGroup, request: OffsetCommit) -> None:
    group.check_member(request.member_id, request.instance_id)
    if request.generation != group.generation:
        raise KafkaError(ErrorCode.illegal_generation)


def unused_since(group: ClassicGroup) -> Millis | None:
    """An empty group keeps its offsets for the retention time after it emptied; a stable one keeps those of subscribed
    topics for ever and others for that time after the commit; in a rebalance nothing expires."""
    if group.protocol_type is None:
        return EACH_SINCE_ITS_COMMIT
    if group.state is EMPTY:
        return group.state_timestamp_ms
    knows_topics = group.state is STABLE and group.uses_consumer_protocol and group.subscribed is not None
    return EACH_SINCE_ITS_COMMIT if knows_topics else None
