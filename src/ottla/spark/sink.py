"""`df.write` and `df.writeStream` in format `ottla`: tasks that produce, and the driver that commits.

At least once, or with `delivery=exactly-once` by the protocol of `exactly_once.py`. What a task knows of the query
that it belongs to (`TaskContext`'s local properties) it tells the driver with what it has written: a writer of a
stream is made again for each commit, in another process.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.client.cluster import Cluster
from ottla.client.producer import Producer
from ottla.client.transactions import ONGOING, describe_transactions
from ottla.errors import KafkaError
from ottla.spark import connection_pool
from ottla.spark.digest import Digest
from ottla.spark.exactly_once import Committer, State, WriteFailed, Written
from ottla.spark.rows import Rows, rows_of
from ottla.spark.sink_log import SinkLog, transactional_id
from ottla.spark.sink_options import SinkOptions, sink_options
from ottla.spark.worker import freeze_modules

logger = logging.getLogger("ottla.spark")

QUERY_ID = "sql.streaming.queryId"
RUN_ID = "spark.jobGroup.id"
"""Local properties that Spark sets for the tasks of a micro-batch."""

CLEAN_EVERY_S = 60.0
FIRST_CLEANS = 3
"""So many come a few seconds after each other: a coordinator that moves as the first one looks has nothing to tell."""
FIRST_CLEANS_EVERY_S = 3.0
QUERIES_MAX = 16
"""Queries whose claim and connections a driver's process keeps."""
ONLY_BATCH = 0
"""The number that the one batch of a batch write has."""


def batch_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> DataSourceArrowWriter:
    """Raises ValueError for wrong options and columns."""
    if overwrite:
        raise ValueError('mode: a topic is append-only; use mode("append")')
    chosen = sink_options(options, is_stream=False)
    freeze_modules()
    return BatchWriter(rows_of(schema, chosen), chosen, uuid.uuid4().hex)


def stream_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> DataSourceStreamArrowWriter:
    """Raises ValueError for wrong options and columns."""
    if overwrite:
        raise ValueError('outputMode: a topic is append-only; use outputMode("append") or "update"')
    chosen = sink_options(options, is_stream=True)
    freeze_modules()
    return StreamWriter(rows_of(schema, chosen), chosen)


class Place(NamedTuple):
    """The query, task and attempt of a writer."""

    query: str
    run: str
    task: int
    attempt: int


class TaskWritten(WriterCommitMessage):
    """What a task tells the driver."""

    def __init__(self, place: Place, rows: int, written: Written | None) -> None:
        self.place = place
        self.rows = rows
        self.written = written
        """None where nothing is to be committed: no rows, or at-least-once."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Writer of one micro-batch in its tasks; of one commit or abort in the driver."""

    def __init__(self, rows: Rows, options: SinkOptions) -> None:
        self.rows = rows
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(iterator, self.rows, self.options, _stream_place(self.options.is_exactly_once))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if self.options.is_exactly_once:
            commit_batch(_told(messages), batchId, self.options)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if self.options.is_exactly_once:
            abort_batch(_told(messages), self.options)


class BatchWriter(DataSourceArrowWriter):
    """Writer of one batch write; the driver's copy has the same `run` as the tasks'."""

    def __init__(self, rows: Rows, options: SinkOptions, run: str) -> None:
        self.rows = rows
        self.options = options
        self.run = run

    @property
    def _query(self) -> str:
        return f"write.{self.options.write_id}" if self.options.write_id else self.run

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        place = Place(self._query, self.run, context.partitionId(), context.attemptNumber())
        told = write_rows(iterator, self.rows, self.options, place)
        abort_if_ended(told, self.options)
        return told

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        freeze_modules()
        if not self.options.is_exactly_once:
            return
        if self.options.write_id:
            commit_batch(_told(messages), ONLY_BATCH, self.options)
        else:
            commit_without_decision(_told(messages), self.options)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if not self.options.is_exactly_once:
            return
        if self.options.write_id:
            # A batch is decided only where every task has told what it wrote.
            end_run(self._query, self.run, self.options, may_be_decided=None not in messages)
            abort_batch(_told(messages), self.options)
        else:
            end_run(self._query, self.run, self.options, may_be_decided=False)


