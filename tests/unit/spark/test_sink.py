"""What tasks and the driver do, without Spark around them: attempts that meet, batches that fail or repeat."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from ottla.client.cluster import Cluster
from ottla.client.transactions import list_transactions
from ottla.spark import sink
from ottla.spark.exactly_once import WriteFailed
from ottla.spark.rows import rows_of
from ottla.spark.sink import (
    Place,
    TaskWritten,
    abort_batch,
    abort_if_ended,
    commit_batch,
    commit_without_decision,
    end_run,
    write_rows,
)
from ottla.spark.sink_options import SinkOptions, sink_options
from ottla.testing import Broker
from tests.unit.client.test_producing import numbers

SCHEMA = StructType([StructField("value", BinaryType())])


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


class Job:
    """A query with its topic."""

    def __init__(self, broker: Broker, **options: str) -> None:
        self.broker = broker
        self.query = uuid.uuid4().hex
        self.topic = broker.create_topic(f"t-{self.query}")
        given = {"kafka.bootstrap.servers": f"127.0.0.1:{broker.port}", "topic": self.topic, **options}
        self.options: SinkOptions = sink_options({"delivery": "exactly-once", **given}, is_stream=True)

    def task(self, first: int, count: int, task: int = 0, attempt: int = 0, run: str = "run") -> TaskWritten:
        batches = [
            pa.record_batch({"value": pa.array([b"%d" % at for at in range(first, first + count)], pa.binary())})
        ]
        place = Place(self.query, run, task, attempt)
        return write_rows(iter(batches), rows_of(SCHEMA, self.options), self.options, place)

    def open(self) -> list[str]:
        cluster = Cluster(self.options.client)
        found = list_transactions(cluster, f"ottla-sink:{self.query}:")
        cluster.close()
        return found

    def numbers(self) -> list[int]:
        return sorted(numbers(self.broker, self.topic))


@pytest.fixture
def job(broker: Broker) -> Job:
    return Job(broker)


def test_batches_of_a_query(job: Job) -> None:
    for batch in range(3):
        commit_batch([job.task(batch * 10, 5, 0), job.task(batch * 10 + 5, 5, 1)], batch, job.options)
        assert job.numbers() == list(range(batch * 10 + 10))
    assert job.open() == []


def test_a_batch_without_rows(job: Job) -> None:
    commit_batch([job.task(0, 0, 0), job.task(0, 0, 1)], 0, job.options)
    commit_batch([job.task(0, 0, 0), job.task(5, 5, 1)], 1, job.options)
    commit_batch([job.task(5, 5, 0, run="again"), job.task(0, 0, 1, run="again")], 1, job.options)
    assert job.numbers() == list(range(5, 10))


def test_a_batch_that_runs_again_in_another_run(job: Job) -> None:
    commit_batch([job.task(0, 5)], 0, job.options)
    commit_batch([job.task(0, 5, run="later")], 0, job.options)
    commit_batch([job.task(5, 5, run="later")], 1, job.options)
    assert job.numbers() == list(range(10))
    assert job.open() == []


def test_attempts_of_a_stage_that_runs_again_do_not_meet(job: Job) -> None:
    """Their tasks' attempts are counted from 0 again; the one that Spark has already counted stays what it is."""
    first = job.task(0, 5)
    late = job.task(0, 5)
    assert first.written is not None and late.written is not None
    assert first.written.transactional_id != late.written.transactional_id
    commit_batch([first], 0, job.options)
    assert job.numbers() == list(range(5))
    commit_batch([job.task(5, 5, attempt=1)], 1, job.options)
    assert job.open() == [], "what was left over is cleaned up after lost tasks"
    assert job.numbers() == list(range(10))


def test_lost_attempts_are_aborted(job: Job) -> None:
    job.task(0, 5, attempt=0)
    commit_batch([job.task(0, 5, attempt=1)], 0, job.options)
    assert (job.numbers(), job.open()) == (list(range(5)), [])


def test_a_batch_that_fails(job: Job) -> None:
    told = [job.task(0, 5, 0), job.task(5, 5, 1)]
    abort_batch(told, job.options)
    assert job.open() == []
    with pytest.raises(WriteFailed, match="were aborted"):
        commit_batch(told, 0, job.options)
    commit_batch([job.task(0, 10)], 0, job.options)
    abort_batch([job.task(0, 10)], job.options)
    assert (job.numbers(), job.open()) == (list(range(10)), [])


def test_a_task_that_fails_leaves_nothing_open(job: Job) -> None:
    def batches() -> Iterator[Any]:
        yield pa.record_batch({"value": pa.array([b"1"], pa.binary())})
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            write_rows(batches(), rows_of(SCHEMA, job.options), job.options, Place(job.query, "run", 0, 0))
    assert (job.numbers(), job.open()) == ([], [])


def test_a_write_without_an_id(job: Job) -> None:
    commit_without_decision([job.task(0, 5, 0), job.task(5, 5, 1), job.task(0, 0, 2)], job.options)
    assert job.numbers() == list(range(10))
    told = [job.task(10, 5, 0), job.task(15, 5, 1)]
    end_run(job.query, "run", job.options, may_be_decided=False)
    with pytest.raises(WriteFailed, match="timed out"):
        commit_without_decision(told, job.options)
    assert (job.numbers(), job.open()) == (list(range(10)), [])


def test_a_task_that_ends_after_its_write_aborts_by_itself(job: Job) -> None:
    """Spark has told the driver of a failure that the task in Python did not see."""
    abort_if_ended(job.task(0, 0, 2), job.options)
    early = job.task(0, 5, 0)
    abort_if_ended(early, job.options)
    end_run(job.query, "run", job.options, may_be_decided=True)
    assert len(job.open()) == 1, "there may be a decision about it"
    late, other = job.task(5, 5, 1), job.task(5, 5, 1, run="other")
    with pytest.raises(WriteFailed, match="ended the write"):
        abort_if_ended(late, job.options)
    abort_if_ended(other, job.options)
    end_run(job.query, "run", job.options, may_be_decided=False)
    assert other.written is not None and job.open() == [other.written.transactional_id]
    commit_without_decision([other], job.options)
    assert (job.numbers(), job.open()) == (list(range(5, 10)), [])


def test_the_processes_queries_are_few(broker: Broker) -> None:
    for _ in range(sink.QUERIES_MAX + 2):
        job = Job(broker)
        commit_batch([job.task(0, 1)], 0, job.options)
    assert len(sink._queries) == sink.QUERIES_MAX


def test_a_checkpoint_whose_first_batch_is_not_0(job: Job) -> None:
    """It was at-least-once before."""
    commit_batch([job.task(0, 5)], 57, job.options)
    commit_batch([job.task(5, 5)], 58, job.options)
    assert job.numbers() == list(range(10))
