"""Reassignments under way: which replicas are added to a partition, and which of them are in sync already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ottla.console.asking import Asking
from ottla.console.brokers import ensure_none
from ottla.console.views.paging import Paging, paged
from ottla.protocol.messages import ApiKey

_TIMEOUT_MS = 10_000


@dataclass(frozen=True)
class MoveRow:
    topic: str
    partition: int
    replicas: list[int]
    """All of them, those to be removed as well."""
    adding: list[int]
    removing: list[int]
    in_sync: list[int]
    """Added replicas that are in sync."""


@dataclass(frozen=True)
class Moves:
    rows: list[MoveRow]
    paging: Paging
    adding: int
    """Replicas that are added, in all partitions."""
    in_sync: int
    """Added replicas that are in sync."""


def moves(asking: Asking) -> Moves:
    none: list[MoveRow] = []
    rows = asking.attempt("moves", lambda: _rows(asking), none)
    page, paging = paged(rows, asking.number("page"), len(rows))
    return Moves(
        list(page), paging, sum(len(each.adding) for each in rows), sum(len(each.in_sync) for each in rows)
    )  # fmt: skip


def _rows(asking: Asking) -> list[MoveRow]:
    """Raises KafkaError, OSError."""
    topics = asking.cluster().topics
    answer = asking.brokers.ask_any(ApiKey.LIST_PARTITION_REASSIGNMENTS, {"timeout": _TIMEOUT_MS, "topics": None})
    ensure_none(ApiKey.LIST_PARTITION_REASSIGNMENTS, answer)
    found = []
    for row in answer["topics"]:
        topic = topics.get(row["name"])
        in_sync = {} if topic is None else {each.number: each.in_sync for each in topic.partitions}
        found += [_row(row["name"], each, in_sync.get(each["partition_index"], ())) for each in row["partitions"]]
    return sorted(found, key=lambda each: (each.topic, each.partition))


def _row(topic: str, row: dict[str, Any], in_sync: Any) -> MoveRow:
    adding = list(row["adding_replicas"])
    return MoveRow(
        topic, row["partition_index"], list(row["replicas"]), adding, list(row["removing_replicas"]),
        [node for node in adding if node in in_sync],
    )  # fmt: skip
