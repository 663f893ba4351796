"""What tests of changing topics share: a cluster that remembers who had which record, and a driver that keeps
offsets and commits as Spark does."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.client.cluster import Leader, OffsetAt
from ottla.client.fetcher import NoProgress, OffsetOutOfRange
from ottla.errors import ErrorCode, KafkaError
from ottla.model import ZERO_UUID, TopicPartition
from ottla.spark import reader as reading
from ottla.spark import stream

TOPIC: Final = "orders"


class Record(NamedTuple):
    topic: str
    topic_id: UUID
    partition: int
    offset: int
    number: int
    """Another for each record that is written, also where an offset is given out again."""


@dataclass
class Log:
    start: int = 0
    records: list[Record] = field(default_factory=list)

    @property
    def end(self) -> int:
        return len(self.records)


@dataclass
class Topic:
    topic_id: UUID
    logs: list[Log]


@dataclass
class Simulated:
    """A cluster as the source sees it."""

    has_ids: bool = True
    there: dict[str, Topic] = field(default_factory=dict)
    written: set[Record] = field(default_factory=set)
    removed: set[Record] = field(default_factory=set)
    groups: dict[TopicPartition, tuple[UUID, int]] = field(default_factory=dict)
    stale: list[dict[str, Topic]] = field(default_factory=list)
    """Answers of a node that is behind, given before those that are right."""
    _ids: Any = field(default_factory=lambda: itertools.count(1))

    def create(self, name: str, partitions: int, records: int = 0) -> None:
        self.there[name] = Topic(UUID(int=next(self._ids) << 64), [Log() for _ in range(partitions)])
        self.produce(name, records)

    def produce(self, name: str, records: int) -> None:
        """As many to each partition."""
        topic = self.there[name]
        for partition, log in enumerate(topic.logs):
            log.records += [
                Record(name, topic.topic_id, partition, log.end + each, next(self._ids)) for each in range(records)
            ]
            self.written.update(log.records)

    def delete(self, name: str) -> None:
        gone = self.there.pop(name)
        self.removed |= {each for each in self.written if each.topic_id == gone.topic_id}
        self.groups = {at: known for at, known in self.groups.items() if at.topic != name}

    def delete_records(self, name: str, before: int) -> None:
        topic = self.there[name]
        for log in topic.logs:
            log.start = min(before, log.end)
        self.removed |= {
            each
            for each in self.written
            if each.topic_id == topic.topic_id and each.offset < topic.logs[each.partition].start
        }

    def cut(self, name: str, by: int) -> None:
        """An unclean leader election: the log's end goes back."""
        topic = self.there[name]
        for log in topic.logs:
            end = max(log.start, log.end - by)
            self.written.difference_update(log.records[end:])
            del log.records[end:]

    # What `Cluster` has

    def topics(self) -> list[str]:
        return sorted(self.there)

    def partitions(self, topics: Iterable[str]) -> dict[TopicPartition, Leader]:
        there = self.stale.pop(0) if self.stale else self.there
        return {
            TopicPartition(name, number): Leader(1, 0, there[name].topic_id if self.has_ids else ZERO_UUID)
            for name in sorted(set(topics))
            if name in there
            for number in range(len(there[name].logs))
        }

    def offsets(self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False) -> dict[Any, OffsetAt]:
        found = {}
        for at, moment in wanted.items():
            log = self.log(at)
            if log is None:
                raise KafkaError(ErrorCode.unknown_topic_or_partition, f"partition {at}")
            found[at] = OffsetAt(log.start if moment == -2 else log.end, -1)
        return found

    def log(self, at: TopicPartition) -> Log | None:
        topic = self.there.get(at.topic)
        return topic.logs[at.partition] if topic is not None and at.partition < len(topic.logs) else None

    def leader(self, topic: str, partition: int) -> Leader:
        at = TopicPartition(topic, partition)
        found = self.partitions([topic]).get(at)
        if found is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"partition {at}")
        return found

    def drop(self, topic: str) -> None:
        pass

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        for at, offset in offsets.items():
            if self.log(at) is None:
                raise KafkaError(ErrorCode.unknown_topic_or_partition, f"partition {at}")
            self.groups[at] = self.there[at.topic].topic_id, offset

    def close(self) -> None:
        pass


def fetched(cluster: Simulated, topic: str, partition: int, start: int, stop: int, *_: Any, **__: Any) -> Any:
    """In place of `arrow.batches`: batches of a record."""
    while start < stop:
        log = cluster.log(TopicPartition(topic, partition))
        assert log is not None
        if not log.start <= start <= log.end:
            raise OffsetOutOfRange(topic, start, log.start, log.end)
        if start == log.end:
            raise NoProgress("nothing comes")
        yield [log.records[start]]
        start += 1


class Query:
    """The driver: what `MicroBatchExecution` keeps and asks for. A step is one call that it makes of the source."""

    def __init__(self, cluster: Simulated, options: dict[str, str], *, fail: bool) -> None:
        self.cluster = cluster
        self.options = {"kafka.bootstrap.servers": "a:1", "failOnDataLoss": str(fail).lower()} | options
        self.is_available_now = self.options.pop("availableNow", "") == "true"
        self.is_over = False
        self.read: list[Record] = []
        self.offsets: list[str] = []
        """Files of the checkpoint that say where each batch ends."""
        self.committed = 0
        """Number of batches that are done, by the checkpoint."""
        self.removed_before: set[Record] = set()
        """What was gone before the first batch was done: until then a query has not begun."""
        self.start_process()

    def start_process(self) -> None:
        from ottla.spark.datasource import OttlaDataSource

        source = OttlaDataSource(self.options)
        self.source: stream.StreamReader = source.streamReader(source.schema())  # type: ignore[assignment]
        self.source._cluster = self.cluster  # type: ignore[assignment]
        self.is_over = False
        if self.is_available_now:
            self.source.prepareForTriggerAvailableNow()

    @property
    def begin(self) -> str:
        if self.committed:
            return self.offsets[self.committed - 1]
        return json.dumps(self.source.initialOffset())

    def look(self) -> bool:
        """Find where the next batch ends. Returns whether there is a batch to run."""
        if self.committed == len(self.offsets):
            limit = self.source.getDefaultReadLimit()
            end = json.dumps(self.source.latestOffset(json.loads(self.begin), limit))
            if end == self.begin and self.committed:
                return False
            self.offsets.append(end)
            if self.committed:
                self.source.commit(json.loads(self.begin))
        return True

    def plan(self) -> list[Any]:
        return self.source.partitions(json.loads(self.begin), json.loads(self.offsets[-1]))

    def work(self, slices: list[Any]) -> None:
        """The tasks, and the end of the batch. A query that fails as it waits is started again."""
        found: list[Record] = []
        try:
            for each in slices:
                for records in reading._decoded(self.cluster, each, self.source.options, None):  # type: ignore[arg-type]
                    found += records
        except NoProgress:
            self.start_process()
            return
        self.read += found
        if not self.committed:
            self.removed_before = set(self.cluster.removed)
        self.committed = len(self.offsets)

    def batch(self) -> bool:
        if not self.look():
            return False
        self.work(self.plan())
        return True

    def run(self) -> None:
        """All there is."""
        if self.is_over and self.is_available_now:
            self.start_process()
        for _ in range(50):
            if not self.batch():
                self.is_over = True
                return
        raise AssertionError("there is always another batch")
