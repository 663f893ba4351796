"""The first records of a cluster (Kafka's `ActivationRecordsGenerator`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ottla.controller.decision import Decision
from ottla.metadata import features
from ottla.metadata.image import ConfigResourceType, MetadataImage
from ottla.protocol.schemas import records as r

MIN_ISR = "min.insync.replicas"


def bootstrap(
    image: MetadataImage, levels: Mapping[str, int], static_min_isr: str, more: Sequence[Any] = ()
) -> Decision[None]:
    """Finalize the feature `levels` of a new cluster, and write `more` records that it begins with; without levels,
    nothing."""
    if not levels:
        return Decision(None)
    level = levels.get(features.METADATA_VERSION, features.METADATA_VERSION_MIN)
    first = (features.METADATA_VERSION, level)
    others = [(name, value) for name, value in levels.items() if name != features.METADATA_VERSION]
    records: list[Any] = [r.FeatureLevelRecord(name, value) for name, value in (first, *others)]
    if features.supports_elr(levels):
        records += elr_settings(image, static_min_isr)
    records += more
    if features.supports_metadata_transactions(levels):
        records = [r.BeginTransactionRecord("Bootstrap records"), *records, r.EndTransactionRecord()]
    return Decision(None, records)


def elr_settings(image: MetadataImage, static_min_isr: str) -> Iterator[r.ConfigRecord]:
    """With eligible leader replicas, `min.insync.replicas` must be one value for the whole cluster, since what it means
    for a replica's eligibility may not differ by who leads. So the controller's static value becomes that of the
    cluster, if it has none, and brokers lose theirs (KIP-966)."""
    if MIN_ISR not in image.config(ConfigResourceType.BROKER, ""):
        yield r.ConfigRecord(ConfigResourceType.BROKER, "", MIN_ISR, static_min_isr)
    for resource, configs in sorted(image.configs.items()):
        if resource.type == ConfigResourceType.BROKER and resource.name and MIN_ISR in configs:
            yield r.ConfigRecord(ConfigResourceType.BROKER, resource.name, MIN_ISR, None)
