"""Streams groups (KIP-1071): what their members run.

A task is a subtopology's partition: it reads the partition of that number of every topic that the subtopology reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Task = tuple[str, int]
"""A subtopology's id and a number."""


class MemberTasks(NamedTuple):
    process_id: str
    active: Sequence[Task]
    standby: Sequence[Task]
    """Tasks whose state the member replicates as a standby."""
    warmup: Sequence[Task]
    """Tasks whose state it restores before they become active on it."""
    pending: Sequence[Task]
    """Active ones that it is to have once others have given them up."""
    revoking: Sequence[Task]
    """Active ones that it has and is to give up."""

    def as_json(self) -> dict[str, Any]:
        kinds = {
            "active_tasks": self.active,
            "standby_tasks": self.standby,
            "warmup_tasks": self.warmup,
            "pending_tasks": self.pending,
            "revoking_tasks": self.revoking,
        }
        return {
            kind: [{"subtopology": subtopology, "partition": number} for subtopology, number in tasks]
            for kind, tasks in kinds.items()
        }


def tasks_of(member: Mapping[str, Any]) -> MemberTasks:
    """The tasks of a member in an answer to StreamsGroupDescribe."""
    active = _listed(member["assignment"]["active_tasks"])
    target = _listed(member["target_assignment"]["active_tasks"])
    standby = _listed(member["assignment"]["standby_tasks"])
    warmup = _listed(member["assignment"]["warmup_tasks"])
    return MemberTasks(
        member["process_id"],
        sorted(active),
        sorted(standby),
        sorted(warmup),
        sorted(target - active),
        sorted(active - target),
    )


def _listed(rows: Iterable[Mapping[str, Any]]) -> set[Task]:
    return {(row["subtopology_id"], number) for row in rows for number in row["partitions"]}


def sources(group: Mapping[str, Any]) -> dict[str, list[str]]:
    """The topics that each subtopology reads, of an answer to StreamsGroupDescribe."""
    topology = group["topology"]
    rows = [] if topology is None else topology["subtopologies"] or []
    return {
        row["subtopology_id"]: [*row["source_topics"], *(each["name"] for each in row["repartition_source_topics"])]
        for row in rows
    }
