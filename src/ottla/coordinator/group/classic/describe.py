"""The row of a classic group in the answer to DescribeGroups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.coordinator.group.classic.group import DEAD, STABLE, ClassicGroup
from ottla.coordinator.group.state import GroupState
from ottla.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.protocol.schemas.sent import DescribeGroupsResponseDescribedGroup


def describe(state: GroupState, group_id: str) -> DescribeGroupsResponseDescribedGroup:
    """A group that does not exist, or is not a classic one, is GROUP_ID_NOT_FOUND and Dead."""
    group = state.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        return {
            "error_code": ErrorCode.group_id_not_found,
            "error_message": f"Group {group_id} {'not found' if group is None else 'is not a classic group'}.",
            "group_id": group_id,
            "group_state": DEAD.value,
        }
    protocol = group.protocol_name if group.state is STABLE else None
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "group_id": group_id,
        "group_state": group.shown_state,
        "protocol_type": group.protocol_type or "",
        "protocol_data": protocol or "",
        "members": [member.describe(protocol) for member in group.members.values()],
    }
