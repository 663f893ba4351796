"""Records and images that the tests of the upper layers share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from uuid import UUID

from ottla.config.effective import EffectiveConfig
from ottla.metadata import features
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, ConfigResourceType, MetadataImage
from ottla.metadata.replay import replay
from ottla.protocol.schemas import records as r

DIRECTORY = UUID(int=0xD1)


def feature_records(level: int = features.METADATA_VERSION_4_3) -> list[Any]:
    return [
        r.FeatureLevelRecord(name, level if name == features.METADATA_VERSION else value)
        for name, value in features.BOOTSTRAP.items()
    ]


def broker_records(
    node_id: int, *, rack: str | None = None, fenced: bool = False, log_dirs: tuple[UUID, ...] = (DIRECTORY,)
) -> list[Any]:
    endpoint = r.EndpointData("PLAINTEXT", "127.0.0.1", 9092, 0)
    ranges = tuple(r.FeatureRange(name, low, high) for name, (low, high) in features.SUPPORTED.items())
    return [
        r.RegisterBrokerRecord(
            broker_id=node_id,
            incarnation_id=UUID(int=node_id),
            broker_epoch=node_id,
            end_points=(endpoint,),
            features=ranges,
            rack=rack,
            fenced=fenced,
            log_dirs=log_dirs,
        )
    ]


def topic_records(name: str, number: int, partitions: int = 1, **fields: Any) -> list[Any]:
    values = {"replicas": (1,), "isr": (1,), "leader": 1, "leader_epoch": 0, "partition_epoch": 0}
    values |= {"directories": (DIRECTORY,), **fields}
    topic_id = UUID(int=number)
    return [
        r.TopicRecord(name, topic_id),
        *(r.PartitionRecord(partition_id=each, topic_id=topic_id, **values) for each in range(partitions)),
    ]


def apply(records: Iterable[Any], base: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    """The image after `records`, each of which counts one offset."""
    delta = MetadataDelta(base)
    count = 0
    for record in records:
        replay(record, delta)
        count += 1
    return delta.apply(base.offset + count, 1, 1000 + count)


def settings(image: MetadataImage, **static: str) -> EffectiveConfig:
    """Settings of a controller; `static` has underscores for dots."""
    names = {name.replace("_", "."): value for name, value in static.items()}
    return EffectiveConfig(names, image.config(ConfigResourceType.BROKER, ""), {})


def one_broker(*records: Any) -> MetadataImage:
    """A cluster of broker 1, alone, with whatever `records` add."""
    return apply(records, apply([*feature_records(), *broker_records(1)], replace(EMPTY_IMAGE, cluster_id="c")))
