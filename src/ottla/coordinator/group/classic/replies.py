"""Responses to JoinGroup and SyncGroup, in the newest version's field names."""

from __future__ import annotations

from typing import Any

from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.errors import NONE, ErrorCode

Response = dict[str, Any]


def join_error(error: ErrorCode, member_id: str = "") -> Response:
    return {
        "error_code": error,
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": None,
        "leader": "",
        "skip_assignment": False,
        "member_id": member_id,
        "members": (),
    }


def joined(group: ClassicGroup, member_id: str, with_members: bool, skip_assignment: bool = False) -> Response:
    """The member is in; the leader gets everyone's metadata."""
    common = group.joined
    if common is None or common["leader"] is not group.leader:
        common = group.joined = {
            "error_code": NONE,
            "generation_id": group.generation,
            "protocol_type": group.protocol_type,
            "protocol_name": group.protocol_name,
            "leader": group.leader or "",
            "skip_assignment": False,
            "member_id": "",
            "members": (),
        }
    answer = common.copy()
    answer["member_id"] = member_id
    if skip_assignment:
        answer["skip_assignment"] = True
    if with_members:
        answer["members"] = group.members_for_leader()
    return answer


def sync_error(error: ErrorCode) -> Response:
    return {"error_code": error, "protocol_type": None, "protocol_name": None, "assignment": b""}


def assigned(group: ClassicGroup, assignment: bytes) -> Response:
    return {
        "error_code": NONE,
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol_name,
        "assignment": assignment,
    }