# In the tasks


def write_rows(batches: Iterator[pa.RecordBatch], rows: Rows, options: SinkOptions, place: Place) -> TaskWritten:
    """Produce all rows and wait until they are acknowledged; exactly-once: in a transaction that stays open.

    Raises KafkaError, OSError, ValueError: Spark runs the task again, or fails the query.
    """
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return TaskWritten(place, 0, None)
    with connection_pool.cluster(options.client) as cluster:
        producer = _producer(cluster, options, place)
        digest, records = Digest(), rows.records()
        try:
            for batch in itertools.chain([first], batches):
                made = records.of(batch)
                if options.is_exactly_once:
                    digest.add(made)
                producer.send(options.topic, made)
            producer.flush()
        except BaseException:
            if options.is_exactly_once:
                _give_up(producer)
            raise
        finally:
            producer.close()
    if not options.is_exactly_once:
        return TaskWritten(place, producer.rows, None)
    assert producer.transactional_id is not None
    written = Written(
        producer.transactional_id, producer.producer_id, producer.epoch, place.task, producer.rows, digest.text()
    )
    return TaskWritten(place, producer.rows, written)


def abort_if_ended(told: TaskWritten, options: SinkOptions) -> None:
    """Abort what a task of a batch write has written, where the driver has ended the write meanwhile. Where a row
    cannot be computed, Spark tells the driver at once, and the task in Python sees no more than the end of its rows:
    nobody would end its transaction, and readers of committed records would wait for its timeout. Raises WriteFailed,
    KafkaError, OSError."""
    if told.written is None:
        return
    with connection_pool.cluster(options.client) as cluster:
        log = SinkLog(cluster, told.place.query, options.state_topic)
        if log.has_ended(told.place.run):
            log.end(told.written, commit=False)
            raise WriteFailed("the driver ended the write while this task was still at work")


def _free_id(cluster: Cluster, place: Place) -> str:
    """A transactional id without an open transaction. An open one may hold records of a task in an earlier attempt of
    this stage, where attempts of tasks are counted from 0 again. To begin with the same id would abort it, even if it
    is decided.
    """
    name = transactional_id(*place)
    known = describe_transactions(cluster, [name]).get(name)
    if known is None or known.state != ONGOING:
        return name
    return transactional_id(place.query, place.run, place.task, f"{place.attempt}.{uuid.uuid4().hex[:8]}")


def _producer(cluster: Cluster, options: SinkOptions, place: Place) -> Producer:
    producer = Producer(
        cluster,
        acks=options.acks,
        idempotent=options.is_idempotent,
        compression=options.codec,
        batch_bytes=options.batch_bytes_max,
        buffer_bytes_max=options.buffer_bytes_max,
        delivery_timeout_s=options.delivery_timeout_ms / 1000,
        transactional_id=_free_id(cluster, place) if options.is_exactly_once else None,
        transaction_timeout_ms=options.transaction_timeout_ms,
    )
    producer.start()
    if options.is_exactly_once:
        producer.begin()
    return producer


def _give_up(producer: Producer) -> None:
    """Readers of committed records need not wait for the timeout of a task that failed."""
    try:
        producer.abort()
    except (KafkaError, OSError) as error:
        logger.info("the transaction of a failed task is left to its timeout: %s", error)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "outside of a task"
    return context


def _stream_place(is_exactly_once: bool) -> Place:
    """Raises RuntimeError where Spark does not say which query and which run of it this is: runs that share the names
    of their transactions would abort what was decided."""
    context = _context()
    query, run = context.getLocalProperty(QUERY_ID), context.getLocalProperty(RUN_ID)
    if is_exactly_once and (not query or not run):
        missing = RUN_ID if query else QUERY_ID
        raise RuntimeError(f"Spark did not say which run of a query this is ({missing}); exactly-once writes need it")
    return Place(query or "", run or "", context.partitionId(), context.attemptNumber())


