"""AssignReplicasToDirs: in which of its log directories a broker keeps its replicas (KIP-858)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.config.effective import EffectiveConfig
from ottla.controller.broker_partitions import PartitionPlace, leave_partitions
from ottla.controller.brokers import known
from ottla.controller.decision import ITEMS_PER_STEP, Decision, Steps
from ottla.controller.partition_change import Changes, is_online
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata import features
from ottla.metadata.image import BrokerRegistration, MetadataImage
from ottla.metadata.replay import changed_partition
from ottla.model import ZERO_UUID, NodeId

if TYPE_CHECKING:
    from ottla.protocol.schemas import sent

Request = Mapping[str, Any]


def assign_replicas_to_dirs(
    image: MetadataImage, request: sent.AssignReplicasToDirsRequest, config: EffectiveConfig
) -> Steps[sent.AssignReplicasToDirsResponse]:
    """AssignReplicasToDirs. A replica in a directory that is offline is out of sync, and leads nothing.

    Raises KafkaError as `known`, and UNSUPPORTED_VERSION; rows that cannot be have an error of their own.
    """
    if not features.supports_directories(image.features):
        raise KafkaError(ErrorCode.unsupported_version, "Directory assignment is not supported yet.")
    broker = known(image, request)
    assignment = _Assignment(Changes(image, config), broker)
    rows: list[sent.AssignReplicasToDirsResponseDirectoryData] = []
    count = 0
    for directory in request["directories"]:
        topics: list[sent.AssignReplicasToDirsResponseTopicData] = []
        for topic in directory["topics"]:
            partitions: list[sent.AssignReplicasToDirsResponsePartitionData] = []
            for each in topic["partitions"]:
                count += 1
                if count % ITEMS_PER_STEP == 0:
                    yield
                number = each["partition_index"]
                error = assignment.assign(topic["topic_id"] or ZERO_UUID, number, directory["id"])
                partitions.append({"partition_index": number, "error_code": error})
            topics.append({"topic_id": topic["topic_id"], "partitions": partitions})
        rows.append({"id": directory["id"], "topics": topics})
    records = assignment.records
    yield from leave_partitions(image, config, broker.id, assignment.offline, records)
    return Decision({"error_code": ErrorCode.none, "directories": rows}, records, atomic=False)


class _Assignment:
    def __init__(self, changes: Changes, broker: BrokerRegistration) -> None:
        self._changes = changes
        self._broker = broker
        self.records: list[Any] = []
        self.offline: list[PartitionPlace] = []
        """Partitions whose replica is in a directory that this controller knows to be lost."""

    def assign(self, topic_id: UUID, number: int, directory: UUID) -> ErrorCode:
        topic = self._changes.image.topic_by_id(topic_id)
        if topic is None:
            return ErrorCode.unknown_topic_id
        partition = topic.partitions.get(number)
        if partition is None:
            return ErrorCode.unknown_topic_or_partition
        if self._broker.id not in partition.replicas:
            return ErrorCode.not_leader_or_follower
        change = self._changes.of(topic, number, partition)
        change.directories[self._broker.id] = directory
        record = change.record()
        if record is not None:
            self.records.append(record)
            partition = changed_partition(partition, record)
            elected = None if partition.leader >= 0 else self._changes.of(topic, number, partition).record()
            if elected is not None:  # where it was before, it could not lead
                self.records.append(elected)
                partition = changed_partition(partition, elected)
        if not is_online(self._broker, directory):
            self.offline.append(PartitionPlace(topic, number, partition))
        return ErrorCode.none


def assignment_request(
    node_id: NodeId, broker_epoch: int, directories: Mapping[tuple[UUID, int], UUID]
) -> sent.AssignReplicasToDirsRequest:
    """The AssignReplicasToDirs request that says (topic id, partition) to directory id."""
    found: dict[UUID, dict[UUID, list[sent.AssignReplicasToDirsRequestPartitionData]]] = {}
    for (topic_id, number), directory in directories.items():
        found.setdefault(directory, {}).setdefault(topic_id, []).append({"partition_index": number})
    return {
        "broker_id": node_id,
        "broker_epoch": broker_epoch,
        "directories": [{"id": directory, "topics": list(_topics(topics))} for directory, topics in found.items()],
    }


def _topics(
    topics: Mapping[UUID, list[sent.AssignReplicasToDirsRequestPartitionData]],
) -> Iterator[sent.AssignReplicasToDirsRequestTopicData]:
    return ({"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items())
