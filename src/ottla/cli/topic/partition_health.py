"""Unhealthy partitions, as `kafka-topics.sh --describe` finds them, and fenced brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.cli import wire
from ottla.cli.exits import CommandFailed
from ottla.protocol.messages import ApiKey

MIN_ISR = "min.insync.replicas"
CONTROLLER_S_MAX = 2.0
"""For what only the controller can say."""


@dataclass(frozen=True)
class PartitionHealth:
    topic: str
    partition: int
    leader: int | None
    """None too where it is a broker that is not running."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int | None
    """min.insync.replicas of the topic; None where it may not be seen, or the topic has just been deleted."""
    adding: int = 0
    """How many of the replicas are being added by a reassignment."""

    @property
    def offline(self) -> bool:
        return self.leader is None

    @property
    def under_replicated(self) -> bool:
        """Replicas that are only on their way are not missing."""
        return len(self.isr) < len(self.replicas) - self.adding

    @property
    def at_min_isr(self) -> bool:
        return len(self.isr) == self.min_isr

    @property
    def under_min_isr(self) -> bool:
        return self.offline or (self.min_isr is not None and len(self.isr) < self.min_isr)


LACKS: Mapping[str, tuple[Callable[[PartitionHealth], bool], str]] = {
    "under_replicated": (lambda each: each.under_replicated, "has replicas out of sync"),
    "offline": (lambda each: each.offline, "has no leader"),
    "at_min_isr": (lambda each: each.at_min_isr, f"has exactly {MIN_ISR} replicas in sync"),
    "under_min_isr": (lambda each: each.under_min_isr, f"has fewer than {MIN_ISR} replicas in sync"),
}
"""What may be asked for: which partitions these are, and the end of the sentence that says there are none."""


def partitions(bootstrap: str, topics: Sequence[str] = ()) -> list[PartitionHealth]:
    """The health of the partitions of these topics, or of all. Raises CommandFailed, also for a topic that does not
    exist."""
    asked = [{"topic_id": None, "name": each} for each in dict.fromkeys(topics)] or None
    answer = wire.ask(bootstrap, ApiKey.METADATA, {"topics": asked, "allow_auto_topic_creation": False})
    running = {each["node_id"] for each in answer["brokers"]}
    if asked:
        for topic in answer["topics"]:
            wire.ensure_none(topic, f"topic {topic['name']!r}")
    names = [each["name"] for each in answer["topics"]]
    minima = wire.topic_settings(bootstrap, names, MIN_ISR)
    moving = _adding(bootstrap) if any(_short(part) for each in answer["topics"] for part in each["partitions"]) else {}
    return [
        PartitionHealth(
            topic["name"],
            part["partition_index"],
            part["leader_id"] if part["leader_id"] in running else None,
            tuple(part["replica_nodes"]),
            tuple(part["isr_nodes"]),
            _number(minima.get(topic["name"])),
            moving.get((topic["name"], part["partition_index"]), 0),
        )
        for topic in sorted(answer["topics"], key=lambda each: str(each["name"]))
        for part in sorted(topic["partitions"], key=lambda each: int(each["partition_index"]))
    ]


def _short(part: Mapping[str, Any]) -> bool:
    return len(part["isr_nodes"]) < len(part["replica_nodes"])


def _adding(bootstrap: str) -> dict[tuple[str, int], int]:
    """How many replicas reassignments add to partitions. None of what the controller knows is known while it is away:
    that is when the rest of the answer is needed most."""
    try:
        answer = wire.ask(
            bootstrap,
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            {"timeout": int(CONTROLLER_S_MAX * 1000), "topics": None},
            2 * CONTROLLER_S_MAX,
        )
    except CommandFailed:
        return {}
    return {
        (topic["name"], part["partition_index"]): len(part["adding_replicas"])
        for topic in answer["topics"] or ()
        for part in topic["partitions"]
    }


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
