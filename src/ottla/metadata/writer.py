"""An image as the records that would build it: what a snapshot holds, in the order of Kafka's `MetadataImage.write`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ottla.metadata import features
from ottla.metadata.image import (
    BrokerRegistration,
    ControllerRegistration,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
)
from ottla.model import TopicId
from ottla.protocol.internal.metadata_records import encode_record
from ottla.protocol.schemas import records as r


def image_records(image: MetadataImage) -> Iterator[Any]:
    """Records whose replay on an empty image gives `image`. Versions are the writer's business, see `encode`."""
    yield from _features(image)
    for controller in image.controllers.values():
        yield controller_record(controller)
    for broker in image.brokers.values():
        yield broker_record(broker)
    for topic in image.topics:
        yield from _topic(topic)
    for resource, configs in sorted(image.configs.items()):
        for name, value in sorted(configs.items()):
            yield r.ConfigRecord(resource.type, resource.name, name, value)
    for entity, quotas in image.client_quotas.items():
        for key, quota in quotas.items():
            parts = tuple(r.QuotaEntityData(kind, name) for kind, name in entity)
            yield r.ClientQuotaRecord(parts, key, quota)
    if image.next_producer_id > 0:
        yield r.ProducerIdsRecord(-1, -1, image.next_producer_id)
    yield from image.acls.values()
    yield from image.scram_credentials.values()
    yield from image.delegation_tokens.values()


def encode(record: Any, metadata_version: int) -> bytes:
    """A framed record in the version that `metadata.version` asks for."""
    version = features.record_version(type(record), metadata_version)
    if isinstance(record, r.BrokerRegistrationChangeRecord):
        version = min(version, _change_version(record))
    return encode_record(record, version)


def _change_version(record: r.BrokerRegistrationChangeRecord) -> int:
    """The lowest version that says all of it; Kafka writes no higher one."""
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0


def _features(image: MetadataImage) -> Iterator[Any]:
    """metadata.version comes first, for it decides how the others are read. kraft.version is a control record."""
    level = image.features.get(features.METADATA_VERSION)
    if level is not None:
        yield r.FeatureLevelRecord(features.METADATA_VERSION, level)
    for name, level in sorted(image.features.items()):
        if name not in (features.METADATA_VERSION, features.KRAFT_VERSION):
            yield r.FeatureLevelRecord(name, level)


def _topic(topic: TopicImage) -> Iterator[Any]:
    yield r.TopicRecord(topic.name, topic.id)
    for number, partition in topic.partitions.items():
        yield partition_record(topic.id, number, partition)


def partition_record(topic_id: TopicId, number: int, partition: PartitionRegistration) -> r.PartitionRecord:
    """A partition whole, as when it is created. Empty lists of eligible leaders stay null (`PartitionRegistration`)."""
    return r.PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing,
        adding_replicas=partition.adding,
        leader=partition.leader,
        leader_recovery_state=partition.recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories,
        eligible_leader_replicas=partition.elr or None,
        last_known_elr=partition.last_known_elr or None,
    )


def broker_record(broker: BrokerRegistration) -> r.RegisterBrokerRecord:
    return r.RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=_endpoints(broker),
        features=_ranges(broker),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_dirs,
        cordoned_log_dirs=broker.cordoned_log_dirs or None,
    )


def controller_record(controller: ControllerRegistration) -> r.RegisterControllerRecord:
    return r.RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        end_points=_endpoints(controller),
        features=_ranges(controller),
    )


def _endpoints(node: BrokerRegistration | ControllerRegistration) -> tuple[r.EndpointData, ...]:
    return tuple(r.EndpointData(name, *endpoint) for name, endpoint in node.endpoints.items())


def _ranges(node: BrokerRegistration | ControllerRegistration) -> tuple[r.FeatureRange, ...]:
    return tuple(r.FeatureRange(name, low, high) for name, (low, high) in node.features.items())
