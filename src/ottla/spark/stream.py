"""The stream reader. As `KafkaMicroBatchStream`.

Spark keeps one instance for as long as a query runs, in a process that plans; tasks have copies, which only read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
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

from ottla.client.cluster import Cluster, Leader, Retry
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID, TopicPartition
from ottla.spark import bounds, connection_pool
from ottla.spark.layout import Layout
from ottla.spark.offsets import (
    LATEST,
    Offsets,
    OffsetsByTopic,
    Position,
    TopicIds,
    of_checkpoint,
    to_checkpoint,
    to_topics,
)
from ottla.spark.options import SourceOptions
from ottla.spark.planning import of_present, plan, rate_limit, recreated, waits
from ottla.spark.reader import records, report_losses, slices

logger = logging.getLogger("ottla.spark")

SETTLE_S: Final = 1.0
"""For how long a node may be behind others about topics that are known to have been there."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets in checkpoints have the form of Spark's Kafka connector, whose checkpoints can be gone on with, and the
    other way round. Beside them are the topics' ids (`offsets.py`): offsets alone do not show that a topic is another
    one once it has grown past the old one, be it in this run or while no query runs."""

    def __init__(self, options: SourceOptions, layout: Layout) -> None:
        self.options = options
        self.layout = layout
        self._cluster: Cluster | None = None
        self._initial: Position | None = None
        self._is_pinned = False
        self._target: Position | None = None
        self._latest: Position | None = None
        self._found: OffsetsByTopic | None = None
        self._last_batch_at = float("-inf")
        self._shown: Position | None = None
        self._present: dict[TopicPartition, Leader] | None = None
        self._commit_error: ErrorCode | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What a task needs; what is connected stays here."""
        return {"options": self.options, "layout": self.layout}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def cluster(self) -> Cluster:
        """This instance's own client: it plans one batch after the other until the query stops."""
        if self._cluster is None:
            self._cluster = Cluster(connection_pool.client_config(self.options.client))
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
            offsets = bounds.starting(self.cluster, found, self.options)
            self._initial = Position(offsets, topic_ids(found))
        return to_checkpoint(self._initial)

    def _begins_at_end(self, at: TopicPartition) -> bool:
        starting = self.options.starting
        if starting.offset is not None:
            return starting.offset == LATEST
        if starting.offsets is not None:
            return starting.offsets.get(at) == LATEST
        return self.options.no_match == "latest"

    def latestOffset(self, start: OffsetsByTopic, limit: ReadLimit) -> OffsetsByTopic:
        begins = of_checkpoint(start)
        newest = self._newest_for(begins.ids)
        self._show_progress(begins)
        present = of_present(begins, newest.ids)
        # A cluster whose nodes are of many versions may give ids in some answers only: what was known stays.
        end = Position(dict(newest.offsets), {**begins.ids, **newest.ids})
        if begins == self._initial and not self._is_pinned:
            end.offsets.update(self._pinned(present, end.offsets))
            self._is_pinned = True
            if to_checkpoint(end) == start:
                self._found = start
                return start
        limited = self._limited(present, end.offsets, limit)
        self._found = start if limited is None else to_checkpoint(end._replace(offsets=limited))
        return self._found

    def _pinned(self, begins: Offsets, ends: Offsets) -> Offsets:
        """Where the first batch ends in partitions that begin at their ends: see `initialOffset`. What is created after
        that began is read from its beginning."""
        at_end = [at for at in ends if self._begins_at_end(at)]
        fresh = self._beginnings([at for at in at_end if at not in begins])
        return {at: begins[at] if at in begins else fresh.get(at, ends[at]) for at in at_end}

    def _beginnings(self, fresh: list[TopicPartition]) -> Offsets:
        """Where new partitions begin; with AvailableNow some that were there when that began may be gone."""
        there = self.cluster.partitions({at.topic for at in fresh}) if fresh else {}
        return bounds.earliest(self.cluster, [at for at in fresh if at in there], self.options)

    def _newest_for(self, known: TopicIds) -> Position:
        """Where the partitions end; with AvailableNow where they ended when that began, unless a topic was another one
        or missing then: nobody could tell whether the node that answered was behind."""
        if self._target is None:
            return self._newest(known)
        topics = {at.topic for at in self._target.offsets}
        if known.keys() - topics or recreated(known, self._target.ids):
            self._target = self._newest(known)
        return self._target

    def _newest(self, known: TopicIds) -> Position:
        self._present = self._agreed(known, lambda: bounds.subscribed(self.cluster, self.options.subscription))
        # Ids first: if a topic is recreated in between, its offset has the old id, and `plan` says so.
        self._latest = Position(bounds.latest(self.cluster, self._present, self.options), topic_ids(self._present))
        return self._latest

    def _agreed(self, known: TopicIds, ask: Callable[[], dict[TopicPartition, Leader]]) -> dict[TopicPartition, Leader]:
        """The partitions that there are, asked for again for a moment where a topic that is known is missing or another
        one: the node that answers may be behind, and a topic that comes back is read from its beginning."""
        retry = Retry(SETTLE_S)
        while True:
            found = ask()
            names, ids = {at.topic for at in found}, topic_ids(found)
            if not (known.keys() - names or recreated(known, ids)) or not retry.again():
                return found

    def _limited(self, begins: Offsets, ends: Offsets, limit: ReadLimit) -> Offsets | None:
        """Where the next batch ends; None: it waits for more records."""
        options = self.options
        rows_max: int | None = None
        if isinstance(limit, ReadMinRows):
            waited_ms = int(min(time.monotonic() - self._last_batch_at, 1e9) * 1000)
            # With AvailableNow nothing more is to come that it could wait for.
            if self._target is None and waits(limit.min_rows, begins, ends, waited_ms, options.trigger_delay_ms_max):
                return None
            self._last_batch_at = time.monotonic()
            rows_max = options.trigger_offsets_max
        elif isinstance(limit, ReadMaxRows):
            rows_max = limit.max_rows
        if rows_max is None:
            return ends
        return rate_limit(rows_max, begins, self._beginnings([at for at in ends if at not in begins]), ends)

    def getDefaultReadLimit(self) -> ReadLimit:
        """PySpark has no limit made of two: with both options `latestOffset` adds the upper one."""
        if self.options.trigger_offsets_min is not None:
            return ReadMinRows(self.options.trigger_offsets_min)
        if self.options.trigger_offsets_max is not None:
            return ReadMaxRows(self.options.trigger_offsets_max)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> OffsetsByTopic | None:
        return None if self._latest is None else to_topics(self._latest.offsets)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._newest({})

    # Batches

    def partitions(self, start: OffsetsByTopic, end: OffsetsByTopic) -> list[InputPartition]:
        if start == end:
            return []
        begins, ends = of_checkpoint(start), of_checkpoint(end)
        topics = {at.topic for at in (*begins.offsets, *ends.offsets)}
        self._present = leaders = self._agreed(ends.ids, lambda: self.cluster.partitions(topics))
        if begins == self._initial:
            # The first batch of a query that is started again: it had found other partitions, and other ends.
            begins = begins._replace(
                offsets={
                    at: min(begin, ends.offsets.get(at, begin)) if self._begins_at_end(at) else begin
                    for at, begin in begins.offsets.items()
                    if at in ends.offsets or at not in leaders
                }
            )
        present = [at for at in ends.offsets if at in leaders]
        earliest = bounds.earliest(self.cluster, present, self.options)
        # A batch of an earlier run may have ended where a log does not reach any more: a task would wait for the rest.
        latest = {} if end == self._found else bounds.latest(self.cluster, present, self.options)
        ranges, losses = plan(begins, ends, earliest, topic_ids(leaders), latest)
        report_losses(losses, self.options)
        return list(slices(ranges, leaders, self.options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return records(partition, self.options, self.layout)

    def commit(self, end: OffsetsByTopic) -> None:
        self._show_progress(of_checkpoint(end))

    def _show_progress(self, position: Position) -> None:
        """Commit in the consumer group `commit.group`. The checkpoint has the truth: a failure is a warning.
        Offsets of topics that are gone, or of which there is another one now, are left out.

        Spark calls `commit` with the next batch, which after the last one of AvailableNow there is not. It asks for
        the latest offsets then as well, from where it is done.
        """
        group = self.options.commit_group
        if group is None or position == self._shown:
            return
        self._shown = position
        offsets = of_present(position, topic_ids(self._present or {}))
        if self._present is not None:
            offsets = {at: offset for at, offset in offsets.items() if at in self._present}
        try:
            self.cluster.commit_offsets(group, offsets)
        except (KafkaError, OSError) as error:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.network_exception
            if code is not self._commit_error:
                logger.warning("commit.group: cannot commit progress to group %s: %s", group, _why(code, error))
            self._commit_error = code
        else:
            self._commit_error = None

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


def topic_ids(partitions: Mapping[TopicPartition, Leader]) -> dict[str, UUID]:
    """Topic ids by name; a cluster that is too old has none."""
    return {at.topic: leader.topic_id for at, leader in partitions.items() if leader.topic_id != ZERO_UUID}


def _why(code: ErrorCode, error: Exception) -> str:
    if code is ErrorCode.unknown_member_id:
        return "it has members, whose offsets would be overwritten; choose another group"
    return str(error)
