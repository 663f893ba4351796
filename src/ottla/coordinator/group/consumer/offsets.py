"""Checks who may commit and fetch the offsets of a consumer group: its members, with their current epoch.

A commit may come with an older epoch, if the member has had the partition since (KIP-1251).
"""

from __future__ import annotations

from dataclasses import replace

from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.member import ConsumerMember
from ottla.coordinator.group.requests import OffsetCommit, OffsetsNeeded
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import MetadataImage
from ottla.model import ZERO_UUID


def check_commit(group: ConsumerGroup, request: OffsetCommit) -> None:
    """Raises UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH or, to members of the classic protocol,
    ILLEGAL_GENERATION."""
    if request.generation < 0 and group.is_empty:
        return
    member = group.member(request.member_id)
    if not member.uses_classic_protocol and not request.knows_unknown_group:
        raise KafkaError(
            ErrorCode.unsupported_version,
            "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
        )
    _check_epoch(member, request)


def check_commit_in_transaction(group: ConsumerGroup, request: OffsetCommit, image: MetadataImage) -> None:
    """The same, where epochs that are too old or too new are ILLEGAL_GENERATION for all who do not know
    STALE_MEMBER_EPOCH."""
    if request.generation < 0 and group.is_empty:
        return
    try:
        topics = {each.topic: image.topic(each.topic) for each in request.offsets}
        ids = {name: ZERO_UUID if topic is None else topic.id for name, topic in topics.items()}
        offsets = [each._replace(topic_id=ids[each.topic]) for each in request.offsets]
        _check_epoch(group.member(request.member_id), replace(request, offsets=offsets))
    except KafkaError as error:
        if error.code is ErrorCode.stale_member_epoch and not request.knows_unknown_group:
            raise KafkaError(ErrorCode.illegal_generation) from error
        raise


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH or ILLEGAL_GENERATION. Who says nothing of itself may fetch."""
    if member_id is None and epoch < 0:
        return
    member = group.member(member_id or "")
    if epoch != member.epoch:
        raise _stale(member, f"The received member epoch {epoch} does not match the expected one {member.epoch}.")


def _check_epoch(member: ConsumerMember, request: OffsetCommit) -> None:
    epoch = request.generation
    if epoch == member.epoch:
        return
    if epoch > member.epoch:
        raise _stale(member, f"Received member epoch {epoch} is newer than current member epoch {member.epoch}.")
    if not request.offsets:
        raise OffsetsNeeded
    for each in request.offsets:
        since = member.assignment_epoch(each.topic_id, each.partition)
        if since is None:
            raise _stale(member, f"Partition {each.topic}-{each.partition} is not assigned to the member.")
        if epoch < since:
            raise _stale(member, f"Received member epoch {epoch} is older than assignment epoch {since}.")


def _stale(member: ConsumerMember, message: str) -> KafkaError:
    code = ErrorCode.illegal_generation if member.uses_classic_protocol else ErrorCode.stale_member_epoch
    return KafkaError(code, message)
