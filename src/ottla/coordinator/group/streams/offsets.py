"""Checks who may commit and fetch the offsets of a streams group: its members, with their current epoch.

A commit may come with an older epoch, if the member has had the task since (KIP-1251).
"""

from __future__ import annotations

from ottla.coordinator.group.requests import OffsetCommit, OffsetsNeeded
from ottla.coordinator.group.streams.group import StreamsGroup
from ottla.coordinator.group.streams.member import StreamsMember
from ottla.errors import ErrorCode, KafkaError


def check_commit(group: StreamsGroup, request: OffsetCommit) -> None:
    """Raises UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION or STALE_MEMBER_EPOCH."""
    if request.generation < 0 and group.is_empty:
        return
    member = group.member(request.member_id)
    if not request.knows_unknown_group:
        raise KafkaError(
            ErrorCode.unsupported_version,
            "OffsetCommit version 9 or above must be used by members using the streams group protocol",
        )
    _check_epoch(group, member, request)


def check_commit_in_transaction(group: StreamsGroup, request: OffsetCommit) -> None:
    """The same for members that identify themselves; epochs that are too old or too new are ILLEGAL_GENERATION
    for those who do not know STALE_MEMBER_EPOCH."""
    if request.generation < 0 and group.is_empty:
        return
    try:
        _check_epoch(group, group.member(request.member_id), request)
    except KafkaError as error:
        if error.code is ErrorCode.stale_member_epoch and not request.knows_unknown_group:
            raise KafkaError(ErrorCode.illegal_generation) from error
        raise


def check_fetch(group: StreamsGroup, member_id: str | None, epoch: int) -> None:
    """Raises UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH. Who says nothing of itself may fetch."""
    if member_id is None and epoch < 0:
        return
    member = group.member(member_id or "")
    if epoch != member.epoch:
        raise _stale(f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}.")


def _check_epoch(group: StreamsGroup, member: StreamsMember, request: OffsetCommit) -> None:
    epoch = request.generation
    if epoch == member.epoch:
        return
    if epoch > member.epoch:
        raise _stale(f"Received member epoch {epoch} is newer than current member epoch {member.epoch}.")
    if group.topology is None:
        raise _stale("Topology is not available for offset commit validation.")
    if not request.offsets:
        raise OffsetsNeeded
    for each in request.offsets:
        subtopology_id = group.topology.readers.get(each.topic)
        if subtopology_id is None:
            raise _stale(f"Topic {each.topic} is not in the topology.")
        since = member.assignment_epoch(subtopology_id, each.partition)
        task = f"{subtopology_id}-{each.partition}"
        if since is None:
            raise _stale(f"Task {task} is not assigned or pending revocation for member.")
        if epoch < since:
            raise _stale(f"Received member epoch {epoch} is older than assignment epoch {since} for task {task}.")


def _stale(message: str) -> KafkaError:
    return KafkaError(ErrorCode.stale_member_epoch, message)
