"""ConsumerGroupDescribe: what a consumer group is, and what its members have and are to have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.coordinator.group.consumer.group import ConsumerGroup, partitions_of
from ottla.coordinator.group.consumer.member import ConsumerMember, Partitions
from ottla.coordinator.group.consumer.migration import not_found
from ottla.coordinator.group.state import GroupState
from ottla.metadata.image import MetadataImage

if TYPE_CHECKING:
    from ottla.protocol.schemas.sent import (
        ConsumerGroupDescribeResponseAssignment,
        ConsumerGroupDescribeResponseDescribedGroup,
        ConsumerGroupDescribeResponseMember,
        ConsumerGroupDescribeResponseTopicPartitions,
    )

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def describe(state: GroupState, group_id: str) -> ConsumerGroupDescribeResponseDescribedGroup:
    """Raises GROUP_ID_NOT_FOUND."""
    group = state.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        raise not_found(group_id, group)
    return {
        "group_id": group_id,
        "group_state": group.shown_state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.preferred_assignor() or state.config.consumer_assignors[0],
        "members": [_member(group, member, state.image) for member in group.members.values()],
    }


def _member(group: ConsumerGroup, member: ConsumerMember, image: MetadataImage) -> ConsumerGroupDescribeResponseMember:
    """A member counts as the owner of a partition until it has revoked it."""
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": tuple(sorted(member.topics)),
        "subscribed_topic_regex": member.pattern,
        "assignment": _assignment((partitions_of(member.assigned), partitions_of(member.revoking)), image),
        "target_assignment": _assignment((group.target(member.member_id),), image),
        "member_type": CLASSIC_MEMBER if member.uses_classic_protocol else CONSUMER_MEMBER,
    }


def _assignment(of: Iterable[Partitions], image: MetadataImage) -> ConsumerGroupDescribeResponseAssignment:
    """Without topics that are gone."""
    found: dict[UUID, set[int]] = {}
    for partitions in of:
        for topic_id, numbers in partitions.items():
            found.setdefault(topic_id, set()).update(numbers)
    rows: list[ConsumerGroupDescribeResponseTopicPartitions] = []
    for topic_id in sorted(found):
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            rows.append({"topic_id": topic_id, "topic_name": topic.name, "partitions": tuple(sorted(found[topic_id]))})
    return {"topic_partitions": tuple(rows)}
