"""The batch reader, and how a task reads its slice of a partition, in a batch or in a stream."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from ottla import arrow
from ottla.client.cluster import Cluster, Leader, Retry
from ottla.client.fetcher import OffsetOutOfRange, TopicRecreated
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID, TopicPartition
from ottla.spark import bounds, connection_pool
from ottla.spark.dead_letters import DeadLetters
from ottla.spark.filters import Narrowing, narrow
from ottla.spark.layout import Layout
from ottla.spark.options import SourceOptions
from ottla.spark.planning import DataLoss, plan_batch, warning_text
from ottla.spark.ranges import Range, split

logger = logging.getLogger("ottla.spark")

_GONE: Final = frozenset({ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id})
_SETTLE_S: Final = 5.0
"""For how long nodes may differ about a topic that is new."""


class Slice(InputPartition):
    """What a task reads, of which topic: its id, as another of its name may come."""

    def __init__(self, range_: Range, topic_id: UUID) -> None:
        super().__init__(str(range_))
        self.range = range_
        self.topic_id = topic_id


def slices(ranges: Iterable[Range], leaders: Mapping[TopicPartition, Leader], options: SourceOptions) -> list[Slice]:
    """One for each task."""
    return [
        Slice(range_, leaders[range_.topic_partition].topic_id)
        for range_ in split(ranges, options.partitions_min, options.partition_records_max)
    ]


def report_losses(losses: Sequence[str], options: SourceOptions) -> None:
    """Raises DataLoss, or logs a warning with failOnDataLoss=false."""
    if losses and options.fail_on_data_loss:
        raise DataLoss(list(losses))
    if losses:
        logger.warning("%s", warning_text(list(losses)))


class _Pushing:
    """`pushFilters` of a reader, which Spark takes for the one that it comes with.

    Spark refuses a reader with a `pushFilters` of its own (DATA_SOURCE_PUSHDOWN_DISABLED) while
    `spark.sql.python.filterPushdown.enabled` is off, which is the default, and a reader cannot ask which it is. Spark
    looks at `__func__` alone, and calls it only where the setting is on.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: BatchReader | None = None) -> None:
        self._reader = reader

    def __get__(self, reader: BatchReader | None, owner: type) -> _Pushing:
        return _Pushing(reader)

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        assert self._reader is not None
        self._reader.narrowing, left = narrow(filters)
        return left


class BatchReader(DataSourceReader):
    """Offsets are resolved once, when the query is planned: what is produced later is not read."""

    pushFilters: Any = _Pushing()

    def __init__(self, options: SourceOptions, layout: Layout) -> None:
        self.options = options
        self.layout = layout
        self.narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        options, narrowing = self.options, self.narrowing
        with connection_pool.cluster(connection_pool.client_config(options.client)) as cluster:
            leaders = bounds.all_subscribed(cluster, options.subscription)
            last = bounds.latest(cluster, leaders, options)
            first = bounds.earliest(cluster, leaders, options)
            # A bound that is not given is the one that is known already, and not one of a moment later.
            start = first if options.starting.offset is not None else bounds.starting(cluster, leaders, options)
            end = last if options.ending.offset is not None else bounds.ending(cluster, leaders, options)
            ranges, losses = plan_batch(start, end, first, last)
            report_losses(losses, options)
            ranges = narrowing.of(ranges)
            if narrowing.timestamp_ms is not None and ranges:
                # Asked after the ends: what comes between them is behind all that is read.
                wanted = dict.fromkeys((range_.topic_partition for range_ in ranges), narrowing.timestamp_ms)
                young = {at: found.offset for at, found in cluster.offsets(wanted).items()}
                ranges = narrowing.of(ranges, young)
        return list(slices(ranges, leaders, options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return records(partition, self.options, self.layout)


def records(partition: InputPartition, options: SourceOptions, layout: Layout) -> Iterator[pa.RecordBatch]:
    """A task: the columns of `layout` for what a slice has. Raises DataLoss, BadRecord, KafkaError, OSError."""
    if not isinstance(partition, Slice):  # Spark's own, in place of no slices at all
        return
    config = connection_pool.client_config(options.client)
    with connection_pool.cluster(config) as cluster, DeadLetters(config, layout.dead_letter_topic) as dead_letters:
        for batch in _decoded(cluster, partition, options, layout.decoded):
            finished, letters = layout.finish(batch)
            dead_letters.send(letters)
            if finished.num_rows:
                yield finished


def _decoded(cluster: Cluster, slice_: Slice, options: SourceOptions, fields: pa.Schema) -> Iterator[pa.RecordBatch]:
    """What a slice still has. What is gone is a DataLoss, or is left out after a warning."""
    topic, partition, start, stop = slice_.range
    client = options.client
    while start < stop:
        try:
            _check_topic(cluster, slice_)
            yield from arrow.batches(
                cluster,
                topic,
                partition,
                start,
                stop,
                fields,
                read_committed=client.read_committed,
                limits=connection_pool.fetch_limits(client),
            )
            return
        except OffsetOutOfRange as error:
            report_losses([f"offset {error.offset} of {slice_.range}: {error.message}"], options)
            # Behind the log's end there is nothing to go on with: it was cut off, or the topic is a new one.
            start = error.log_start if error.log_start > error.offset else stop
        except KafkaError as error:
            if error.code not in _GONE:
                raise
            why = error.message if isinstance(error, TopicRecreated) else "its topic was deleted"
            report_losses([f"{slice_.range}: {why}"], options)
            return


def _check_topic(cluster: Cluster, slice_: Slice) -> None:
    """A kept cluster may know a topic that is no more, and a node not yet know one that is new.

    Raises TopicRecreated when it is another one than was planned to be read, KafkaError when there is none.
    """
    topic, partition = slice_.range.topic_partition
    retry = Retry(_SETTLE_S)
    while True:
        failure: KafkaError
        try:
            topic_id = cluster.leader(topic, partition).topic_id
            if topic_id == slice_.topic_id or ZERO_UUID in (topic_id, slice_.topic_id):
                return
            failure = TopicRecreated(topic)
        except KafkaError as error:
            if error.code not in _GONE:
                raise
            failure = error
        if not retry.again():
            raise failure
        cluster.drop(topic)
