"""Hanging transactions: those that partitions know and coordinators do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.config.units import iso_time
from ottla.console.asking import Asking, now_ms
from ottla.console.hanging import search
from ottla.console.views.topic import found_topic

ROWS_MAX: Final = 500


@dataclass(frozen=True)
class HangingRow:
    topic: str
    partition: int
    start_offset: str
    producer_id: str
    producer_epoch: int
    coordinator_epoch: int
    last_written: str | None
    silent_s: int
    transactional_id: str | None
    """Owner of the producer id now; None for an id that no coordinator knows."""


@dataclass(frozen=True)
class HangingPage:
    rows: list[HangingRow]
    count: int
    partitions: int
    """Partitions that were searched."""
    without_leader: int
    """Partitions that nobody could ask."""
    older_minutes: int


def hanging(asking: Asking) -> HangingPage:
    cluster, now = asking.cluster(), now_ms()
    topics = [found_topic(asking)] if asking.text("topic") else list(cluster.topics.values())
    minutes = asking.number("older")
    found = search(asking, topics, now - minutes * 60_000)
    rows = [
        HangingRow(
            each.topic,
            each.partition,
            str(each.start_offset),
            str(each.producer_id),
            each.producer_epoch,
            each.coordinator_epoch,
            iso_time(each.last_timestamp_ms),
            max(0, (now - each.last_timestamp_ms) // 1000),
            name,
        )
        for each, name in found.found[:ROWS_MAX]
    ]
    return HangingPage(rows, len(found.found), sum(len(each.partitions) for each in topics), found.without, minutes)
