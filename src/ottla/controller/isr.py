"""AlterPartition: the leader of a partition changes its in-sync replicas (`ReplicationControlManager.alterPartition`).

KIP-497; KIP-841 and KIP-903 keep brokers out of the ISR that are fenced or not the ones that the leader thinks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.config.effective import EffectiveConfig
from ottla.controller.brokers import known
from ottla.controller.decision import ITEMS_PER_STEP, Decision, Steps
from ottla.controller.partition_change import Changes
from ottla.errors import ErrorCode
from ottla.metadata.image import NO_LEADER_CHANGE, LeaderRecoveryState, MetadataImage, PartitionRegistration
from ottla.metadata.replay import changed_partition
from ottla.model import ZERO_UUID, NodeId
from ottla.protocol.schemas.records import PartitionChangeRecord

if TYPE_CHECKING:
    from ottla.protocol.schemas import sent

Request = Mapping[str, Any]


def alter_partition(
    image: MetadataImage, request: sent.AlterPartitionRequest, config: EffectiveConfig
) -> Steps[sent.AlterPartitionResponse]:
    """Rows stand for themselves; a request without any is not looked at. Raises KafkaError STALE_BROKER_EPOCH."""
    if not request["topics"]:
        return Decision({"error_code": ErrorCode.none, "topics": []})
    node_id = known(image, request).id
    changes = Changes(image, config)
    records: list[Any] = []
    topics: list[sent.AlterPartitionResponseTopicData] = []
    count = 0
    for topic in request["topics"]:
        rows: list[sent.AlterPartitionResponsePartitionData] = []
        for asked in topic["partitions"]:
            count += 1
            if count % ITEMS_PER_STEP == 0:
                yield
            rows.append(_row(changes, node_id, topic["topic_id"] or ZERO_UUID, asked, records))
        topics.append({"topic_id": topic["topic_id"], "partitions": rows})
    return Decision({"error_code": ErrorCode.none, "topics": topics}, records, atomic=False)


def _row(
    changes: Changes,
    node_id: NodeId,
    topic_id: UUID,
    asked: sent.AlterPartitionRequestPartitionData,
    records: list[PartitionChangeRecord],
) -> sent.AlterPartitionResponsePartitionData:
    """A change that ends a reassignment may make another broker the leader; then the answer is an error, and the change
    is made."""
    number = asked["partition_index"]
    topic = changes.image.topic_by_id(topic_id)
    partition = None if topic is None else topic.partitions.get(number)
    if topic is None:
        return {"partition_index": number, "error_code": ErrorCode.unknown_topic_id}
    if partition is None:
        return {"partition_index": number, "error_code": ErrorCode.unknown_topic_or_partition}
    error = _refused(changes.image, node_id, partition, asked)
    if error:
        return {"partition_index": number, "error_code": error}
    change = changes.of(topic, number, partition).allow_unclean()
    change.isr = tuple(broker_id for broker_id, _ in _wanted(asked))
    change.recovery_state = asked.get("leader_recovery_state", LeaderRecoveryState.RECOVERED)
    record = change.record()
    if record is not None:
        records.append(record)
        partition = changed_partition(partition, record)
        if record.leader not in (NO_LEADER_CHANGE, node_id):
            return {"partition_index": number, "error_code": ErrorCode.new_leader_elected}
    return {
        "partition_index": number,
        "error_code": ErrorCode.none,
        "leader_id": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": partition.isr,
        "leader_recovery_state": partition.recovery_state,
        "partition_epoch": partition.partition_epoch,
    }


def _wanted(asked: sent.AlterPartitionRequestPartitionData) -> list[tuple[NodeId, int]]:
    """(broker, broker epoch) of the new ISR; version 2 of the request names the brokers alone."""
    if asked.get("new_isr_with_epochs"):
        return [(each["broker_id"], each["broker_epoch"]) for each in asked["new_isr_with_epochs"]]
    return [(node_id, -1) for node_id in asked.get("new_isr") or ()]


def _refused(
    image: MetadataImage,
    node_id: NodeId,
    partition: PartitionRegistration,
    asked: sent.AlterPartitionRequestPartitionData,
) -> ErrorCode:
    """The error for a refused change, checked in Kafka's order."""
    if asked["leader_epoch"] > partition.leader_epoch or asked["partition_epoch"] > partition.partition_epoch:
        return ErrorCode.not_controller  # the leader has seen what this controller has not
    if asked["leader_epoch"] < partition.leader_epoch:
        return ErrorCode.fenced_leader_epoch
    if node_id != partition.leader:
        return ErrorCode.invalid_request
    if asked["partition_epoch"] < partition.partition_epoch:
        return ErrorCode.invalid_update_version
    wanted = _wanted(asked)
    isr = [broker_id for broker_id, _ in wanted]
    state = asked.get("leader_recovery_state", LeaderRecoveryState.RECOVERED)
    if not set(isr) <= set(partition.replicas) or len(set(isr)) != len(isr) or node_id not in isr:
        return ErrorCode.invalid_request
    if state == LeaderRecoveryState.RECOVERING and (
        len(isr) > 1 or partition.recovery_state == LeaderRecoveryState.RECOVERED
    ):
        return ErrorCode.invalid_request
    for broker_id, epoch in wanted:
        broker = image.brokers.get(broker_id)
        if broker is None or not broker.active or epoch not in (-1, broker.epoch):
            return ErrorCode.ineligible_replica
    return ErrorCode.none
