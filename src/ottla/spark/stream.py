"""The stream reader. As `KafkaMicroBatchStream`.

Spark keeps one instance for as long as a query runs, in a process that plans; tasks have copies, which only read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.client.cluster import Cluster, Leader
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID, TopicPartition
from ottla.spark import bounds, kept
from ottla.spark.layout import Layout
from ottla.spark.offsets import LATEST, Offsets, OffsetsByTopic, of_topics, to_topics
from ottla.spark.options import SourceOptions
from ottla.spark.planning import plan, rate_limit, waits
from ottla.spark.reader import records, report_losses, slices

logger = logging.getLogger("ottla.spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets in checkpoints have the form of Spark's Kafka connector, whose checkpoints can be gone on with."""

    def __init__(self, options: SourceOptions, layout: Layout) -> None:
        self.options = options
        self.layout = layout
        self._cluster: Cluster | None = None
        self._initial: Offsets | None = None
        self._unpinned: frozenset[TopicPartition] = frozenset()
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._last_batch_at = float("-inf")
        self._topic_ids: dict[str, UUID] = {}
        self._shown: Offsets | None = None
        self._commit_error: ErrorCode | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What a task needs; what is connected stays here."""
        return {"options": self.options, "layout": self.layout}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def cluster(self) -> Cluster:
        """This instance's own: it plans one batch after the other until the query stops."""
        if self._cluster is None:
            self._cluster = Cluster(kept.client_config(self.options.client))
        return self._cluster

    # Offsets

    def initialOffset(self) -> OffsetsByTopic:
        """The same whenever Spark asks: it does so until the first batch is done.

        Unlike the connector a Python source cannot write it to the checkpoint. So partitions that begin at their ends
        have nothing in the first batch but their offsets: these are in the checkpoint then, and what is produced
        after them is read even if the query dies before the batch is done and finds another end when it is started
        again.
        """
        if self._initial is None:
            found = bounds.all_subscribed(self.cluster, self.options.subscription)
            self._initial = bounds.starting(self.cluster, found, self.options)
            self._unpinned = frozenset(at for at in self._initial if self._begins_at_end(at))
        return to_topics(self._initial)

    def _begins_at_end(self, at: TopicPartition) -> bool:
        starting = self.options.starting
        if starting.offset is not None:
            return starting.offset == LATEST
        if starting.offsets is not None:
            return starting.offsets.get(at) == LATEST
        return self.options.no_match == "latest"

    def latestOffset(self, start: OffsetsByTopic, limit: ReadLimit) -> OffsetsByTopic:
        begins = of_topics(start)
        if begins != self._initial:
            self._show_progress(begins)
        ends = dict(self._target if self._target is not None else self._newest())
        if begins == self._initial:
            ends |= {at: begins[at] for at in self._unpinned if at in ends}
            self._unpinned = frozenset()
            if ends == begins:
                return start
        return to_topics(self._limited(begins, ends, limit))

    def _newest(self) -> Offsets:
        found = bounds.subscribed(self.cluster, self.options.subscription)
        self._latest = bounds.latest(self.cluster, found, self.options)
        return self._latest

    def _limited(self, begins: Offsets, ends: Offsets, limit: ReadLimit) -> Offsets:
        options = self.options
        rows_max: int | None = None
        if isinstance(limit, ReadMinRows):
            waited_ms = int(min(time.monotonic() - self._last_batch_at, 1e9) * 1000)
            # With AvailableNow nothing more is to come that it could wait for.
            if self._target is None and waits(limit.min_rows, begins, ends, waited_ms, options.trigger_delay_ms_max):
                return begins
            self._last_batch_at = time.monotonic()
            rows_max = options.trigger_offsets_max
        elif isinstance(limit, ReadMaxRows):
            rows_max = limit.max_rows
        if rows_max is None:
            return ends
        fresh = [at for at in ends if at not in begins]
        return rate_limit(rows_max, begins, bounds.earliest(self.cluster, fresh, options), ends)

    def getDefaultReadLimit(self) -> ReadLimit:
        """PySpark has no limit made of two: with both options `latestOffset` adds the upper one."""
        if self.options.trigger_offsets_min is not None:
            return ReadMinRows(self.options.trigger_offsets_min)
        if self.options.trigger_offsets_max is not None:
            return ReadMaxRows(self.options.trigger_offsets_max)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> OffsetsByTopic | None:
        return None if self._latest is None else to_topics(self._latest)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._newest()

    # Batches

    def partitions(self, start: OffsetsByTopic, end: OffsetsByTopic) -> list[InputPartition]:
        begins, ends = of_topics(start), of_topics(end)
        if begins == ends:
            return []
        leaders = self._leaders({at.topic for at in (*begins, *ends)})
        if begins == self._initial:
            # The first batch of a query that is started again: it had found other partitions, and other ends.
            begins = {
                at: min(begin, ends[at]) if self._begins_at_end(at) else begin
                for at, begin in begins.items() if at in ends
            }  # fmt: skip
        present = [at for at in ends if at in leaders]
        ranges, losses = plan(begins, ends, bounds.earliest(self.cluster, present, self.options))
        report_losses([*losses, *self._recreated(leaders)], self.options)
        return list(slices(ranges, leaders, self.options))

    def _leaders(self, topics: set[str]) -> dict[TopicPartition, Leader]:
        return self.cluster.partitions(topics)

    def _recreated(self, leaders: dict[TopicPartition, Leader]) -> list[str]:
        """Offsets alone do not show that a topic is another one once it has grown past the old one."""
        ids = {at.topic: leader.topic_id for at, leader in leaders.items() if leader.topic_id != ZERO_UUID}
        others = sorted(name for name, known in ids.items() if self._topic_ids.get(name, known) != known)
        self._topic_ids |= ids
        return [f"topic {name} was deleted and created again" for name in others]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return records(partition, self.options, self.layout)

    def commit(self, end: OffsetsByTopic) -> None:
        self._show_progress(of_topics(end))

    def _show_progress(self, offsets: Offsets) -> None:
        """Commit in the consumer group `commit.group`. The checkpoint has the truth: a failure is a warning.

        Spark calls `commit` with the next batch, which after the last one of AvailableNow there is not. It asks for
        the latest offsets then as well, from where it is done.
        """
        group = self.options.commit_group
        if group is None or offsets == self._shown:
            return
        self._shown = offsets
        try:
            self.cluster.commit_offsets(group, offsets)
        except (KafkaError, OSError) as error:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.network_exception
            if code is not self._commit_error:
                logger.warning("commit.group: progress is not shown in group %s: %s", group, _why(code, error))
            self._commit_error = code
        else:
            self._commit_error = None

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


def _why(code: ErrorCode, error: Exception) -> str:
    if code is ErrorCode.unknown_member_id:
        return "it has members of its own, whose offsets these would overwrite; choose another group"
    return str(error)
