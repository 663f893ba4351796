"""The moves of replicas that are under way, as the controller lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.console.brokers import Brokers, ensure_none
from ottla.protocol.messages import ApiKey

TIMEOUT_MS: Final = 10_000


def under_way(
    brokers: Brokers, topics: Sequence[Mapping[str, Any]] | None = None
) -> dict[tuple[str, int], Mapping[str, Any]]:
    """Rows of ListPartitionReassignments by topic and partition, of all topics or of some. Raises KafkaError,
    OSError."""
    answer = brokers.ask_any(ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": topics, "timeout": TIMEOUT_MS})
    ensure_none(ApiKey.LIST_PARTITION_REASSIGNMENTS, answer)
    return {(topic["name"], row["partition_index"]): row for topic in answer["topics"] for row in topic["partitions"]}
