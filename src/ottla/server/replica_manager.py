"""The partitions of this node: keeps logs and leadership in step with the metadata image, appends, reads.

Kafka's `ReplicaManager`. Handlers find a `Partition` here by topic name or id; what may be read or written is the
partition's and the log's business, what waits for it the purgatory's.
"""

from __future__ import annotations

import logging
import posixpath
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.metadata.image import DIRECTORIES_RESERVED, ConfigResourceType
from ottla.metrics.instruments import NodeMetrics, TopicTraffic
from ottla.model import METADATA_TOPIC, Millis, NodeId, Offset, TopicPartition
from ottla.replication.partition import Partition
from ottla.storage.config import LogConfig
from ottla.storage.log import Log

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage, PartitionRegistration
    from ottla.storage.log_manager import LogManager

_LOG = logging.getLogger("ottla.logs")

NO_PARTITIONS: Mapping[int, Partition] = {}

REFUSALS_LOGGED_EVERY_MS = 60_000
"""How often a warning of a disk that takes no records is logged: clients try again and again."""

LOGS_PER_STEP = 8
"""Making the files of a log costs about 0.3 ms, renaming its directory a tenth of that."""

TOPIC_ID_BITS_MAX = 16
"""By so many a damaged topic id may be off."""

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


class Read:
    """What a fetch of one partition found. `records` is a slice of the log, None for nothing."""

    __slots__ = (
        "aborted", "diverging", "error", "high_watermark", "last_stable_offset", "log_start_offset", "records",
        "traffic",
    )  # fmt: skip

    def __init__(
        self,
        error: ErrorCode = ErrorCode.none,
        high_watermark: Offset = -1,
        last_stable_offset: Offset = -1,
        log_start_offset: Offset = -1,
        records: Any = None,
        aborted: list[Any] | None = None,
        diverging: tuple[int, Offset] | None = None,
        traffic: TopicTraffic | None = None,
    ) -> None:
        self.error = error
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.records = records
        self.aborted = aborted
        """(producer id, first offset) pairs for read_committed; None says that the question does not arise."""
        self.diverging = diverging
        """(epoch, end offset) where the fetcher's log left the leader's (KIP-595)."""
        self.traffic = traffic
        """Where `records` are to be counted once they are sent."""


