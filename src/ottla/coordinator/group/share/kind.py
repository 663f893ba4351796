"""What share groups do with records, timers and the requests of others."""

from __future__ import annotations

from typing import Final

from ottla.coordinator.group.kind import Kind
from ottla.coordinator.group.requests import OffsetCommit
from ottla.coordinator.group.share.group import ShareGroup
from ottla.coordinator.group.share.heartbeat import describe, expire, heartbeat, start_sessions
from ottla.coordinator.group.state import GroupState
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.group_records import ModernKey, Value


def _replay(state: GroupState, key: ModernKey, value: Value | None) -> None:
    assert value is None or isinstance(value, bytes)
    group = state.groups.get(key.group)
    if not isinstance(group, ShareGroup):
        if value is None:
            return
        group = state.groups[key.group] = ShareGroup(key.group)
    group.replay(key, value)
    if group.is_deleted:
        del state.groups[key.group]


def _expired(state: GroupState, kind: str, group_id: str) -> None:
    group = state.groups.get(group_id)
    if isinstance(group, ShareGroup):
        expire(state, group)


def _refuse_commit(state: GroupState, group: ShareGroup, request: OffsetCommit) -> None:
    """The share coordinator has the offsets of such a group. Raises GROUP_ID_NOT_FOUND."""
    raise KafkaError(ErrorCode.group_id_not_found, f"Group {group.group_id} is not a consumer group.")


SHARE_KIND: Final = Kind(
    describe=describe,
    replay=_replay,
    saved=None,
    counts_at_once=True,
    on_loaded=start_sessions,
    expired=_expired,
    check_commit=_refuse_commit,
    check_commit_in_transaction=_refuse_commit,
    check_fetch=None,  # everybody may see that it has none
    heartbeat=heartbeat,
)
