"""Requests that several programs make of a cluster (the command line, the console, mirrors), and their answers read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

_SET: Final = 0
_DELETE: Final = 1
"""Operations of IncrementalAlterConfigs (KIP-339)."""


def asked_settings(
    kind: int, names: Iterable[str], keys: Sequence[str] | None = None, *, layers: bool = False
) -> dict[str, Any]:
    """DescribeConfigs of resources of one kind: all settings, or those with these names; `layers` with every place that
    has a value."""
    wanted = None if keys is None else list(keys)
    resources = [{"resource_type": kind, "resource_name": each, "configuration_keys": wanted} for each in names]
    return {"resources": resources, "include_synonyms": layers, "include_documentation": False}


def changed_settings(
    kind: int, name: str, values: Mapping[str, str | None], *, validate_only: bool = False
) -> dict[str, Any]:
    """IncrementalAlterConfigs of one resource. None takes a setting away."""
    rows = [
        {"name": each, "config_operation": _DELETE if value is None else _SET, "value": value}
        for each, value in values.items()
    ]
    resource = {"resource_type": kind, "resource_name": name, "configs": rows}
    return {"resources": [resource], "validate_only": validate_only}


class OpenAt(NamedTuple):
    """A transaction that is open in a partition, as the partition's leader sees it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


def asked_producers(places: Iterable[tuple[str, int]]) -> dict[str, Any]:
    """DescribeProducers of partitions, given as topic and number."""
    topics: dict[str, list[int]] = {}
    for topic, number in places:
        topics.setdefault(topic, []).append(number)
    return {"topics": [{"name": name, "partition_indexes": numbers} for name, numbers in topics.items()]}


def open_transactions(topic: str, partition: Mapping[str, Any]) -> list[OpenAt]:
    """The open transactions in a partition's row of the answer to DescribeProducers."""
    return [
        OpenAt(
            topic,
            partition["partition_index"],
            each["producer_id"],
            each["producer_epoch"],
            each["coordinator_epoch"],
            each["current_txn_start_offset"],
            each["last_timestamp"],
        )
        for each in partition["active_producers"]
        if each["current_txn_start_offset"] >= 0
    ]
