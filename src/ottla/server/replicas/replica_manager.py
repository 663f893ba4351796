"""The partitions of this node: keeps logs and leadership in step with the metadata image, appends, reads.

Kafka's `ReplicaManager`. Handlers find a `Partition` here by topic name or id; what may be read or written is the
partition's and the log's business, what waits for it the purgatory's.
"""

from __future__ import annotations

import logging
import posixpath
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.logs import fields
from ottla.metadata.image import DIRECTORIES_RESERVED, DIRECTORY_LOST, NO_LEADER, BrokerRegistration, ConfigResourceType
from ottla.metrics.instruments import NodeMetrics
from ottla.model import METADATA_TOPIC, Millis, NodeId, Offset, TopicPartition
from ottla.replication.partition import Partition
from ottla.storage.config import LogConfig
from ottla.storage.log.log import Log

if TYPE_CHECKING:
    from ottla.clock import Clock
    from ottla.metadata.delta import MetadataDelta
    from ottla.metadata.image import MetadataImage, PartitionRegistration
    from ottla.replication.throttle import Throttle
    from ottla.server.produce.refusals import Refusals
    from ottla.storage.log_manager import LogManager
    from ottla.storage.offline_logs import OfflineLog

_LOG = logging.getLogger("ottla.logs")

NO_PARTITIONS: Mapping[int, Partition] = {}

REFUSALS_LOGGED_EVERY_MS = 60_000
"""Interval between warnings of a disk that cannot be written: clients retry all the time."""

LOGS_PER_STEP = 2
"""Making the files of a log costs about 0.3 ms, and several where the disk is busy."""

DELETIONS_PER_STEP = 8
"""Renaming the directory of one costs a tenth of that."""

