"""StreamsGroupDescribe: what a streams group is, what it runs, and what its members have and are to have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.coordinator.group.state import GroupState
from ottla.coordinator.group.streams.assignor import MemberTasks
from ottla.coordinator.group.streams.group import StreamsGroup, Topology
from ottla.coordinator.group.streams.member import HeldTasks, StreamsMember
from ottla.coordinator.group.streams.topology import ConfiguredTopology, InternalTopic
from ottla.coordinator.group.streams.warmups import NOTHING_REPORTED, Offsets, Reported
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.codec import MalformedRecord
from ottla.protocol.internal.topology_descriptions import decode_description
from ottla.protocol.schemas import records
from ottla.protocol.schemas.records import TopologyDescription

if TYPE_CHECKING:
    from ottla.protocol.schemas.sent import (
        KeyValue,
        StreamsGroupDescribeResponseAssignment,
        StreamsGroupDescribeResponseDescribedGroup,
        StreamsGroupDescribeResponseMember,
        StreamsGroupDescribeResponseSubtopology,
        StreamsGroupDescribeResponseTopology,
        TaskIds,
        TaskOffset,
        TopicInfo,
    )


def find(state: GroupState, group_id: str) -> StreamsGroup:
    """Raises GROUP_ID_NOT_FOUND."""
    group = state.groups.get(group_id)
    if isinstance(group, StreamsGroup):
        return group
    what = "not found" if group is None else "is not a streams group"
    raise KafkaError(ErrorCode.group_id_not_found, f"Group {group_id} {what}.")


def describe(state: GroupState, group_id: str) -> StreamsGroupDescribeResponseDescribedGroup:
    """Raises GROUP_ID_NOT_FOUND, or UNKNOWN_SERVER_ERROR for a group of a damaged log, without its topology."""
    group = find(state, group_id)
    if group.topology is None:
        raise KafkaError(ErrorCode.unknown_server_error)
    is_configured = group.configured is not None and group.configured.is_ready
    return {
        "group_id": group_id,
        "group_state": group.shown_state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "topology": _configured(group.configured) if is_configured else _topology(group.topology),
        "members": [
            _member(member, group.target(member.member_id), group.reports.get(member.member_id, NOTHING_REPORTED))
            for member in group.members.values()
        ],
        "assignor_name": state.config.of_streams_group(state.image, group_id).assignor,
    }


def description_of(state: GroupState, group_id: str) -> TopologyDescription | None:
    """What a member has told of the group's topology (KIP-1331); None while nobody has. Raises GROUP_ID_NOT_FOUND, or
    UNKNOWN_SERVER_ERROR for one that cannot be read."""
    topology = find(state, group_id).topology
    if topology is None or not topology.value.description:
        return None
    try:
        return decode_description(topology.value.description)
    except MalformedRecord as error:
        raise KafkaError(ErrorCode.unknown_server_error, str(error)) from error


def _configured(topology: ConfiguredTopology | None) -> StreamsGroupDescribeResponseTopology:
    """The configured topology, with the partitions of its internal topics."""
    assert topology is not None and topology.subtopologies is not None
    rows: list[StreamsGroupDescribeResponseSubtopology] = [
        {
            "subtopology_id": name,
            "source_topics": sorted(each.source_topics),
            "repartition_sink_topics": sorted(each.repartition_sink_topics),
            "repartition_source_topics": _topics(each.repartition_source_topics.values()),
            "state_changelog_topics": _topics(each.state_changelog_topics.values()),
        }
        for name, each in topology.subtopologies.items()
    ]
    return {"epoch": topology.epoch, "subtopologies": rows}


def _topology(topology: Topology) -> StreamsGroupDescribeResponseTopology:
    """The topology as its members sent it."""
    rows: list[StreamsGroupDescribeResponseSubtopology] = [
        {
            "subtopology_id": name,
            "source_topics": sorted(each.source_topics),
            "repartition_sink_topics": sorted(each.repartition_sink_topics),
            "repartition_source_topics": _topics(each.repartition_source_topics),
            "state_changelog_topics": _topics(each.state_changelog_topics),
        }
        for name, each in sorted(topology.by_id.items())
    ]
    return {"epoch": topology.epoch, "subtopologies": rows}


def _topics(topics: Iterable[InternalTopic | records.TopicInfo]) -> list[TopicInfo]:
    return [
        {
            "name": each.name,
            "partitions": each.partitions,
            "replication_factor": each.replication_factor or 0,
            "topic_configs": _pairs(
                each.configs.items()
                if isinstance(each, InternalTopic)
                else ((config.key, config.value) for config in each.topic_configs)
            ),
        }
        for each in sorted(topics, key=lambda topic: topic.name)
    ]


def _member(member: StreamsMember, target: MemberTasks, reported: Reported) -> StreamsGroupDescribeResponseMember:
    endpoint = member.user_endpoint
    return {
        "member_id": member.member_id,
        "member_epoch": member.epoch,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "topology_epoch": member.topology_epoch,
        "process_id": member.process_id,
        "user_endpoint": None if endpoint is None else {"host": endpoint.host, "port": endpoint.port},
        "client_tags": _pairs(sorted(member.client_tags.items())),
        "task_offsets": _offsets(reported.offsets),
        "task_end_offsets": _offsets(reported.end_offsets),
        "assignment": _tasks(member.assigned),
        "target_assignment": _tasks(target),
        "is_classic": False,
    }


def _tasks(tasks: HeldTasks | MemberTasks) -> StreamsGroupDescribeResponseAssignment:
    return {
        "active_tasks": task_rows(tasks.active),
        "standby_tasks": task_rows(tasks.standby),
        "warmup_tasks": task_rows(tasks.warmup),
    }


def task_rows(tasks: Mapping[str, Iterable[int]]) -> list[TaskIds]:
    """Tasks as rows of a message."""
    return [{"subtopology_id": name, "partitions": sorted(numbers)} for name, numbers in sorted(tasks.items())]


def _offsets(offsets: Offsets | None) -> list[TaskOffset]:
    return [
        {"subtopology_id": name, "partition": number, "offset": offset}
        for name, found in sorted((offsets or {}).items())
        for number, offset in sorted(found.items())
    ]


def _pairs(pairs: Iterable[tuple[str, str]]) -> list[KeyValue]:
    return [{"key": key, "value": value} for key, value in pairs]
