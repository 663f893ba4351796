"""Offsets of a consumer group that a member commits with an older epoch (`modern_offsets.py`): it may, if it has had
the partitions since (KIP-1251)."""

from __future__ import annotations

from dataclasses import replace

from ottla.coordinator.group import modern_offsets
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.member import ConsumerMember
from ottla.coordinator.group.modern_offsets import stale
from ottla.coordinator.group.requests import OffsetCommit, OffsetsNeeded
from ottla.coordinator.group.state import GroupState
from ottla.model import ZERO_UUID


def check_owned(group: ConsumerGroup, member: ConsumerMember, request: OffsetCommit) -> None:
    if not request.offsets:
        raise OffsetsNeeded
    epoch = request.generation
    for each in request.offsets:
        since = member.assignment_epoch(each.topic_id, each.partition)
        if since is None:
            raise stale(member, f"Partition {each.topic}-{each.partition} is not assigned to the member.")
        if epoch < since:
            raise stale(member, f"Received member epoch {epoch} is older than assignment epoch {since}.")


def check_commit_in_transaction(state: GroupState, group: ConsumerGroup, request: OffsetCommit) -> None:
    """The request names its topics; partitions are assigned by topic id."""
    topics = {each.topic: state.image.topic(each.topic) for each in request.offsets}
    ids = {name: ZERO_UUID if topic is None else topic.id for name, topic in topics.items()}
    offsets = [each._replace(topic_id=ids[each.topic]) for each in request.offsets]
    modern_offsets.check_commit_in_transaction(check_owned, state, group, replace(request, offsets=offsets))
