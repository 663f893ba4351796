"""Checks who may commit and fetch the offsets of a consumer or streams group: its members, with their current epoch.

A commit may come with an older epoch, if the member has had what it commits for since (KIP-1251): `check_owned` of the
two kinds says so of partitions and of tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.coordinator.group.modern_group import ModernGroup
from ottla.coordinator.group.requests import OffsetCommit
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.coordinator.group.state import GroupState

CheckOwned = Callable[[Any, Any, OffsetCommit], None]
"""(group, member, request of an older epoch). Raises STALE_MEMBER_EPOCH, as `stale` makes it, or OffsetsNeeded."""


def check_commit(
    check_owned: CheckOwned, state: GroupState, group: ModernGroup[Any, Any], request: OffsetCommit
) -> None:
    """Raises UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH or, to members of the classic protocol,
    ILLEGAL_GENERATION."""
    if request.generation < 0 and group.is_empty:
        return
    member = group.member(request.member_id)
    if not member.uses_classic_protocol and not request.knows_unknown_group:
        raise KafkaError(
            ErrorCode.unsupported_version,
            f"OffsetCommit version 9 or above must be used by members using the {group.protocol_type} group protocol",
        )
    _check_epoch(check_owned, group, member, request)


def check_commit_in_transaction(
    check_owned: CheckOwned, state: GroupState, group: ModernGroup[Any, Any], request: OffsetCommit
) -> None:
    """The same for members that identify themselves, where epochs that are too old or too new are ILLEGAL_GENERATION
    for all who do not know STALE_MEMBER_EPOCH."""
    if request.generation < 0 and group.is_empty:
        return
    try:
        _check_epoch(check_owned, group, group.member(request.member_id), request)
    except KafkaError as error:
        if error.code is ErrorCode.stale_member_epoch and not request.knows_unknown_group:
            raise KafkaError(ErrorCode.illegal_generation) from error
        raise


def check_fetch(group: ModernGroup[Any, Any], member_id: str | None, epoch: int) -> None:
    """Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH or ILLEGAL_GENERATION. Who says nothing of itself may fetch."""
    if member_id is None and epoch < 0:
        return
    member = group.member(member_id or "")
    if epoch != member.epoch:
        raise stale(
            member, f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}."
        )


def _check_epoch(check_owned: CheckOwned, group: ModernGroup[Any, Any], member: Any, request: OffsetCommit) -> None:
    epoch = request.generation
    if epoch > member.epoch:
        raise stale(member, f"Received member epoch {epoch} is newer than current member epoch {member.epoch}.")
    if epoch < member.epoch:
        check_owned(group, member, request)


def stale(member: Any, message: str) -> KafkaError:
    """The error for an epoch that is not the member's."""
    code = ErrorCode.illegal_generation if member.uses_classic_protocol else ErrorCode.stale_member_epoch
    return KafkaError(code, message)
