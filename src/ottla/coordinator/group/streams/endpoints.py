"""Where the instances of a streams application answer queries of their state, and of which partitions they have it.

Members learn it when the epoch that they say is another than the group's (Kafka's EndpointToPartitionsManager).
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from ottla.coordinator.group.streams.group import StreamsGroup
from ottla.coordinator.group.streams.member import HeldTasks, StreamsMember
from ottla.metadata.image import MetadataImage


def endpoints(
    group: StreamsGroup, changed: StreamsMember, image: MetadataImage, replaced: str | None = None
) -> list[dict[str, Any]]:
    """The endpoints of all members that have one; `changed` is taken as it will be, in the place of the static member
    `replaced`. Raises UNKNOWN_SERVER_ERROR if
    topics of a member's tasks are missing."""
    others = [each for each in group.members.values() if each.member_id not in (changed.member_id, replaced)]
    found = []
    for member in (*others, changed):
        if member.user_endpoint is None:
            continue
        known = group.endpoints.get(member.member_id)
        if known is None:
            known = group.endpoints[member.member_id] = _endpoint(group, member, image)
        found.append(known)
    return found


def _endpoint(group: StreamsGroup, member: StreamsMember, image: MetadataImage) -> dict[str, Any]:
    assert member.user_endpoint is not None
    return {
        "user_endpoint": {"host": member.user_endpoint.host, "port": member.user_endpoint.port},
        "active_partitions": _partitions(group, member.assigned.active, image),
        "standby_partitions": _partitions(group, _copies(member.assigned), image),
    }


def _copies(assigned: HeldTasks) -> dict[str, frozenset[int]]:
    """Standby and warm-up tasks: both answer queries."""
    standby, warmup = assigned.standby, assigned.warmup
    return {each: frozenset(standby.get(each, ())) | frozenset(warmup.get(each, ())) for each in {**standby, **warmup}}


def _partitions(
    group: StreamsGroup, tasks: Mapping[str, Mapping[int, int] | Set[int]], image: MetadataImage
) -> list[dict[str, Any]]:
    """Partitions of the topics that the subtopologies of these tasks read."""
    if group.configured is None or group.configured.subtopologies is None:
        return lacking()
    rows = []
    for subtopology_id, numbers in tasks.items():
        subtopology = group.configured.subtopologies.get(subtopology_id)
        if subtopology is None:
            rows += lacking()
            continue
        names = {*subtopology.source_topics, *subtopology.repartition_source_topics}
        for name in sorted(names):
            topic = image.topic(name)
            if topic is None:
                rows += lacking()
                continue
            found = tuple(number for number in sorted(numbers) if number < len(topic.partitions))
            if found:
                rows.append({"topic": name, "partitions": found})
    return rows


def lacking() -> list[Any]:
    """The partitions of what has gone while a member still has its tasks: a topic, or the whole topology. (Kafka 4.4
    fails with UNKNOWN_SERVER_ERROR, and with it the heartbeats of all others.)"""
    return []