# In the driver


class _Query:
    """The driver's side of a run of a query: its committer, and when it last looked for what was left open."""

    def __init__(self, place: Place, options: SinkOptions) -> None:
        self.log = SinkLog(Cluster(options.client), place.query, options.state_topic)
        self.committer = Committer(self.log, place.run, is_only=bool(options.write_id))
        self.cleans = 0
        self.cleaned_at = float("-inf")

    def is_to_be_cleaned(self) -> bool:
        every_s = FIRST_CLEANS_EVERY_S if self.cleans < FIRST_CLEANS else CLEAN_EVERY_S
        return time.monotonic() - self.cleaned_at > every_s


_queries: dict[tuple[Any, ...], _Query] = {}
"""The driver's process that commits is one for many batches."""


def _query(place: Place, options: SinkOptions) -> _Query:
    key = (os.getpid(), place.query, place.run, options.client, options.state_topic)
    if key not in _queries:
        while len(_queries) >= QUERIES_MAX:
            _queries.pop(next(iter(_queries))).log.close()
        _queries[key] = _Query(place, options)
    return _queries[key]


def _told(messages: Sequence[WriterCommitMessage | None]) -> list[TaskWritten]:
    return [message for message in messages if isinstance(message, TaskWritten)]


def commit_batch(told: Sequence[TaskWritten], batch: int, options: SinkOptions) -> None:
    """Raises what `Committer.commit` does."""
    if not told:
        return
    query = _query(told[0].place, options)
    query.committer.commit(batch, [one.written for one in told if one.written is not None])
    if query.is_to_be_cleaned() or any(one.place.attempt for one in told):
        _clean(query)


def abort_batch(told: Sequence[TaskWritten], options: SinkOptions) -> None:
    """What cannot be aborted is left to its timeout, or to the next run."""
    if not told:
        return
    query = _query(told[0].place, options)
    written = [one.written for one in told if one.written is not None]
    try:
        query.committer.abort(written)
        query.committer.clean()
    except Exception as error:
        logger.warning("transactions of a failed batch are left to time out: %s", error)


def commit_without_decision(told: Sequence[TaskWritten], options: SinkOptions) -> None:
    """A batch write without `write.id`: nobody would look for a decision. All tasks' transactions are open, so
    committing them is a moment; a driver that is killed in it leaves a part of the rows visible. Raises WriteFailed."""
    written = [one.written for one in told if one.written is not None]
    if not written:
        return
    log = _query(told[0].place, options).log
    states = log.states(written)
    if any(state is not State.OPEN for state in states):
        raise WriteFailed("transactions of tasks timed out before all were done; raise kafka.transaction.timeout.ms")
    undone = [one for one in written if log.end(one, commit=True) is not State.COMMITTED]
    if undone:
        raise WriteFailed(f"{len(undone)} of {len(written)} transactions could not be committed; the others are")


def end_run(query: str, run: str, options: SinkOptions, *, may_be_decided: bool) -> None:
    """A batch write has failed: tasks that are still at work abort what they have written when they are done. What
    the others have open, those that Spark has killed too, is aborted here, unless there may be a decision about it.
    What cannot be aborted is left to its timeout."""
    log = SinkLog(Cluster(options.client), query, options.state_topic)
    try:
        log.mark_ended(run)
        if not may_be_decided:
            log.fence(run)
    except Exception as error:
        logger.warning("transactions of a failed write are left to time out: %s", error)
    finally:
        log.close()


def _clean(query: _Query) -> None:
    """A failure costs readers of committed records time, and nobody a record: it is tried again with the next batch."""
    try:
        count = query.committer.clean()
    except Exception as error:
        logger.warning("transactions that lost tasks left open could not be searched for: %s", error)
    else:
        query.cleaned_at = time.monotonic()
        query.cleans += 1
        if count:
            logger.info("aborted %d transactions that lost tasks or drivers had left open", count)
