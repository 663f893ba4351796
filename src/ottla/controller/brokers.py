"""Registration of nodes, and who leads once a broker came, went or came back (Kafka's ClusterControlManager and
ReplicationControlManager).

In a quorum of one the broker and its controller are one process: registration and unfencing are one decision, and a
restarted broker leads its partitions again in a new leader epoch at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from ottla.controller.decision import Decision
from ottla.metadata import features
from ottla.metadata.image import (
    DIRECTORIES_RESERVED,
    NO_LEADER,
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    LeaderRecoveryState,
    MetadataImage,
    PartitionRegistration,
)
from ottla.metadata.writer import broker_record, controller_record
from ottla.model import NodeId
from ottla.protocol.internal import metadata_records as r


class Registration(NamedTuple):
    """What a node says of itself when it starts."""

    node_id: NodeId
    incarnation_id: UUID
    """Drawn at random by each process."""
    endpoints: Mapping[str, Endpoint]
    rack: str | None = None
    log_dirs: tuple[UUID, ...] = ()
    cordoned_log_dirs: tuple[UUID, ...] = ()


def register_controller(image: MetadataImage, node: Registration) -> Decision[None]:
    if not features.supports_controller_registration(image.features):
        return Decision(None)
    registration = ControllerRegistration(node.node_id, node.incarnation_id, node.endpoints, features.SUPPORTED)
    return Decision(None, [controller_record(registration)])


def register_broker(image: MetadataImage, node: Registration) -> Decision[int]:
    """Register and unfence a broker, and elect it where it may lead. The response is its broker epoch.

    The epoch is the offset of the registration record, the first of this decision, and so grows with every restart.
    """
    epoch = image.offset + 1
    registration = BrokerRegistration(
        id=node.node_id,
        epoch=epoch,
        incarnation_id=node.incarnation_id,
        endpoints=node.endpoints,
        features=features.SUPPORTED,
        rack=node.rack,
        fenced=True,
        log_dirs=tuple(sorted(node.log_dirs)),
        cordoned_log_dirs=node.cordoned_log_dirs,
    )
    unfence = r.BrokerRegistrationChangeRecord(node.node_id, epoch, fenced=-1)
    records: list[Any] = [broker_record(registration), unfence]
    records += _elect_returning(image, node.node_id, frozenset(node.log_dirs))
    return Decision(epoch, records, atomic=False)


def _elect_returning(image: MetadataImage, node_id: NodeId, log_dirs: frozenset[UUID]) -> Iterator[Any]:
    """What is in a log directory that did not come back leads nothing until that does."""
    online = log_dirs | DIRECTORIES_RESERVED
    for topic in image.topics_by_name.values():
        for number, partition in topic.partitions.items():
            if log_dirs and partition.directory(node_id) not in online:
                change = None if partition.leader != node_id else r.PartitionChangeRecord(leader=NO_LEADER)
            else:
                change = returning_leader(partition, node_id)
            if change is not None:
                change.topic_id = topic.id
                change.partition_id = number
                yield change


def returning_leader(partition: PartitionRegistration, node_id: NodeId) -> r.PartitionChangeRecord | None:
    """The change that lets a broker lead a partition after its restart; None where it leads nothing.

    It led when it went down: it leads again, in a new epoch, since unflushed records may be lost (KIP-320). Nobody
    leads: it may if it is in the ISR, or eligible (KIP-966), or the last known leader, which is an unclean election.
    """
    if partition.leader == node_id:
        return r.PartitionChangeRecord(leader=node_id)
    if partition.leader >= 0:
        return None
    change = r.PartitionChangeRecord(leader=node_id)
    if node_id not in partition.isr:
        unclean = not partition.isr and not partition.elr and partition.last_known_elr == (node_id,)
        if node_id not in partition.elr and not unclean:
            return None
        change.isr = (node_id,)
        if unclean:
            change.leader_recovery_state = LeaderRecoveryState.RECOVERING
    if partition.elr:
        change.eligible_leader_replicas = tuple(each for each in partition.elr if each != node_id)
    if partition.last_known_elr:
        change.last_known_elr = ()
    return change


def fence(image: MetadataImage, node_id: NodeId) -> Decision[None]:
    """Note that a broker stops, so that whoever starts on its directory next need not wait for its session to end.

    Kafka also takes the leadership of its partitions away. In a quorum of one nobody else could lead, and the next
    registration begins a new leader epoch for all of them.
    """
    broker = image.brokers.get(node_id)
    if broker is None or broker.fenced:
        return Decision(None)
    return Decision(None, [r.BrokerRegistrationChangeRecord(node_id, broker.epoch, fenced=1, in_controlled_shutdown=1)])


def assign_directories(
    image: MetadataImage, node_id: NodeId, directories: Mapping[tuple[UUID, int], UUID]
) -> Decision[None]:
    """Record in which of its log directories a broker keeps its replicas: (topic id, partition) to directory id
    (KIP-858). Unknown partitions are passed over: they were deleted meanwhile."""
    records: list[Any] = []
    for (topic_id, number), directory in directories.items():
        topic = image.topic_by_id(topic_id)
        partition = None if topic is None else topic.partitions.get(number)
        if partition is None or node_id not in partition.replicas or partition.directory(node_id) == directory:
            continue
        assigned = list(partition.directories)
        assigned[partition.replicas.index(node_id)] = directory
        records.append(r.PartitionChangeRecord(number, topic_id, directories=tuple(assigned)))
    return Decision(None, records, atomic=False)