class ReplicaManager:
    """All partitions with a replica on this node, by topic name and by topic id."""

    def __init__(
        self,
        node_id: NodeId,
        logs: LogManager,
        clock: Clock,
        topic_config: Callable[[MetadataImage, str], LogConfig],
        directory_ids: Callable[[], Mapping[str, UUID]] = dict,
        metrics: NodeMetrics | None = None,
    ) -> None:
        """`directory_ids` gives the ids of the log directories that can be used, by path."""
        self.node_id = node_id
        self.logs = logs
        self._clock = clock
        self._topic_config = topic_config
        self._directory_ids = directory_ids
        self.metrics = NodeMetrics() if metrics is None else metrics
        self._placed: dict[tuple[UUID, int], UUID] = {}
        """Partitions whose log directory the metadata does not know yet."""
        self._detached: deque[Log] = deque()
        """Logs of deleted partitions, until `schedule_deletions`."""
        self._refusal_logged_ms: Millis | None = None
        """When a refusal was last logged."""
        self.missing: dict[TopicPartition, KafkaError] = {}
        """Partitions that should be here, and why their logs could not be opened or made."""
        self.by_name: dict[str, dict[int, Partition]] = {}
        self.by_id: dict[UUID, dict[int, Partition]] = {}
        """The same inner dictionaries as in `by_name`."""
        self.names: dict[UUID, str] = {}
        self.ids: dict[str, UUID] = {}
        self.on_leadership: list[Callable[[Partition], None]] = []
        """Called after a partition's leader or epoch changed, and after it was deleted (`is_leader` false then)."""

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.by_name.values():
            yield from partitions.values()

    def warn_of_refusal(self, partition: Partition, error: KafkaError, now_ms: Millis) -> None:
        """Log a warning that records were refused because of the disk, unless one was logged shortly before."""
        if self._refusal_logged_ms is None or not 0 <= now_ms - self._refusal_logged_ms < REFUSALS_LOGGED_EVERY_MS:
            self._refusal_logged_ms = now_ms
            found = fields(partition=partition.topic_partition, error=str(error))
            _LOG.warning("records refused: the disk cannot be written", extra=found)

    # Looking up.

    def find(self, topic: str, partition: int) -> Partition:
        """The partition. Raises UNKNOWN_TOPIC_OR_PARTITION, or KAFKA_STORAGE_ERROR where its log cannot be used."""
        found = self.by_name.get(topic, NO_PARTITIONS).get(partition)
        if found is None:
            raise self.missing.get(TopicPartition(topic, partition)) or KafkaError(ErrorCode.unknown_topic_or_partition)
        return found

    def find_by_id(self, topic_id: UUID, partition: int) -> Partition:
        """The partition. Raises UNKNOWN_TOPIC_ID for the topic, and as `find` for the partition of one."""
        topic = self.by_id.get(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.unknown_topic_id)
        return topic.get(partition) or self.find(self.names[topic_id], partition)

    def get(self, topic: str, partition: int) -> Partition | None:
        return self.by_name.get(topic, NO_PARTITIONS).get(partition)

    # Following the metadata.

    def create_logs(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[None]:
        """Create the logs of new partitions before `apply`, a few in each step: for thousands that takes seconds."""
        made = 0
        for topic, number, registration in delta.changed_partitions():
            key = TopicPartition(topic.name, number)
            if self.node_id not in registration.replicas or self.logs.get(key) is not None:
                continue
            try:
                self._open(key, topic.id, self._topic_config(image, topic.name), registration)
            except KafkaError:
                return  # `apply` meets it again, and logs it
            made += 1
            if made % LOGS_PER_STEP == 0:
                yield

    def schedule_deletions(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[None]:
        """After `apply`: schedule the deletion of the logs of deleted partitions, a few in each step."""
        while self._detached:
            for _ in range(min(LOGS_PER_STEP, len(self._detached))):
                self.logs.schedule_deletion(self._detached.popleft())
            yield

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Create, update and delete replicas as `delta` says; `image` is the result. The controller calls this."""
        for gone in delta.deleted_topics.values():
            self._remove_topic(gone.name, gone.id, gone.partitions)
        if delta.topics:  # one of them may want the directory of one that is gone
            for _ in self.schedule_deletions(delta, image):
                pass
        missing = set(self.missing)
        for topic, number, registration in delta.changed_partitions():
            if self.node_id in registration.replicas:
                self._update(image, topic.name, topic.id, number, registration)
        new = [key for key in self.missing if key not in missing]
        if new:
            found = fields(partitions=len(new), first=new[0], error=str(self.missing[new[0]]))
            _LOG.warning("partitions have no log", extra=found)
        for topic_name in delta.changed_configs(ConfigResourceType.TOPIC):
            if topic_name in self.by_name:
                self.update_topic_config(image, topic_name)

    def open_missing(self, image: MetadataImage) -> None:
        """Try once more where a log could not be made: there may be room on the disk again."""
        for key in list(self.missing):
            topic = image.topic(key.topic)
            registration = None if topic is None else topic.partitions.get(key.partition)
            if topic is not None and registration is not None:
                self._update(image, topic.name, topic.id, key.partition, registration)

    def take_placed(self) -> dict[tuple[UUID, int], UUID]:
        """(topic id, partition) to directory id where the metadata says something else, for the controller to know."""
        placed, self._placed = self._placed, {}
        return placed

    def update_topic_config(self, image: MetadataImage, topic: str) -> None:
        """Give a topic's partitions their new configuration."""
        config = self._topic_config(image, topic)
        self.logs.update_topic_config(topic, config)
        for partition in self.by_name.get(topic, NO_PARTITIONS).values():
            partition.min_isr = config.min_insync_replicas

    def _update(self, image: MetadataImage, topic: str, topic_id: UUID, number: int, registration: Any) -> None:
        partitions = self.by_name.get(topic)
        if partitions is None:
            partitions = self.by_name[topic] = {}
        if self.ids.get(topic) != topic_id:
            self.ids[topic] = topic_id
            self.names[topic_id] = topic
            self.by_id[topic_id] = partitions
        partition = partitions.get(number)
        if partition is None:
            key = TopicPartition(topic, number)
            config = self._topic_config(image, topic)
            try:
                log = self._open(key, topic_id, config, registration)
            except KafkaError as error:
                self.missing[key] = error
                return
            self.missing.pop(key, None)
            partition = partitions[number] = Partition(self.node_id, key, topic_id, log)
            partition.min_isr = config.min_insync_replicas
            partition.traffic = self.metrics.topic(topic)
        if partition.update(registration):
            partition.wake()
            for callback in self.on_leadership:
                callback(partition)

    def _open(self, key: TopicPartition, topic_id: UUID, config: LogConfig, registration: PartitionRegistration) -> Log:
        """The log of a partition, made if need be. Raises KafkaError.

        Never recreated beside one that may be in a directory that cannot be used now: its records would seem lost, and
        the two logs could not be joined again. With all directories in use, one that is unknown is gone for good.
        """
        ids = self._directory_ids()
        assigned = registration.directory(self.node_id)
        log = self.logs.get(key)
        if log is None or log.topic_id != topic_id:
            log_dir = next((path for path, directory_id in ids.items() if directory_id == assigned), None)
            if log_dir is None and self.logs.offline_dirs and assigned not in DIRECTORIES_RESERVED:
                raise KafkaError(ErrorCode.kafka_storage_error, "its log directory is missing or offline")
            if log_dir is None and self.logs.offline_dirs and registration.leader_epoch:
                raise KafkaError(ErrorCode.kafka_storage_error, "it may be in a log directory that is offline")
            log = self.logs.create(key, topic_id, config, log_dir=log_dir)
        directory_id = ids.get(posixpath.dirname(log.directory))
        if directory_id not in (None, assigned):
            self._placed[topic_id, key.partition] = directory_id
        return log

    def _remove_topic(self, topic: str, topic_id: UUID, numbers: Mapping[int, Any]) -> None:
        self.by_id.pop(topic_id, None)
        self.names.pop(topic_id, None)
        partitions = self.by_name.pop(topic, {})
        self.ids.pop(topic, None)
        self.metrics.remove_topic(topic)
        for number in numbers:
            partition = partitions.get(number)
            self.missing.pop(TopicPartition(topic, number), None)
            if partition is not None:
                partition.is_leader = partition.sole_in_sync = False
                partition.leader_id = -1
                partition.wake()
                for callback in self.on_leadership:
                    callback(partition)
            log = self.logs.detach(TopicPartition(topic, number))
            if log is not None:
                self._detached.append(log)
            self.logs.detach_offline(TopicPartition(topic, number), "delete")

    def rename_strays(self, image: MetadataImage) -> list[TopicPartition]:
        """Rename the stray logs, whose topic (by id) the metadata does not place here; called once after start."""

        def is_stray(log: Any) -> bool:
            key: TopicPartition = log.topic_partition
            topic = image.topic(key.topic)
            if key.topic == METADATA_TOPIC:
                return False
            if topic is None:
                return True
            if log.topic_id is not None and log.topic_id != topic.id:
                if not _is_damaged_id(log.topic_id, topic.id, image):
                    return True
                _LOG.error("damaged partition.metadata rewritten", extra=fields(log=log.directory))
                if isinstance(log, Log):
                    self.logs.name(log, topic.id)
            registration = topic.partitions.get(key.partition)
            return registration is None or self.node_id not in registration.replicas

        return self.logs.rename_strays(is_stray)

    # Reading.

    def read(
        self,
        partition: Partition,
        offset: Offset,
        max_bytes: int,
        *,
        isolation: int = READ_UNCOMMITTED,
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        min_one_batch: bool = True,
        nowait: bool = True,
    ) -> Read:
        """What a consumer may read at `offset` of a leader's log; errors are in the result, not raised.

        Raises only ColdRead, and only with `nowait`, where even finding the records needs the disk.
        """
        log = partition.log
        partition.traffic.fetches += 1
        try:
            if not partition.is_leader or leader_epoch >= 0:
                partition.check_leader(max(leader_epoch, -1))  # any negative one claims nothing here
            high_watermark: Offset = log.high_watermark
            log_start: Offset = log.log_start_offset
            if isolation == READ_COMMITTED:
                stable = up_to = log.last_stable_offset
            else:
                stable, up_to = log.last_stable_offset, high_watermark
            if last_fetched_epoch >= 0:
                diverging = _divergence(partition, last_fetched_epoch, offset)
                if diverging is not None:
                    return Read(ErrorCode.none, high_watermark, stable, log_start, None, None, diverging)
            records = log.read(offset, max_bytes, up_to=up_to, min_one_batch=min_one_batch, nowait=nowait)
            aborted: list[Any] | None = None
            if isolation == READ_COMMITTED:
                aborted = log.aborted_transactions(offset, up_to) if records is not None else []
            return Read(ErrorCode.none, high_watermark, stable, log_start, records, aborted, None, partition.traffic)
        except KafkaError as error:
            partition.traffic.failed_fetches += 1
            return Read(error.code)


def _is_damaged_id(found: UUID, expected: UUID, image: MetadataImage) -> bool:
    """Whether a log's topic id is no deleted topic's: a few bits off the right one, or that of another topic there is.

    Two random ids differ in 61 bits; 16 or fewer come once in 10^17 pairs.
    """
    other = image.topics_by_id.get(found)
    return other is not None or (found.int ^ expected.int).bit_count() <= TOPIC_ID_BITS_MAX


def _divergence(partition: Partition, last_fetched_epoch: int, offset: Offset) -> tuple[int, Offset] | None:
    """Where a fetcher whose last record is of this epoch must truncate to, None if it is in step (KIP-595)."""
    epoch, end = partition.end_of_epoch(last_fetched_epoch)
    if epoch < 0 or end < 0:
        raise KafkaError(ErrorCode.offset_out_of_range)
    if epoch < last_fetched_epoch or end < offset:
        return epoch, end
    return None