TOPIC_ID_BITS_MAX = 16
"""Number of bits by which a damaged topic id may differ."""


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
        self._lost: set[tuple[UUID, int]] = set()
        """Partitions whose directory the metadata calls lost: their logs were given up, and are fetched again."""
        self._gone: deque[tuple[TopicPartition, Partition | None]] = deque()
        """Partitions of deleted topics, which nobody finds any more, until `schedule_deletions`."""
        self._detached: deque[Log] = deque()
        """Logs of deleted partitions, until `schedule_deletions`."""
        self._prepared: dict[UUID, dict[int, Partition]] = {}
        """Partitions, by topic, that `prepare` made for the change that is about to be published."""
        self._brokers: Mapping[NodeId, BrokerRegistration] = {}
        self._refusal_logged_ms: Millis | None = None
        """When a refusal was last logged."""
        self.missing: dict[TopicPartition, KafkaError] = {}
        """Partitions that should be here, and why their logs could not be opened or made."""
        self.preferred_dirs: dict[TopicPartition, str] = {}
        """Log directories that AlterReplicaLogDirs named for replicas that are not here yet."""
        self.by_name: dict[str, dict[int, Partition]] = {}
        self.by_id: dict[UUID, dict[int, Partition]] = {}
        """The same inner dictionaries as in `by_name`."""
        self.generation = 0
        """Counts changes of what these dictionaries and `missing` say."""
        self.has_peers = False
        """Whether a partition has replicas elsewhere, or had."""
        self.rack_aware = False
        """Whether consumers are sent to a replica in their rack (`replica.selector.class`)."""
        self.leader_throttle: Throttle | None = None
        """Throttle of bytes that other replicas fetch here, once there are any."""
        self.ask_isr: Callable[[Partition, tuple[NodeId, ...]], None] | None = None
        """Takes the in-sync set that a partition could have."""
        self.names: dict[UUID, str] = {}
        self.ids: dict[str, UUID] = {}
        self.on_leadership: list[Callable[[Partition], None]] = []
        """Called after a partition's leader or epoch changed, and after it was deleted (`is_leader` false then)."""

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.by_name.values():
            yield from partitions.values()

    @cached_property
    def refusals(self) -> Refusals:
        """Made with the first records that are refused."""
        from ottla.server.produce.refusals import Refusals

        return Refusals(self.logs.producers.refused)

    def warn_of_refusal(self, partition: Partition, error: KafkaError, now_ms: Millis) -> None:
        """Log a warning that records were refused because of the disk, unless one was logged shortly before."""
        if self._refusal_logged_ms is None or not 0 <= now_ms - self._refusal_logged_ms < REFUSALS_LOGGED_EVERY_MS:
            self._refusal_logged_ms = now_ms
            found = fields(partition=partition.topic_partition, error=str(error))
            _LOG.warning("records refused: the disk cannot be written", extra=found)

    # Looking up.

    def name_of(self, topic_id: UUID, image: MetadataImage) -> str | None:
        """The name of a topic, as long as the image or a replica here knows it."""
        topic = image.topic_by_id(topic_id)
        return self.names.get(topic_id) if topic is None else topic.name

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

    def prepare(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[None]:
        """Make new partitions and their logs before `apply`, a few in each step: for thousands that takes seconds.
        Nobody finds them yet."""
        made = 0
        self._prepared.clear()
        for topic, number, registration in delta.changed_partitions():
            key = TopicPartition(topic.name, number)
            known = self.logs.get(key) is not None or self.get(*key) is not None
            if known or self.node_id not in registration.replicas:
                continue
            try:
                partition = self._make(image, key, topic.id, registration)
            except KafkaError:
                return  # `apply` meets it again, and logs it
            partition.update(registration)
            self._prepared.setdefault(topic.id, {})[number] = partition
            made += 1
            if made % LOGS_PER_STEP == 0:
                yield

    def schedule_deletions(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[None]:
        """After `apply`: end deleted partitions and schedule the deletion of their logs, a few in each step."""
        while self._gone or self._detached:
            for _ in range(min(DELETIONS_PER_STEP, len(self._gone))):
                self._delete(*self._gone.popleft())
            for _ in range(min(DELETIONS_PER_STEP, len(self._detached))):
                self.logs.schedule_deletion(self._detached.popleft())
            yield

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Create, update and delete replicas as `delta` says; `image` is the result. The controller calls this."""
        self._brokers = image.brokers
        for gone in delta.deleted_topics.values():
            self._remove_topic(gone.name, gone.id, gone.partitions)
        if delta.topics and (self._gone or self._detached):  # one of them may want the directory of one that is gone
            for _ in self.schedule_deletions(delta, image):
                pass
        missing = set(self.missing)
        for topic in delta.topics.values():
            prepared = self._prepared.pop(topic.id, NO_PARTITIONS)
            if prepared:
                self._add(topic.name, topic.id, prepared)
            for number, registration in topic.changes.items() if len(prepared) < len(topic.changes) else ():
                if number in prepared:
                    continue
                if self.node_id in registration.replicas:
                    self._update(image, topic.name, topic.id, number, registration)
                elif self.by_id.get(topic.id):
                    self._remove(topic.name, number)
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

    def reconsider(self, now_ms: Millis) -> None:
        """Recheck partitions whose waiters wait for a replica that is not in sync and does not come."""
        for partition in self:
            partition.reconsider(now_ms)

    def take_placed(self) -> dict[tuple[UUID, int], UUID]:
        """(topic id, partition) to directory id where the metadata says something else, for the controller to know.

        A log that is fetched again stays lost until it is in sync: nobody may elect it before, not even as one that
        was in sync when the set had shrunk too far (KIP-966).
        """
        placed, self._placed = self._placed, {}
        if self._lost:
            for place in [place for place in placed if place in self._lost and self._is_fetching(*place)]:
                self._placed[place] = placed.pop(place)
            self._lost.difference_update(placed)
        return placed

    def _is_fetching(self, topic_id: UUID, number: int) -> bool:
        """Whether this replica is not in sync. Where nobody leads, as the others that were died, it waits for them: it
        would be elected without their records."""
        partition = self.by_id.get(topic_id, NO_PARTITIONS).get(number)
        return partition is not None and self.node_id not in partition.isr

    def moved(self, partition: Partition) -> None:
        """A replica is in another log directory now, of which the metadata is to hear."""
        log = self.logs.get(partition.topic_partition)
        directory_id = None if log is None else self._directory_ids().get(posixpath.dirname(log.directory))
        if directory_id is not None:
            self._placed[partition.topic_id, partition.topic_partition.partition] = directory_id

    def place_again(self, placed: Mapping[tuple[UUID, int], UUID]) -> None:
        """The controller could not be told: `take_placed` is to give these once more, but for what is known better."""
        self._placed = {**placed, **self._placed}

    def update_topic_config(self, image: MetadataImage, topic: str) -> None:
        """Give a topic's partitions their new configuration."""
        config = self._topic_config(image, topic)
        self.logs.update_topic_config(topic, config)
        for partition in self.by_name.get(topic, NO_PARTITIONS).values():
            partition.set_min_isr(config.min_insync_replicas)

    def live_epoch(self, node_id: NodeId) -> int:
        """The broker epoch of a node that may be in sync, -1 for one that may not."""
        broker = self._brokers.get(node_id)
        return broker.epoch if broker is not None and broker.active else -1

    def _of_topic(self, topic: str, topic_id: UUID) -> dict[int, Partition]:
        """A topic's partitions here, to be changed."""
        self.generation += 1
        partitions = self.by_name.get(topic)
        if partitions is None:
            partitions = self.by_name[topic] = {}
        if self.ids.get(topic) != topic_id:
            self.ids[topic] = topic_id
            self.names[topic_id] = topic
            self.by_id[topic_id] = partitions
        return partitions

    def _add(self, topic: str, topic_id: UUID, prepared: Mapping[int, Partition]) -> None:
        """Add the partitions that `prepare` made."""
        self._of_topic(topic, topic_id).update(prepared)
        for partition in prepared.values():
            if len(partition.replicas) > 1:
                self.has_peers = True
            for callback in self.on_leadership:
                callback(partition)

    def _make(
        self, image: MetadataImage, key: TopicPartition, topic_id: UUID, registration: PartitionRegistration
    ) -> Partition:
        """A new partition with its log. Raises KafkaError."""
        config = self._topic_config(image, key.topic)
        log = self._open(key, topic_id, config, registration)
        self.missing.pop(key, None)
        partition = Partition(self.node_id, key, topic_id, log, self.live_epoch)
        self.logs.producers.refused.named(topic_id, *key)
        partition.min_isr = config.min_insync_replicas
        partition.traffic = self.metrics.topic(key.topic)
        partition.on_caught_up = self._on_caught_up
        return partition

    def _update(
        self, image: MetadataImage, topic: str, topic_id: UUID, number: int, registration: PartitionRegistration
    ) -> None:
        partitions = self._of_topic(topic, topic_id)
        partition = partitions.get(number)
        if partition is None:
            key = TopicPartition(topic, number)
            try:
                partition = partitions[number] = self._make(image, key, topic_id, registration)
            except KafkaError as error:
                self.missing[key] = error
                return
        if len(registration.replicas) > 1:
            self.has_peers = True
        if partition.update(registration):
            partition.wake()
            for callback in self.on_leadership:
                callback(partition)

    def _on_caught_up(self, partition: Partition, isr: tuple[NodeId, ...]) -> None:
        if self.ask_isr is not None:
            self.ask_isr(partition, isr)

    def preferred_replica(self, partition: Partition, rack: str, offset: Offset) -> NodeId:
        """The replica in a consumer's rack that has most, -1 where it is the leader or there is none (KIP-392)."""
        if not partition.is_leader:
            return -1
        from ottla.replication.nearest_replica import nearest_replica  # only where racks are used

        return nearest_replica(partition, rack, offset, lambda node_id: self._rack_of(node_id))

    def _rack_of(self, node_id: NodeId) -> str | None:
        broker = self._brokers.get(node_id)
        return broker.rack if broker is not None and not broker.fenced else None

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
            if self._is_fetched_again(key, registration):
                _LOG.warning(
                    "a damaged log is fetched again from its leader",
                    extra=fields(partition=key, error=str(self.logs.offline_logs[key].error)),
                )
                self.logs.detach_offline(key, "stray")
            preferred = self.preferred_dirs.pop(key, None)
            if log_dir is None and preferred in self.logs.online_dirs and key not in self.logs.offline_logs:
                log_dir = preferred
            log = self.logs.create(key, topic_id, config, log_dir=log_dir)
        directory_id = ids.get(posixpath.dirname(log.directory))
        if directory_id not in (None, assigned):
            self._placed[topic_id, key.partition] = directory_id
            is_last = registration.leader == NO_LEADER and self.node_id in registration.elr  # which is not given up
            if assigned == DIRECTORY_LOST and not is_last:
                self._lost.add((topic_id, key.partition))
        return log

    def give_up(self, partition: Partition, image: MetadataImage) -> None:
        """Rename the damaged log of a partition, and have it fetched again: others have all that is committed, and
        nobody counts on this replica (`may_start_over`). Raises KafkaError where it cannot be renamed."""
        key = partition.topic_partition
        log = self.logs.get(key)
        assert log is not None
        self.generation += 1
        del self.by_name[key.topic][key.partition]
        partition.remove(ErrorCode.not_leader_or_follower)
        for callback in self.on_leadership:
            callback(partition)
        self.missing[key] = KafkaError(ErrorCode.kafka_storage_error, f"the log of {key} is damaged")
        self.logs.rename_damaged(log)
        topic = image.topic(key.topic)
        if topic is not None and key.partition in topic.partitions:
            self._update(image, topic.name, topic.id, key.partition, topic.partitions[key.partition])

    def may_start_over(self, registration: PartitionRegistration) -> bool:
        """Whether this replica may begin again with an empty log: another one leads, and nobody counts on this one. One
        in sync might be elected next, and so might one that was when the set had shrunk too far (KIP-966), unless the
        metadata calls its log lost."""
        if registration.leader in (NO_LEADER, self.node_id) or self.node_id in registration.isr:
            return False
        return self.node_id not in registration.elr or registration.directory(self.node_id) == DIRECTORY_LOST

    def _is_fetched_again(self, key: TopicPartition, registration: PartitionRegistration) -> bool:
        """Whether a log that was damaged when the node started may start empty."""
        offline = self.logs.offline_logs.get(key)
        return offline is not None and offline.damage is not None and self.may_start_over(registration)

    def _remove_topic(self, topic: str, topic_id: UUID, numbers: Mapping[int, Any]) -> None:
        self.generation += 1
        self.by_id.pop(topic_id, None)
        self.names.pop(topic_id, None)
        partitions = self.by_name.pop(topic, {})
        self.ids.pop(topic, None)
        self.metrics.remove_topic(topic)
        for number in numbers:
            key = TopicPartition(topic, number)
            self.missing.pop(key, None)
            self._gone.append((key, partitions.get(number)))

    def _remove(self, topic: str, number: int) -> None:
        """The controller has given this replica of a topic to another node."""
        self.generation += 1
        partitions = self.by_name.get(topic, {})
        self._delete(TopicPartition(topic, number), partitions.pop(number, None))
        if not partitions:
            topic_id = self.ids.pop(topic)
            self.by_name.pop(topic)
            self.by_id.pop(topic_id)
            self.names.pop(topic_id)
            self.metrics.remove_topic(topic)

    def _delete(self, key: TopicPartition, partition: Partition | None) -> None:
        self.missing.pop(key, None)
        if partition is not None:
            partition.remove()
            for callback in self.on_leadership:
                callback(partition)
        log = self.logs.detach(key)
        if log is not None:
            self._detached.append(log)
        self.logs.detach_offline(key, "delete")

    def rename_strays(self, image: MetadataImage) -> list[TopicPartition]:
        """Rename the stray logs, whose topic (by id) the metadata does not place here; called once after start."""

        def is_stray(log: Log | OfflineLog) -> bool:
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


def _is_damaged_id(found: UUID, expected: UUID, image: MetadataImage) -> bool:
    """Whether a log's topic id is no deleted topic's: a few bits off the right one, or that of another topic there is.

    Two random ids differ in 61 bits; 16 or fewer come once in 10^17 pairs.
    """
    other = image.topics_by_id.get(found)
    return other is not None or (found.int ^ expected.int).bit_count() <= TOPIC_ID_BITS_MAX
