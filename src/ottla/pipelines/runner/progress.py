"""How queries do, out of what Spark and the cluster say."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from ottla.errors import KafkaError
from ottla.model import Offset, TopicPartition
from ottla.pipelines.runner.job import Started
from ottla.pipelines.runner.state import QueryStatus
from ottla.pipelines.runner.topics import Topics

AGES_MAX: Final = 16
"""Partitions of a query whose oldest record is looked up at once."""


class Watch:
    """Adds up the progress of the queries of a run."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._seen: dict[str, set[tuple[str, int, str]]] = {}
        self._reached: dict[str, dict[TopicPartition, Offset]] = {}
        self._ages: dict[tuple[TopicPartition, Offset], int | None] = {}
        self._batch_since: dict[str, float] = {}

    def look(self, started: Started, status: QueryStatus) -> None:
        """Bring `status` up to date; lags stay as they are while the cluster does not answer."""
        seen = self._seen.setdefault(started.name, set())
        known = len(seen)
        for progress in started.query.recentProgress:
            # A trigger that finds nothing has the number of the batch that is to come.
            at = (str(progress["runId"]), int(progress["batchId"]), str(progress["timestamp"]))
            if at not in seen:
                seen.add(at)
                self._add(started.name, progress, status)
        self._time(started, status, is_over=len(seen) > known)
        try:
            if started.name not in self._reached:
                self._lag_of(self._shown(started), status)
            else:
                self._lag_of(self._reached[started.name], status)
        except (KafkaError, OSError):
            pass

    def finish(self, started: Started) -> None:
        """Have a stopped query's groups show all that it has done: a source learns that a batch is done with the next
        one, which there is not. Raises KafkaError, OSError."""
        reached = self._reached.get(started.name, {})
        for group in sorted({group for _, group in started.groups}):
            topics = {topic for topic, of in started.groups if of == group}
            if offsets := {at: offset for at, offset in reached.items() if at.topic in topics}:
                self._topics.commit(group, offsets)

    def _shown(self, started: Started) -> dict[TopicPartition, Offset]:
        """Where the first batch began: its source has shown that in its groups."""
        found: dict[TopicPartition, Offset] = {}
        for topic, group in started.groups:
            found |= {at: offset for at, offset in self._topics.committed(group).items() if at.topic == topic}
        return found

    def _time(self, started: Started, status: QueryStatus, *, is_over: bool) -> None:
        """Spark does not say when a batch began: after the last one, as it has been running ever since."""
        if is_over or not started.query.isActive or not started.query.status["isTriggerActive"]:
            self._batch_since.pop(started.name, None)
            status.running_s = 0.0
            return
        status.running_s = time.monotonic() - self._batch_since.setdefault(started.name, time.monotonic())

    def is_behind(self, name: str, topics: set[str]) -> bool:
        """Whether there is more in one of these topics than the query has read. Raises KafkaError, OSError."""
        reached = {at: offset for at, offset in self._reached.get(name, {}).items() if at.topic in topics}
        ends = self._topics.ends({at.topic for at in reached})
        return any(ends.get(at, offset) > offset for at, offset in reached.items())

    def has_open_transaction(self, topics: set[str]) -> bool:
        """Whether there is more in one of these topics than can be read yet: EndTxn is answered before the markers of
        the transaction are written. Raises KafkaError, OSError."""
        stable = self._topics.ends(topics)
        return any(end > stable.get(at, end) for at, end in self._topics.ends(topics, read_committed=False).items())

    def _add(self, name: str, progress: Any, status: QueryStatus) -> None:
        rows = int(progress["numInputRows"])
        if rows:
            took_s = float(progress["batchDuration"]) / 1000
            status.rows += rows
            status.batch_s = took_s
            status.rows_per_s = rows / took_s if took_s else 0.0
        elif status.lag_records == 0:
            status.rows_per_s = 0.0
        status.batch = max(status.batch, int(progress["batchId"]))
        operators = progress["stateOperators"] or []
        status.state_rows = sum(int(each["numRowsTotal"]) for each in operators)
        status.state_bytes = sum(int(each["memoryUsedBytes"]) for each in operators)
        status.late_rows += sum(int(each["numRowsDroppedByWatermark"]) for each in operators)
        for source in progress["sources"]:
            self._reached.setdefault(name, {}).update(_offsets(source["endOffset"]))

    def _lag_of(self, reached: Mapping[TopicPartition, Offset], status: QueryStatus) -> None:
        if not reached:
            return
        ends = self._topics.ends({at.topic for at in reached})
        behind = {at: offset for at, offset in reached.items() if ends.get(at, offset) > offset}
        status.lag_records = sum(ends[at] - offset for at, offset in behind.items())
        status.lag_s = self._age_s(behind) if behind else 0.0

    def _age_s(self, behind: Mapping[TopicPartition, Offset]) -> float:
        """Age of the oldest record that is next in its partition."""
        chosen = sorted(behind.items())[:AGES_MAX]
        self._ages = {place: age for place, age in self._ages.items() if place in chosen}
        for place in chosen:
            if place not in self._ages:
                self._ages[place] = self._topics.timestamp(*place)
        known = [age for age in self._ages.values() if age is not None]
        return max(0.0, time.time() - min(known) / 1000) if known else 0.0


def _offsets(text: Any) -> dict[TopicPartition, Offset]:
    """Offsets of Ottla's source or Spark's Kafka connector; other sources have no topics."""
    try:
        found = json.loads(text) if isinstance(text, str) else text
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in found.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError):
        return {}
