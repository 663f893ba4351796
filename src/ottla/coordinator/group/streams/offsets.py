"""Offsets of a streams group that a member commits with an older epoch (`modern_offsets.py`): it may, if it has had the
tasks since (KIP-1251)."""

from __future__ import annotations

from ottla.coordinator.group.modern_offsets import stale
from ottla.coordinator.group.requests import OffsetCommit, OffsetsNeeded
from ottla.coordinator.group.streams.group import StreamsGroup
from ottla.coordinator.group.streams.member import StreamsMember


def check_owned(group: StreamsGroup, member: StreamsMember, request: OffsetCommit) -> None:
    if group.topology is None:
        raise stale(member, "Topology is not available for offset commit validation.")
    if not request.offsets:
        raise OffsetsNeeded
    epoch = request.generation
    for each in request.offsets:
        subtopology_id = group.topology.readers.get(each.topic)
        if subtopology_id is None:
            raise stale(member, f"Topic {each.topic} is not in the topology.")
        since = member.assignment_epoch(subtopology_id, each.partition)
        task = f"{subtopology_id}-{each.partition}"
        if since is None:
            raise stale(member, f"Task {task} is not assigned or pending revocation for member.")
        if epoch < since:
            raise stale(
                member, f"Received member epoch {epoch} is older than assignment epoch {since} for task {task}."
            )
